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
class recursive_core;
}

/// A mutex that the thread which holds it may enter again. Entries are counted in this object; the
/// store sees one grant. Every re-entry checks that the lease is still valid: if not, it throws
/// lock_error (lease_lost) instead of letting you in. A re-entry returns a lease of its own with
/// the same token; the lock goes back to the store when the last of them ends, in whatever order
/// and on whatever thread.
/// Thread safety: all members.
class recursive_mutex : public detail::acquiring<recursive_mutex> {
 public:
  recursive_mutex(const client& store, const lock_name& name, const lock_options& options = {});
  ~recursive_mutex();
  recursive_mutex(const recursive_mutex&) = delete;
  recursive_mutex& operator=(const recursive_mutex&) = delete;

  [[nodiscard]] const lock_name& name() const noexcept;

  void lock();
  [[nodiscard]] bool try_lock();
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_until(detail::from_now(wait));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_until(detail::on_lease_clock(deadline));
  }
  /// Ends the calling thread's newest lock().
  void unlock() noexcept;
  [[nodiscard]] std::optional<lease_view> current() const;
  /// How often the present owner is in.
  [[nodiscard]] std::uint32_t depth() const;

 private:
  friend class detail::acquiring<recursive_mutex>;
  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                          std::error_code& error) noexcept;
  [[nodiscard]] bool lock_until(lease_clock::time_point until);

  std::unique_ptr<detail::recursive_core> core_;
};

}  // namespace sallyport
