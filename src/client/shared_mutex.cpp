#include "client/lock_core.hpp"
#include <sallyport/shared_mutex.hpp>

namespace sallyport {

shared_mutex::shared_mutex(const client& store, const lock_name& name, const lock_options& options)
    : writer_(std::make_unique<detail::lock_core>(store, name, lock_kind::shared_mutex,
                                                  lock_mode::exclusive, 1U, options)),
      reader_(std::make_unique<detail::lock_core>(store, name, lock_kind::shared_mutex,
                                                  lock_mode::shared, 1U, options)) {}

shared_mutex::~shared_mutex() = default;

const lock_name& shared_mutex::name() const noexcept { return writer_->spec().name; }

std::optional<lease> shared_mutex::wait(lease_clock::time_point until, std::stop_token stop,
                                        std::error_code& error) noexcept {
  return writer_->wait(until, stop, {}, error);
}

std::optional<lease> shared_mutex::reader_side::wait(lease_clock::time_point until,
                                                     std::stop_token stop,
                                                     std::error_code& error) noexcept {
  return owner_.reader_->wait(until, stop, {}, error);
}

bool shared_mutex::lock_until(lock_mode mode, lease_clock::time_point until) {
  return (mode == lock_mode::exclusive ? *writer_ : *reader_).lock_until(until);
}

void shared_mutex::lock() {
  static_cast<void>(writer_->lock_until(lease_clock::time_point::max()));
}
bool shared_mutex::try_lock() { return writer_->lock_until(lease_clock::time_point::min()); }
void shared_mutex::unlock() noexcept { writer_->unlock(); }
void shared_mutex::lock_shared() {
  static_cast<void>(reader_->lock_until(lease_clock::time_point::max()));
}
bool shared_mutex::try_lock_shared() { return reader_->lock_until(lease_clock::time_point::min()); }
void shared_mutex::unlock_shared() noexcept { reader_->unlock(); }

std::optional<lease_view> shared_mutex::current() const {
  auto writing = writer_->holds().newest();
  return writing ? writing : reader_->holds().newest();
}

}  // namespace sallyport
