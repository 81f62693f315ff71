#include "sim/redis/sha1.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace sallyport::sim::redis {
namespace {

constexpr std::size_t block_bytes = 64;
constexpr std::size_t length_bytes = 8;

using state = std::array<std::uint32_t, 5>;

std::uint32_t big_endian(const unsigned char* bytes) {
  return (std::uint32_t{bytes[0]} << 24) | (std::uint32_t{bytes[1]} << 16) |
         (std::uint32_t{bytes[2]} << 8) | std::uint32_t{bytes[3]};
}

void mix(state& hash, const unsigned char* block) {
  std::array<std::uint32_t, 80> words{};
  for (std::size_t i = 0; i < 16; ++i) words[i] = big_endian(block + i * 4);
  for (std::size_t i = 16; i < words.size(); ++i) {
    words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
  }
  auto [a, b, c, d, e] = hash;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint32_t chosen = 0;
    if (i < 20) {
      chosen = ((b & c) | (~b & d)) + 0x5a827999U;
    } else if (i < 40) {
      chosen = (b ^ c ^ d) + 0x6ed9eba1U;
    } else if (i < 60) {
      chosen = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcU;
    } else {
      chosen = (b ^ c ^ d) + 0xca62c1d6U;
    }
    const auto next = std::rotl(a, 5) + chosen + e + words[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  hash = {hash[0] + a, hash[1] + b, hash[2] + c, hash[3] + d, hash[4] + e};
}

}  // namespace

std::string sha1_hex(std::string_view text) {
  state hash{0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U, 0xc3d2e1f0U};
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const auto whole = text.size() / block_bytes * block_bytes;
  for (std::size_t at = 0; at < whole; at += block_bytes) mix(hash, bytes + at);

  // The rest, a one, zeros, and the length in bits: in one block or in two.
  std::array<unsigned char, 2 * block_bytes> tail{};
  const auto left = text.size() - whole;
  for (std::size_t i = 0; i < left; ++i) tail[i] = bytes[whole + i];
  tail[left] = 0x80;
  const auto end = left + 1 + length_bytes <= block_bytes ? block_bytes : 2 * block_bytes;
  const auto bits = std::uint64_t{text.size()} * 8;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    tail[end - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  }
  for (std::size_t at = 0; at < end; at += block_bytes) mix(hash, tail.data() + at);

  static constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(40);
  for (const auto word : hash) {
    for (int shift = 28; shift >= 0; shift -= 4) hex.push_back(digits[(word >> shift) & 0xfU]);
  }
  return hex;
}

}  // namespace sallyport::sim::redis
