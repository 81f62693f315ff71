#pragma once

#include <sallyport/acquiring.hpp>
#include <sallyport/lease.hpp>
#include <sallyport/mutex.hpp>

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

namespace sallyport {

/// Several leases that were taken together and end together.
/// Thread safety: const members from any thread.
class lease_set {
 public:
  lease_set(lease_set&&) noexcept;
  lease_set& operator=(lease_set&&) noexcept;
  lease_set(const lease_set&) = delete;
  lease_set& operator=(const lease_set&) = delete;
  /// Releases all, in the reverse order of taking; blocks as ~lease does, for each.
  ~lease_set();

  [[nodiscard]] std::size_t size() const noexcept;
  /// In the order in which the mutexes were given.
  [[nodiscard]] const lease& operator[](std::size_t index) const;
  /// All of them are valid.
  [[nodiscard]] bool valid() const noexcept;
  /// The earliest of all deadlines.
  [[nodiscard]] lease_clock::time_point deadline() const noexcept;
  /// Fires when any of them is lost.
  [[nodiscard]] std::stop_token lost() const;
  void ensure_valid() const;
  void release() noexcept;

 private:
  friend std::optional<lease_set> lock_all_until(std::span<mutex* const>, lease_clock::time_point,
                                                 std::stop_token);
  struct contents;
  explicit lease_set(std::unique_ptr<contents> inside) noexcept;
  std::unique_ptr<contents> inside_;
};

/// Takes all or none, under one deadline: sorted by store and name, so that two callers never wait
/// for each other; returned only while every lease is valid with a third of its length left. Empty:
/// not all could be had in time. A name given twice, or one that this client already holds, throws
/// lock_error would_deadlock instead of waiting for itself.
[[nodiscard]] std::optional<lease_set> lock_all_until(std::span<mutex* const> mutexes,
                                                      lease_clock::time_point deadline,
                                                      std::stop_token stop = {});

/// Waits as long as it takes. Throws lock_error when a store is broken.
template <std::derived_from<mutex>... Mutexes>
[[nodiscard]] lease_set lock_all(Mutexes&... mutexes) {
  const std::array<mutex*, sizeof...(mutexes)> all{&mutexes...};
  return std::move(*lock_all_until(all, lease_clock::time_point::max()));
}
/// Waits until `stop` is requested: then empty.
template <std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> lock_all(std::stop_token stop, Mutexes&... mutexes) {
  const std::array<mutex*, sizeof...(mutexes)> all{&mutexes...};
  return lock_all_until(all, lease_clock::time_point::max(), std::move(stop));
}

/// One try of each, no queue.
template <std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> try_lock_all(Mutexes&... mutexes) {
  const std::array<mutex*, sizeof...(mutexes)> all{&mutexes...};
  return lock_all_until(all, lease_clock::time_point::min());
}

template <class Rep, class Period, std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> try_lock_all_for(
    const std::chrono::duration<Rep, Period>& wait, std::stop_token stop, Mutexes&... mutexes) {
  const std::array<mutex*, sizeof...(mutexes)> all{&mutexes...};
  return lock_all_until(all, detail::from_now(wait), std::move(stop));
}
template <class Rep, class Period, std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> try_lock_all_for(
    const std::chrono::duration<Rep, Period>& wait, Mutexes&... mutexes) {
  return try_lock_all_for(wait, std::stop_token{}, mutexes...);
}

template <class Clock, class Duration, std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> try_lock_all_until(
    const std::chrono::time_point<Clock, Duration>& deadline, std::stop_token stop,
    Mutexes&... mutexes) {
  const std::array<mutex*, sizeof...(mutexes)> all{&mutexes...};
  return lock_all_until(all, detail::on_lease_clock(deadline), std::move(stop));
}
template <class Clock, class Duration, std::derived_from<mutex>... Mutexes>
[[nodiscard]] std::optional<lease_set> try_lock_all_until(
    const std::chrono::time_point<Clock, Duration>& deadline, Mutexes&... mutexes) {
  return try_lock_all_until(deadline, std::stop_token{}, mutexes...);
}

}  // namespace sallyport
