#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The text protocol of memcached, as far as locks need it, as bytes in memory: no I/O here.
namespace sallyport::backends::memcached {

/// What is said in one piece. At most one line that asks for the mark and one that stores (with its data), then
/// exactly one meta line, which carries a tag, so that an answer that belongs to something else is
/// recognised.
///
/// Storing is done by the old commands, `add` and `cas`. When the server has no memory for the new
/// item, the meta command `ms` deletes the item that is there, also in its mode "add" and with a CAS
/// that does not match: a contender would take the lock from its holder.
struct wire_command {
  std::string store;   ///< whole, with its data; empty: there is none
  std::string meta;    ///< without tag and line end
  unsigned lines = 0;  ///< that answer `store`

  [[nodiscard]] std::size_t size() const noexcept { return store.size() + meta.size() + 24; }
};

/// Who looks at an item marks it as fetched; a holder that looks at its own does not. To replace the
/// item takes the mark away, so a holder asks for it before, and when it leaves: it learns whether
/// anybody has asked for the lock since it was granted.
///
/// REQUIRES of all: `key` is one that key_of() made. `seconds` are counted from now, 1 to 30 days.
[[nodiscard]] wire_command read_item(std::string_view key);
/// Leaves no mark.
[[nodiscard]] wire_command peek_item(std::string_view key);
[[nodiscard]] wire_command add_item(std::string_view key, std::string_view value,
                                    std::int64_t seconds);
[[nodiscard]] wire_command replace_item(std::string_view key, std::string_view value,
                                        std::int64_t seconds, std::uint64_t cas);
[[nodiscard]] wire_command delete_item(std::string_view key, std::uint64_t cas);

/// Appends its bytes.
void append_command(std::string& buffer, const wire_command& what, std::uint64_t tag);

/// What became of the storing line.
enum class store_outcome : std::uint8_t {
  none,  ///< nothing was to be stored
  stored,
  not_stored,  ///< `add`: there is an item
  exists,      ///< `cas`: the item is another by now
  not_found,   ///< `cas`: there is no item
  refused      ///< the server's own error; `why` says it. Nothing was changed.
};

/// What became of the meta line.
enum class meta_outcome : std::uint8_t {
  done,    ///< deleted
  item,    ///< there is one: `cas`, `seconds`, `value`
  absent,  ///< there is none
  exists   ///< deleting: the item is another by now
};

/// The answer to one wire_command.
struct reply {
  store_outcome stored = store_outcome::none;
  meta_outcome found = meta_outcome::absent;
  std::uint64_t cas = 0;
  std::int64_t seconds = 0;  ///< until it expires, by the server's count; -1: never
  std::string value = {};
  std::string why = {};
  bool fetched = false;  ///< replacing and deleting: somebody has looked at the item
};

/// One answer line with what follows it, as it stands in the stream.
struct answer_line {
  std::string text;   ///< without its end
  std::string value;  ///< of a VA line
};

/// Cuts a stream of bytes into lines. A line of more than max_line_bytes or a value of more than
/// max_value_bytes is malformed.
/// Thread safety: none.
class line_reader {
 public:
  static constexpr std::size_t max_line_bytes = 4096;
  static constexpr std::size_t max_value_bytes = 16UL * 1024 * 1024;

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// Nothing: more bytes are needed. After a failure the stream can't be understood any more.
  base::result<std::optional<answer_line>> next();

 private:
  std::string buffer_;
  std::size_t taken_ = 0;
};

/// Puts the lines of one answer together.
/// Thread safety: none.
class reply_builder {
 public:
  /// Of no command.
  reply_builder() = default;
  /// For the command of this tag, with so many lines before its meta line's.
  reply_builder(std::uint64_t tag, unsigned lines) noexcept : tag_(tag), lines_(lines) {}
  /// True: the answer is whole. The failure: this is no answer to what was said, and nothing that
  /// follows can be trusted.
  base::result<bool> take(answer_line&& line);
  [[nodiscard]] reply&& finished() noexcept { return std::move(made_); }

 private:
  base::result<bool> take_store(const answer_line& line);
  base::result<bool> take_meta(answer_line&& line);

  std::uint64_t tag_ = 0;
  unsigned lines_ = 0;
  reply made_;
};

}  // namespace sallyport::backends::memcached
