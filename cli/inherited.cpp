#include "cli/inherited.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace sallyport::cli {

void inherited_descriptors::look(set& at) noexcept {
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = {static_cast<int>(i), 0, 0};
  // One call for all of them: numbers that are not open come back as POLLNVAL.
  if (::poll(at.data(), at.size(), 0) < 0) at = {};
}

void inherited_descriptors::close_others_on_exec() const noexcept {
  set now;
  look(now);
  for (std::size_t i = STDERR_FILENO + 1; i < now.size(); ++i) {
    const bool was_open = (open_at_start_[i].revents & POLLNVAL) == 0;
    const bool is_open = (now[i].revents & POLLNVAL) == 0;
    if (is_open && !was_open) ::fcntl(static_cast<int>(i), F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace sallyport::cli
