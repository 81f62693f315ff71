#include "client/lock_core.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace sallyport::detail {

void thread_holds::push(lease held) {
  const base::mutex_lock locked{mutex_};
  all_.emplace_back(std::this_thread::get_id(), std::move(held));
}

lease thread_holds::pop() {
  const base::mutex_lock locked{mutex_};
  const auto mine = std::find_if(all_.rbegin(), all_.rend(), [](const auto& each) {
    return each.first == std::this_thread::get_id();
  });
  SALLYPORT_CHECK(mine != all_.rend());
  lease held = std::move(mine->second);
  all_.erase(std::next(mine).base());
  return held;
}

std::optional<lease_view> thread_holds::newest() const {
  const base::mutex_lock locked{mutex_};
  const auto mine = std::find_if(all_.rbegin(), all_.rend(), [](const auto& each) {
    return each.first == std::this_thread::get_id();
  });
  if (mine == all_.rend()) return std::nullopt;
  return mine->second.view();
}

std::optional<lease> lock_core::wait(lease_clock::time_point until, const std::stop_token& stop,
                                     std::string_view value, std::error_code& error) noexcept {
  auto record = client_->acquire(spec_, until, stop, value, error);
  if (!record) return std::nullopt;
  return client_->make_lease(std::move(record));
}

bool lock_core::lock_until(lease_clock::time_point until) {
  std::error_code error;
  auto got = wait(until, {}, {}, error);
  if (error) throw_failure(error);
  if (!got) return false;
  holds_.push(std::move(*got));
  return true;
}

void lock_core::unlock() noexcept {
  // Out of the list first, released after: the next holder may be a thread that locks at once.
  lease held = holds_.pop();
  static_cast<void>(held.release());
}

}  // namespace sallyport::detail
