#pragma once

#include "backends/local/records.hpp"

#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sallyport::backends::local {

/// Whoever can be told by the kernel that a client's processes have ended.
class peer_watcher {
 public:
  peer_watcher() = default;
  peer_watcher(const peer_watcher&) = delete;
  peer_watcher& operator=(const peer_watcher&) = delete;

  /// False: it cannot be watched; whoever waits for it finds out at its next heartbeat.
  virtual bool begin_watching(client_number peer) = 0;
  virtual void end_watching(client_number peer) noexcept = 0;

 protected:
  ~peer_watcher() = default;
};

/// What one client remembers: under which number the store knows each of its contenders, and whose
/// death each of them waits for. Pure.
/// Thread safety: none.
/// Invariant: every client in somebody's way is watched, unless the watcher refused.
class watch_list {
 public:
  /// Peers that nobody waits for any more stay watched up to this number: at a busy lock the same
  /// ones come again at once.
  static constexpr std::size_t most_idle = 64;

  explicit watch_list(peer_watcher& kernel) noexcept : kernel_(kernel) {}

  /// 0: the store knows nothing of this contender.
  [[nodiscard]] contender_number known(const holder_id& who) const;
  /// Makes room for the contender's number, so that remember() can always keep it.
  void expect(const holder_id& who) { contenders_.try_emplace(who); }
  /// Keeps the contender's number, and watches those in its way from now on, instead of those that
  /// were before.
  void remember(const holder_id& who, contender_number number,
                const std::vector<client_number>& in_the_way);
  /// What the store said when the contender left. It is forgotten, unless it was a release that found
  /// nothing: then a ticket may be left, which a withdrawal takes away, and that needs its number.
  void left(const holder_id& who, bool withdrawn, backend_api::leave_answer said);
  void forget(const holder_id& who);
  /// Whether this contender would be told of the peer's death.
  [[nodiscard]] bool watches(const holder_id& who, client_number peer) const;
  [[nodiscard]] bool empty() const noexcept { return contenders_.empty(); }

  /// This peer has ended. It is watched no more; returns who has to look now.
  [[nodiscard]] std::vector<holder_id> died(client_number peer);

 private:
  struct contender {
    contender_number number = 0;
    std::vector<client_number> in_the_way;
  };

  void stop_waiting(const holder_id& who, const std::vector<client_number>& peers);

  peer_watcher& kernel_;
  std::unordered_map<holder_id, contender> contenders_;
  std::unordered_map<client_number, std::unordered_set<holder_id>> watched_;  // by whom
};

}  // namespace sallyport::backends::local
