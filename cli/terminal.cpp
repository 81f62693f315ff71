#include "cli/terminal.hpp"

#include <unistd.h>

namespace sallyport::cli {

terminal::terminal() noexcept : present_(::isatty(STDIN_FILENO) == 1) {}

bool terminal::in_foreground() const noexcept {
  return present_ && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

void terminal::give_to(pid_t group) const noexcept {
  if (present_) ::tcsetpgrp(STDIN_FILENO, group);
}

void terminal::take_back() noexcept {
  if (!given_) return;
  given_ = false;
  ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
}

}  // namespace sallyport::cli
