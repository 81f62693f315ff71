#include "core/lease_keeper.hpp"

#include "base/planted.hpp"

#include <algorithm>

namespace sallyport::core {
namespace {

/// Renewals of one lease length fall on a common grid, so that thousands of leases wake the
/// watchdog once and travel in one batch. Rounding down makes them early, never late.
time_point on_renewal_grid(time_point when, duration lease_length) {
  const duration step = std::max(lease_length / 24, duration{1});
  return time_point{when.time_since_epoch() / step * step};
}

}  // namespace

lease_keeper::lease_keeper(const timing& times, const confirmation& first, time_point now)
    : times_(&times) {
  accept(first, now);
}

void lease_keeper::accept(const confirmation& proof, time_point now) noexcept {
  const time_point from =
      base::planted(base::defect::deadline_from_reply) ? now : proof.counted_from;
  deadline_ = std::max(deadline_, from + proof.span - times_->margin);
  // Never at once, however little the store confirms: a renewal that is due when it is answered
  // would go round for ever.
  renew_at_ =
      std::max(from + proof.span / 6, on_renewal_grid(from + proof.span / 3, times_->lease_length));
  suspect_at_ = from + proof.span / 3 * 2;
  provisional_ = proof.provisional;
  failures_ = 0;
}

keeper_actions lease_keeper::begin(time_point now) {
  if (provisional_) {
    const bool time_enough = now + 4 * times_->claim_delay < deadline_;
    renew_at_ = time_enough ? now + times_->claim_delay : now;
  }
  return advance(now);
}

keeper_actions lease_keeper::claim_now(time_point now) {
  if (provisional_ && failures_ == 0) renew_at_ = std::min(renew_at_, now);
  return advance(now);
}

keeper_actions lease_keeper::on_timer(time_point now) { return advance(now); }

keeper_actions lease_keeper::on_confirmed(const confirmation& proof, time_point now) {
  renewing_ = false;
  if (phase_ == phase::lost && base::planted(base::defect::late_answer_revives))
    phase_ = phase::suspect;
  if (over()) return {};
  // The deadline may have passed before this answer came: too late, even if the store extended the
  // lease.
  if (now >= deadline_ && !base::planted(base::defect::late_answer_revives)) return advance(now);
  accept(proof, now);
  keeper_actions actions;
  if (phase_ == phase::suspect) {
    phase_ = phase::held;
    actions.tell_held = true;
  }
  const keeper_actions due = advance(now);
  actions.send_renewal = due.send_renewal;
  actions.tell_suspect = due.tell_suspect;
  actions.tell_lost = due.tell_lost;
  return actions;
}

keeper_actions lease_keeper::on_refused(time_point) {
  renewing_ = false;
  if (over()) return {};
  phase_ = phase::lost;
  return {.tell_lost = true};
}

keeper_actions lease_keeper::on_renewal_failed(time_point now, double draw) {
  renewing_ = false;
  if (over()) return {};
  // A claim has only its window, however long the lease is.
  const duration span = provisional_ ? times_->claim_window : times_->lease_length;
  renew_at_ = now + backoff(failures_++, span / 48, span / 12, draw);
  return advance(now);
}

keeper_actions lease_keeper::on_disconnected(time_point now) {
  if (suspects() && phase_ == phase::held) {
    suspect_at_ = std::min(suspect_at_, now);
    // What has failed already waits for its time: a store that hangs up each time is not stormed.
    if (failures_ == 0) renew_at_ = std::min(renew_at_, now);
  }
  return advance(now);
}

void lease_keeper::end() noexcept {
  if (phase_ != phase::lost) phase_ = phase::ended;
}

keeper_actions lease_keeper::advance(time_point now) {
  if (over()) return {};
  keeper_actions actions;
  if (now >= deadline_) {
    phase_ = phase::lost;
    actions.tell_lost = true;
    return actions;
  }
  if (renews() && !renewing_ && now >= renew_at_) {
    renewing_ = true;
    actions.send_renewal = true;
  }
  if (suspects() && phase_ == phase::held && now >= suspect_at_) {
    phase_ = phase::suspect;
    actions.tell_suspect = true;
  }
  return actions;
}

bool lease_keeper::fresh(time_point now) const noexcept {
  return phase_ == phase::held && now < suspect_at_ && now < deadline_;
}

time_point lease_keeper::wake_at() const noexcept {
  if (over()) return time_point::max();
  time_point next = deadline_;
  if (renews() && !renewing_) next = std::min(next, renew_at_);
  if (suspects() && phase_ == phase::held) next = std::min(next, suspect_at_);
  return next;
}

}  // namespace sallyport::core
