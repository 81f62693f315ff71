#include "base/random.hpp"

#include "base/check.hpp"

#include <bit>
#include <cerrno>
#include <sys/random.h>

namespace sallyport::base {
namespace {

std::uint64_t splitmix(std::uint64_t& state) noexcept {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

}  // namespace

random::random(std::uint64_t seed) noexcept : state_{} {
  for (auto& word : state_) word = splitmix(seed);
}

random::result_type random::operator()() noexcept {
  const std::uint64_t answer = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return answer;
}

std::uint64_t random::below(std::uint64_t bound) noexcept {
  SALLYPORT_CHECK(bound > 0);
  // The multiply-shift map is biased by less than bound / 2^64, which no use here can notice.
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>((*this)()) * bound) >> 64U);
}

double random::unit() noexcept { return static_cast<double>((*this)() >> 11U) * 0x1.0p-53; }

void fill_from_kernel(std::span<std::byte> out) noexcept {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got = getrandom(out.data() + filled, out.size() - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    SALLYPORT_CHECK(got > 0);
    filled += static_cast<std::size_t>(got);
  }
}

std::uint64_t kernel_seed() noexcept {
  std::uint64_t seed = 0;
  fill_from_kernel(std::as_writable_bytes(std::span{&seed, 1}));
  return seed;
}

}  // namespace sallyport::base
