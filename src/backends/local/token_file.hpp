#pragma once

#include "backends/local/descriptor.hpp"
#include "backends/local/lock_rules.hpp"
#include "base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <variant>

/// The one thing of a store that must survive a power cut: up to which token it may have used.
namespace sallyport::backends::local {

/// What the file says. Pure: bytes in, values out.
struct token_mark {
  std::uint64_t sequence = 0;    ///< one more for each record written; the larger of two counts
  std::uint64_t high_water = 0;  ///< no larger token was ever used
  std::array<std::uint64_t, 2> store{};  ///< random, for the life of the store: names its tokens

  friend bool operator==(const token_mark&, const token_mark&) = default;
};

/// Two slots, written in turn: a torn write spoils the older record only. Each is as large as a
/// disk's largest usual sector, so that no torn sector reaches into its neighbour.
inline constexpr std::size_t token_slot_bytes = 4096;
inline constexpr std::size_t token_file_bytes = 2 * token_slot_bytes;

using token_slot = std::array<std::byte, token_slot_bytes>;
[[nodiscard]] token_slot encode(const token_mark& mark);
/// Nothing unless every byte that counts is in order. Safe on any input.
[[nodiscard]] std::optional<token_mark> decode(std::span<const std::byte, token_slot_bytes> bytes);
/// The newer good record of a file.
[[nodiscard]] std::optional<token_mark> read_marks(std::span<const std::byte> file);

/// The file itself.
/// Thread safety: one thread of one process at a time; the store's gate sees to it.
class token_file final : public token_reserve {
 public:
  /// How many tokens one write to the disk reserves.
  static constexpr std::uint64_t block = std::uint64_t{1} << 20U;

  /// Opens the file in this folder; null: there is none. Fails with store_refused when no record in
  /// it is good.
  static base::result<std::unique_ptr<token_file>> open(int folder);
  /// Makes it, durably, all or nothing, and opens it.
  /// REQUIRES: there is none, and no other process is in this call.
  static base::result<std::unique_ptr<token_file>> make(int folder, mode_t mode);

  [[nodiscard]] const token_mark& mark() const noexcept { return mark_; }
  /// Reads again what another process may have written.
  base::result<std::monostate> refresh();
  base::result<std::uint64_t> reserve(std::uint64_t beyond) override;

 private:
  token_file(descriptor file, const token_mark& mark) : file_(std::move(file)), mark_(mark) {}

  descriptor file_;
  token_mark mark_;
};

}  // namespace sallyport::backends::local
