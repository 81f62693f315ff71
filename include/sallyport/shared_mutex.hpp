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

/// Many readers or one writer. FIFO: a reader that comes after a waiting writer waits behind it, so
/// writers do not starve; readers that stand next to each other enter together. A writer becomes a
/// reader by lease::downgrade(); there is no way up, because two readers that both want it would
/// wait for each other for ever. The writer's calls are those of mutex; the reader's carry `shared`
/// in their names. A reader's token is larger than every earlier writer's and smaller than every
/// later one's. Models Cpp17SharedTimedLockable. Thread safety: all members.
class shared_mutex : public detail::acquiring<shared_mutex> {
 public:
  shared_mutex(const client& store, const lock_name& name, const lock_options& options = {});
  ~shared_mutex();
  shared_mutex(const shared_mutex&) = delete;
  shared_mutex& operator=(const shared_mutex&) = delete;

  [[nodiscard]] const lock_name& name() const noexcept;

  [[nodiscard]] lease acquire_shared() { return readers().acquire(); }
  [[nodiscard]] std::optional<lease> acquire_shared(std::stop_token stop) {
    return readers().acquire(std::move(stop));
  }
  [[nodiscard]] std::optional<lease> acquire_shared(std::error_code& error) noexcept {
    return readers().acquire(error);
  }
  [[nodiscard]] std::optional<lease> acquire_shared(std::stop_token stop,
                                                    std::error_code& error) noexcept {
    return readers().acquire(std::move(stop), error);
  }
  [[nodiscard]] std::optional<lease> try_acquire_shared() { return readers().try_acquire(); }
  [[nodiscard]] std::optional<lease> try_acquire_shared(std::error_code& error) noexcept {
    return readers().try_acquire(error);
  }
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_acquire_shared_for(
      const std::chrono::duration<Rep, Period>& wait, std::stop_token stop = {}) {
    return readers().try_acquire_for(wait, std::move(stop));
  }
  template <class Rep, class Period>
  [[nodiscard]] std::optional<lease> try_acquire_shared_for(
      const std::chrono::duration<Rep, Period>& wait, std::stop_token stop,
      std::error_code& error) noexcept {
    return readers().try_acquire_for(wait, std::move(stop), error);
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_acquire_shared_until(
      const std::chrono::time_point<Clock, Duration>& deadline, std::stop_token stop = {}) {
    return readers().try_acquire_until(deadline, std::move(stop));
  }
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<lease> try_acquire_shared_until(
      const std::chrono::time_point<Clock, Duration>& deadline, std::stop_token stop,
      std::error_code& error) noexcept {
    return readers().try_acquire_until(deadline, std::move(stop), error);
  }

  /// The reader's side as a lock of its own, whose acquire() is acquire_shared(): for with_lock.
  class reader_side : public detail::acquiring<reader_side> {
   public:
    explicit reader_side(shared_mutex& owner) noexcept : owner_(owner) {}

   private:
    friend class detail::acquiring<reader_side>;
    [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                            std::error_code& error) noexcept;
    shared_mutex& owner_;
  };
  /// Good for as long as the mutex lives.
  [[nodiscard]] reader_side readers() noexcept { return reader_side{*this}; }

  void lock();
  [[nodiscard]] bool try_lock();
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_until(lock_mode::exclusive, detail::from_now(wait));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_until(lock_mode::exclusive, detail::on_lease_clock(deadline));
  }
  void unlock() noexcept;
  void lock_shared();
  [[nodiscard]] bool try_lock_shared();
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& wait) {
    return lock_until(lock_mode::shared, detail::from_now(wait));
  }
  template <class Clock, class Duration>
  [[nodiscard]] bool try_lock_shared_until(
      const std::chrono::time_point<Clock, Duration>& deadline) {
    return lock_until(lock_mode::shared, detail::on_lease_clock(deadline));
  }
  void unlock_shared() noexcept;
  /// The lease behind the calling thread's lock() or lock_shared(), if it has one.
  [[nodiscard]] std::optional<lease_view> current() const;

 private:
  friend class detail::acquiring<shared_mutex>;
  [[nodiscard]] std::optional<lease> wait(lease_clock::time_point until, std::stop_token stop,
                                          std::error_code& error) noexcept;
  [[nodiscard]] bool lock_until(lock_mode mode, lease_clock::time_point until);

  std::unique_ptr<detail::lock_core> writer_;
  std::unique_ptr<detail::lock_core> reader_;
};

}  // namespace sallyport
