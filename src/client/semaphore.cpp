#include "client/lock_core.hpp"
#include "runtime/lease_record.hpp"
#include <sallyport/semaphore.hpp>

#include <atomic>

namespace sallyport {

namespace detail {

/// A lock_core that remembers the N the store told.
class permit_core : public lock_core {
 public:
  using lock_core::lock_core;
  std::atomic<std::uint32_t> told{0};
};

}  // namespace detail

semaphore::semaphore(const client& store, const lock_name& name, std::uint32_t permits,
                     const lock_options& options) {
  // A store without semaphores says so, whatever the number.
  core_ = std::make_unique<detail::permit_core>(store, name, lock_kind::semaphore,
                                                lock_mode::exclusive, permits, options);
  if (permits == 0 || permits > max_permits) {
    throw lock_error(make_error_code(errc::bad_option), "a semaphore has 1 to 1,000,000 permits");
  }
  core_->told = permits;
}

semaphore::~semaphore() = default;

const lock_name& semaphore::name() const noexcept { return core_->spec().name; }
std::uint32_t semaphore::permits() const noexcept { return core_->told; }

std::optional<lease> semaphore::wait(lease_clock::time_point until, std::stop_token stop,
                                     std::error_code& error) noexcept {
  auto record = core_->owner().acquire(core_->shared_spec(), until, stop, {}, error);
  if (!record) return std::nullopt;
  core_->told = record->permits;
  return core_->owner().make_lease(std::move(record));
}

}  // namespace sallyport
