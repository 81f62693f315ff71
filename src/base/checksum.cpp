#include "base/checksum.hpp"

#include <array>

namespace sallyport::base {
namespace {

constexpr std::array<std::uint64_t, 256> make_checksum_table() {
  std::array<std::uint64_t, 256> table{};
  for (std::uint64_t i = 0; i < table.size(); ++i) {
    std::uint64_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1U) != 0 ? (value >> 1U) ^ 0xc96c5795d7870f42U : value >> 1U;
    }
    table[i] = value;
  }
  return table;
}
constexpr auto checksum_table = make_checksum_table();

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = ~std::uint64_t{0};
  for (const std::byte b : bytes) {
    value = checksum_table[(value ^ std::to_integer<std::uint64_t>(b)) & 0xffU] ^ (value >> 8U);
  }
  return ~value;
}

}  // namespace sallyport::base
