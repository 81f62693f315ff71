#pragma once

#include "base/check.hpp"

#include <cstdint>
#include <limits>

namespace sallyport::core {

/// Counts how often one owner entered a recursive lock. Pure: the owner is any number that names it
/// (a thread), and whether the lease is still good is told by the caller, at every entry.
/// Thread safety: none.
/// Invariants: (1) count() is entries minus exits of the present owner. (2) Nobody but the owner
/// re-enters.
class reentrancy {
 public:
  enum class entry : std::uint8_t {
    acquire,    ///< not the owner: get a grant of your own, then call entered()
    reentered,  ///< the owner is in once more
    lost,       ///< the owner's lease can no longer be trusted: refuse
    too_deep,   ///< the deepest level was reached: refuse
  };
  enum class exit : std::uint8_t { still_in, release };

  static constexpr std::uint32_t max_depth = std::numeric_limits<std::int32_t>::max();

  explicit reentrancy(std::uint32_t deepest = max_depth) noexcept : deepest_(deepest) {}

  [[nodiscard]] entry enter(std::uint64_t owner, bool lease_valid) noexcept {
    if (count_ == 0 || owner != owner_) return entry::acquire;
    if (!lease_valid) return entry::lost;
    if (count_ == deepest_) return entry::too_deep;
    ++count_;
    return entry::reentered;
  }

  /// The owner got its grant.
  void entered(std::uint64_t owner) noexcept {
    owner_ = owner;
    count_ = 1;
  }

  /// One entry ends. REQUIRES: count() > 0.
  [[nodiscard]] exit leave() noexcept {
    SALLYPORT_CHECK(count_ > 0);
    return --count_ == 0 ? exit::release : exit::still_in;
  }

  [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t owner() const noexcept { return owner_; }

 private:
  std::uint32_t deepest_;
  std::uint64_t owner_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace sallyport::core
