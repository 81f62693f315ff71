#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/client.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/options.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>

namespace sallyport {

namespace detail {
class permit_core;
}

/// N permits: at most N leases of one name at a time, FIFO. Each permit is a lease of its own:
/// renewed, lost and released like any other, but without a fencing token. The N of whoever came
/// first is in force while the name is in use; contenders that believe in another N are told by
/// permits().
/// Thread safety: all members.
class semaphore : public detail::acquiring<semaphore> {
 public:
  /// Throws lock_error bad_option unless 1 <= permits <= max_permits.
  semaphore(const client& store, const lock_name& name, std::uint32_t permits,
            const lock_options& options = {});
  ~semaphore();
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;

  static constexpr std::uint32_t max_permits = 1'000'000;

  [[nodiscard]] const lock_name& name() const noexcept;
  /// The N in force, as the store told at this object's latest grant; before that, the N it was
  /// made with.
  [[nodiscard]] std::uint32_t permits() const noexcept;

 private:
  friend class detail::acquiring<semaphore>;
  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                          std::error_code& error) noexcept;

  std::unique_ptr<detail::permit_core> core_;
};

}  // namespace sallyport
