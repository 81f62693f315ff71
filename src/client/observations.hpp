#pragma once

#include "base/mutex.hpp"
#include "base/result.hpp"
#include <sallyport/election.hpp>
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace sallyport::detail {

class client_state;

/// One observer of an election. Its callbacks run on the notifier's thread only.
class observation_state : public std::enable_shared_from_this<observation_state> {
 public:
  /// `client` outlives every use of this object but its destruction: the user's handle sees to
  /// that.
  observation_state(client_state& client, lock_name name, election::leader_callback changed,
                    election::unknown_callback unknown)
      : client_(client),
        name_(std::move(name)),
        changed_(std::move(changed)),
        unknown_(std::move(unknown)) {}

  [[nodiscard]] const lock_name& name() const noexcept { return name_; }
  /// Reads the present leader and tells if it changed, or that it is not known; at most one reading
  /// is under way. One that has taken longer than `patience` counts as failed: the next one takes its
  /// place, and its answer is ignored. One that finds no memory is made again at the next heartbeat.
  void read(lease_clock::duration patience);
  /// No callback runs after this returned, and they are destroyed; unless called inside one.
  void end();

 private:
  /// The reading of this number is over. False: another one has taken its place.
  [[nodiscard]] bool end_reading(std::uint64_t number, bool& again);
  void ask(std::uint64_t number, lease_clock::duration patience);
  void tell_failure(base::failure why);
  void heard(const std::optional<leader_info>& leader);
  void not_heard(const base::failure& why);
  /// Runs `callback` unless the observation has ended.
  template <class Callback>
  void call(const Callback& callback);

  client_state& client_;
  const lock_name name_;
  election::leader_callback changed_;   // constant until end()
  election::unknown_callback unknown_;  // constant until end(); may be empty
  base::mutex mutex_;
  std::uint64_t reading_ SALLYPORT_GUARDED_BY(mutex_) = 0;  // its number; 0: none is under way
  std::uint64_t last_reading_ SALLYPORT_GUARDED_BY(mutex_) = 0;
  lease_clock::time_point reading_since_ SALLYPORT_GUARDED_BY(mutex_);
  bool again_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool ended_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool calling_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::condition_variable called_;
  // Only on the notifier's thread.
  bool told_once_ = false;
  bool told_unknown_ = false;  // and not yet who leads now
  std::optional<leader_info> last_;
};

/// Who leads, asked of the store once.
base::result<std::optional<leader_info>> read_leader(client_state& client, const lock_name& name);

/// All observers of a client: each is read when its name changed, and at every heartbeat in case
/// that was not heard.
/// Thread safety: all members.
class observations {
 public:
  /// Read every `interval`; a reading that takes longer than `patience` has failed.
  observations(client_state& owner, std::chrono::milliseconds interval,
               std::chrono::milliseconds patience)
      : owner_(owner), interval_(interval), patience_(patience) {}

  /// A failure without a code is none.
  [[nodiscard]] base::failure add(const std::shared_ptr<observation_state>& which);
  void remove(const observation_state& which);
  void changed(const lock_name& name);
  /// Called by the watchdog.
  void run_due();

 private:
  client_state& owner_;
  const std::chrono::milliseconds interval_;
  const std::chrono::milliseconds patience_;
  base::mutex mutex_;
  std::vector<std::weak_ptr<observation_state>> all_ SALLYPORT_GUARDED_BY(mutex_);
  lease_clock::time_point next_ SALLYPORT_GUARDED_BY(mutex_) = lease_clock::time_point::max();
};

}  // namespace sallyport::detail
