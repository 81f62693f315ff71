#pragma once

#include "core/timing.hpp"

#include <cstdint>

namespace sallyport::core {

/// What the store confirmed about a grant.
struct confirmation {
  time_point
      counted_from;  ///< just before the confirmed request was sent; never when its answer came
  duration span{};   ///< what the store said was left then
  bool provisional = false;  ///< handed over and not claimed: good for the claim window only

  friend bool operator==(const confirmation&, const confirmation&) = default;
};

/// What the runtime is to do after feeding an event; several at once are possible.
struct keeper_actions {
  bool send_renewal = false;  ///< send one renewal (the claim, if provisional)
  bool tell_held = false;     ///< suspect no more
  bool tell_suspect = false;
  bool tell_lost = false;

  friend bool operator==(const keeper_actions&, const keeper_actions&) = default;
};

/// Keeps one grant alive and says when it is lost. Pure: it never sleeps and never reads a clock;
/// feed it events, do what it answers, and call on_timer at wake_at().
/// Thread safety: none; the engine calls it under its mutex.
/// Invariants: (1) deadline() never moves backwards. (2) `lost` and `ended` are final: nothing
/// brings a lease back. (3) At most one renewal is under way.
///
/// | phase \ event | time: a third | two thirds | deadline | renewal confirmed | not owner | renewal failed |
/// |---|---|---|---|---|---|---|
/// | held          | renew         | -> suspect | -> lost  | held, new deadline | -> lost  | renew again later |
/// | suspect       | (renewing)    | -          | -> lost  | -> held, new deadline | -> lost | renew again later |
/// | lost, ended   | nothing happens any more, whatever comes                                          ||||||
///
/// A broken connection is as if two thirds had passed.
///
/// A fixed lease (renewal::never) is claimed if it was handed over, is never renewed, and is never
/// suspect.
class lease_keeper {
 public:
  enum class phase : std::uint8_t { held, suspect, lost, ended };

  /// REQUIRES: `times` outlives the keeper, and the confirmation leaves something: counted_from +
  /// span - margin > now.
  lease_keeper(const timing& times, const confirmation& first, time_point now);
  lease_keeper(timing&& times, const confirmation& first, time_point now) = delete;

  /// The claim of a provisional grant is due after the claim delay, whatever the renewal mode; at
  /// once when little of the window is left.
  [[nodiscard]] keeper_actions begin(time_point now);
  /// A claim that is kept back is kept back no longer.
  [[nodiscard]] keeper_actions claim_now(time_point now);
  [[nodiscard]] keeper_actions on_timer(time_point now);
  [[nodiscard]] keeper_actions on_confirmed(const confirmation& proof, time_point now);
  /// The store says: not yours.
  [[nodiscard]] keeper_actions on_refused(time_point now);
  /// No answer, or the store could not be reached. `draw` in [0, 1) spreads the retries.
  [[nodiscard]] keeper_actions on_renewal_failed(time_point now, double draw);
  /// The way to the store is broken: suspect, and renewed at once, until a renewal is confirmed.
  [[nodiscard]] keeper_actions on_disconnected(time_point now);
  /// Released, or handed to a successor machine.
  void end() noexcept;

  [[nodiscard]] phase state() const noexcept { return phase_; }
  /// From this moment on the lease is lost.
  [[nodiscard]] time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool provisional() const noexcept { return provisional_; }
  /// Held, with at least a third of what was confirmed left: enough to pass it on to a local
  /// waiter.
  [[nodiscard]] bool fresh(time_point now) const noexcept;
  /// When on_timer wants to be called; time_point::max() when never.
  [[nodiscard]] time_point wake_at() const noexcept;

  /// A renewal was sent on somebody else's behalf (a local turn drew tokens): its answer counts
  /// here too.
  void renewal_sent() noexcept { renewing_ = true; }
  [[nodiscard]] bool renewal_under_way() const noexcept { return renewing_; }

 private:
  void accept(const confirmation& proof, time_point now) noexcept;
  [[nodiscard]] keeper_actions advance(time_point now);
  [[nodiscard]] bool over() const noexcept {
    return phase_ == phase::lost || phase_ == phase::ended;
  }
  [[nodiscard]] bool renews() const noexcept {
    return times_->renew == renewal::automatic || provisional_;
  }
  [[nodiscard]] bool suspects() const noexcept { return times_->renew == renewal::automatic; }

  const timing* times_;
  time_point deadline_;
  time_point renew_at_;
  time_point suspect_at_;
  std::uint32_t failures_ = 0;
  phase phase_ = phase::held;
  bool provisional_ = false;
  bool renewing_ = false;
};

}  // namespace sallyport::core
