#pragma once

#include "base/result.hpp"

#include <initializer_list>
#include <optional>
#include <string_view>

namespace sallyport::backends::local {

/// The records of the store inside one transaction: an ordered map from bytes to bytes. The rules
/// of locking are written against it; LMDB stands behind it in the product, a plain map in the
/// simulator.
///
/// Errors stick: after the first one every look-up finds nothing, every change does nothing, and
/// the transaction can only be thrown away. So the rules need no error path of their own; whoever
/// began the transaction asks failed() before it commits.
/// Thread safety: none.
class table {
 public:
  struct entry {
    std::string_view key;
    std::string_view value;
  };

  table() = default;
  table(const table&) = delete;
  table& operator=(const table&) = delete;
  virtual ~table() = default;

  // What these return is good until the next change of the table.
  virtual std::optional<std::string_view> get(std::string_view key) = 0;
  /// The first entry whose key is not smaller, bytes compared as unsigned.
  virtual std::optional<entry> at_or_after(std::string_view key) = 0;
  /// The last entry whose key is smaller.
  virtual std::optional<entry> before(std::string_view key) = 0;

  /// The value is all the parts, one behind the other. They must not lie in the table.
  virtual void put(std::string_view key, std::initializer_list<std::string_view> parts) = 0;
  /// Does nothing when there is none.
  virtual void remove(std::string_view key) = 0;

  /// To be called before a record is added that somebody wants to keep. Makes this transaction fail
  /// where only the room is left that changes of the records need.
  virtual void claim_room() {}

  /// Makes this transaction fail; the first reason counts.
  virtual void fail(base::failure why) = 0;
  [[nodiscard]] virtual bool failed() const = 0;
};

}  // namespace sallyport::backends::local
