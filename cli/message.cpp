#include "cli/message.hpp"

#include "cli/exit_codes.hpp"
#include "cli/text.hpp"
#include <sallyport/error.hpp>

#include <sys/types.h>
#include <system_error>
#include <unistd.h>

namespace sallyport::cli {

usage_error::usage_error(const std::string& sentence)
    : command_failure(exit_code::usage, sentence) {}

command_failure system_failure(std::string_view what, int error_number) {
  return {exit_code::system_refused,
          "could not " + std::string(what) + ": " + std::system_category().message(error_number)};
}

int exit_code_for(const lock_error& error) noexcept {
  if (error.code().category() != lock_category()) return exit_code::store_broken;
  switch (static_cast<errc>(error.code().value())) {
    case errc::bad_name:
    case errc::bad_option:
    case errc::bad_uri:
    case errc::unknown_scheme:
    case errc::not_supported:
    case errc::wrong_kind:
    case errc::no_fencing:
    case errc::would_deadlock:
      return exit_code::usage;
    case errc::token_mismatch:
    case errc::no_such_lock:
      return exit_code::nothing_there;
    case errc::lease_lost:
    case errc::not_held:
      return exit_code::lost;
    case errc::unavailable:
    case errc::outcome_unknown:
    case errc::too_many_waiters:
    case errc::store_refused:
    case errc::closed:
    case errc::forked:
    case errc::module_unusable:
    case errc::no_thread:
    case errc::not_enough_memory:
      return exit_code::store_broken;
  }
  return exit_code::store_broken;
}

void say(std::string_view sentence) noexcept {
  try {
    const std::string line = "sallyport: " + printable(sentence) + "\n";
    // One write: lines of several processes do not mix.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace sallyport::cli
