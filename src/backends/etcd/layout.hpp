#pragma once

#include "backends/etcd/speech.hpp"
#include <sallyport/types.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::backends::etcd {

/// What a contender's key says about it. Whoever came through another library is `foreign`, and
/// counts as exclusive.
enum class form : std::uint8_t { foreign, mutex, election, writer, reader, permit };

[[nodiscard]] form form_of(lock_kind kind, lock_mode mode) noexcept;
[[nodiscard]] lock_kind kind_of(form what) noexcept;

/// Which keys belong to which name. A contender of NAME is a key PREFIX NAME / SEGMENT, where the
/// segment has no slash; ours are "<lease in hex>#<letter of the form><number>", those of Go's
/// clientv3/concurrency "<lease in hex>". Deeper keys belong to other names. A candidate's own key
/// holds what it says, as Go's does; who it is stands on a card, PREFIX \x01 NAME / SEGMENT, which is
/// in no name's range, because names have no control characters.
class layout {
 public:
  explicit layout(std::string prefix) : prefix_(std::move(prefix)) {}

  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  /// All contenders of a name, and deeper keys, are in [folder, folder_end).
  [[nodiscard]] std::string folder(std::string_view name) const;
  [[nodiscard]] std::string folder_end(std::string_view name) const;
  [[nodiscard]] std::string key(std::string_view name, form what, lease_id lease,
                                std::uint64_t number) const;
  /// The card that belongs to a contender's key. REQUIRES: the key is below the prefix.
  [[nodiscard]] std::string card(std::string_view key) const;
  /// The name of the lock whose contender this key is, by its looks; nullopt: of none.
  [[nodiscard]] std::optional<std::string_view> name_of(const key_value& found) const;
  /// Where the store's name is kept; in no name's range.
  [[nodiscard]] std::string store_name_key() const { return prefix_ + "\x01store"; }

 private:
  std::string prefix_;
};

/// The last part of a key of this folder; nullopt: a deeper key, or not of this folder.
[[nodiscard]] std::optional<std::string_view> segment_in(std::string_view folder,
                                                         std::string_view key);
/// What a segment looks like.
[[nodiscard]] form form_of(std::string_view segment);
/// The first key behind all that begin with `start`; empty: there is none.
[[nodiscard]] std::string behind(std::string start);

}  // namespace sallyport::backends::etcd
