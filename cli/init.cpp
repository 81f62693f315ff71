#include "cli/init.hpp"

#include "cli/arguments.hpp"
#include "cli/exit_codes.hpp"
#include "cli/help.hpp"
#include "cli/inspect.hpp"
#include "cli/message.hpp"
#include "cli/store.hpp"
#include "cli/text.hpp"
#include <sallyport/client.hpp>

#include <array>
#include <string>
#include <string_view>
#include <unistd.h>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 4> init_flags{{
    {0, "force", ""},
    {0, "max-lease", "SECONDS"},
    {'y', "yes", ""},
    {'h', "help", ""},
}};
constexpr unsigned most_seconds = 24 * 3600;

struct init_options {
  std::string store = default_store();
  std::string max_lease;
  bool force = false;
  bool yes = false;
  bool help = false;
};

init_options read_init(std::span<char* const> arguments) {
  init_options given;
  bool named = false;
  argument_reader reader{arguments, init_flags};
  const auto take_store = [&](std::string_view uri) {
    if (named) throw usage_error("one URI at a time; " + quoted(uri) + " is one too many");
    named = true;
    given.store = uri;
  };
  while (const auto item = reader.next()) {
    if (item->option == nullptr) {
      take_store(item->value);
    } else if (item->option->long_name == "yes") {
      given.yes = true;
    } else if (item->option->long_name == "force") {
      given.force = true;
    } else if (item->option->long_name == "help") {
      given.help = true;
    } else {
      const auto seconds = parse_number(item->value, most_seconds);
      if (!seconds || *seconds == 0) {
        throw usage_error("--max-lease needs a number of seconds from 1 to 86400, not " +
                          quoted(item->value));
      }
      given.max_lease = std::to_string(*seconds);
    }
  }
  for (const char* const each : reader.rest()) take_store(each);
  return given;
}

void ask_whether_new(const init_options& given) {
  if (given.yes) return;
  if (::isatty(STDIN_FILENO) != 1) {
    throw usage_error("init asks before it acts, and there is no terminal to ask: add --yes");
  }
  constexpr std::string_view if_new = "Is it true that these nodes are new? [y/N] ";
  constexpr std::string_view if_forced =
      "These nodes, and no others, are to be the members from now on, whatever they were before. "
      "Is it "
      "true that all clients are stopped, and that nobody has held a lock here for longer than the "
      "longest lease? [y/N] ";
  const std::string_view question = given.force ? if_forced : if_new;
  [[maybe_unused]] const ssize_t asked = ::write(STDERR_FILENO, question.data(), question.size());
  std::array<char, 64> answer{};
  const ssize_t length = ::read(STDIN_FILENO, answer.data(), answer.size());
  const bool meant = length > 0 && (answer[0] == 'y' || answer[0] == 'Y');
  if (!meant) throw command_failure(exit_code::nothing_there, "nothing was done");
}

}  // namespace

int init_command(std::span<char* const> arguments) {
  const init_options given = read_init(arguments);
  if (given.help) return print_help("init");
  if (!given.store.starts_with("redlock://") && !given.store.starts_with("redlocks://")) {
    throw usage_error(
        "init is for the nodes of redlock://HOST1,HOST2,HOST3; other stores need none");
  }
  ask_whether_new(given);
  const bool has_options = given.store.find('?') != std::string::npos;
  std::string address = given.store + (has_options ? "&" : "?") +
                        (given.force ? "initialise=force" : "initialise=yes");
  if (!given.max_lease.empty()) address += "&max_lease=" + given.max_lease;
  const client store = client::open(address);
  print("ready; the longest lease is " + to_text(store.capabilities().max_lease) + "\n");
  for (const std::string& each : store.capabilities().caveats) {
    if (each.starts_with("When the client was opened:")) say(each);
  }
  return exit_code::success;
}

}  // namespace sallyport::cli
