#include "runtime/notifier.hpp"

#include "base/mutex.hpp"
#include "runtime/call_user.hpp"
#include "runtime/start_thread.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <new>
#include <pthread.h>
#include <thread>
#include <utility>

namespace sallyport::runtime {

struct notifier::shared {
  explicit shared(std::function<void(std::uint64_t)> on_missed) : missed(std::move(on_missed)) {}

  struct item {
    std::function<void()> news;
    std::uint64_t missed_before = 0;  // events that were dropped since the item before this one
  };

  const std::function<void(std::uint64_t)> missed;
  base::mutex mutex;
  std::condition_variable changed;
  std::deque<item> queue SALLYPORT_GUARDED_BY(mutex);
  std::uint64_t queued SALLYPORT_GUARDED_BY(mutex) = 0;
  std::uint64_t finished SALLYPORT_GUARDED_BY(mutex) = 0;
  std::uint64_t missed_last SALLYPORT_GUARDED_BY(mutex) = 0;  // dropped since the last item
  bool stopping SALLYPORT_GUARDED_BY(mutex) = false;
  std::thread thread SALLYPORT_GUARDED_BY(mutex);

  std::error_code start(const std::shared_ptr<shared>& self) noexcept SALLYPORT_REQUIRES(mutex) {
    if (thread.joinable() || stopping) return {};
    return start_thread(thread, [kept = self] { kept->run(); });
  }
  /// False: dropped.
  bool push(std::function<void()>&& news) SALLYPORT_REQUIRES(mutex);
  void run();
};

void notifier::shared::run() {
  pthread_setname_np(pthread_self(), "sally-notifier");
  for (;;) {
    item next;
    {
      const base::mutex_lock held{mutex};
      std::unique_lock<std::mutex> native{mutex.native(), std::adopt_lock};
      while (queue.empty() && missed_last == 0 && !stopping) changed.wait(native);
      native.release();
      if (!queue.empty()) {
        next = std::move(queue.front());
        queue.pop_front();
      } else if (missed_last != 0) {
        next.missed_before = std::exchange(missed_last, 0);
      } else {
        return;
      }
    }
    if (next.missed_before != 0 && missed) call_user([&] { missed(next.missed_before); });
    if (!next.news) continue;
    call_user(next.news);
    next.news = nullptr;  // what it captured dies before anybody is told that it is done
    const base::mutex_lock held{mutex};
    ++finished;
    changed.notify_all();
  }
}

bool notifier::shared::push(std::function<void()>&& news) {
  if (queue.size() >= max_backlog) return false;
  try {
    queue.push_back({std::move(news), missed_last});
  } catch (const std::bad_alloc&) {
    return false;
  }
  missed_last = 0;
  ++queued;
  return true;
}

notifier::notifier(std::function<void(std::uint64_t)> missed)
    : shared_(std::make_shared<shared>(std::move(missed))) {}

notifier::~notifier() { stop(); }

void notifier::stop() {
  std::thread last;
  std::deque<shared::item> forgotten;
  {
    const base::mutex_lock held{shared_->mutex};
    shared_->stopping = true;
    last.swap(shared_->thread);
    if (last.get_id() == std::this_thread::get_id()) {
      forgotten.swap(shared_->queue);
      shared_->missed_last = 0;
    }
    shared_->changed.notify_all();
  }
  if (!last.joinable()) return;
  if (last.get_id() == std::this_thread::get_id()) {
    last.detach();  // it holds the shared part itself and ends after this callback
  } else {
    last.join();
  }
}

std::error_code notifier::start() noexcept {
  const base::mutex_lock held{shared_->mutex};
  return shared_->start(shared_);
}

void notifier::tell(std::function<void()> news) noexcept {
  const base::mutex_lock held{shared_->mutex};
  if (shared_->stopping || !shared_->push(std::move(news))) return;
  shared_->changed.notify_all();
  static_cast<void>(shared_->start(shared_));
}

void notifier::tell_observer(std::function<void()> event) noexcept {
  const base::mutex_lock held{shared_->mutex};
  if (shared_->stopping) return;
  if (!event || !shared_->push(std::move(event))) ++shared_->missed_last;
  shared_->changed.notify_all();
  static_cast<void>(shared_->start(shared_));
}

bool notifier::on_its_thread() const {
  const base::mutex_lock held{shared_->mutex};
  return shared_->thread.get_id() == std::this_thread::get_id();
}

void notifier::flush() {
  const base::mutex_lock held{shared_->mutex};
  if (shared_->thread.get_id() == std::this_thread::get_id()) return;
  const std::uint64_t goal = shared_->queued;
  std::unique_lock<std::mutex> native{shared_->mutex.native(), std::adopt_lock};
  while (shared_->finished < goal) shared_->changed.wait(native);
  native.release();
}

}  // namespace sallyport::runtime
