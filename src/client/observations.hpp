#pragma once

#include "base/mutex.hpp"
#include <sallyport/election.hpp>
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace sallyport::detail {

class client_state;

/// One observer of an election. Its callback runs on the notifier's thread only.
class observation_state : public std::enable_shared_from_this<observation_state> {
 public:
  using callback = std::function<void(const std::optional<leader_info>&)>;

  /// `client` outlives every use of this object but its destruction: the user's handle sees to
  /// that.
  observation_state(client_state& client, lock_name name, callback tell)
      : client_(client), name_(std::move(name)), tell_(std::move(tell)) {}

  [[nodiscard]] const lock_name& name() const noexcept { return name_; }
  /// Reads the present leader and tells if it changed; at most one reading is under way.
  void read();
  /// No callback runs after this returned, and it is destroyed; unless called inside it.
  void end();

 private:
  void heard(const std::optional<leader_info>& leader);

  client_state& client_;
  const lock_name name_;
  callback tell_;  // constant until end()
  base::mutex mutex_;
  bool reading_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool again_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool ended_ SALLYPORT_GUARDED_BY(mutex_) = false;
  bool calling_ SALLYPORT_GUARDED_BY(mutex_) = false;
  std::condition_variable called_;
  // Only on the notifier's thread.
  bool told_once_ = false;
  std::optional<leader_info> last_;
};

/// Who leads, asked of the store once. Throws lock_error.
std::optional<leader_info> read_leader(client_state& client, const lock_name& name);

/// All observers of a client: each is read when its name changed, and at every heartbeat in case
/// that was not heard.
/// Thread safety: all members.
class observations {
 public:
  observations(client_state& owner, std::chrono::milliseconds interval)
      : owner_(owner), interval_(interval) {}

  void add(const std::shared_ptr<observation_state>& which);
  void remove(const observation_state& which);
  void changed(const lock_name& name);
  /// Called by the watchdog.
  void run_due();

 private:
  client_state& owner_;
  const std::chrono::milliseconds interval_;
  base::mutex mutex_;
  std::vector<std::weak_ptr<observation_state>> all_ SALLYPORT_GUARDED_BY(mutex_);
  lease_clock::time_point next_ SALLYPORT_GUARDED_BY(mutex_) = lease_clock::time_point::max();
};

}  // namespace sallyport::detail
