#include "core/acquire_attempt.hpp"

#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>

namespace sallyport::core {

using backend_api::acquire_answer;
using backend_api::granted;
using backend_api::held;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::waiting;

namespace {

constexpr duration first_pause = std::chrono::milliseconds{20};
constexpr duration longest_pause = std::chrono::seconds{1};
/// Between two questions of a waiter, whatever the store says.
constexpr duration shortest_wait = std::chrono::milliseconds{1};

/// The heartbeats of a client's waiters fall on a common grid, so that thousands of them wake the
/// watchdog a few times a second and travel together. Rounding down makes them early, never late.
time_point on_heartbeat_grid(time_point when, duration heartbeat) {
  const duration step = std::max(heartbeat / 8, duration{1});
  return time_point{when.time_since_epoch() / step * step};
}

/// Nobody knows whether the store executed a request that failed like this.
bool may_be_executed(const base::failure& why) {
  return why.code == errc::outcome_unknown || why.code == errc::not_enough_memory;
}

bool transient(const base::failure& why) {
  return why.code == errc::unavailable || why.code == errc::outcome_unknown;
}

}  // namespace

attempt_actions acquire_attempt::start(time_point now) {
  proven_at_ = now;
  return ask(now);
}

attempt_actions acquire_attempt::ask(time_point now) {
  phase_ = phase::asking;
  sent_at_ = now;
  wake_at_ = time_point::max();
  return {.send_acquire = true};
}

attempt_actions acquire_attempt::claim(time_point now) {
  phase_ = phase::claiming;
  sent_at_ = now;
  wake_at_ = time_point::max();
  remains_.any = true;
  early_notice_.reset();
  return {.send_claim = true};
}

attempt_actions acquire_attempt::finish(attempt_outcome outcome) {
  phase_ = phase::over;
  wake_at_ = time_point::max();
  return {.finish = std::move(outcome)};
}

leftovers acquire_attempt::remains() const noexcept {
  if (base::planted(base::defect::no_withdraw_after_unknown)) return {};
  return remains_;
}

attempt_actions acquire_attempt::on_acquire_answered(const base::result<acquire_answer>& answer,
                                                     time_point now, double draw) {
  if (phase_ == phase::leaving) {
    if (!answer && may_be_executed(answer.error())) {
      remains_.late_until = sent_at_ + times_.lease_length;
      remains_.any = true;
    } else if (answer && !std::holds_alternative<held>(*answer)) {
      remains_.any = true;
    }
    return finish(attempt_abandoned{});
  }
  if (phase_ != phase::asking) return {};
  if (!answer) return fail_or_pause(answer.error(), now, draw);

  heard_ = true;
  trouble_.reset();
  failures_ = 0;
  if (const auto* grant = std::get_if<granted>(&*answer)) {
    remains_.any = true;
    permits_ = grant->permits;
    const duration span = base::planted(base::defect::full_lease_on_already_yours)
                              ? times_.lease_length
                              : grant->remaining;
    return win_or_claim({.tokens = grant->tokens,
                         .proof = {sent_at_, span, grant->provisional},
                         .permits = grant->permits},
                        now);
  }
  if (const auto* queued = std::get_if<waiting>(&*answer)) {
    wait_for_news(*queued, sent_at_, now);
    if (const auto early = std::exchange(early_notice_, std::nullopt)) {
      return *early ? take_handed_over(**early, now) : claim(now);
    }
    return {};
  }
  return finish(attempt_busy{});
}

attempt_actions acquire_attempt::on_claim_answered(const base::result<renew_answer>& answer,
                                                   time_point now, double draw) {
  if (phase_ == phase::leaving) return finish(attempt_abandoned{});
  if (phase_ != phase::claiming) return {};
  if (!answer) return fail_or_pause(answer.error(), now, draw);

  trouble_.reset();
  failures_ = 0;
  if (const auto* mine = std::get_if<renewed>(&*answer)) {
    return win_or_claim(
        {.tokens = mine->tokens, .proof = {sent_at_, mine->remaining, false}, .permits = permits_},
        now);
  }
  // Whatever was granted has lapsed, but its notice may come again.
  doubt_notices_ = true;
  if (const auto* queued = std::get_if<waiting>(&*answer)) {
    wait_for_news(*queued, sent_at_, now);
    return {};
  }
  // The window closed before the claim came. Ask again under the same id: the store gives the old
  // place if it kept it.
  waiting_since_ = time_point::min();
  return ask(now);
}

void acquire_attempt::wait_for_news(const waiting& answer, time_point sent, time_point now) {
  remains_.any = true;
  phase_ = phase::waiting;
  waiting_since_ = sent;
  newest_when_waiting_ = answer.newest_token;
  permits_ = answer.permits;
  // In so long a time a grant may have come and lapsed unclaimed, and its notice may still be on
  // its way; unless the store says which tokens such a notice would have.
  const bool tells_old_notices = answer.newest_token != fencing_token{};
  if (!tells_old_notices && now >= proven_at_ + times_.claim_window - times_.margin) {
    doubt_notices_ = true;
  }
  proven_at_ = sent;
  ticket_stretch_ = ticket_stretch_of(answer);
  last_ = {
      .sent = sent, .ahead = answer.ahead, .pause = pause_of_waiter(times_, answer, sent, last_)};
  if (base::planted(base::defect::no_reread_after_lost_notice)) {
    wake_at_ = time_point::max();
  } else if (answer.ask_again_after < times_.heartbeat) {
    wake_at_ = now + std::max(shortest_wait, answer.ask_again_after);
  } else {
    wake_at_ = on_heartbeat_grid(now + last_.pause, times_.heartbeat);
  }
}

attempt_actions acquire_attempt::win_or_claim(const attempt_won& prize, time_point now) {
  if (prize.proof.counted_from + prize.proof.span - times_.margin > now) return finish(prize);
  // The answer took so long that nothing of it is left by our own count: only a fresh confirmation
  // will do.
  return claim(now);
}

attempt_actions acquire_attempt::on_granted_notice(const std::optional<granted>& grant,
                                                   time_point now) {
  switch (phase_) {
    case phase::asking:
    case phase::waiting:
    case phase::pausing:
      break;
    case phase::idle:
    case phase::claiming:
    case phase::leaving:
    case phase::over:
      return {};
  }
  if (grant) permits_ = grant->permits;
  if (grant && waiting_since_ != time_point::min()) return take_handed_over(*grant, now);
  return keep_or_claim(grant, now);
}

attempt_actions acquire_attempt::keep_or_claim(const std::optional<granted>& grant,
                                               time_point now) {
  if (phase_ != phase::asking) return claim(now);
  // The answer under way tells as much as a claim would; unless it is "waiting", given before the
  // grant was made.
  early_notice_ = grant;
  return {};
}

attempt_actions acquire_attempt::take_handed_over(const granted& grant, time_point now) {
  // Its grant was broken or lapsed before the store answered "still waiting": the notice was long
  // on its way.
  if (grant.tokens.first <= newest_when_waiting_) return {};
  // The grant was made after the store answered "still waiting", so it is at least as young as that
  // question: had it been made before, the store would have said so, unless it had lapsed (then
  // notices are doubted). The notice's own arrival proves nothing: it may have been on its way for
  // long.
  const time_point counted_from =
      base::planted(base::defect::deadline_from_grant_message) ? now : waiting_since_;
  const duration span = base::planted(base::defect::lease_instead_of_claim_window)
                            ? times_.lease_length
                            : times_.claim_window;
  // With less than a third left the holder would hardly get to work before its claim is answered:
  // wait for that.
  const bool enough = counted_from + span - times_.margin > now + span / 3;
  const bool doubted = doubt_notices_ && !base::planted(base::defect::deadline_from_grant_message);
  if (!enough || doubted) return keep_or_claim(grant, now);
  return finish(attempt_won{
      .tokens = grant.tokens, .proof = {counted_from, span, true}, .permits = grant.permits});
}

attempt_actions acquire_attempt::fail_or_pause(const base::failure& why, time_point now,
                                               double draw) {
  if (may_be_executed(why)) {
    remains_.any = true;
    remains_.late_until = sent_at_ + times_.lease_length;
  }
  if (trouble_since_ == time_point::min() || !trouble_) trouble_since_ = sent_at_;
  trouble_ = why;
  if (!transient(why) || !may_wait_ || now - trouble_since_ >= times_.store_patience) {
    return finish(why);
  }
  phase_ = phase::pausing;
  wake_at_ = now + backoff(failures_++, first_pause, longest_pause, draw);
  return {};
}

attempt_actions acquire_attempt::on_reconnected(time_point now) {
  if (phase_ != phase::waiting && phase_ != phase::pausing) return {};
  return ask(now);
}

attempt_actions acquire_attempt::on_timer(time_point now) {
  if (now < wake_at_) return {};
  if (phase_ != phase::waiting && phase_ != phase::pausing) return {};
  return ask(now);
}

attempt_actions acquire_attempt::give_up(time_point) {
  switch (phase_) {
    case phase::asking:
    case phase::claiming:
      // Leaving the store before the request has arrived there would leave the request's effect
      // behind.
      phase_ = phase::leaving;
      return {};
    case phase::idle:
    case phase::waiting:
    case phase::pausing:
      return finish(attempt_abandoned{});
    case phase::leaving:
    case phase::over:
      return {};
  }
  return {};
}

}  // namespace sallyport::core
