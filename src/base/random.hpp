#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sallyport::base {

/// A small, fast, seedable generator (xoshiro256**) for jitter and simulations; never for secrets.
/// Thread safety: none; each owner has its own.
class random {
 public:
  using result_type = std::uint64_t;

  explicit random(std::uint64_t seed) noexcept;

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return ~result_type{0}; }
  result_type operator()() noexcept;

  /// Uniform in [0, bound). REQUIRES: bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept;
  /// Uniform in [0, 1).
  double unit() noexcept;
  /// True with the given probability.
  bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::array<std::uint64_t, 4> state_;
};

/// Fills `out` from the kernel's getrandom(2); the source of holder ids and seeds. Aborts if the
/// kernel has none.
void fill_from_kernel(std::span<std::byte> out) noexcept;

/// 64 bits from the kernel, to seed a `random`.
std::uint64_t kernel_seed() noexcept;

}  // namespace sallyport::base
