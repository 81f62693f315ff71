#pragma once

#include "backends/redis/wire.hpp"
#include <sallyport/types.hpp>

#include <cstdint>
#include <string>
#include <string_view>

/// Which keys and channels a lock uses.
namespace sallyport::backends::redis {

inline constexpr std::uint32_t slot_count = 16384;

/// The slot of a key in a cluster: that of its first {tag}, or of the whole key.
[[nodiscard]] std::uint32_t slot_of(std::string_view key) noexcept;
/// A short text whose slot this is.
[[nodiscard]] const std::string& tag_of(std::uint32_t slot);

/// The keys of one name. The lock key is the prefix and the name, as other libraries' clients know
/// it; side keys also hold a byte that no name may (1), so two names never meet. In a cluster they
/// carry a tag that puts them into the lock key's slot.
/// Views point into the scheme and the name.
class lock_place {
 public:
  lock_place(std::string_view prefix, std::string_view name, bool cluster);

  void add_lock(wire_command& command) const { command.add({prefix_, name_}); }
  void add_side(wire_command& command, std::string_view what) const;
  void add_counter(wire_command& command) const;
  /// Where the store's name is kept, in the slot of the counter.
  void add_store_name(wire_command& command) const;
  /// The clients' channels: head, client, tail.
  void add_channel_head(wire_command& command) const;
  void add_channel_tail(wire_command& command) const { command.add(tag_); }
  [[nodiscard]] std::string channel_of(std::string_view client) const;
  /// Where changes of an election are told.
  [[nodiscard]] std::string changes_channel() const;
  [[nodiscard]] std::string lock_key() const { return std::string(prefix_).append(name_); }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }

 private:
  /// A key of the whole prefix; in a cluster one a slot.
  void add_common(wire_command& command, std::string_view what) const;

  std::string_view prefix_;
  std::string_view name_;
  std::uint32_t slot_ = 0;
  // What stands before and after side keys, and the {tag} of the slot; empty outside of a cluster.
  std::string before_;
  std::string after_;
  std::string tag_;
};

/// Splits a key that SCAN found: the name of the lock it belongs to, or nothing when it is no key of
/// a lock with this prefix. Lock keys are recognised by their value, not here.
[[nodiscard]] std::string_view name_in(std::string_view key, std::string_view prefix) noexcept;

/// Which part of its lock a key is.
enum class lock_part : std::uint8_t { holders, queue, other };
/// REQUIRES: `name` is what name_in(key) said.
[[nodiscard]] lock_part part_of_lock(std::string_view key, std::string_view name) noexcept;

/// For SCAN: matches exactly the keys that begin with `text`.
[[nodiscard]] std::string pattern_of(std::string_view text);

}  // namespace sallyport::backends::redis
