#pragma once

#include <array>
#include <cstddef>
#include <poll.h>

namespace sallyport::cli {

/// Remembers which descriptors the caller passed on, so that the command gets these and no other:
/// not every client library opens its files close-on-exec, and a command must not hold the store's.
/// Looks at numbers below `watched`; new descriptors get the lowest free ones.
class inherited_descriptors {
 public:
  /// What is open now, the command will get, unless it is closed by exec anyway.
  inherited_descriptors() noexcept { look(open_at_start_); }

  /// In the child before exec: everything opened since is closed by exec. Async-signal-safe.
  void close_others_on_exec() const noexcept;

  static constexpr std::size_t watched = 256;

 private:
  using set = std::array<pollfd, watched>;
  static void look(set& at) noexcept;

  set open_at_start_{};
};

}  // namespace sallyport::cli
