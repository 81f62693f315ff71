#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/delivery_gate.hpp"
#include "backend_api/hearing.hpp"
#include "backends/memcached/address.hpp"
#include "backends/memcached/connection.hpp"
#include "backends/memcached/errand.hpp"
#include "backends/memcached/server_facts.hpp"
#include "base/mutex.hpp"
#include "base/random.hpp"
#include "net/pump.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace sallyport::backends::memcached {

/// One open client of a memcached server: carries errands over one connection, and tells what came
/// of them.
///
/// It has no thread: the pump is run by a caller that blocks anyway, or by the runtime's watchdog.
/// Thread safety: all members. The listener is called with a pass of the gate and without a mutex;
/// it may close the session.
class session final : public std::enable_shared_from_this<session>,
                      public connection::owner,
                      private backend_api::ear {
 public:
  /// Waits for the first connection, but not for long: a store that can't be reached is an open
  /// client whose requests are answered `unavailable`. One that refuses us is a failure.
  static base::result<std::shared_ptr<session>> open(const backend_api::open_request& request);
  /// Use open().
  session(address where, const backend_api::open_request& request,
          std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention);

  [[nodiscard]] const sallyport::capabilities& capabilities() const { return capabilities_; }

  void acquire(const backend_api::acquire_request& request) SALLYPORT_EXCLUDES(mutex_);
  void acquire_all(std::span<const backend_api::acquire_request> batch);
  void renew(std::span<const backend_api::renew_request> batch) SALLYPORT_EXCLUDES(mutex_);
  void leave(const backend_api::leave_request& request, bool withdraw) SALLYPORT_EXCLUDES(mutex_);
  void downgrade(const backend_api::renew_request& request);
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done);
  void watch(const lock_name& /*name*/, bool /*on*/) {}  // memcached tells nothing
  void list(std::string_view prefix, std::string_view after, std::size_t limit,
            const backend_api::completion<std::vector<lock_info>>& done);
  void who(const lock_name& name, backend_api::completion<std::optional<lock_info>> done);
  void break_lock(const lock_name& name, fencing_token observed, backend_api::break_mode mode,
                  backend_api::completion<std::monostate> done);

  backend_api::drive_outcome drive(backend_api::drive_ticket& ticket, time_point deadline) {
    const auto alive = shared_from_this();
    return hearing_.drive(ticket, deadline);
  }
  [[nodiscard]] int attention_fd() const noexcept { return hearing_.attention_fd(); }
  void attend() {
    const auto alive = shared_from_this();
    hearing_.attend();
  }
  void close();

  // connection::owner
  base::result<std::monostate> greeted(const server_facts& said) override
      SALLYPORT_EXCLUDES(mutex_);
  void connected() override SALLYPORT_EXCLUDES(mutex_);
  void disconnected(const base::failure& why) override SALLYPORT_EXCLUDES(mutex_);

  /// How many keys are left to others at the same time; more are not.
  static constexpr std::size_t most_yielded = 1024;
  /// How long set_value, who and break_lock wait.
  static constexpr duration housekeeping_patience = std::chrono::seconds{5};

 private:
  template <class Errand>
  class carried;
  /// Called with the errand when it is over, with the trouble, if any, and with the number of the
  /// connection that the last answer came over.
  template <class Errand>
  using ending_of = std::function<void(Errand&, std::optional<base::failure>, std::uint64_t)>;

  /// What is known of a contender between its requests.
  struct standing {
    std::optional<grant_memory> grant;
    std::uint64_t connection = 0;  // where `grant` was heard
    unsigned polls = 0;            // answers "waiting" in a row
    bool asking = false;           // an acquire is under way
    bool renewed = false;          // held for long: it is told at once when the connection breaks
  };

  // ear
  bool hear(time_point deadline) override;
  void ring() noexcept override { pump_->ring(); }
  [[nodiscard]] backend_api::urgency unfinished() override SALLYPORT_EXCLUDES(mutex_);

  base::result<std::monostate> connect();
  void wait_for_first_connection() SALLYPORT_EXCLUDES(mutex_);
  template <class Errand>
  void carry(std::unique_ptr<Errand> what, time_point answer_by, std::uint64_t bound_to,
             ending_of<Errand> done);
  [[nodiscard]] record card_for(const backend_api::acquire_request& request) const;
  /// The grant, if it was heard on the connection that there is now; and that one's number.
  std::optional<grant_memory> known(const backend_api::holder_id& who, std::uint64_t& number)
      SALLYPORT_EXCLUDES(mutex_);
  /// What is left to know of a grant that is given back.
  struct last_words {
    std::uint64_t cas = 0;  // as above, or 0
    bool wanted = false;    // by the last renewal somebody had asked for the lock
  };
  /// Forgets it.
  last_words take_known(const backend_api::holder_id& who, std::uint64_t& number)
      SALLYPORT_EXCLUDES(mutex_);
  /// If it has not left meanwhile.
  void remember(const backend_api::holder_id& who, grant_memory grant, std::uint64_t number,
                bool renewed) SALLYPORT_EXCLUDES(mutex_);
  /// Its acquire is under way, and it has not left since.
  bool still_asking(const backend_api::holder_id& who) SALLYPORT_EXCLUDES(mutex_);
  void forget(const backend_api::holder_id& who) SALLYPORT_EXCLUDES(mutex_);
  void acquired(const backend_api::holder_id& who, acquire_errand& what,
                std::optional<base::failure> trouble, std::uint64_t number);
  void renew_one(const backend_api::renew_request& request);
  void yield(const std::string& key) SALLYPORT_EXCLUDES(mutex_);
  /// For how long others go first; zero: not at all.
  [[nodiscard]] duration yielding(const std::string& key) SALLYPORT_EXCLUDES(mutex_);

  const address address_;
  backend_api::events& listener_;
  const backend_api::owner_info owner_;
  const std::shared_ptr<net::pump> pump_;
  backend_api::hearing hearing_;
  backend_api::delivery_gate gate_;
  std::shared_ptr<connection> connection_;  // constant once open
  sallyport::capabilities capabilities_;    // likewise
  std::atomic<int> long_held_{0};           // contenders whose grant was renewed

  base::mutex mutex_;
  base::random random_ SALLYPORT_GUARDED_BY(mutex_);
  std::unordered_map<backend_api::holder_id, standing> contenders_ SALLYPORT_GUARDED_BY(mutex_);
  /// Keys that others have asked for when we left, and until when they go first.
  std::unordered_map<std::string, time_point> yielded_ SALLYPORT_GUARDED_BY(mutex_);
  std::optional<server_facts> server_ SALLYPORT_GUARDED_BY(mutex_);  // the last that greeted us
  bool restarted_ SALLYPORT_GUARDED_BY(mutex_) = false;  // ... is another process than before
  bool up_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::optional<base::failure> trouble_ SALLYPORT_GUARDED_BY(mutex_);
};

}  // namespace sallyport::backends::memcached
