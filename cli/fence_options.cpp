#include "cli/fence_options.hpp"

#include "cli/arguments.hpp"
#include "cli/text.hpp"
#include <sallyport/types.hpp>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 9> fence_run_flags{{
    {'s', "shared", ""},
    {'x', "exclusive", ""},
    {0, "lock", "LOCK"},
    {'n', "nonblock", ""},
    {'w', "wait", "SECONDS"},
    {0, "existing", ""},
    {'v', "verbose", ""},
    {'q', "quiet", ""},
    {'h', "help", ""},
}};
constexpr std::array<option_spec, 8> fence_check_flags{{
    {'s', "shared", ""},
    {'x', "exclusive", ""},
    {0, "lock", "LOCK"},
    {'w', "wait", "SECONDS"},
    {0, "existing", ""},
    {0, "json", ""},
    {'q', "quiet", ""},
    {'h', "help", ""},
}};
constexpr std::array<option_spec, 9> fence_rebind_flags{{
    {0, "from", "LOCK"},
    {0, "lock", "LOCK"},
    {0, "restart", ""},
    {0, "sql", "postgres|mariadb|sqlite"},
    {0, "gate-table", "TABLE"},
    {'w', "wait", "SECONDS"},
    {0, "json", ""},
    {'q', "quiet", ""},
    {'h', "help", ""},
}};
constexpr std::chrono::hours longest_wait{24};

void take(fence_options& into, const option_spec& option, std::string_view value) {
  const std::string_view name = option.long_name;
  if (name == "shared") {
    into.shown.mode = lock_mode::shared;
  } else if (name == "exclusive") {
    into.shown.mode = lock_mode::exclusive;
  } else if (name == "lock") {
    if (value.empty()) throw usage_error("--lock needs a lock's name");
    into.shown.lock = value;
  } else if (name == "nonblock") {
    into.wait = std::chrono::milliseconds{0};
  } else if (name == "wait") {
    const auto read = parse_duration(value);
    if (!read || *read > longest_wait) {
      throw usage_error("--wait needs a duration of at most 24h such as 2, 0.5, 500ms or 5m; " +
                        quoted(value) + " is none");
    }
    into.wait = *read;
  } else if (name == "from") {
    into.from = value;
  } else if (name == "restart") {
    into.restart = true;
  } else if (name == "sql") {
    into.sql = value;
  } else if (name == "gate-table") {
    into.gate_table = value;
  } else if (name == "existing") {
    into.existing = true;
  } else if (name == "json") {
    into.json = true;
  } else if (name == "verbose") {
    into.loud = loudness::verbose;
  } else if (name == "quiet") {
    into.loud = loudness::quiet;
  } else if (name == "help") {
    into.help = true;
  }
}

fencing_token token_in(std::optional<std::string_view> given, const variable_reader& variable) {
  constexpr std::string_view remedy =
      "; under 'sallyport run NAME -- ...' it is in SALLYPORT_TOKEN (--permits and some stores "
      "give "
      "none)";
  std::string text;
  if (given && *given != "-") {
    text = *given;
  } else {
    const char* const told = variable("SALLYPORT_TOKEN");
    if (told == nullptr) {
      throw usage_error("no TOKEN is given, and SALLYPORT_TOKEN is not set" + std::string(remedy));
    }
    text = told;
  }
  const auto number = parse_number(text, std::numeric_limits<std::uint64_t>::max());
  if (!number || *number == 0) {
    throw usage_error("TOKEN is a number from 1 on, not " + quoted(text) + std::string(remedy));
  }
  return fencing_token{*number};
}

/// Whether the `sallyport run` around this command has this token beside others.
bool is_shared(fencing_token token, const variable_reader& variable) {
  const char* const mode = variable("SALLYPORT_MODE");
  const char* const told = variable("SALLYPORT_TOKEN");
  return mode != nullptr && std::string_view(mode) == "shared" && told != nullptr &&
         told == std::to_string(token.value());
}

std::string lock_in(const variable_reader& variable) {
  for (const char* name : {"SALLYPORT_FENCE_LOCK", "SALLYPORT_LOCK"}) {
    const char* const told = variable(name);
    if (told != nullptr && *told != 0) return told;
  }
  throw usage_error(
      "which lock is the token of? Name it with --lock, or run this under 'sallyport run', which "
      "sets SALLYPORT_FENCE_LOCK: a gate refuses the numbers of other locks");
}

void finish(fence_options& read, std::optional<std::string_view> gate,
            std::optional<std::string_view> token, const variable_reader& variable) {
  if (!gate || gate->empty()) {
    throw usage_error("which gate? Name its file, beside what it guards: /srv/orders/balance.gate");
  }
  read.gate = *gate;
  read.shown.token = token_in(token, variable);
  if (read.shown.lock.empty()) read.shown.lock = lock_in(variable);
}

}  // namespace

fence_options read_fence_run(std::span<char* const> arguments, const variable_reader& variable) {
  fence_options read;
  argument_reader reader{arguments, fence_run_flags};
  std::optional<std::string_view> gate;
  std::optional<std::string_view> token;
  while (const auto item = reader.next()) {
    if (item->option != nullptr) {
      take(read, *item->option, item->value);
      if (read.help) return read;
    } else if (!gate) {
      gate = item->value;
    } else if (!token) {
      token = item->value;
    } else {
      reader.unread();
      break;
    }
  }
  read.command.assign(reader.rest().begin(), reader.rest().end());
  finish(read, gate, token, variable);
  if (read.command.empty()) {
    throw usage_error("fence run needs a COMMAND: sallyport fence run GATE TOKEN -- COMMAND ...");
  }
  read.command.push_back(nullptr);
  return read;
}

namespace {

/// GATE and TOKEN, with options anywhere.
fence_options read_gate_and_token(std::string_view verb, std::span<const option_spec> flags,
                                  std::span<char* const> arguments,
                                  const variable_reader& variable) {
  fence_options read;
  argument_reader reader{arguments, flags};
  std::vector<std::string_view> words;
  while (const auto item = reader.next()) {
    if (item->option == nullptr) {
      words.push_back(item->value);
      continue;
    }
    take(read, *item->option, item->value);
    if (read.help) return read;
  }
  words.insert(words.end(), reader.rest().begin(), reader.rest().end());
  if (words.size() > 2) {
    throw usage_error("fence " + std::string(verb) + " takes GATE and TOKEN; " + quoted(words[2]) +
                      " is one too many");
  }
  const auto word = [&](std::size_t at) {
    return at < words.size() ? std::optional{words[at]} : std::nullopt;
  };
  finish(read, word(0), word(1), variable);
  return read;
}

}  // namespace

fence_options read_fence_check(std::span<char* const> arguments, const variable_reader& variable) {
  return read_gate_and_token("check", fence_check_flags, arguments, variable);
}

fence_options read_fence_rebind(std::span<char* const> arguments, const variable_reader& variable) {
  fence_options read = read_gate_and_token("rebind", fence_rebind_flags, arguments, variable);
  if (read.help) return read;
  if (read.from.empty()) {
    throw usage_error(
        "fence rebind needs --from LOCK, what the gate is bound to now; what it refuses says so");
  }
  if (is_shared(read.shown.token, variable)) {
    throw usage_error(
        "fence rebind needs an exclusive token; this one is shared ('sallyport run -s'), so it is "
        "not "
        "newer than those of others who hold the lock. Run it under 'sallyport run' without -s");
  }
  if (!read.gate_table.empty() && read.sql.empty()) {
    throw usage_error("--gate-table goes with --sql");
  }
  return read;
}

}  // namespace sallyport::cli
