#include "cli/run.hpp"

#include "cli/child.hpp"
#include "cli/environment.hpp"
#include "cli/exit_codes.hpp"
#include "cli/guard.hpp"
#include "cli/help.hpp"
#include "cli/inherited.hpp"
#include "cli/lease_policy.hpp"
#include "cli/message.hpp"
#include "cli/public_address.hpp"
#include "cli/run_options.hpp"
#include "cli/signals.hpp"
#include "cli/store.hpp"
#include "cli/supervisor.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"
#include "cli/waiting.hpp"
#include <sallyport/client.hpp>
#include <sallyport/observer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

namespace sallyport::cli {
namespace {

std::chrono::milliseconds in_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

int lost_before_the_start(const run_options& options) {
  say("the lease on " + quoted(options.name) +
      " was lost before the command could be started; nothing was done");
  return exit_code::lost;
}

/// Passes on what others wish; the command itself goes on.
class wish_teller final : public observer {
 public:
  void release_wanted(const lock_event& event) override {
    say("somebody asks for " + quoted(event.name) +
        " to be released; the command goes on until it ends or is stopped");
  }
};

int not_acquired(const client& store, const run_options& options) {
  if (somebody_reads(options)) {
    say_who_holds(store, options.name, "not acquired: ", "; store " + store_text(options.store));
  }
  return options.not_acquired_code;
}

void say_acquired(const waited& outcome, const run_options& options) {
  if (options.loud != loudness::verbose) return;
  say("acquired " + quoted(options.name) + " after " + to_text(in_ms(outcome.took)) +
      (outcome.got->fenced() ? ", token " + std::to_string(outcome.got->token().value()) : "") +
      ", lease " + to_text(outcome.got->length()) + ", store " + store_text(options.store));
}

child::plan plan_for(const run_options& options, const lease& held, const lease_policy& policy) {
  lock_facts facts{
      .name = options.name, .token = {}, .deadline = {}, .store = options.store, .entry = {}};
  if (held.fenced()) {
    facts.token = held.token();
    facts.fence_lock = held.fence_pass().lock;
    facts.shared_token = held.fence_pass().mode == lock_mode::shared;
  }
  facts.entry = held.entry();
  if (options.fixed) facts.deadline = held.deadline();
  return {options.command, child_environment(::environ, facts),
          policy.guard_kills_at(held.deadline())};
}

/// Gives the lock back and finds the exit code.
int settle(lease& held, const supervisor& stood_by, const child& command, const child_end& end,
           const run_options& options) {
  if (const auto why = command.start_error()) {
    held.release();
    return tell_start_error(options.command.front(), *why);
  }
  if (stood_by.stopped_for_lease() || !held.valid()) {
    if (!stood_by.stopped_for_lease()) {
      say("the lease on " + quoted(options.name) +
          " was lost before the command ended; its work may have overlapped with another's");
    }
    held.release();
    return exit_code::lost;
  }
  switch (held.release()) {
    case release_result::released:
      break;
    case release_result::already_lost:
      say("the lease on " + quoted(options.name) +
          " was lost before the command ended; its work may have overlapped with another's");
      return exit_code::lost;
    case release_result::unknown:
      if (options.loud != loudness::quiet) {
        say("the store did not confirm the release of " + quoted(options.name) +
            "; at the latest it is free when the lease ends");
      }
      break;
  }
  return end.signalled ? exit_code::signal_base + end.number : end.number;
}

}  // namespace

int run_command(std::span<char* const> arguments) {
  const run_options options = read_run_options(arguments, default_store());
  if (options.help) return print_help("run");

  const inherited_descriptors inherited;
  const signals source;
  guard watcher{
      options.lease_length};  // forks: before the client, whose threads a fork would not take along
  client_options of_the_client{.label = options.label, .companion_pid = watcher.pid()};
  if (options.loud != loudness::quiet) of_the_client.watcher = std::make_shared<wish_teller>();
  waiting_run way{options, source};
  const std::optional<client> opened = way.open(std::move(of_the_client));
  if (!opened) return exit_code::signal_base + way.signal().value_or(0);
  const client& store = *opened;
  waited outcome = way.acquire(store);
  if (outcome.signal) return exit_code::signal_base + *outcome.signal;
  if (!outcome.got) return not_acquired(store, options);
  say_acquired(outcome, options);

  lease& held = *outcome.got;
  held.confirm();  // a command should start under a full lease
  if (!held.valid()) return lost_before_the_start(options);
  const lease_policy policy{held.length(), options.grace.value_or(default_grace(held.length())),
                            options.fixed};
  terminal screen;
  child command{plan_for(options, held, policy), watcher, source, inherited, screen};
  supervisor stood_by{
      {held, command, watcher, source, screen, policy, options.fixed, options.loud}};
  const child_end end = stood_by.run();
  return settle(held, stood_by, command, end, options);
}

}  // namespace sallyport::cli
