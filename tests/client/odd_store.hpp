#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

/// A store of `memory:` under the scheme `odd`, which keeps its answers back and runs out of memory
/// when a test says so.
namespace sallyport::odd {

/// What all clients of the store do. Thread safety: all members.
class oddities {
 public:
  std::atomic<int> drives_without_memory{0};    ///< so many of the next drive() throw
  std::atomic<int> readings_without_memory{0};  ///< so many of the next who() throw
  std::atomic<int> renewals_without_memory{0};  ///< so many of the next renew() throw
  std::atomic<bool> keeps{false};  ///< requests but acquire and withdraw wait for answer_all()
  std::atomic<bool> lists{true};   ///< false: list() is not supported, as on memcached
  /// Not reached: acquire and who answer `unavailable`.
  std::atomic<bool> away{false};

  void keep(std::function<void()> request);
  [[nodiscard]] std::size_t kept() const;
  /// Takes the oldest request that was kept, to be carried out by calling it.
  [[nodiscard]] std::function<void()> take();
  void answer_all();

 private:
  mutable std::mutex mutex_;
  std::vector<std::function<void()>> kept_;
};

/// Those of the present test.
[[nodiscard]] oddities& present();
/// As they are at the beginning.
void reset();

}  // namespace sallyport::odd
