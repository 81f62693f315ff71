#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/requests.hpp"
#include "backends/local/records.hpp"
#include "backends/local/table.hpp"
#include "base/result.hpp"
#include <sallyport/inspect.hpp>
#include <sallyport/types.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// The rules of locking over a table of records. Pure: what the kernel, the clock and the disk say
/// comes in through the interfaces below.
namespace sallyport::backends::local {

/// The kernel's word on other processes.
class liveness {
 public:
  liveness() = default;
  liveness(const liveness&) = delete;
  liveness& operator=(const liveness&) = delete;
  virtual ~liveness() = default;
  /// Whether every process behind this client has ended, or the client was closed. False when
  /// nobody can tell: then only time ends what it holds. `inside` has the client's record.
  virtual bool dead(client_number who, table& inside) = 0;
};

/// Where the tokens come from.
class token_reserve {
 public:
  token_reserve() = default;
  token_reserve(const token_reserve&) = delete;
  token_reserve& operator=(const token_reserve&) = delete;
  virtual ~token_reserve() = default;
  /// Puts on record, so that a power cut does not undo it, that tokens up to some number above
  /// `beyond` may have been used; returns that number.
  virtual base::result<std::uint64_t> reserve(std::uint64_t beyond) = 0;
};

enum class notice_kind : std::uint8_t {
  granted,  ///< the queue was served: this waiter holds the lock now, provisionally
  look,     ///< what stands before this waiter has changed: ask again
  lost,     ///< this holder's grant was broken
  changed   ///< a watched name has other holders or another value
};

/// What another client is to be told.
struct notice {
  client_number client = 0;
  notice_kind kind = notice_kind::changed;
  holder_id holder;                           ///< all but changed
  std::optional<backend_api::granted> grant;  ///< granted
  std::string name;                           ///< changed

  friend bool operator==(const notice&, const notice&) = default;
};

/// An answer, and what the client has to remember and to watch until it asks again.
template <class Answer>
struct placed {
  Answer answer;
  contender_number number = 0;  ///< its place; 0: it has none
  /// Waiting only: the clients whose death would bring it forward.
  std::vector<client_number> in_the_way{};
};

/// Numbers that leave a remainder when they are divided; by default all.
struct number_slot {
  std::uint64_t divisor = 1;
  std::uint64_t remainder = 0;
};

/// One client of the store, as it stands on record.
struct listed_client {
  client_number number = 0;
  client_record record;
};

/// For how many waiters of a name one transaction does something: everybody else stands at the gate
/// meanwhile.
inline constexpr std::size_t most_waiters_at_once = 128;

/// One transaction. Every operation first settles its name: what has lapsed goes, and the queue is
/// served: while its head is compatible with the holders it becomes one, provisionally, for its
/// claim window. That ends after most_waiters_at_once; `unserved` has the names then, and whoever
/// committed the transaction goes on with them in others. Should it die before, the first of those
/// who are left was told to look.
///
/// Deaths. Each waiter watches the process of the waiter before it, the head of the queue those of
/// the holders: `in_the_way`. At a mutex a hand-off changes nothing of that, because the waiter in
/// front becomes the holder. Wherever else the picture changes behind a waiter's back it is sent
/// `look`. Who asks is also the one who removes the dead: a waiter those right before it, anybody
/// who is kept out the dead holders. Nobody else looks, so a hand-off costs no system call.
///
/// `known` is the number under which the asking client remembers the contender; 0: none.
///
/// Thread safety: none. Call finish() before the transaction is committed.
/// Invariants: (1) and (2) as those of memory's lock_table, (3) a token is drawn only below the
/// durable reserve, (4) numbers and tokens only grow.
class lock_rules {
 public:
  struct world {
    table& records;
    liveness& kernel;
    token_reserve& reserve;
    time_point now;
    std::vector<notice>& notices;
    std::string_view host{};  ///< for `who`
    std::size_t most_waiters = most_waiters_at_once;
  };

  explicit lock_rules(const world& around) : world_(around) {}
  lock_rules(const lock_rules&) = delete;
  lock_rules& operator=(const lock_rules&) = delete;

  /// Writes what every fresh store begins with. Tokens begin above `floor`.
  static void initialise(table& records, std::uint64_t floor);

  /// `slot`: the number is to leave this remainder; for clients whose number leads to something.
  client_number add_client(const client_record& who, std::string_view label, number_slot slot = {});
  /// False: there was none. What it held and waited for is then taken for a dead client's.
  bool remove_client(client_number who);

  base::result<placed<backend_api::acquire_answer>> acquire(
      const backend_api::acquire_request& request, client_number from, contender_number known);
  placed<backend_api::renew_answer> renew(const backend_api::renew_request& request,
                                          contender_number known);
  backend_api::leave_answer release(const backend_api::leave_request& request,
                                    contender_number known);
  backend_api::leave_answer withdraw(const backend_api::leave_request& request,
                                     contender_number known);
  base::result<placed<backend_api::renew_answer>> downgrade(
      const backend_api::renew_request& request, contender_number known);
  bool set_value(const backend_api::renew_request& holder, std::string_view value,
                 contender_number known);
  base::result<std::monostate> break_lock(const lock_name& name, fencing_token observed,
                                          backend_api::break_mode mode);

  // As in backend; the dead are not shown.
  std::optional<lock_info> who(const lock_name& name) { return describe(name.text()); }
  std::vector<lock_info> list(std::string_view prefix, std::string_view after, std::size_t limit);

  void watch(client_number client, const lock_name& name, bool on);

  /// Goes on serving one of `unserved`.
  void serve_on(std::string_view name);
  /// Removes what lapsed and what the dead left, from up to `limit` names after `after`, and reminds
  /// those whom the dead may not have told any more; returns the last name it has done with, nothing
  /// when there are no more.
  std::optional<std::string> sweep(std::string_view after, std::size_t limit);
  /// Up to `limit` clients, beginning at a random place: for who looks for the dead among them. That
  /// is asked of the kernel afterwards, outside: the dead do not come back.
  std::vector<listed_client> some_clients(std::uint64_t random, std::size_t limit);

  /// Writes back what the operations left in hand.
  void finish();
  /// Whether anything was changed: if not, the transaction may be dropped instead of committed.
  [[nodiscard]] bool changed_anything() const noexcept { return changed_anything_; }
  /// Names whose queue was not served to its end.
  [[nodiscard]] const std::vector<std::string>& unserved() const noexcept { return unserved_; }
  /// The answer would call a lock held, or used as another kind, before which perhaps only lapsed
  /// waiters stand: drop it, and ask again when `unserved` is served.
  [[nodiscard]] bool ask_again() const noexcept { return ask_again_; }

 private:
  class operation;

  meta_record& meta();
  meta_record& change_meta();
  backend_api::token_block draw(std::uint32_t count);
  void put(std::string_view key, std::initializer_list<std::string_view> parts);
  void remove(std::string_view key);
  std::optional<lock_info> describe(std::string_view name);
  /// False: this transaction has done something for as many waiters as it may.
  bool serves_one_more() noexcept;

  world world_;
  std::optional<meta_record> meta_;
  bool meta_changed_ = false;
  bool changed_anything_ = false;
  std::size_t waiters_served_ = 0;
  std::vector<std::string> unserved_;
  bool ask_again_ = false;
};

/// How many holders of one name are looked at for death, and watched, at a time: the rest is found
/// when those have gone, or by time.
inline constexpr std::size_t most_holders_watched = 64;

}  // namespace sallyport::backends::local
