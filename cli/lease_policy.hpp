#pragma once

#include <sallyport/lease.hpp>
#include <sallyport/lease_clock.hpp>

#include <chrono>

namespace sallyport::cli {

/// When a command that runs under a lease must go. Pure: it reads no clock; tell it what the lease
/// says and it answers what to do now and when to ask again.
///
///   ... held ...      deadline - grace       deadline - kill_ahead     deadline
///        none        |     terminate        |         kill            |  (must be gone)
///
/// A lease that is lost before its deadline (the store says that it is another's) means kill. A
/// renewed lease must also be suspect before anybody is asked to go: one that was handed over has an
/// early, provisional deadline until its claim is confirmed.
/// Thread safety: none needed; it is constant.
class lease_policy {
 public:
  enum class step { none, terminate, kill };
  struct decision {
    step now = step::none;
    lease_clock::time_point ask_again;  ///< REQUIRES of the caller: ask again then, or earlier
  };

  /// A renewed lease is suspect only in its last third: a longer grace is cut to three tenths, or
  /// every renewal would be too late for it.
  lease_policy(std::chrono::milliseconds lease_length, std::chrono::milliseconds grace, bool fixed);

  [[nodiscard]] decision decide(lease_state state, lease_clock::time_point deadline,
                                lease_clock::time_point now) const;

  [[nodiscard]] std::chrono::milliseconds grace() const noexcept { return grace_; }
  /// How long before the deadline SIGKILL is sent: dying takes a moment, too.
  [[nodiscard]] std::chrono::milliseconds kill_ahead() const noexcept { return kill_ahead_; }
  /// When the guard kills the group if it hears no later deadline: after the wrapper would have.
  [[nodiscard]] lease_clock::time_point guard_kills_at(lease_clock::time_point deadline) const {
    return deadline - kill_ahead_ / 2;
  }

 private:
  std::chrono::milliseconds kill_ahead_;
  std::chrono::milliseconds grace_;
  std::chrono::milliseconds look_every_;
  bool fixed_;
};

}  // namespace sallyport::cli
