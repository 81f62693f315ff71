#include "runtime/threads.hpp"

#include "base/random.hpp"
#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <span>
#include <utility>

namespace sallyport::runtime {
namespace {

/// A loss whose thread could not be started is tried again this often.
constexpr duration loss_retry = std::chrono::milliseconds{100};

}  // namespace

time_point threads::now() const { return lease_clock::now(); }

backend_api::holder_id threads::new_holder_id() {
  if (ids_left_ == 0) {
    base::fill_from_kernel(std::as_writable_bytes(std::span{fresh_ids_}));
    ids_left_ = fresh_ids_.size();
  }
  // An id is a capability: it does not stay behind in the block.
  return std::exchange(fresh_ids_[--ids_left_], backend_api::holder_id{});
}

std::error_code threads::start_timers() noexcept {
  if (timers_started_.load(std::memory_order_relaxed)) return {};
  const std::error_code problem = watchdog_.start();
  if (!problem) timers_started_.store(true, std::memory_order_relaxed);
  return problem;
}

std::error_code threads::start_news() noexcept {
  if (news_started_.load(std::memory_order_relaxed)) return {};
  const std::error_code problem = notifier_.start();
  if (!problem) news_started_.store(true, std::memory_order_relaxed);
  return problem;
}

void threads::tell_lost(lost_turns lost) noexcept {
  // Whoever had a lease has the watchdog's thread already: it tries again.
  if (!losses_.tell(std::move(lost))) watchdog_.wake_at(now() + loss_retry);
}

void threads::announce_losses() {
  if (!losses_.start()) watchdog_.wake_at(now() + loss_retry);
}

}  // namespace sallyport::runtime
