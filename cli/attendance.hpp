#pragma once

#include "cli/child.hpp"
#include "cli/message.hpp"

#include <string>
#include <utility>

namespace sallyport::cli {

class guard;
class signals;
class terminal;

/// Looks after a running command, whatever it holds meanwhile: passes signals on, lends it the
/// terminal, and does not let itself be stopped with it.
/// Thread safety: none.
class attendance {
 public:
  /// Everything must outlive it.
  struct parts {
    child& command;
    guard& watcher;
    const signals& source;
    terminal& screen;
    loudness loud = loudness::normal;
    std::string kept;  ///< what a stopped command keeps, for a sentence: "'backup'"
    std::string
        without_both;  ///< what may happen once guard and wrapper are killed, for a sentence
  };

  explicit attendance(parts all) : all_(std::move(all)) {}

  /// Whether the command has ended; it is not reaped.
  [[nodiscard]] bool command_ended();
  /// Does what the signals ask that have come.
  void handle_signals();

 private:
  void handle(int signal);
  void look_after_the_guard();
  void was_stopped(int signal);
  void resume();
  void note(const std::string& sentence) const;

  parts all_;
  bool stopped_ = false;
};

}  // namespace sallyport::cli
