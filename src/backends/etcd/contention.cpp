#include "backends/etcd/contention.hpp"

#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>

namespace sallyport::backends::etcd {

using backend_api::acquire_request;
using backend_api::gone;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_request;
using backend_api::waiting;
using base::defect;
using base::planted;

namespace {

/// How long a watch that the store ended is left alone.
constexpr duration watch_pause = std::chrono::seconds{1};
/// How long a waiter puts off the look for what happened before its watch began: for each who waits
/// before it, or, if they are many, once. In a line of a mutex the one before it leaves last, which
/// takes a write of each; elsewhere it may have been in already.
constexpr duration second_look_delay = std::chrono::milliseconds{50};
constexpr int many_ahead = 5;
constexpr duration late_look_delay = std::chrono::seconds{1};

duration second_look_after(const contender& who, revision writes_since) {
  const auto ahead = static_cast<revision>(who.waiters_ahead);
  const bool one_by_one = who.what == form::mutex || who.what == form::election;
  if (ahead == 0 || who.is != contender::phase::waiting) return duration::zero();
  if (one_by_one && writes_since > ahead) return duration::zero();
  if (one_by_one && ahead >= many_ahead) return late_look_delay;
  return second_look_delay * std::min<revision>(ahead, many_ahead);
}

base::failure late() {
  return {make_error_code(errc::outcome_unknown), "etcd did not answer in time"};
}

}  // namespace

base::failure failure_of(trouble why, const std::string& text) {
  switch (why) {
    case trouble::unavailable:
      return {make_error_code(errc::unavailable), "etcd: " + text};
    case trouble::unknown:
      return {make_error_code(errc::outcome_unknown), "etcd: " + text};
    case trouble::no_such_lease:
    case trouble::lease_exists:
    case trouble::refused:
      return {make_error_code(errc::store_refused), "etcd: " + text};
  }
  return {make_error_code(errc::outcome_unknown), text};
}

contender* contention::find(const holder_id& who) {
  const auto found = contenders_.find(who);
  return found == contenders_.end() ? nullptr : &found->second;
}

std::optional<store_entry> contention::grant_of(const holder_id& who) const {
  const auto found = contenders_.find(who);
  if (found == contenders_.end() || found->second.is != phase::held) return std::nullopt;
  return store_entry{
      .key = found->second.key, .created = found->second.created, .lease = found->second.lease};
}

contender& contention::find_or_make(const acquire_request& request) {
  const auto [place, fresh] = contenders_.try_emplace(request.holder, request.holder, request.name);
  contender& who = place->second;
  if (!fresh) return who;
  who.what = form_of(request.kind, request.mode);
  who.length = request.lease_length;
  who.renewed = request.renewed;
  who.folder = how_.keys.folder(request.name.text());
  who.folder_end = how_.keys.folder_end(request.name.text());
  who.permits = request.permits;
  who.card = {.host = how_.owner.host,
              .label = how_.owner.label,
              .pid = how_.owner.pid,
              .since_ms = how_.wall_ms(),
              .waiters = request.local_waiters,
              .permits = who.what == form::permit ? request.permits : 0};
  who.value = request.value;
  return who;
}

void contention::set_timer(time_point when, timer what) { timers_.emplace(when, what); }

// ---- requests ------------------------------------------------------------------------------------

void contention::acquire(const acquire_request& request, time_point now, actions& out) {
  contender& who = find_or_make(request);
  who.asked = contender::question{now, request.answer_by, request.may_wait};
  if (who.card.waiters != request.local_waiters) {
    who.card.waiters = request.local_waiters;
    who.note_due = who.is == phase::waiting;
  }
  set_timer(request.answer_by, {.what = alarm::answers, .holder = who.id});
  // A waiter's heartbeat keeps its place.
  if (who.is == phase::waiting && !fresh_enough(who, now)) keep(who.lease, now, out);
  advance(who, now, out);
}

void contention::renew(const renew_request& request, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is == phase::outside || who->is == phase::lost) {
    out.emplace_back(renew_told{request.holder, renew_answer{gone{}}});
    return;
  }
  who->renew = contender::wish{now, request.answer_by, request.token_count > 0, false};
  if (who->card.waiters != request.local_waiters) {
    who->card.waiters = request.local_waiters;
    who->note_due = !who->renew->draws;
  }
  set_timer(request.answer_by, {.what = alarm::answers, .holder = who->id});
  if (who->is == phase::held && !who->renew->draws && (who->claimed || !fresh_enough(*who, now))) {
    keep(who->lease, now, out);
  }
  advance(*who, now, out);
}

void contention::leave(const leave_request& request, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr) {
    out.emplace_back(leave_told{request.holder, leave_answer::not_there});
    return;
  }
  who->leave = request.answer_by;
  who->going = true;
  set_timer(request.answer_by, {.what = alarm::answers, .holder = who->id});
  advance(*who, now, out);
}

void contention::downgrade(const renew_request& request, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is != phase::held) {
    out.emplace_back(downgrade_told{request.holder, renew_answer{gone{}}});
    return;
  }
  who->downgrade = contender::wish{now, request.answer_by, false, false};
  set_timer(request.answer_by, {.what = alarm::answers, .holder = who->id});
  advance(*who, now, out);
}

void contention::set_value(const renew_request& request, std::string_view value,
                           std::uint64_t ticket, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is != phase::held || who->what != form::election) {
    out.emplace_back(value_told{ticket, false});
    return;
  }
  who->values.push_back({ticket, std::string(value), request.answer_by});
  set_timer(request.answer_by, {.what = alarm::answers, .holder = who->id});
  advance(*who, now, out);
}

void contention::watch(const lock_name& name, bool on, actions& out) {
  if (!on) {
    const auto found = names_.find(name);
    if (found == names_.end()) return;
    if (found->second.watch != 0) out.emplace_back(unwatch_order{found->second.watch});
    name_watches_.erase(found->second.watch);
    names_.erase(found);
    return;
  }
  const auto [place, fresh] = names_.try_emplace(name);
  if (fresh) watch_name(name, place->second, out);
}

void contention::watch_name(const lock_name& name, watched_name& state, actions& out) {
  state.watch = next_watch_++;
  name_watches_.emplace(state.watch, name);
  out.emplace_back(watch_order{state.watch, how_.keys.folder(name.text()),
                               how_.keys.folder_end(name.text()), true});
}

// ---- what comes next -----------------------------------------------------------------------------

void contention::advance(contender& who, time_point now, actions& out) {
  if (who.doing != step::none) return;
  if (who.going) {
    const bool late = who.doubtful && !planted(defect::etcd_late_put_not_withdrawn);
    const bool nothing_there = who.is == phase::outside && !late;
    if (nothing_there || lease_of(who) == nullptr) {
      left(who, false, now, out);
    } else {
      go(who, step::leaving, who.leave.value_or(patience(who, now)), out);
    }
    return;
  }
  if (who.is == phase::outside || who.is == phase::lost) {
    if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{gone{}}});
    if (who.downgrade) out.emplace_back(downgrade_told{who.id, renew_answer{gone{}}});
    for (const auto& each : who.values) out.emplace_back(value_told{each.ticket, false});
    who.renew.reset();
    who.downgrade.reset();
    who.values.clear();
    if (who.asked) enter(who, now, out);
    return;
  }
  if (advance_inside(who, now, out)) return;
  if (who.note_due) put_description(who, step::noting, patience(who, now), out);
}

bool contention::advance_inside(contender& who, time_point now, actions& out) {
  if (who.is == phase::waiting) {
    if (who.poked) {
      const bool alone = who.what != form::reader && who.what != form::permit;
      alone ? confirm(who, now, out) : list(who, 0, now, out);
      return true;
    }
    if (who.asked || who.recheck) {
      look(who, now, out);
      return true;
    }
    if (who.renew) {
      who.renew.reset();
      out.emplace_back(renew_told{
          who.id, renew_answer{waiting{.ask_again_after = no_hurry, .permits = who.card.permits}}});
    }
    return false;
  }
  if (who.downgrade) {
    who.card.shared = true;
    put_description(who, step::downgrading, who.downgrade->answer_by, out);
  } else if (!who.values.empty()) {
    proclaim(who, out);
  } else if (who.renew && who.renew->draws) {
    put_description(who, step::drawing, who.renew->answer_by, out);
  } else if ((who.asked && !who.stale_lease) || who.recheck) {
    look(who, now, out);
  } else {
    // The claim of one who got in just now: the store has confirmed it already.
    if (who.renew && !who.claimed && fresh_enough(who, now)) answer_held(who, false, now, out);
    return false;
  }
  return true;
}

void contention::forget(contender& who, time_point now, actions& out) {
  drop_watch(who, out);
  if (who.doubtful && !planted(defect::etcd_late_put_not_withdrawn)) retire(who.lease, who.key);
  detach(who, now, out);
  contenders_.erase(holder_id{who.id});
}

void contention::close(actions& out) {
  for (auto& [id, who] : contenders_) {
    if (who.asked) out.emplace_back(acquire_told{id, tl::unexpected(late())});
    if (who.renew) out.emplace_back(renew_told{id, tl::unexpected(late())});
    if (who.downgrade) out.emplace_back(downgrade_told{id, tl::unexpected(late())});
    if (who.leave) out.emplace_back(leave_told{id, tl::unexpected(late())});
    for (const auto& each : who.values) {
      out.emplace_back(value_told{each.ticket, tl::unexpected(late())});
    }
  }
  for (const auto& [id, lease] : leases_) {
    if (lease.members.empty()) out.emplace_back(revoke_order{id});
  }
  contenders_.clear();
  leases_.clear();
  shared_.clear();
  errands_.clear();
  watches_.clear();
  names_.clear();
  name_watches_.clear();
  timers_.clear();
}

// ---- time ----------------------------------------------------------------------------------------

time_point contention::wake_at() {
  // Most of those that were set for a contender outlive it: nobody is to be woken for them.
  const auto pointless = [this](const timer& what) {
    const bool for_all = what.what == alarm::lease || what.what == alarm::names;
    return !for_all && find(what.holder) == nullptr;
  };
  while (!timers_.empty() && pointless(timers_.begin()->second)) timers_.erase(timers_.begin());
  return timers_.empty() ? time_point::max() : timers_.begin()->first;
}

void contention::on_timer(time_point now, actions& out) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const timer due = timers_.begin()->second;
    timers_.erase(timers_.begin());
    contender* const who = find(due.holder);
    switch (due.what) {
      case alarm::answers:
        if (who != nullptr) overdue(*who, now, out);
        break;
      case alarm::own_watch:
        if (who != nullptr && who->is == phase::held && who->watch == 0) watch_for(*who, out);
        break;
      case alarm::second_look:
        if (who != nullptr && who->is == phase::waiting) {
          who->recheck = true;
          advance(*who, now, out);
        }
        break;
      case alarm::leaving:
        if (who != nullptr) advance(*who, now, out);
        break;
      case alarm::lease:
        lease_due(due.lease, now, out);
        break;
      case alarm::names:
        for (auto& [name, state] : names_) {
          if (state.watch == 0) watch_name(name, state, out);
        }
        break;
    }
  }
}

void contention::overdue(contender& who, time_point now, actions& out) {
  if (who.renew && who.renew->answer_by <= now) {
    who.renew.reset();
    out.emplace_back(renew_told{who.id, tl::unexpected(late())});
  }
  if (who.downgrade && who.downgrade->answer_by <= now) {
    who.downgrade.reset();
    out.emplace_back(downgrade_told{who.id, tl::unexpected(late())});
  }
  while (!who.values.empty() && who.values.front().answer_by <= now) {
    out.emplace_back(value_told{who.values.front().ticket, tl::unexpected(late())});
    who.values.pop_front();
  }
  if (who.leave && *who.leave <= now) {
    who.leave.reset();
    out.emplace_back(leave_told{who.id, tl::unexpected(late())});
  }
  if (who.asked && who.asked->answer_by <= now) {
    who.asked.reset();
    who.stale_lease = false;
    // Without a key on its way nothing can have happened.
    const bool nothing = who.is == phase::outside && who.doing == step::none && !who.doubtful;
    const base::failure why =
        nothing ? failure_of(trouble::unavailable, "no lease was granted in time") : late();
    out.emplace_back(acquire_told{who.id, tl::unexpected(why)});
    if (nothing) forget(who, now, out);
  }
}

// ---- watches -------------------------------------------------------------------------------------

void contention::drop_watch(contender& who, actions& out) {
  for (watch_number* const each : {&who.watch, &who.twin}) {
    if (*each == 0) continue;
    watches_.erase(*each);
    out.emplace_back(unwatch_order{std::exchange(*each, 0)});
  }
}

void contention::watch_for(contender& who, actions& out) {
  who.watch = next_watch_++;
  watches_.emplace(who.watch, who.id);
  if (who.is == phase::held) {
    out.emplace_back(watch_order{who.watch, who.key, {}, true});
  } else if (who.behind.empty()) {
    out.emplace_back(watch_order{who.watch, who.folder, who.folder_end, false});
  } else {
    // Twice: if something is written just while a watch begins, the store takes it for one that
    // has to catch up, and lets it wait for a tenth of a second. Hardly ever this happens to both.
    who.twin = next_watch_++;
    watches_.emplace(who.twin, who.id);
    out.emplace_back(watch_order{who.watch, who.behind, {}, who.by_change});
    out.emplace_back(watch_order{who.twin, who.behind, {}, who.by_change});
  }
}

void contention::watch_began(watch_number watch, revision at, time_point now, actions& out) {
  if (const auto name = name_watches_.find(watch); name != name_watches_.end()) {
    const bool was_lost = std::exchange(names_.at(name->second).was_lost, false);
    if (was_lost) out.emplace_back(changed_told{name->second});
    return;
  }
  const auto found = watches_.find(watch);
  if (found == watches_.end()) {
    out.emplace_back(unwatch_order{watch});  // nobody needs it any more
    return;
  }
  contender& who = contenders_.at(found->second);
  // What happened between the look and the beginning of the watch, nobody tells. A watch from an
  // earlier revision on would tell, but the store serves those only ten times a second.
  if (watch == who.twin || at <= who.known) return;
  const duration later = second_look_after(who, at - who.known);
  if (later > duration::zero()) {
    // Not much can have happened to one who waits itself; in a line that moves fast the look is
    // never needed.
    set_timer(now + later, {.what = alarm::second_look, .holder = who.id});
    return;
  }
  who.recheck = true;
  advance(who, now, out);
}

void contention::watch_said(watch_number watch, std::span<const key_event> events, time_point now,
                            actions& out) {
  if (const auto name = name_watches_.find(watch); name != name_watches_.end()) {
    const std::string folder = how_.keys.folder(name->second.text());
    const bool changed = std::ranges::any_of(events, [&](const key_event& each) {
      return segment_in(folder, each.now.key).has_value();
    });
    if (changed) out.emplace_back(changed_told{name->second});
    return;
  }
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  contender& who = contenders_.at(found->second);
  for (const key_event& each : events) {
    if (who.is == phase::held) {
      const bool ours = !each.deleted && each.now.lease == who.lease;
      if (each.now.key != who.key || ours || who.doing == step::leaving) continue;
      lose(who, out);
      break;
    }
    if (who.is != phase::waiting || !segment_in(who.folder, each.now.key)) continue;
    if (each.deleted || who.by_change) who.poked = true;
  }
  advance(who, now, out);
}

void contention::watch_ended(watch_number watch, time_point now, actions& out) {
  if (const auto name = name_watches_.find(watch); name != name_watches_.end()) {
    names_.at(name->second) = {.watch = 0, .was_lost = true};
    name_watches_.erase(name);
    set_timer(now + watch_pause, {.what = alarm::names});
    return;
  }
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  contender& who = contenders_.at(found->second);
  watches_.erase(found);
  if (watch == who.twin) {
    who.twin = 0;
    return;
  }
  who.watch = 0;
  // A waiter's next heartbeat looks and watches again.
  if (who.is == phase::held)
    set_timer(now + watch_pause, {.what = alarm::own_watch, .holder = who.id});
  static_cast<void>(out);
}

void contention::tell_disconnected(actions& out) const {
  const bool anybody = std::ranges::any_of(
      contenders_, [](const auto& each) { return each.second.is == phase::held; });
  if (anybody) out.emplace_back(disconnected_told{});
}

void contention::watches_broken(time_point now, actions& out, bool trouble) {
  if (trouble) tell_disconnected(out);
  watches_.clear();
  for (auto& [id, who] : contenders_) {
    who.watch = who.twin = 0;
    if (who.is == phase::held) set_timer(now, {.what = alarm::own_watch, .holder = id});
    if (who.is == phase::waiting) watch_for(who, out);
  }
  name_watches_.clear();
  for (auto& [name, state] : names_) state = {.watch = 0, .was_lost = true};
  if (!names_.empty()) set_timer(now, {.what = alarm::names});
}

void contention::watches_back(actions& out) { out.emplace_back(reconnected_told{}); }

}  // namespace sallyport::backends::etcd
