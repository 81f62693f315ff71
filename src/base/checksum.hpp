#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sallyport::base {

/// CRC-64/XZ: tells a torn or spoiled record from a good one; no defence against malice.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace sallyport::base
