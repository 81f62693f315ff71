#include "backend_api/drive_ticket.hpp"

#include "base/check.hpp"
#include "base/futex.hpp"

namespace sallyport::backend_api {

void drive_ticket::finish() noexcept {
  std::uint32_t seen = word_.load();
  while ((seen & finished_bit) == 0) {
    if ((seen & driven_bit) != 0) {
      const base::mutex_lock held{mutex_};
      if (waker_ != nullptr) {
        // The driver may destroy the ticket once it sees the bit, but not before end_drive() got
        // this mutex.
        const std::uint32_t before = word_.fetch_or(finished_bit);
        waker_->wake();
        if ((before & waited_for_bit) != 0) base::futex_wake_one(&word_);
        return;
      }
      // It has stopped driving meanwhile and may wait on the word instead: look again.
      seen = word_.load();
      continue;
    }
    if (word_.compare_exchange_weak(seen, seen | finished_bit)) {
      if ((seen & waited_for_bit) != 0) base::futex_wake_one(&word_);
      return;
    }
  }
}

bool drive_ticket::finished() const noexcept { return (word_.load() & finished_bit) != 0; }

void drive_ticket::wait() {
  std::uint32_t seen = word_.fetch_or(waited_for_bit) | waited_for_bit;
  while ((seen & finished_bit) == 0) {
    base::futex_sleep(word_, seen);
    seen = word_.load();
  }
}

bool drive_ticket::wait_for(std::chrono::nanoseconds longest) {
  const std::uint32_t seen = word_.fetch_or(waited_for_bit) | waited_for_bit;
  if ((seen & finished_bit) == 0) base::futex_sleep_for(word_, seen, longest);
  return finished();
}

bool drive_ticket::begin_drive(drive_waker& waker) {
  const base::mutex_lock held{mutex_};
  SALLYPORT_CHECK(waker_ == nullptr);
  waker_ = &waker;
  if ((word_.fetch_or(driven_bit) & finished_bit) == 0) return true;
  waker_ = nullptr;
  word_.fetch_and(~driven_bit);
  return false;
}

void drive_ticket::end_drive() {
  const base::mutex_lock held{mutex_};
  waker_ = nullptr;
  word_.fetch_and(~driven_bit);
}

}  // namespace sallyport::backend_api
