#pragma once

#include "backend_api/requests.hpp"
#include "backends/local/table.hpp"
#include <sallyport/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

/// What the store's records look like. Every reader and writer of a store runs on the same machine
/// under the same boot, so records are plain structures in the machine's own byte order; only keys
/// are spelled big-endian, because their order matters.
///
/// | key | value |
/// |---|---|
/// | `M` | meta_record: counters of the whole store |
/// | `C` client | client_record, then the label: one open client |
/// | `L` name | lock_record; for a mutex or election with a holder, its holding_record and value |
/// | `H` name 0 number | holding_record: a reader, writer or permit |
/// | `Q` name 0 number | ticket_record, then the value: a waiter; numbers grow, so this is FIFO |
/// | `W` name 0 client | nothing: the client wants to hear of changes |
///
/// Names have no zero byte, so no name's range holds another name's keys.
namespace sallyport::backends::local {

using backend_api::duration;
using backend_api::holder_id;
using backend_api::time_point;

/// Names one open client of the store. Drawn from the same counter as contenders' numbers; never
/// used again.
using client_number = std::uint64_t;
/// Names one contender: its place in the queue, and its holding afterwards.
using contender_number = std::uint64_t;

inline constexpr std::uint32_t record_format = 1;

struct meta_record {
  std::uint32_t format = record_format;
  std::uint32_t watches = 0;         ///< how many W records there are
  std::uint64_t last_number = 0;     ///< the largest client or contender number drawn
  std::uint64_t last_token = 0;      ///< the largest token drawn
  std::uint64_t reserved_token = 0;  ///< tokens up to this one are never given again after a crash
};

/// A process, told from a later one with the same pid by when it began.
struct process_identity {
  std::int64_t pid = 0;  ///< 0: none
  std::uint64_t started = 0;

  friend bool operator==(const process_identity&, const process_identity&) = default;
};

struct client_record {
  process_identity process;
  /// lives on after `process` as far as the store is concerned; pid 0: there is none
  process_identity companion;
};

struct lock_record {
  lock_kind kind = lock_kind::mutex;
  std::array<std::uint8_t, 3> unused{};
  std::uint32_t permits = 1;
  std::uint32_t holders = 0;  ///< tombstones included
  std::uint32_t barring = 0;  ///< exclusive holders and tombstones
  std::uint64_t waiters = 0;
  /// Nothing lapses before this moment (nanoseconds of the lease clock).
  std::int64_t may_lapse_at = 0;
};

struct holding_record {
  holder_id id;  ///< zero for a tombstone
  contender_number number = 0;
  client_number client = 0;
  std::uint64_t first_token = 0;
  std::uint64_t last_token = 0;
  std::int64_t expiry = 0;  ///< nanoseconds of the lease clock, as all times here
  std::int64_t since = 0;
  std::uint32_t local_waiters = 0;
  lock_mode mode = lock_mode::exclusive;
  std::uint8_t provisional = 0;  ///< 1: handed over and not claimed yet
  std::uint8_t tombstone = 0;    ///< 1: broken, keeps its place until `expiry`
  std::uint8_t unused = 0;
};

struct ticket_record {
  holder_id id;
  client_number client = 0;
  std::int64_t since = 0;
  std::int64_t lapses = 0;
  std::int64_t claim_window = 0;
  std::uint32_t token_count = 1;
  std::uint32_t local_waiters = 0;
  lock_mode mode = lock_mode::exclusive;
  std::array<std::uint8_t, 7> unused{};
};

/// A key of bounded length, built in place.
class record_key {
 public:
  static record_key meta() noexcept { return record_key('M'); }
  static record_key client(client_number number) noexcept;
  static record_key lock(std::string_view name) noexcept;
  /// The first key that a holder of this name can have; likewise for the queue and the watches.
  static record_key holder(std::string_view name, contender_number number = 0) noexcept;
  static record_key ticket(std::string_view name, contender_number number = 0) noexcept;
  static record_key watch(std::string_view name, client_number number = 0) noexcept;

  // NOLINTNEXTLINE(google-explicit-constructor): a key is bytes.
  operator std::string_view() const noexcept { return {bytes_.data(), size_}; }
  /// What all keys of the same name and sort begin with.
  [[nodiscard]] std::string_view range() const noexcept {
    return {bytes_.data(), size_ - sizeof(std::uint64_t)};
  }

 private:
  explicit record_key(char sort) noexcept { bytes_[size_++] = sort; }
  static record_key numbered(char sort, std::string_view name, std::uint64_t number) noexcept;
  void append(std::string_view text) noexcept;
  void append(std::uint64_t number) noexcept;

  std::array<char, 1 + lock_name::max_bytes + 1 + sizeof(std::uint64_t)> bytes_{};
  std::size_t size_ = 0;
};

/// The number at the end of a numbered key. REQUIRES: the key is of one of those sorts.
[[nodiscard]] std::uint64_t number_of(std::string_view key) noexcept;

/// A structure followed by text, as it is stored.
template <class Record>
[[nodiscard]] std::string_view bytes_of(const Record& record) noexcept {
  static_assert(std::is_trivially_copyable_v<Record>);
  static_assert(std::has_unique_object_representations_v<Record>, "no padding may leak");
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the bytes of a plain structure.
  return {reinterpret_cast<const char*>(&record), sizeof record};
}
/// The structure at the beginning of the bytes; nothing when they are too short.
template <class Record>
[[nodiscard]] std::optional<Record> read_record(std::string_view bytes) noexcept {
  if (bytes.size() < sizeof(Record)) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

[[nodiscard]] inline time_point time_of(std::int64_t nanoseconds) noexcept {
  return time_point{duration{nanoseconds}};
}
[[nodiscard]] inline std::int64_t stored(time_point when) noexcept {
  return when.time_since_epoch().count();
}

}  // namespace sallyport::backends::local
