#include "runtime/loss_notifier.hpp"

#include "base/mutex.hpp"
#include "runtime/start_thread.hpp"

#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <utility>

namespace sallyport::runtime {

struct loss_notifier::shared {
  base::mutex mutex;
  std::condition_variable changed;
  lost_turns queue SALLYPORT_GUARDED_BY(mutex);
  bool stopping SALLYPORT_GUARDED_BY(mutex) = false;
  std::thread thread SALLYPORT_GUARDED_BY(mutex);

  void run();
};

void loss_notifier::shared::run() {
  for (;;) {
    std::shared_ptr<lease_record> turn;
    {
      const base::mutex_lock held{mutex};
      std::unique_lock<std::mutex> native{mutex.native(), std::adopt_lock};
      while (queue.empty() && !stopping) changed.wait(native);
      native.release();
      turn = queue.pop();
    }
    if (!turn) return;
    turn->gone.request_stop();
  }
}

loss_notifier::loss_notifier() : shared_(std::make_shared<shared>()) {}

loss_notifier::~loss_notifier() { stop(); }

bool loss_notifier::tell(lost_turns lost) noexcept {
  {
    const base::mutex_lock held{shared_->mutex};
    shared_->queue.append(std::move(lost));
    shared_->changed.notify_one();
  }
  return start();
}

bool loss_notifier::start() noexcept {
  const base::mutex_lock held{shared_->mutex};
  if (shared_->queue.empty() || shared_->thread.joinable() || shared_->stopping) return true;
  return !start_thread(shared_->thread, [kept = shared_] {
    pthread_setname_np(pthread_self(), "sally-lost");
    kept->run();
  });
}

void loss_notifier::stop() {
  std::thread last;
  {
    const base::mutex_lock held{shared_->mutex};
    shared_->stopping = true;
    last.swap(shared_->thread);
    shared_->changed.notify_one();
  }
  if (!last.joinable()) {
    shared_->run();  // nobody else fires what no thread could be had for
  } else if (last.get_id() == std::this_thread::get_id()) {
    last.detach();  // it holds the shared part itself
  } else {
    last.join();
  }
}

}  // namespace sallyport::runtime
