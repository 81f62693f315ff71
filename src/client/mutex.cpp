#include "client/lock_core.hpp"
#include <sallyport/mutex.hpp>

namespace sallyport {

mutex::mutex(const client& store, const lock_name& name, const lock_options& options)
    : core_(std::make_unique<detail::lock_core>(store, name, lock_kind::mutex, lock_mode::exclusive,
                                                1U, options)) {}

mutex::~mutex() = default;

const lock_name& mutex::name() const noexcept { return core_->spec().name; }

std::optional<lease> mutex::wait(lease_clock::time_point until, std::stop_token stop,
                                 std::error_code& error) noexcept {
  return core_->wait(until, stop, {}, error);
}

void mutex::lock() { static_cast<void>(lock_until(lease_clock::time_point::max())); }
bool mutex::try_lock() { return lock_until(lease_clock::time_point::min()); }
bool mutex::lock_until(lease_clock::time_point until) { return core_->lock_until(until); }
void mutex::unlock() noexcept { core_->unlock(); }
std::optional<lease_view> mutex::current() const { return core_->holds().newest(); }

}  // namespace sallyport
