#pragma once

#include "runtime/lost_turns.hpp"

#include <memory>

namespace sallyport::runtime {

/// The thread that fires the lost() tokens of a client's leases, one after the other. It runs users'
/// stop callbacks and nothing else: no observer can hold it up, and it holds up no renewal. A
/// callback that blocks delays the tokens that come after it.
/// Bounds: a turn is lost once and brings its own link, so at most as many wait as there are leases;
/// none is ever dropped, and none needs memory.
/// Thread safety: all members.
class loss_notifier {
 public:
  loss_notifier();
  /// Calls stop().
  ~loss_notifier();
  loss_notifier(const loss_notifier&) = delete;
  loss_notifier& operator=(const loss_notifier&) = delete;

  /// Queues them and calls start().
  [[nodiscard]] bool tell(lost_turns lost) noexcept;
  /// Sees to it that a thread serves what is queued. False: the process may have no more threads;
  /// what is queued waits for the next call.
  [[nodiscard]] bool start() noexcept;
  /// Fires what is queued (here, if no thread could be had), then ends the thread. On its own thread (the last handle died in a
  /// callback) it returns at once; the thread fires what is queued and ends by itself.
  void stop();

 private:
  struct shared;
  std::shared_ptr<shared> shared_;  // outlives this object when the thread ends by itself
};

}  // namespace sallyport::runtime
