#pragma once

#include "base/result.hpp"
#include "fence/gate_state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sallyport::fence {

/// What a gate's file holds. Pure: bytes in, values out.
///
/// The file is two slots, each with room for one record; the record of sequence n stands in slot n
/// % 2, so a write that is torn by a crash spoils only the older slot's place and leaves the record
/// before it. A slot is a disk's largest usual sector, so that no torn sector reaches into its
/// neighbour.
///
/// A slot, all numbers little-endian: 16 bytes magic and version, 8 checksum (CRC-64/XZ of all that
/// follows, up to the lock's last byte), 8 sequence, 8 newest exclusive, 8 newest shared, 4 length
/// of the lock, the lock, zeros. A slot of zeros only was never written.
inline constexpr std::size_t slot_bytes = 4096;
inline constexpr std::size_t slot_count = 2;
inline constexpr std::size_t image_bytes = slot_bytes * slot_count;

using slot = std::array<std::byte, slot_bytes>;

struct gate_record {
  std::uint64_t sequence = 0;  ///< one more for each record written; the larger of two is the newer
  gate_state state{};

  friend bool operator==(const gate_record&, const gate_record&) = default;
};

/// Which slot the record of this sequence stands in.
constexpr std::size_t slot_of(std::uint64_t sequence) noexcept {
  return static_cast<std::size_t>(sequence % slot_count);
}

/// REQUIRES: record.state.lock has at most gate::max_lock_bytes bytes.
slot encode(const gate_record& record);

/// The record in a slot, or nothing unless every byte that counts is in order. Safe on any input.
std::optional<gate_record> decode(std::span<const std::byte, slot_bytes> bytes);

/// The newest record of a file, and whether the other slot is spoiled (a torn write, or a bad
/// disk).
struct gate_image {
  gate_record newest;
  bool other_is_torn = false;
};

/// Reads a whole file. Fails with store_refused when it is not a gate's, is of another version, or
/// has no good record. The failure's text says which, without the file's name. Safe on any input.
base::result<gate_image> read_image(std::span<const std::byte> file);

}  // namespace sallyport::fence
