#include "client/reentry.hpp"
#include <sallyport/recursive_mutex.hpp>

namespace sallyport {

recursive_mutex::recursive_mutex(const client& store, const lock_name& name,
                                 const lock_options& options)
    : core_(std::make_unique<detail::recursive_core>(store, name, options)) {}

recursive_mutex::~recursive_mutex() = default;

const lock_name& recursive_mutex::name() const noexcept { return core_->lock().spec().name; }

std::optional<lease> recursive_mutex::wait(lease_clock::time_point until, std::stop_token stop,
                                           std::error_code& error) noexcept {
  return core_->wait(until, stop, error);
}

bool recursive_mutex::lock_until(lease_clock::time_point until) {
  std::error_code error;
  auto got = core_->wait(until, {}, error);
  if (error) detail::throw_failure(error);
  if (!got) return false;
  core_->lock().holds().push(std::move(*got));
  return true;
}

void recursive_mutex::lock() { static_cast<void>(lock_until(lease_clock::time_point::max())); }
bool recursive_mutex::try_lock() { return lock_until(lease_clock::time_point::min()); }
void recursive_mutex::unlock() noexcept { core_->lock().unlock(); }
std::optional<lease_view> recursive_mutex::current() const {
  return core_->lock().holds().newest();
}
std::uint32_t recursive_mutex::depth() const { return core_->depth(); }

}  // namespace sallyport
