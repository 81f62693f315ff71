#pragma once

#include "backends/pipeline/link.hpp"
#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace sallyport::backends::pipeline {

/// Bytes on their way out over a link. It knows which of them may have reached the peer: what is
/// certain not to have left may be said again elsewhere.
/// Thread safety: none; its user's mutex guards it.
class outbox {
 public:
  /// Append here what is to be said.
  [[nodiscard]] std::string& bytes() noexcept { return bytes_; }
  [[nodiscard]] std::size_t unwritten() const noexcept { return bytes_.size() - done_; }
  /// Where the next byte that is appended will stand, counted from the connection's beginning.
  [[nodiscard]] std::uint64_t end() const noexcept { return written_ + unwritten(); }
  /// Whether the byte that stands there may have left.
  [[nodiscard]] bool may_have_left(std::uint64_t place) const noexcept {
    return place < may_have_left_;
  }

  /// Writes what the peer takes. REQUIRES: the link is up.
  void flush(link& over);
  /// The peer takes no more for now: link_ready() will come.
  [[nodiscard]] bool blocked() const noexcept { return blocked_; }

  /// Nothing is written any more. The link's alarm follows, so that its thread deals with it: this may
  /// be any caller's thread, and answers may still be readable.
  void break_off(link& over, base::failure why);
  /// Why it was broken off, also by flush(); nothing: it was not.
  [[nodiscard]] const std::optional<base::failure>& broken() const noexcept { return broken_; }

  /// The connection is over.
  void forget();

 private:
  std::string bytes_;
  std::size_t done_ = 0;             // of bytes_, written
  std::uint64_t written_ = 0;        // bytes of this connection
  std::uint64_t may_have_left_ = 0;  // at least written_
  bool blocked_ = false;
  std::optional<base::failure> broken_;
};

}  // namespace sallyport::backends::pipeline
