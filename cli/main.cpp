// sallyport: the command. See `sallyport help` and docs/cli.md.

#include "cli/exit_codes.hpp"
#include "cli/fence.hpp"
#include "cli/help.hpp"
#include "cli/init.hpp"
#include "cli/inspect.hpp"
#include "cli/message.hpp"
#include "cli/run.hpp"
#include "cli/schema.hpp"
#include "cli/text.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace sallyport::cli {
namespace {

/// A caller may have closed 0, 1 or 2. The next file to be opened would get that number, and our
/// words would be written into it: into the store, say.
void fill_standard_descriptors() {
  for (int number = 0; number <= 2; ++number) {
    if (::fcntl(number, F_GETFD) < 0) {
      // Closed again by exec: the command finds it as the caller left it.
      [[maybe_unused]] const int filled = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    }
  }
}

/// How many arguments come before the command: options that most commands have, and that people who
/// think of a store first write first.
std::size_t count_leading_options(std::span<char* const> arguments) {
  std::size_t count = 0;
  while (count < arguments.size()) {
    const std::string_view text = arguments[count];
    if (text == "--json" || text.starts_with("--store=")) {
      count += 1;
    } else if (text == "--store") {
      if (count + 1 == arguments.size()) throw usage_error("--store needs a value");
      count += 2;
    } else {
      break;
    }
  }
  return count;
}

/// The arguments with the leading options behind the command, where the command expects them.
std::vector<char*> reordered(std::span<char* const> arguments, std::size_t leading) {
  const std::string_view command = arguments[leading];
  constexpr std::array<std::string_view, 5> with_store{"run", "ls", "who", "break", "schema"};
  if (std::ranges::find(with_store, command) == with_store.end()) {
    // What stands behind the first option may be an address with a password in it.
    const std::string_view first = arguments.front();
    throw usage_error(quoted(first.substr(0, first.find('='))) + " is no option of " +
                      quoted(command) + "; 'sallyport help' says more");
  }
  std::vector<char*> all{arguments[leading]};
  const auto options = arguments.first(leading);
  const auto rest = arguments.subspan(leading + 1);
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

int dispatch(std::span<char* const> arguments) {
  const std::size_t leading = count_leading_options(arguments);
  if (leading > 0 && leading < arguments.size()) return dispatch(reordered(arguments, leading));
  if (arguments.empty() || leading > 0) {
    throw usage_error(
        "what is to be done? 'sallyport run NAME -- COMMAND' runs a command under a "
        "lock; 'sallyport help' says more");
  }
  const std::string_view command = arguments.front();
  const auto rest = arguments.subspan(1);
  if (command == "run") return run_command(rest);
  if (command == "ls") return list_command(rest);
  if (command == "who") return who_command(rest);
  if (command == "break") return break_command(rest);
  if (command == "fence") return fence_command(rest);
  if (command == "init") return init_command(rest);
  if (command == "schema") return schema_command(rest);
  if (command == "--version" || command == "-V") return print_version();
  if (command == "help" || command == "--help" || command == "-h") {
    return print_help(rest.empty() ? "" : rest.front());
  }
  if (command.starts_with('-')) {
    const auto meant = nearest(command, {"--version", "--help"});
    throw usage_error("unknown option " + quoted(command) +
                      (meant ? "; did you mean " + quoted(*meant) + "?"
                             : " before the command; options of a command come behind it, as in "
                               "'sallyport run -n NAME -- COMMAND'"));
  }
  const auto meant =
      nearest(command, {"run", "ls", "who", "break", "fence", "init", "schema", "help"});
  throw usage_error("unknown command " + quoted(command) +
                    (meant ? "; did you mean " + quoted(*meant) + "?"
                           : "; there are run, ls, who, break, fence, init, schema and help"));
}

int guarded_main(std::span<char* const> arguments) noexcept {
  try {
    fill_standard_descriptors();
    return dispatch(arguments);
  } catch (const command_failure& failure) {
    say(failure.what());
    return failure.code();
  } catch (const lock_error& error) {
    say(error.what());
    return exit_code_for(error);
  } catch (const std::exception& error) {
    say(std::string("unexpected: ") + error.what());
    return exit_code::system_refused;
  }
}

}  // namespace
}  // namespace sallyport::cli

int main(int count, char** arguments) {
  const std::span<char* const> all{arguments, static_cast<std::size_t>(count)};
  return sallyport::cli::guarded_main(all.empty() ? all : all.subspan(1));
}
