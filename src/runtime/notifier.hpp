#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace sallyport::runtime {

/// The one thread that runs users' code: lost-lock callbacks, observers, elections' observers. A
/// callback that blocks delays the next news, never a renewal.
/// Bounds: at most max_backlog pieces of news wait; beyond that news are dropped and counted. A
/// lease's own valid() and state() never depend on news.
/// Thread safety: all members.
class notifier {
 public:
  static constexpr std::size_t max_backlog = 65'536;

  notifier();
  /// Calls stop().
  ~notifier();
  notifier(const notifier&) = delete;
  notifier& operator=(const notifier&) = delete;

  /// Queues news; starts the thread at the first call.
  void tell(std::function<void()> news);
  /// Runs what is queued, then ends the thread. On the notifier's own thread (the last handle died
  /// in a callback) what is queued is forgotten and the thread ends by itself. News told later are
  /// ignored.
  void stop();
  /// How many pieces of news were dropped.
  [[nodiscard]] std::uint64_t dropped() const;
  /// Waits until all news queued before this call were run; returns at once on the notifier's own
  /// thread.
  void flush();

 private:
  struct shared;
  std::shared_ptr<shared> shared_;  // outlives this object when the thread ends by itself
};

}  // namespace sallyport::runtime
