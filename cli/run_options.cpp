#include "cli/run_options.hpp"

#include "cli/arguments.hpp"
#include "cli/exit_codes.hpp"
#include "cli/text.hpp"
#include <sallyport/semaphore.hpp>
#include <sallyport/types.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace sallyport::cli {
namespace {

constexpr std::array<option_spec, 17> known_options{{
    {'n', "nonblock", ""},
    {'w', "wait", "SECONDS"},
    {'E', "conflict-exit-code", "CODE"},
    {'s', "shared", ""},
    {'x', "exclusive", ""},
    {0, "permits", "N"},
    {0, "lease", "DURATION"},
    {0, "fixed", ""},
    {0, "grace", "DURATION"},
    {0, "label", "TEXT"},
    {0, "store", "URI"},
    {0, "store-wait", "DURATION"},
    {'v', "verbose", ""},
    {'q', "quiet", ""},
    {'h', "help", ""},
    // flock(1)'s other spellings.
    {0, "nb", ""},
    {0, "timeout", "SECONDS"},
}};

std::chrono::milliseconds duration(std::string_view option, std::string_view value) {
  const auto read = parse_duration(value);
  if (!read) {
    throw usage_error(std::string(option) + " needs a duration such as 2, 0.5, 500ms, 30s or 5m; " +
                      quoted(value) + " is none");
  }
  return *read;
}

void take(run_options& into, const option_spec& option, std::string_view value) {
  const std::string_view name = option.long_name;
  if (name == "nonblock" || name == "nb") {
    into.wait = std::chrono::milliseconds{0};
  } else if (name == "wait" || name == "timeout") {
    into.wait = duration("--wait", value);
  } else if (name == "conflict-exit-code") {
    const auto code = parse_number(value, 255);
    if (!code) throw usage_error("-E needs a code from 0 to 255, not " + quoted(value));
    into.not_acquired_code = static_cast<int>(*code);
  } else if (name == "shared") {
    into.wanted = wanted_lock::shared;
  } else if (name == "exclusive") {
    into.wanted = wanted_lock::exclusive;
  } else if (name == "permits") {
    const auto permits = parse_number(value, semaphore::max_permits);
    if (!permits || *permits == 0) {
      throw usage_error("--permits needs a number from 1 to " +
                        std::to_string(semaphore::max_permits) + ", not " + quoted(value));
    }
    into.permits = static_cast<std::uint32_t>(*permits);
  } else if (name == "lease") {
    into.lease_length = duration("--lease", value);
    if (into.lease_length.count() == 0) throw usage_error("--lease must be longer than nothing");
  } else if (name == "fixed") {
    into.fixed = true;
  } else if (name == "grace") {
    into.grace = duration("--grace", value);
  } else if (name == "label") {
    into.label = value;
  } else if (name == "store-wait") {
    into.store_wait = duration("--store-wait", value);
  } else if (name == "store") {
    into.store = value;
  } else if (name == "verbose") {
    into.loud = loudness::verbose;
  } else if (name == "quiet") {
    into.loud = loudness::quiet;
  } else if (name == "help") {
    into.help = true;
  }
}

void check(run_options& read, bool name_given) {
  if (!name_given) {
    throw usage_error("run needs the NAME of a lock: sallyport run NAME -- COMMAND");
  }
  if (read.command.empty()) {
    throw usage_error("run needs a COMMAND: sallyport run " + printable(read.name) +
                      " -- COMMAND ...");
  }
  std::string why;
  if (!lock_name::acceptable(read.name, &why)) {
    throw usage_error("bad name " + quoted(read.name) + ": " + why);
  }
  if (read.permits != 0) {
    if (read.wanted != wanted_lock::plain) {
      throw usage_error("--permits makes a semaphore, which is neither -s nor -x");
    }
    read.wanted = wanted_lock::permit;
  }
  if (read.grace && *read.grace >= read.lease_length) {
    throw usage_error("--grace (" + to_text(*read.grace) + ") must be shorter than the lease (" +
                      to_text(read.lease_length) + ")");
  }
}

}  // namespace

run_options read_run_options(std::span<char* const> arguments, std::string_view default_store) {
  run_options read;
  read.not_acquired_code = exit_code::not_acquired;
  read.store = default_store;
  argument_reader reader{arguments, known_options};
  bool name_given = false;
  while (const auto item = reader.next()) {
    if (item->option != nullptr) {
      take(read, *item->option, item->value);
      if (read.help) return read;
    } else if (!name_given) {
      read.name = item->value;
      name_given = true;
    } else {
      // As with flock: after the name, the first word that is no option begins the command.
      reader.unread();
      break;
    }
  }
  if (reader.after_dashes() && !name_given) {
    throw usage_error("the NAME of the lock stands before '--': sallyport run NAME -- COMMAND");
  }
  read.command.assign(reader.rest().begin(), reader.rest().end());
  check(read, name_given);
  if (read.label.empty()) {
    const std::string_view program = read.command.front();
    read.label = program.substr(program.rfind('/') + 1);
  }
  read.command.push_back(nullptr);
  return read;
}

std::chrono::milliseconds store_patience(const run_options& options) {
  const auto longest = options.wait.value_or(std::chrono::milliseconds::max());
  const auto wished = options.store_wait.value_or(options.wait.value_or(usual_store_wait));
  return std::min(wished, longest);
}

std::chrono::milliseconds default_grace(std::chrono::milliseconds lease_length) {
  return std::min<std::chrono::milliseconds>(lease_length / 6, std::chrono::seconds{10});
}

}  // namespace sallyport::cli
