#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/client.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/options.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>

namespace sallyport {

namespace detail {
class lock_core;
}

/// A named lock that one holder at a time can have, over all processes that use the same store.
///
/// Two ways to use it. `acquire()` and its kin return a lease: an object that carries the fencing
/// token and tells when it was lost. `lock()`/`unlock()` model Cpp17TimedLockable for
/// std::scoped_lock and std::unique_lock; such a hold belongs to the thread that called lock(), and
/// current() shows its lease.
///
/// | this name is ...           | try_acquire() | acquire()                 | try_acquire_for(t) |
/// |----------------------------|---------------|---------------------------|--------------------|
/// | free                       | a lease       | a lease                   | a lease            |
/// | held, here or elsewhere    | empty         | waits its turn            | empty after t      |
/// | held by the calling thread | empty         | waits for itself (*)      | empty after t      |
/// | suspect at its holder      | empty         | waits                     | empty after t      |
/// | lost by its holder, lapsed | a lease       | a lease                   | a lease            |
/// | used as another kind       | lock_error: wrong_kind, everywhere                             |||
/// | in a broken store          | lock_error: unavailable or outcome_unknown, never "held"       |||
/// (*) use recursive_mutex
///
/// Threads of one process queue inside it and pass the lock on locally for a bounded number of
/// turns and a bounded time (lock_options::local_turns), each turn with its own, larger token.
/// Thread safety: all members.
class mutex : public detail::acquiring<mutex> {
 public:
  /// Validates name and options: throws lock_error bad_name, bad_option, not_supported.
  mutex(const client& store, const lock_name& name, const lock_options& options = {});
  ~mutex();
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  [[nodiscard]] const lock_name& name() const noexcept;

  /// Cpp17TimedLockable. lock() throws lock_error when the store is broken.
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
  /// Ends the calling thread's hold. A lost lock is not unlocked for its new holder.
  void unlock() noexcept;
  /// The lease behind the calling thread's lock(), if it has one: its token, its deadline, its
  /// lost().
  [[nodiscard]] std::optional<lease_view> current() const;

  /// For the library's own parts.
  [[nodiscard]] detail::lock_core& core() const noexcept { return *core_; }

 private:
  friend class detail::acquiring<mutex>;
  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                          std::error_code& error) noexcept;
  [[nodiscard]] bool lock_until(lease_clock::time_point until);

  std::unique_ptr<detail::lock_core> core_;
};

}  // namespace sallyport
