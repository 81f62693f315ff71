#pragma once

#include "backend_api/backend.hpp"
#include "backends/redis/keys.hpp"
#include "backends/redis/reply.hpp"
#include "backends/redis/wire.hpp"
#include "base/result.hpp"
#include <sallyport/inspect.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// What is said to a Redis server and what its answers mean. Pure: no connection, no clock.
namespace sallyport::backends::redis {

/// The scripts of scripts/*.lua; written by CMake.
namespace scripts {
extern const script_source acquire;
extern const script_source acquire_many;
extern const script_source beat;
extern const script_source break_lock;
extern const script_source downgrade;
extern const script_source leave;
extern const script_source leave_many;
extern const script_source raise;
extern const script_source renew;
extern const script_source renew_many;
extern const script_source set_value;
extern const script_source who;
}  // namespace scripts

/// Where the tickets of a name begin.
inline constexpr std::string_view first_page = "-inf";
/// Of a longer queue only these are shown.
inline constexpr std::size_t most_tickets_shown = 10'000;
/// How many names one call of `who` may be for: the server does nothing else meanwhile.
inline constexpr std::size_t most_names_asked = 128;

/// How requests become commands, for one client. Immutable.
/// Thread safety: all members.
class protocol {
 public:
  struct settings {
    std::string prefix;    ///< stands before every name
    bool cluster = false;  ///< side keys share the lock key's slot, notices are sharded
    std::string client;    ///< who hears notices: 16 hexadecimal digits, fresh for every client
    backend_api::owner_info owner{};
    bool asks_store_name = false;  ///< false: it is given by hand, or nobody needs it
  };

  explicit protocol(settings how);

  /// `known`: an earlier request of this contender may have reached the store. An unknown one is
  /// spared the search for itself.
  [[nodiscard]] wire_command acquire(const backend_api::acquire_request& request, bool known) const;
  /// The heartbeats of several waiters at once. REQUIRES: may_beat() for each.
  [[nodiscard]] wire_command beat(std::span<const backend_api::acquire_request> batch) const;
  /// Whether this is the heartbeat of a waiter that can travel with others.
  [[nodiscard]] bool may_beat(const backend_api::acquire_request& request) const noexcept;
  [[nodiscard]] wire_command renew(const backend_api::renew_request& request) const;
  [[nodiscard]] wire_command leave(const backend_api::leave_request& request, bool withdraw) const;
  [[nodiscard]] wire_command downgrade(const backend_api::renew_request& request) const;
  [[nodiscard]] wire_command set_value(const backend_api::renew_request& holder,
                                       std::string_view value) const;
  [[nodiscard]] wire_command break_lock(const lock_name& name, fencing_token observed,
                                        backend_api::break_mode mode) const;
  /// Everything about these names. `also_foreign`: a key of another library is something, too. Of a
  /// single name the next page can be asked for: lock_view::next_page.
  /// REQUIRES: in a cluster they share a slot.
  [[nodiscard]] wire_command who(std::span<const std::string> names, bool also_foreign,
                                 std::string_view page = first_page) const;
  /// Raises the counter of the slot of no name to the server's clock.
  [[nodiscard]] wire_command raise() const;
  /// Does so, and asks for the store's name, which is `fresh_name` from then on if it has none.
  [[nodiscard]] wire_command raise_and_name(std::string_view fresh_name) const;
  /// Where the store's name is kept in a cluster: one place for the whole prefix.
  [[nodiscard]] std::uint32_t store_name_slot() const { return place_of({}).slot(); }

  [[nodiscard]] lock_place place_of(std::string_view name) const {
    return {how_.prefix, name, how_.cluster};
  }
  [[nodiscard]] const settings& how() const noexcept { return how_; }
  /// Where this client hears what concerns this name.
  [[nodiscard]] std::string channel_for(const lock_name& name) const {
    return place_of(name.text()).channel_of(how_.client);
  }

 private:
  /// The five keys and the first four arguments of every script that may serve the queue.
  [[nodiscard]] wire_command queue_call(const script_source& script, const lock_place& place,
                                        bool tells_changes) const;

  settings how_;
  std::string card_;  // what who shows of this client: CLIENT PID HOST LABEL and a blank
};

using script_list = std::span<const script_source* const>;
/// Asks which of them the server has.
[[nodiscard]] wire_command which_scripts(script_list scripts);
/// Whether it has this one, by its answer.
[[nodiscard]] bool has_script(script_list scripts, const reply& said, const script_source& which);
/// Gives it those that it lacks; all, if it did not say.
[[nodiscard]] std::vector<wire_command> load_missing(script_list scripts, const reply& said);

/// The key of the counter that this command may draw tokens from; empty: it draws none.
[[nodiscard]] std::string counter_in(const wire_command& command);

/// What the script of this call did not come to, as this answer of it says: a call that goes on with
/// it, and may leave something over in its turn. Nothing: it came to all.
[[nodiscard]] std::optional<wire_command> rest_to_serve(const wire_command& asked,
                                                        const reply& said);
/// An acquire that many others stood in the way of: nothing was done for its contender, and it is to be
/// sent again at once.
[[nodiscard]] bool undecided(const reply& said);

/// Every decoder turns the server's own errors, and answers that it does not understand, into a
/// failure.
/// `draw` in [0, 1) spreads the questions of those who wait for a foreign holder.
[[nodiscard]] base::result<backend_api::acquire_answer> acquire_answer_of(const reply& said,
                                                                          double draw);
[[nodiscard]] base::result<backend_api::renew_answer> renew_answer_of(const reply& said);
[[nodiscard]] base::result<backend_api::leave_answer> leave_answer_of(const reply& said);
[[nodiscard]] base::result<bool> set_value_answer_of(const reply& said);
/// The store's name in the answer to raise_and_name(); empty: it was not asked for.
[[nodiscard]] base::result<std::string> store_name_of(const reply& said);
[[nodiscard]] base::result<std::monostate> break_answer_of(const reply& said);

/// What is known of a name after some pages of what `who` answers. What lives is told by the server's
/// own clock, which is part of each answer.
struct lock_view {
  lock_info info;
  std::string next_page{first_page};  ///< empty: there is none
  std::size_t tickets = 0;            ///< how many were looked at

  /// Nothing: nobody holds it, and nobody waits for it.
  [[nodiscard]] std::optional<lock_info> found() &&;
};
/// Adds a page: of the answer to `who` the element that is for this name.
[[nodiscard]] base::result<std::monostate> add_page(lock_view& seen, const reply& page);
/// A name that has one page only.
[[nodiscard]] base::result<std::optional<lock_info>> who_answer_of(const reply& said,
                                                                   std::string_view name);

/// A server's error as a failure: what will pass is `unavailable`, since no script of ours has done
/// anything when it comes; the rest is `store_refused`, in the server's words.
[[nodiscard]] base::failure failure_of(const reply& error);

/// What a message on a client's channel says.
struct notice {
  backend_api::holder_id holder;
  std::optional<backend_api::granted> grant;  ///< nothing: the grant was taken away
};
/// Nothing: not understood.
[[nodiscard]] std::optional<notice> parse_notice(std::string_view message);

}  // namespace sallyport::backends::redis
