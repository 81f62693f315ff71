#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace sallyport::backends::mariadb {

using backend_api::duration;
using backend_api::time_point;

/// The server can't tell a waiter that its turn has come, so waiters ask. How often depends on how many
/// stand before, and on how long it has been since the queue last moved: who has seen it move lately
/// expects it to move again, and who has waited for a minute can wait for half a second more.
///
/// | | a waiter asks again after |
/// |---|---|
/// | the first in line | 2 ms |
/// | one with n before it | (n + 1) x 2 ms |
/// | either, when its place has been the same for t | t / 32, if that is longer |
/// | at most | 500 ms |
///
/// All of it times a random 0.5 to 1. A waiter that is at the head of a queue for a minute has asked
/// about 400 times, most of them in the beginning.
/// `draw`: from 0 to 1.
[[nodiscard]] duration poll_after(std::uint64_t before, duration unmoved, double draw);

inline constexpr duration first_poll = std::chrono::milliseconds{2};
inline constexpr duration longest_poll = std::chrono::milliseconds{500};
inline constexpr int patience_share = 32;

/// Remembers where each waiter of a client stood, and since when.
/// Thread safety: none.
class places {
 public:
  /// A waiter was told how many stand before it. How long that has been so.
  duration told(const backend_api::holder_id& who, std::uint64_t before, time_point now);
  void forget(const backend_api::holder_id& who) { known_.erase(who); }
  [[nodiscard]] std::size_t size() const noexcept { return known_.size(); }

  /// More waiters than this are not remembered: they ask as if their queue moved all the time.
  static constexpr std::size_t most = 100'000;

 private:
  struct place {
    std::uint64_t before = 0;
    time_point since;
  };
  struct hash {
    std::size_t operator()(const backend_api::holder_id& id) const noexcept {
      return static_cast<std::size_t>(id.high ^ id.low);
    }
  };
  std::unordered_map<backend_api::holder_id, place, hash> known_;
};

}  // namespace sallyport::backends::mariadb
