#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>

namespace sallyport::runtime {

/// The thread that runs users' observers, those of elections too. One that blocks delays the next
/// news, never a renewal and never the firing of lost(), which has a thread of its own.
/// Bounds: at most max_backlog pieces of news wait; what comes then is dropped, and of observers'
/// events it is counted. An observer hears of the gap in its place: after the last event before it,
/// before the first one after it.
/// Thread safety: all members.
class notifier {
 public:
  static constexpr std::size_t max_backlog = 65'536;

  /// `missed` (may be empty) runs on the notifier's thread, with the number of events that were
  /// dropped in one place.
  explicit notifier(std::function<void(std::uint64_t)> missed = {});
  /// Calls stop().
  ~notifier();
  notifier(const notifier&) = delete;
  notifier& operator=(const notifier&) = delete;

  /// Sees to it that the thread runs. An error: the process may have no more threads; the next call
  /// tries again.
  [[nodiscard]] std::error_code start() noexcept;
  /// Queues news, and calls start().
  void tell(std::function<void()> news) noexcept;
  /// Queues an event, which is counted when it is dropped. An empty one is dropped.
  void tell_observer(std::function<void()> event) noexcept;
  /// Runs what is queued, then ends the thread. On the notifier's own thread (the last handle died
  /// in a callback) what is queued is forgotten and the thread ends by itself. News told later are
  /// ignored.
  void stop();
  /// Whether the caller is inside news.
  [[nodiscard]] bool on_its_thread() const;
  /// Waits until all news queued before this call were run; returns at once on the notifier's own
  /// thread.
  void flush();

 private:
  struct shared;
  std::shared_ptr<shared> shared_;  // outlives this object when the thread ends by itself
};

}  // namespace sallyport::runtime
