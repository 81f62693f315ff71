#include "runtime/notifier.hpp"

#include "base/log.hpp"
#include "base/mutex.hpp"

#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <exception>
#include <pthread.h>
#include <string>
#include <thread>

namespace sallyport::runtime {

struct notifier::shared {
  base::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue SALLYPORT_GUARDED_BY(mutex);
  std::uint64_t queued SALLYPORT_GUARDED_BY(mutex) = 0;
  std::uint64_t finished SALLYPORT_GUARDED_BY(mutex) = 0;
  std::uint64_t dropped SALLYPORT_GUARDED_BY(mutex) = 0;
  bool stopping SALLYPORT_GUARDED_BY(mutex) = false;
  std::thread thread SALLYPORT_GUARDED_BY(mutex);

  void run();
};

void notifier::shared::run() {
  pthread_setname_np(pthread_self(), "sally-notifier");
  for (;;) {
    std::function<void()> news;
    {
      const base::mutex_lock held{mutex};
      std::unique_lock<std::mutex> native{mutex.native(), std::adopt_lock};
      while (queue.empty() && !stopping) changed.wait(native);
      native.release();
      if (queue.empty()) return;
      news = std::move(queue.front());
      queue.pop_front();
    }
    try {
      news();
    } catch (const std::exception& problem) {
      base::log(base::log_level::error, std::string("a callback threw: ") + problem.what());
    } catch (...) {
      base::log(base::log_level::error, "a callback threw something that is no std::exception");
    }
    news = nullptr;  // what it captured dies before anybody is told that it is done
    const base::mutex_lock held{mutex};
    ++finished;
    changed.notify_all();
  }
}

notifier::notifier() : shared_(std::make_shared<shared>()) {}

notifier::~notifier() { stop(); }

void notifier::stop() {
  std::thread last;
  std::deque<std::function<void()>> forgotten;
  {
    const base::mutex_lock held{shared_->mutex};
    shared_->stopping = true;
    last.swap(shared_->thread);
    if (last.get_id() == std::this_thread::get_id()) forgotten.swap(shared_->queue);
    shared_->changed.notify_all();
  }
  if (!last.joinable()) return;
  if (last.get_id() == std::this_thread::get_id()) {
    last.detach();  // it holds the shared part itself and ends after this callback
  } else {
    last.join();
  }
}

void notifier::tell(std::function<void()> news) {
  const base::mutex_lock held{shared_->mutex};
  if (shared_->stopping) return;
  if (shared_->queue.size() >= max_backlog) {
    ++shared_->dropped;
    return;
  }
  shared_->queue.push_back(std::move(news));
  ++shared_->queued;
  shared_->changed.notify_all();
  if (!shared_->thread.joinable()) {
    sigset_t all{};
    sigset_t before{};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    shared_->thread = std::thread([kept = shared_] { kept->run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

std::uint64_t notifier::dropped() const {
  const base::mutex_lock held{shared_->mutex};
  return shared_->dropped;
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
