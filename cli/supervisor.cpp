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
      attendance_({all.command, all.watcher, all.source, all.screen, all.loud, name_,
                   "parts of it may outlive the lock"}),
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
  while (!attendance_.command_ended()) {
    mind_the_lease();
    wait();
    attendance_.handle_signals();
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

void supervisor::note(const std::string& sentence) const {
  if (all_.loud != loudness::quiet) say(sentence);
}

}  // namespace sallyport::cli
