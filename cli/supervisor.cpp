#include "cli/supervisor.hpp"

#include "cli/guard.hpp"
#include "cli/process_group.hpp"
#include "cli/signals.hpp"
#include "cli/terminal.hpp"
#include "cli/text.hpp"
#include <sallyport/lease_clock.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <poll.h>
#include <stop_token>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace sallyport::cli {
namespace {

/// How long after SIGKILL we wait for processes that hang in the kernel before we report anyway.
constexpr std::chrono::seconds patience_with_the_killed{5};

void drain(int source) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t length = ::read(source, &count, sizeof count);
}

}  // namespace

supervisor::supervisor(const parts& all)
    : all_(all),
      name_(quoted(all.held.name().text())),
      lost_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      // poll's own time-out stands still while the machine sleeps; the lease does not.
      timer_(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)),
      told_deadline_(all.held.deadline()) {
  if (lost_.get() < 0 || timer_.get() < 0) throw system_failure("make a timer", errno);
}

child_end supervisor::run() {
  const std::stop_callback when_lost{all_.held.lost(), [this]() noexcept {
                                       const std::uint64_t one = 1;
                                       [[maybe_unused]] const ssize_t told =
                                           ::write(lost_.get(), &one, sizeof one);
                                     }};
  while (!look_after_the_command()) {
    mind_the_lease();
    wait();
    while (const auto signal = all_.source.next()) handle(*signal);
  }
  all_.screen.take_back();
  if (last_step_ != step::kill && all_.watcher.has_killed()) {
    note("the guard killed the command before the lease on " + name_ +
         " ran out: this process was stopped or starved");
    last_step_ = step::kill;
  }
  // All this before the reaping: from then on the group's number may be another's.
  if (stopped_for_lease() || !all_.held.valid()) {
    // Only the group's leader is gone for certain.
    if (!kill_group(all_.command.pid(), patience_with_the_killed)) {
      say("some processes of the command could not be killed within 5 s");
    }
  } else if (all_.loud == loudness::verbose && group_alive(all_.command.pid())) {
    say("the command has ended and left processes behind; they run on without the lock");
  }
  all_.watcher.dismiss();
  return all_.command.reap();
}

void supervisor::wait() {
  std::array<pollfd, 3> sources{
      {{all_.source.descriptor(), POLLIN, 0}, {lost_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}}};
  if (::poll(sources.data(), sources.size(), -1) < 0) return;
  if (sources[1].revents != 0) drain(lost_.get());
  if (sources[2].revents != 0) drain(timer_.get());
}

void supervisor::mind_the_lease() {
  const auto state = all_.held.state();
  const auto deadline = all_.held.deadline();
  const auto now = lease_clock::now();
  if (deadline > told_deadline_) {
    told_deadline_ = deadline;
    all_.watcher.extend(all_.policy.guard_kills_at(deadline));
  }
  const auto decided = all_.policy.decide(state, deadline, now);
  if (decided.now == step::terminate && last_step_ == step::none) {
    last_step_ = step::terminate;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
    note((all_.fixed ? "the fixed lease on " : "the lease on ") + name_ +
         (all_.fixed ? " ends in " : " could not be renewed and ends in ") + to_text(left) +
         ": asked the command to stop (SIGTERM)");
    all_.command.send(SIGTERM);
    all_.command.send(SIGCONT);  // a stopped process hears nothing
  } else if (decided.now == step::kill) {
    if (last_step_ != step::kill) {
      note(state == lease_state::lost && now < deadline
               ? "the lease on " + name_ +
                     " was lost (it was broken, or another has it): killed "
                     "the command"
               : "the lease on " + name_ + " has run out: killed the command");
    }
    last_step_ = step::kill;
    all_.command.send(SIGKILL);
  }

  const auto at = decided.ask_again.time_since_epoch().count();
  itimerspec when{};
  when.it_value.tv_sec = at / 1'000'000'000;
  when.it_value.tv_nsec = at % 1'000'000'000;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void supervisor::handle(int signal) {
  if (signal == SIGCHLD) {
    look_after_the_guard();
  } else if (signal == SIGCONT) {
    resume();
  } else if (signal == SIGTSTP) {
    // The wrapper itself never stops: the renewals would stop with it.
    stopped_ ? resume() : all_.command.send(SIGTSTP);
  } else if (signals::forwarded(signal)) {
    all_.command.send(signal);
    // Ctrl-C at a stopped command is meant to end it, not to wait until somebody continues it.
    if (stopped_ && signals::cancels(signal)) all_.command.send(SIGCONT);
  }
}

void supervisor::look_after_the_guard() {
  if (!all_.watcher.found_dead()) return;
  note(
      "the guard process was killed; the command goes on, but if this process is killed as well, "
      "parts of it may outlive the lock");
}

bool supervisor::look_after_the_command() {
  for (;;) {
    const auto seen = all_.command.look();
    switch (seen.what) {
      case child::change::kind::none:
        return false;
      case child::change::kind::ended:
        return true;
      case child::change::kind::stopped:
        was_stopped(seen.signal);
        break;
      case child::change::kind::continued:
        stopped_ = false;
        break;
    }
  }
}

void supervisor::was_stopped(int signal) {
  stopped_ = true;
  const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wants_terminal && all_.screen.in_foreground()) {
    resume();  // the shell has brought us to the foreground (fg): pass it on
    return;
  }
  all_.screen.take_back();
  note(std::string("the command was stopped (") + signal_name(signal) + ") and keeps " + name_ +
       (all_.screen.in_foreground()
            ? "; Ctrl-Z continues it, Ctrl-C ends it"
            : "; to continue it: kill -CONT " + std::to_string(::getpid())));
}

void supervisor::resume() {
  if (all_.screen.in_foreground()) {
    all_.screen.give_to(all_.command.pid());
    all_.screen.was_given();
  }
  stopped_ = false;
  all_.command.send(SIGCONT);
}

void supervisor::note(const std::string& sentence) const {
  if (all_.loud != loudness::quiet) say(sentence);
}

}  // namespace sallyport::cli
