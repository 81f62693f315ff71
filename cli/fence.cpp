#include "cli/fence.hpp"

#include "cli/arguments.hpp"
#include "cli/attendance.hpp"
#include "cli/child.hpp"
#include "cli/exit_codes.hpp"
#include "cli/fence_options.hpp"
#include "cli/guard.hpp"
#include "cli/help.hpp"
#include "cli/inherited.hpp"
#include "cli/inspect.hpp"
#include "cli/json.hpp"
#include "cli/message.hpp"
#include "cli/process_group.hpp"
#include "cli/signals.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"
#include <sallyport/fence.hpp>
#include <sallyport/fence_sql.hpp>
#include <sallyport/lease_clock.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <poll.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace sallyport::cli {
namespace {

/// The guard has no lease to mind here: it only waits for the end of this process.
constexpr std::chrono::hours guard_looks_every{1};
constexpr std::chrono::hours no_deadline{24 * 365 * 10};

const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody changes the environment.
}

fence::file_gate open_gate(const fence_options& options, bool inheritable) {
  return fence::file_gate{options.gate,
                          {.lock = {},
                           .wait_limit = options.wait,
                           .create = !options.existing,
                           .inheritable = inheritable}};
}

std::string token_text(const fence_options& options) {
  return std::to_string(options.shown.token.value());
}

/// The exit code of a verdict, and the sentence for it.
int tell(const fence_options& options, fence::gate& gate, fence::verdict said,
         std::string_view consequence) {
  switch (said) {
    case fence::verdict::passed:
      return exit_code::success;
    case fence::verdict::stale:
      say("token " + token_text(options) + " is stale: a newer holder was at " +
          quoted(options.gate) + std::string(consequence));
      return exit_code::lost;
    case fence::verdict::wrong_lock:
      break;
  }
  say("the numbers of the gate " + quoted(options.gate) + " belong to another lock than " +
      quoted(options.shown.lock) + ": to " + quoted(gate.bound_lock()) +
      "; give each lock's gate its own file, or see 'sallyport fence rebind'" +
      std::string(consequence));
  return exit_code::usage;
}

std::vector<std::string> environment_as_it_is() {
  std::vector<std::string> all;
  for (char** each = ::environ; each != nullptr && *each != nullptr; ++each)
    all.emplace_back(*each);
  return all;
}

/// Runs the command inside the gate, until it has ended.
int run_inside(const fence_options& options, guard& watcher) {
  // From here on signals are the command's. Before, they end this process, which has done nothing.
  const signals source;
  // The gate's file is open by now, and the command keeps it.
  const inherited_descriptors inherited;
  terminal screen;
  child command{{options.command, environment_as_it_is(), lease_clock::now() + no_deadline},
                watcher,
                source,
                inherited,
                screen};
  attendance attending{{command, watcher, source, screen, options.loud, "the gate shut",
                        "the gate stays shut until the command has ended"}};
  while (!attending.command_ended()) {
    pollfd waiting{source.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, -1) > 0) attending.handle_signals();
  }
  screen.take_back();
  if (options.loud == loudness::verbose && group_alive(command.pid())) {
    say("the command has ended and left processes behind; they run on outside of the gate");
  }
  watcher.dismiss();
  const child_end end = command.reap();
  if (const auto why = command.start_error())
    return tell_start_error(options.command.front(), *why);
  return end.signalled ? exit_code::signal_base + end.number : end.number;
}

int run_in_gate(std::span<char* const> arguments) {
  const fence_options options = read_fence_run(arguments, variable);
  if (options.help) return print_help("fence");
  guard watcher{guard_looks_every};  // forks: before the gate, whose file it must not hold
  auto gate = open_gate(options, true);
  int code = exit_code::system_refused;
  const fence::verdict said = gate.run(options.shown, [&] { code = run_inside(options, watcher); });
  return said == fence::verdict::passed ? code : tell(options, gate, said, "; nothing was run");
}

int check(std::span<char* const> arguments) {
  const fence_options options = read_fence_check(arguments, variable);
  if (options.help) return print_help("fence");
  auto gate = open_gate(options, false);
  const fence::verdict said = gate.run(options.shown, [] {});
  if (options.json) {
    json_writer out;
    out.begin_object().key("gate").value(options.gate).key("lock").value(options.shown.lock);
    out.key("token").value(token_text(options)).key("verdict").value(to_string(said)).end_object();
    print(out.text() + "\n");
  }
  if (said == fence::verdict::passed && options.loud != loudness::quiet) {
    say("token " + token_text(options) +
        " passes now. This is advice, no fence: a newer holder may come before the next command "
        "runs; use 'sallyport fence run'");
  }
  return tell(options, gate, said, "");
}

sql::dialect dialect_in(std::string_view word) {
  if (word == "postgres" || word == "postgresql") return sql::dialect::postgres;
  if (word == "mariadb") return sql::dialect::mariadb;
  throw usage_error("the databases that it speaks to are postgres and mariadb, not " +
                    quoted(word));
}

/// The statement for a gate in a database, and what its answer means.
int print_rebinding(const fence_options& options, fence::rebinding kind) {
  const sql::dialect whose =
      options.sql == "sqlite" ? sql::dialect::sqlite : dialect_in(options.sql);
  fence::sql_gate_options where;
  if (!options.gate_table.empty()) where.table = options.gate_table;
  const fence::sql_gate gate{whose, options.gate, where};
  print(
      "-- 0: bound to the new lock; 1: its token is stale; 2: bound to another lock;\n"
      "-- no row: nobody has passed this gate yet\n" +
      fence::sql_text(whose, gate.rebind(options.from, options.shown, kind)) + ";\n");
  return exit_code::success;
}

int rebind(std::span<char* const> arguments) {
  fence_options options = read_fence_rebind(arguments, variable);
  if (options.help) return print_help("fence");
  const auto kind =
      options.restart ? fence::rebinding::restarts_numbers : fence::rebinding::keeps_numbers;
  if (!options.sql.empty()) return print_rebinding(options, kind);
  options.existing = true;
  auto gate = open_gate(options, false);
  const fence::verdict said = gate.rebind(options.from, options.shown, kind);
  if (options.json) {
    json_writer out;
    out.begin_object().key("gate").value(options.gate).key("from").value(options.from);
    out.key("lock").value(options.shown.lock).key("token").value(token_text(options));
    out.key("numbers").value(options.restart ? "restarted" : "kept");
    out.key("verdict").value(to_string(said)).end_object();
    print(out.text() + "\n");
  }
  switch (said) {
    case fence::verdict::passed:
      if (options.loud != loudness::quiet) {
        say("the gate " + quoted(options.gate) + " is bound to " + quoted(options.shown.lock) +
            " from token " + token_text(options) + " on; " + quoted(options.from) +
            " is refused, whatever its token");
      }
      return exit_code::success;
    case fence::verdict::stale:
      say("token " + token_text(options) + " is stale: the gate " + quoted(options.gate) +
          " has seen a newer one; nothing was changed. If the store of the new lock began its "
          "tokens "
          "anew, and nobody works under the old lock any more, use --restart");
      return exit_code::lost;
    case fence::verdict::wrong_lock:
      break;
  }
  const std::string bound = gate.bound_lock();
  say("the gate " + quoted(options.gate) +
      (bound.empty() ? " is bound to no lock yet, and will be to the first that passes"
                     : " is bound to " + quoted(bound) + ", not to " + quoted(options.from)) +
      "; nothing was changed");
  return exit_code::usage;
}

int ddl(std::span<char* const> arguments) {
  constexpr std::array<option_spec, 5> flags{{{0, "resource-column", "COLUMN"},
                                              {0, "resource", "NAME"},
                                              {0, "gate-table", "TABLE"},
                                              {0, "drop", ""},
                                              {'h', "help", ""}}};
  fence::sql_trigger_options options;
  bool drop = false;
  std::vector<std::string> words;
  argument_reader reader{arguments, flags};
  while (const auto item = reader.next()) {
    if (item->option == nullptr) {
      words.emplace_back(item->value);
    } else if (item->option->long_name == "help") {
      return print_help("fence");
    } else if (item->option->long_name == "resource-column") {
      options.resource_column = item->value;
    } else if (item->option->long_name == "resource") {
      options.resource = item->value;
    } else if (item->option->long_name == "gate-table") {
      options.gate_table = item->value;
    } else {
      drop = true;
    }
  }
  for (const char* const each : reader.rest()) words.emplace_back(each);
  if (words.size() != 2) {
    throw usage_error(
        "fence ddl needs a database and a table: sallyport fence ddl postgres accounts");
  }
  const sql::dialect whose = dialect_in(words[0]);
  options.table = words[1];
  const auto all =
      drop ? fence::sql_trigger_removal(whose, options) : fence::sql_trigger_ddl(whose, options);
  const std::string script = fence::sql_script(whose, all);
  // MariaDB commits after each of them anyway.
  print(whose == sql::dialect::postgres ? "BEGIN;\n\n" + script + "COMMIT;\n" : script);
  return exit_code::success;
}

}  // namespace

int fence_command(std::span<char* const> arguments) {
  const std::string_view verb = arguments.empty() ? std::string_view{} : arguments.front();
  const auto rest = arguments.empty() ? arguments : arguments.subspan(1);
  if (verb == "run") return run_in_gate(rest);
  if (verb == "check") return check(rest);
  if (verb == "rebind") return rebind(rest);
  if (verb == "ddl") return ddl(rest);
  if (verb == "--help" || verb == "-h" || verb == "help") return print_help("fence");
  if (verb.empty()) {
    throw usage_error(
        "fence what? There are 'fence run', 'fence check', 'fence rebind' and 'fence ddl'");
  }
  const auto meant = nearest(verb, {"run", "check", "rebind", "ddl"});
  throw usage_error(
      "unknown command " + quoted("fence " + std::string(verb)) +
      (meant ? "; did you mean " + quoted("fence " + std::string(*meant)) + "?"
             : "; there are 'fence run', 'fence check', 'fence rebind' and 'fence ddl'"));
}

}  // namespace sallyport::cli
