#include "cli/inspect.hpp"

#include "cli/arguments.hpp"
#include "cli/exit_codes.hpp"
#include "cli/help.hpp"
#include "cli/message.hpp"
#include "cli/show.hpp"
#include "cli/store.hpp"
#include "cli/text.hpp"
#include <sallyport/client.hpp>

#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 6> options{{
    {0, "json", ""},
    {0, "store", "URI"},
    {'h', "help", ""},
    // break only, and last.
    {0, "token", "TOKEN"},
    {0, "now", ""},
    {'y', "yes", ""},
}};
constexpr std::size_t options_of_all = 3;
constexpr std::size_t options_of_break = 6;

struct inspect_options {
  std::string store = default_store();
  std::optional<std::string_view> word;
  std::optional<fencing_token> token;
  bool json = false;
  bool help = false;
  bool now = false;
  bool yes = false;
};

void take(inspect_options& into, const option_spec& option, std::string_view value) {
  if (option.long_name == "json") {
    into.json = true;
  } else if (option.long_name == "store") {
    into.store = value;
  } else if (option.long_name == "help") {
    into.help = true;
  } else if (option.long_name == "now") {
    into.now = true;
  } else if (option.long_name == "yes") {
    into.yes = true;
  } else if (option.long_name == "token") {
    const auto number = parse_number(value, ~0ULL);
    if (!number || *number == 0) {
      throw usage_error("--token needs a number as shown by 'sallyport who', not " + quoted(value));
    }
    into.token = fencing_token{*number};
  }
}

inspect_options read(std::span<char* const> arguments, std::size_t option_count,
                     std::string_view word_name) {
  inspect_options read;
  argument_reader reader{arguments, std::span(options).first(option_count)};
  const auto take_word = [&](std::string_view word) {
    if (read.word) {
      throw usage_error("one " + std::string(word_name) + " at a time; " + quoted(word) +
                        " is one too many");
    }
    read.word = word;
  };
  while (const auto item = reader.next()) {
    if (item->option == nullptr) {
      take_word(item->value);
    } else {
      take(read, *item->option, item->value);
    }
  }
  for (const char* const each : reader.rest()) take_word(each);
  return read;
}

lock_name required_name(const inspect_options& given, std::string_view command) {
  if (!given.word) {
    throw usage_error(std::string(command) +
                      " needs the NAME of a lock; 'sallyport ls' shows them");
  }
  std::string why;
  if (!lock_name::acceptable(*given.word, &why)) {
    throw usage_error("bad name " + quoted(*given.word) + ": " + why);
  }
  return *given.word;
}

std::vector<lock_info> list_all(const client& store, std::string_view prefix) {
  constexpr std::size_t page = 1000;
  std::vector<lock_info> all;
  for (;;) {
    auto some = store.list(prefix, all.empty() ? std::string_view{} : all.back().name, page);
    const bool last = some.size() < page;
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
    if (last) return all;
  }
}

/// The grant to take away. Throws command_failure when it is not clear which.
const holder_info& choose_holder(const lock_info& lock, std::optional<fencing_token> wanted) {
  if (lock.holders.empty()) {
    throw command_failure(exit_code::nothing_there,
                          "nobody holds " + quoted(lock.name) + ": there is nothing to break");
  }
  if (!wanted) {
    if (lock.holders.size() == 1) return lock.holders.front();
    std::string tokens;
    for (const holder_info& each : lock.holders) {
      tokens += (tokens.empty() ? "" : ", ") + std::to_string(each.token.value());
    }
    throw usage_error(quoted(lock.name) + " has " + std::to_string(lock.holders.size()) +
                      " holders; say which with --token (" + tokens + ")");
  }
  for (const holder_info& each : lock.holders) {
    if (each.token == *wanted) return each;
  }
  throw command_failure(exit_code::nothing_there,
                        quoted(lock.name) + " is not held under token " +
                            std::to_string(wanted->value()) +
                            " any more; 'sallyport who' shows the present one. Nothing was done");
}

/// Throws usage_error unless the user means it.
void make_sure(const inspect_options& given, const lock_info& lock, const holder_info& holder) {
  if (given.yes) return;
  if (::isatty(STDIN_FILENO) != 1) {
    // A token in hand is proof enough that somebody looked.
    if (given.token) return;
    throw usage_error("break asks before it acts, and there is no terminal to ask: add --yes");
  }
  const std::string question =
      "Take " + quoted(lock.name) + " away from " + printable(holder.label) + " (pid " +
      std::to_string(holder.pid) + " on " + printable(holder.host) + ", held for " +
      to_text(holder.held_for) + ", token " + std::to_string(holder.token.value()) + ")" +
      (given.now ? " and hand it on AT ONCE" : "") + "? [y/N] ";
  [[maybe_unused]] const ssize_t asked = ::write(STDERR_FILENO, question.data(), question.size());
  std::array<char, 64> answer{};
  const ssize_t length = ::read(STDIN_FILENO, answer.data(), answer.size());
  const bool meant = length > 0 && (answer[0] == 'y' || answer[0] == 'Y');
  if (!meant) throw command_failure(exit_code::nothing_there, "nothing was done");
}

/// For how long nobody enters after a safe break; nothing where the store does not say it now. A store
/// that knows no time says a millisecond at least: that is none.
std::optional<std::chrono::milliseconds> closed_time(const client& store, const lock_name& name) {
  try {
    const auto after = store.who(name);
    if (after && after->closed_for > std::chrono::milliseconds{1}) return after->closed_for;
  } catch (const lock_error&) {
    return std::nullopt;  // the break itself is done
  }
  return std::nullopt;
}

std::string broken_json(const lock_name& name, fencing_token token, bool now,
                        std::optional<std::chrono::milliseconds> closed_for) {
  json_writer made;
  made.begin_object().key("name").value(name.text());
  made.key("token").value(std::to_string(token.value()));
  made.key("style").value(now ? "at_once" : "safe");
  made.key("closed_for_ms");
  if (closed_for) {
    made.value(closed_for->count());
  } else {
    made.null();
  }
  return made.end_object().text() + "\n";
}

}  // namespace

void print(const std::string& text) {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw command_failure(exit_code::output_failed,
                            std::string("could not write to standard output: ") +
                                std::system_category().message(errno));
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

int list_command(std::span<char* const> arguments) {
  const auto given = read(arguments, options_of_all, "PREFIX");
  if (given.help) return print_help("ls");
  const client store = client::open(given.store);
  const auto locks = list_all(store, given.word.value_or(""));
  if (given.json) {
    json_writer made;
    made.begin_object().key("locks").begin_array();
    for (const lock_info& each : locks) write_json(made, each);
    print(made.end_array().end_object().text() + "\n");
  } else if (locks.empty()) {
    say("no lock is held" + (given.word ? " whose name begins with " + quoted(*given.word) : ""));
  } else {
    print(list_text(locks));
  }
  return exit_code::success;
}

int who_command(std::span<char* const> arguments) {
  const auto given = read(arguments, options_of_all, "NAME");
  if (given.help) return print_help("who");
  const lock_name name = required_name(given, "who");
  const client store = client::open(given.store);
  const auto found = store.who(name);
  if (given.json) {
    lock_info free_lock;
    free_lock.name = name.text();
    json_writer made;
    write_json(made, found.value_or(free_lock));
    print(made.text() + "\n");
  } else {
    print(found ? who_text(*found) : printable(name.text()) + ": free\n");
  }
  return found ? exit_code::success : exit_code::nothing_there;
}

int break_command(std::span<char* const> arguments) {
  const auto given = read(arguments, options_of_break, "NAME");
  if (given.help) return print_help("break");
  const lock_name name = required_name(given, "break");
  const client store = client::open(given.store);
  const auto found = store.who(name);
  lock_info free_lock;
  free_lock.name = name.text();
  const lock_info& lock = found ? *found : free_lock;
  const holder_info& holder = choose_holder(lock, given.token);
  make_sure(given, lock, holder);

  // By the token that was shown: if the lock has changed hands meanwhile, nothing happens.
  store.break_lock(name, holder.token, given.now ? break_style::at_once : break_style::safe);
  const auto closed_for =
      given.now ? std::optional(std::chrono::milliseconds{0}) : closed_time(store, name);
  const std::string broken =
      "broke " + quoted(name.text()) + ", token " + std::to_string(holder.token.value());
  if (given.json) {
    print(broken_json(name, holder.token, given.now, closed_for));
  } else if (given.now) {
    print(broken + ": the next one may enter now\n");
  } else {
    print(broken + ": its holder is told, and nobody enters " +
          (closed_for ? "for another " + to_text(*closed_for)
                      : std::string("before its lease would have ended")) +
          "\n");
  }
  if (given.now) {
    say("the old holder may still be working: only resources that check the token are safe");
  }
  return exit_code::success;
}

}  // namespace sallyport::cli
