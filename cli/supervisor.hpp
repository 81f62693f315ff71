#pragma once

#include "cli/attendance.hpp"
#include "cli/child.hpp"
#include "cli/descriptor.hpp"
#include "cli/lease_policy.hpp"
#include "cli/message.hpp"
#include <sallyport/lease.hpp>

#include <optional>
#include <string>

namespace sallyport::cli {

class guard;
class signals;
class terminal;

/// Stands by a running command: passes signals on, minds the lease, and ends the command in time
/// when the lease cannot be trusted any longer. One thread and one poll(2); the library renews.
/// Thread safety: none.
class supervisor {
 public:
  /// Everything must outlive the supervisor.
  struct parts {
    lease& held;
    child& command;
    guard& watcher;
    const signals& source;
    terminal& screen;
    const lease_policy& policy;
    bool fixed = false;
    loudness loud = loudness::normal;
  };

  explicit supervisor(const parts& all);
  supervisor(const supervisor&) = delete;
  supervisor& operator=(const supervisor&) = delete;

  /// Until the command has ended and was reaped. The terminal is ours again and the guard has been
  /// dismissed.
  [[nodiscard]] child_end run();
  /// Whether the command was signalled on account of the lease.
  [[nodiscard]] bool stopped_for_lease() const noexcept { return last_step_ != step::none; }

 private:
  using step = lease_policy::step;

  void wait();
  void mind_the_lease();
  void note(const std::string& sentence) const;

  parts all_;
  std::string name_;
  attendance attendance_;
  cli::descriptor lost_;
  cli::descriptor timer_;
  lease_clock::time_point told_deadline_;
  step last_step_ = step::none;
};

}  // namespace sallyport::cli
