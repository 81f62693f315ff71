#include "core/farewell.hpp"

#include <sallyport/error.hpp>

#include <algorithm>

namespace sallyport::core {
namespace {

constexpr duration first_retry = std::chrono::milliseconds{20};
constexpr duration longest_retry = std::chrono::seconds{1};
constexpr int repeats_per_lease = 4;

}  // namespace

farewell::farewell(const timing& times, kind how, time_point late_until, time_point lapses_at)
    : times_(&times), late_until_(late_until), lapses_at_(lapses_at), how_(how) {}

farewell_actions farewell::start(time_point now) {
  told_ = how_ == kind::withdraw;  // nobody waits for the word on a withdrawal
  return send(now);
}

void farewell::start_at(time_point when) noexcept {
  told_ = true;
  wake_at_ = when;
  not_before_ = when;
}

farewell_actions farewell::send(time_point now) {
  sent_at_ = now;
  wake_at_ = time_point::max();
  under_way_ = true;
  // Once the grant was given back only leftovers matter, and those may be tickets too.
  const bool release = how_ == kind::release && !heard_;
  return {.send_release = release, .send_withdraw = !release};
}

farewell_actions farewell::on_answered(const base::result<backend_api::leave_answer>& answer,
                                       time_point now, double draw) {
  under_way_ = false;
  farewell_actions actions;
  if (answer) {
    // Whoever held nothing may stand in the queue: its last question may have come after its grant
    // was broken.
    const bool perhaps_queued =
        how_ == kind::release && !heard_ && *answer == backend_api::leave_answer::not_there;
    heard_ = true;
    if (!told_) {
      actions.tell = *answer == backend_api::leave_answer::left ? release_outcome::released
                                                                : release_outcome::already_lost;
    }
    told_ = true;
    // Only what was sent after a lost request's last moment takes back whatever that one did; when
    // the answer came proves nothing.
    if (sent_at_ >= late_until_ && !perhaps_queued) {
      actions.over = true;
      return actions;
    }
    if (perhaps_queued) {
      wake_at_ = now;
      return actions;
    }
    wake_at_ = std::min(std::max(late_until_, now), now + times_->lease_length / repeats_per_lease);
    return actions;
  }
  if (!told_) {
    actions.tell = release_outcome::unknown;
    told_ = true;
  }
  if (answer.error().code == errc::outcome_unknown && !heard_ && how_ == kind::release) {
    // The release may have happened; repeating it as a withdrawal is just as safe and also clears
    // tickets.
    how_ = kind::withdraw;
  }
  // What a late request has done lapses too, if the store never hears of its end.
  const time_point late_lapses_at =
      late_until_ == time_point::min()
          ? late_until_
          : late_until_ + std::max(times_->lease_length, times_->ticket_length);
  if (now >= std::max(late_lapses_at, lapses_at_) || answer.error().code == errc::closed) {
    actions.over = true;
    return actions;
  }
  wake_at_ = now + backoff(failures_++, first_retry, longest_retry, draw);
  return actions;
}

farewell_actions farewell::on_timer(time_point now) {
  if (now < wake_at_) return {};
  return send(now);
}

farewell_actions farewell::on_reconnected(time_point now) {
  if (under_way_ || now < not_before_) return {};
  return send(now);
}

farewell_actions farewell::on_late_request(time_point until, time_point now) {
  late_until_ = std::max(late_until_, until);
  if (under_way_) return {};
  // What is due earlier, a retry or a delayed start, is not put off.
  const time_point repeat_at =
      std::min(std::max(late_until_, now), now + times_->lease_length / repeats_per_lease);
  wake_at_ = std::max(not_before_, std::min(wake_at_, repeat_at));
  return {};
}

}  // namespace sallyport::core
