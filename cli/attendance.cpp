#include "cli/attendance.hpp"

#include "cli/guard.hpp"
#include "cli/signals.hpp"
#include "cli/terminal.hpp"

#include <unistd.h>

namespace sallyport::cli {

void attendance::handle_signals() {
  while (const auto signal = all_.source.next()) handle(*signal);
}

void attendance::handle(int signal) {
  if (signal == SIGCHLD) {
    look_after_the_guard();
  } else if (signal == SIGCONT) {
    resume();
  } else if (signal == SIGTSTP) {
    // The wrapper itself never stops: what it has to do in time would stop with it.
    stopped_ ? resume() : all_.command.send(SIGTSTP);
  } else if (signals::forwarded(signal)) {
    all_.command.send(signal);
    // Ctrl-C at a stopped command is meant to end it, not to wait until somebody continues it.
    if (stopped_ && signals::cancels(signal)) all_.command.send(SIGCONT);
  }
}

void attendance::look_after_the_guard() {
  if (!all_.watcher.found_dead()) return;
  note(
      "the guard process was killed; the command goes on, but if this process is killed as well, " +
      all_.without_both);
}

bool attendance::command_ended() {
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

void attendance::was_stopped(int signal) {
  stopped_ = true;
  const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wants_terminal && all_.screen.in_foreground()) {
    resume();  // the shell has brought us to the foreground (fg): pass it on
    return;
  }
  all_.screen.take_back();
  note(std::string("the command was stopped (") + signal_name(signal) + ") and keeps " + all_.kept +
       (all_.screen.in_foreground()
            ? "; Ctrl-Z continues it, Ctrl-C ends it"
            : "; to continue it: kill -CONT " + std::to_string(::getpid())));
}

void attendance::resume() {
  if (all_.screen.in_foreground()) {
    all_.screen.give_to(all_.command.pid());
    all_.screen.was_given();
  }
  stopped_ = false;
  all_.command.send(SIGCONT);
}

void attendance::note(const std::string& sentence) const {
  if (all_.loud != loudness::quiet) say(sentence);
}

}  // namespace sallyport::cli
