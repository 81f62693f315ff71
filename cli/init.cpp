#include "cli/init.hpp"

#include "cli/arguments.hpp"
#include "cli/exit_codes.hpp"
#include "cli/help.hpp"
#include "cli/inspect.hpp"
#include "cli/message.hpp"
#include "cli/public_address.hpp"
#include "cli/store.hpp"
#include "cli/text.hpp"
#include <sallyport/client.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <string>
#include <string_view>
#include <unistd.h>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 6> init_flags{{
    {0, "force", ""},
    {0, "group", "NAME"},
    {0, "max-lease", "SECONDS"},
    {0, "replace", "OLD"},
    {'y', "yes", ""},
    {'h', "help", ""},
}};
constexpr unsigned most_seconds = 24 * 3600;

struct init_options {
  std::string store = default_store();
  std::string max_lease;
  std::string group;
  std::string old_member;  // empty: none is replaced
  std::string new_member;
  bool force = false;
  bool yes = false;
  bool help = false;
};

/// The name becomes a part of an address, where other characters would mean something.
std::string group_of(std::string_view name) {
  const bool plain = std::ranges::all_of(name, [](unsigned char each) {
    return std::isalnum(each) != 0 || each == '_' || each == '-' || each == '.';
  });
  if (name.empty() || !plain) throw usage_error("--group: no group is called " + quoted(name));
  return std::string(name);
}

init_options read_init(std::span<char* const> arguments) {
  init_options given;
  bool named = false;
  argument_reader reader{arguments, init_flags};
  const auto take_store = [&](std::string_view uri) {
    if (!given.old_member.empty() && given.new_member.empty()) {
      given.new_member = uri;
      return;
    }
    if (named)
      throw usage_error("one URI at a time; " + quoted(public_address_of(uri).text) +
                        " is one too many");
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
    } else if (item->option->long_name == "replace") {
      if (item->value.empty() || !given.old_member.empty()) {
        throw usage_error("--replace needs one member and what takes its place: --replace OLD NEW");
      }
      given.old_member = item->value;
    } else if (item->option->long_name == "help") {
      given.help = true;
    } else if (item->option->long_name == "group") {
      given.group = group_of(item->value);
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
  if (!given.old_member.empty() && given.new_member.empty() && !given.help) {
    throw usage_error(
        "--replace needs the server that takes the member's place: --replace OLD NEW");
  }
  if (!given.old_member.empty() && (given.force || !given.max_lease.empty())) {
    throw usage_error("--replace goes with neither --force nor --max-lease");
  }
  return given;
}

/// For the value of an option in an address.
std::string percent_encoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                       (byte >= 'A' && byte <= 'Z') || byte == '.' || byte == '-' || byte == '_';
    if (plain) {
      out += each;
    } else {
      out += {'%', digits[byte / digits.size()], digits[byte % digits.size()]};
    }
  }
  return out;
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
  constexpr std::string_view if_replaced =
      "The new server takes the member's place, for all clients. Is the new server in the list of "
      "every client already? [y/N] ";
  const std::string_view question = given.force                ? if_forced
                                    : given.old_member.empty() ? if_new
                                                               : if_replaced;
  [[maybe_unused]] const ssize_t asked = ::write(STDERR_FILENO, question.data(), question.size());
  std::array<char, 64> answer{};
  const ssize_t length = ::read(STDIN_FILENO, answer.data(), answer.size());
  const bool meant = length > 0 && (answer[0] == 'y' || answer[0] == 'Y');
  if (!meant) throw command_failure(exit_code::nothing_there, "nothing was done");
}

bool is_machine_store(std::string_view store) {
  return store == "local:machine" || store.starts_with("local:machine?");
}

/// Takes nothing away from anybody, so it does not ask.
int init_machine_store(const init_options& given) {
  if (given.force || !given.max_lease.empty() || !given.old_member.empty()) {
    throw usage_error(
        "--force, --max-lease and --replace are for redlock://, not for local:machine");
  }
  const bool has_options = given.store.find('?') != std::string::npos;
  std::string address = given.store + (has_options ? "&" : "?") + "initialise=yes";
  if (!given.group.empty()) address += "&group=" + given.group;
  const client store = client::open(address);
  print("ready: /var/lib/sallyport/machine. " + store.capabilities().caveats.front() + "\n");
  if (given.group.empty()) {
    print(
        "Whoever may use it may as well have the rights of everybody who uses it, root included; "
        "--group NAME says who may.\n");
  }
  return exit_code::success;
}

/// Two openings: the first one replaces, and the second one, for which nothing is left to replace, waits
/// until the new member votes.
int replace_member(const init_options& given, const std::string& with_options) {
  const std::string wanted =
      "&old=" + percent_encoded(given.old_member) + "&new=" + percent_encoded(given.new_member);
  {
    const client store = client::open(with_options + "initialise=replace" + wanted);
    const auto longest = store.capabilities().max_lease;
    say(given.new_member + " has taken the place of " + given.old_member +
        ". Locks go on; it votes when the longest lease has passed, in at most " +
        to_text(longest + longest / 10 + std::chrono::seconds{1}) +
        ". Waiting for that; clients go on with it when this is interrupted");
  }
  const client store = client::open(with_options + "initialise=replace_and_wait" + wanted);
  print("ready; " + given.new_member + " votes in the place of " + given.old_member + "\n");
  return exit_code::success;
}

}  // namespace

int init_command(std::span<char* const> arguments) {
  const init_options given = read_init(arguments);
  if (given.help) return print_help("init");
  if (is_machine_store(given.store)) return init_machine_store(given);
  if (!given.store.starts_with("redlock://") && !given.store.starts_with("redlocks://")) {
    throw usage_error(
        "init is for local:machine and for the nodes of redlock://HOST1,HOST2,HOST3; other stores "
        "need none");
  }
  if (!given.group.empty()) throw usage_error("--group is for local:machine");
  ask_whether_new(given);
  const bool has_options = given.store.find('?') != std::string::npos;
  const std::string with_options = given.store + (has_options ? "&" : "?");
  if (!given.old_member.empty()) return replace_member(given, with_options);
  std::string address = with_options + (given.force ? "initialise=force" : "initialise=yes");
  if (!given.max_lease.empty()) address += "&max_lease=" + given.max_lease;
  const client store = client::open(address);
  print("ready; the longest lease is " + to_text(store.capabilities().max_lease) + "\n");
  for (const std::string& each : store.capabilities().caveats) {
    if (each.starts_with("When the client was opened:")) say(each);
  }
  return exit_code::success;
}

}  // namespace sallyport::cli
