#include "fence/gate_record.hpp"

#include "base/check.hpp"
#include "base/checksum.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace sallyport::fence {
namespace {

constexpr std::string_view magic = "sallyport-gate-1";
constexpr std::string_view magic_of_any_version = "sallyport-gate-";

constexpr std::size_t checksum_at = 16;
constexpr std::size_t sequence_at = 24;
constexpr std::size_t exclusive_at = 32;
constexpr std::size_t shared_at = 40;
constexpr std::size_t length_at = 48;
constexpr std::size_t lock_at = 52;
static_assert(magic.size() == checksum_at);
static_assert(lock_at + gate::max_lock_bytes <= slot_bytes);

template <class Unsigned>
void put(slot& out, std::size_t at, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    out[at + i] = static_cast<std::byte>((value >> (8U * i)) & 0xffU);
  }
}

template <class Unsigned>
Unsigned get(std::span<const std::byte> from, std::size_t at) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof(Unsigned); ++i) {
    value |= static_cast<Unsigned>(static_cast<Unsigned>(from[at + i]) << (8U * i));
  }
  return value;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

bool never_written(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

slot encode(const gate_record& record) {
  const std::string& lock = record.state.lock;
  SALLYPORT_CHECK(lock.size() <= gate::max_lock_bytes);

  slot out{};
  std::memcpy(out.data(), magic.data(), magic.size());
  put(out, sequence_at, record.sequence);
  put(out, exclusive_at, record.state.newest_exclusive.value());
  put(out, shared_at, record.state.newest_shared.value());
  put(out, length_at, static_cast<std::uint32_t>(lock.size()));
  std::memcpy(out.data() + lock_at, lock.data(), lock.size());
  put(out, checksum_at,
      base::checksum(std::span{out}.subspan(sequence_at, lock_at - sequence_at + lock.size())));
  return out;
}

std::optional<gate_record> decode(std::span<const std::byte, slot_bytes> bytes) {
  if (!starts_with(bytes, magic)) return std::nullopt;
  const auto length = get<std::uint32_t>(bytes, length_at);
  if (length > gate::max_lock_bytes) return std::nullopt;
  const auto covered = bytes.subspan(sequence_at, lock_at - sequence_at + length);
  if (get<std::uint64_t>(bytes, checksum_at) != base::checksum(covered)) return std::nullopt;

  gate_record record;
  record.sequence = get<std::uint64_t>(bytes, sequence_at);
  record.state.newest_exclusive = fencing_token{get<std::uint64_t>(bytes, exclusive_at)};
  record.state.newest_shared = fencing_token{get<std::uint64_t>(bytes, shared_at)};
  record.state.lock.assign(reinterpret_cast<const char*>(bytes.data() + lock_at), length);
  return record;
}

base::result<gate_image> read_image(std::span<const std::byte> file) {
  const bool ours_at_start = starts_with(file, magic_of_any_version);
  const bool ours_behind =
      file.size() > slot_bytes && starts_with(file.subspan(slot_bytes), magic_of_any_version);
  if (!ours_at_start && !ours_behind) {
    return base::fail(errc::store_refused,
                      "not a gate's file, and left as it is; give the gate a path of its own");
  }
  if (file.size() != image_bytes) {
    return base::fail(errc::store_refused,
                      "damaged (its length is wrong); restore it, or remove it "
                      "once no late holder can be left");
  }

  std::array<std::optional<gate_record>, slot_count> records;
  bool any_spoiled = false;
  for (std::size_t i = 0; i < slot_count; ++i) {
    const auto bytes =
        std::span<const std::byte, slot_bytes>{file.subspan(i * slot_bytes, slot_bytes)};
    // A newer version's record must not be taken for a torn write, and be written over.
    if (starts_with(bytes, magic_of_any_version) && !starts_with(bytes, magic)) {
      return base::fail(
          errc::store_refused,
          "of another format version; use the Sallyport that wrote it, or a newer one");
    }
    records[i] = decode(bytes);
    if (records[i] && slot_of(records[i]->sequence) != i) records[i].reset();
    if (!records[i] && !never_written(bytes)) any_spoiled = true;
  }

  auto& [even, odd] = records;
  if (!even && !odd) {
    return base::fail(errc::store_refused,
                      "damaged (neither of its two records is whole); restore "
                      "it, or remove it once no late holder can be left");
  }
  const bool odd_is_newer = odd && (!even || odd->sequence > even->sequence);
  return gate_image{std::move(odd_is_newer ? *odd : *even), any_spoiled};
}

}  // namespace sallyport::fence
