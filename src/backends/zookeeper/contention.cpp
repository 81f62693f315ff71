#include "backends/zookeeper/contention.hpp"

#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>

namespace sallyport::backends::zookeeper {

using backend_api::acquire_request;
using backend_api::gone;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_request;

namespace {

base::failure late() {
  return {make_error_code(errc::outcome_unknown), "ZooKeeper did not answer in time"};
}

}  // namespace

base::failure failure_of(const reply& why) {
  switch (why.is) {
    case status::not_sent:
      return {make_error_code(errc::unavailable), "ZooKeeper can't be reached"};
    case status::connection_lost:
    case status::session_ended:
      return {make_error_code(errc::outcome_unknown),
              "the connection to ZooKeeper was lost before it answered"};
    case status::ok:
    case status::no_node:
    case status::node_exists:
    case status::bad_version:
    case status::refused:
      break;
  }
  return {make_error_code(errc::store_refused), "ZooKeeper: " + why.text};
}

contender* contention::find(const holder_id& who) {
  const auto found = contenders_.find(who);
  return found == contenders_.end() ? nullptr : &found->second;
}

contender& contention::find_or_make(const acquire_request& request) {
  const auto [place, fresh] = contenders_.try_emplace(request.holder, request.holder, request.name);
  contender& who = place->second;
  if (!fresh) return who;
  who.what = form_of(request.kind, request.mode);
  who.length = request.lease_length;
  who.renewed = request.renewed;
  who.folder = how_.nodes.folder(request.name.text());
  who.place.folder = who.folder;
  if (who.what == form::permit) {
    who.place.folder = join(who.folder, line_folder);
    who.lease.folder = join(who.folder, lease_folder);
  }
  who.permits = request.permits;
  who.card = {.host = how_.owner.host,
              .label = how_.owner.label,
              .value = std::string(request.value),
              .kind = how_.nodes.speech() == dialect::kazoo ? std::string(to_string(request.kind))
                                                            : std::string{},
              .pid = how_.owner.pid,
              .waiters = request.local_waiters};
  return who;
}

// ---- requests ------------------------------------------------------------------------------------

void contention::acquire(const acquire_request& request, time_point now, actions& out) {
  if (how_.nodes.folder(request.name.text()).empty()) {
    out.emplace_back(acquire_told{
        request.holder, base::fail(errc::bad_name,
                                   "with ?names=path a name is a path of ZooKeeper without its "
                                   "first slash; this one is none")});
    return;
  }
  contender& who = find_or_make(request);
  who.asked = contender::question{now, request.answer_by, request.may_wait};
  if (who.card.waiters != request.local_waiters) {
    who.card.waiters = request.local_waiters;
    who.note_due = who.is == phase::waiting;
  }
  due_at(who, request.answer_by);
  if (who.is == phase::waiting && !fresh(who, now)) keep(who.line, now, out);
  // A line that could never be opened is tried again.
  if (const line_state* const line = line_of(who); line != nullptr && !line->up) {
    out.emplace_back(doubt_order{who.line, false});
  }
  advance(who, now, out);
}

void contention::renew(const renew_request& request, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is == phase::outside || who->is == phase::lost) {
    out.emplace_back(renew_told{request.holder, renew_answer{gone{}}});
    return;
  }
  who->renew = contender::wish{now, request.answer_by, request.token_count > 0};
  if (who->card.waiters != request.local_waiters) {
    who->card.waiters = request.local_waiters;
    who->note_due = true;
  }
  due_at(*who, request.answer_by);
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
  due_at(*who, request.answer_by);
  advance(*who, now, out);
}

void contention::downgrade(const renew_request& request, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is != phase::held) {
    out.emplace_back(downgrade_told{request.holder, renew_answer{gone{}}});
    return;
  }
  who->downgrade = contender::wish{now, request.answer_by, false};
  due_at(*who, request.answer_by);
  advance(*who, now, out);
}

void contention::set_value(const renew_request& request, std::string_view value,
                           std::uint64_t ticket, time_point now, actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is != phase::held || who->what != form::candidate) {
    out.emplace_back(value_told{ticket, false});
    return;
  }
  who->values.push_back({ticket, std::string(value), request.answer_by});
  due_at(*who, request.answer_by);
  advance(*who, now, out);
}

void contention::watch(const lock_name& name, bool on, time_point now, actions& out) {
  if (!on) {
    names_.erase(name);  // watches that are set fire once more, for nobody
  } else if (names_.try_emplace(name).second) {
    arm(name, now, out);
  }
}

// ---- the end of a contender ----------------------------------------------------------------------

void contention::due_at(contender& who, time_point when) {
  std::erase_if(who.alarms, [&](time_point each) { return each == when; });
  who.alarms.push_back(when);
  set_timer(when, {.what = alarm::answers, .holder = who.id});
}

void contention::forget(contender& who) {
  for (const time_point each : who.alarms) {
    const auto [first, last] = timers_.equal_range(each);
    for (auto at = first; at != last;) {
      const bool its = at->second.what == alarm::answers && at->second.holder == who.id;
      at = its ? timers_.erase(at) : std::next(at);
    }
  }
  be_no_longer_interested(who, who.behind);
  be_no_longer_interested(who, who.place.path);
  be_no_longer_interested(who, who.lease.path);
  be_no_longer_interested(who, who.lease.folder);
  if (line_state* const line = line_of(who)) line->members.erase(who.id);
  contenders_.erase(holder_id{who.id});
}

void contention::fall_out(contender& who) {
  be_no_longer_interested(who, who.behind);
  be_no_longer_interested(who, who.place.path);
  be_no_longer_interested(who, who.lease.path);
  be_no_longer_interested(who, who.lease.folder);
  who.behind.clear();
  who.place.clear();
  who.lease.clear();
  who.is = phase::outside;
  who.poked = who.recheck = who.stale = who.claimed = who.reread = who.note_due = false;
  who.guarded = who.revoked = who.half_downgraded = false;
  who.known_free = false;
  who.trusted_until = time_point::max();
  ++who.lives;
}

void contention::lose(contender& who, actions& out) {
  const bool held = who.is == phase::held;
  own_node place = std::move(who.place);
  own_node lease = std::move(who.lease);
  fall_out(who);
  // A part of it may be left.
  const bool permit = who.what == form::permit;
  who.place = permit ? std::move(place) : own_node{.folder = place.folder};
  who.lease = own_node{.folder = lease.folder};
  who.is = phase::lost;
  if (held) out.emplace_back(lost_told{who.id});
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
  for (auto& [ticket, question] : questions_) {
    question.answers.resize(question.all.size(), reply{.is = status::connection_lost});
    out.emplace_back(asked_told{ticket, std::move(question.answers)});
  }
  for (const auto& [number, line] : lines_) {
    // Whoever still holds something holds it until it lapses, and a tombstone stays as long as it
    // has to.
    const bool holds = std::any_of(line.members.begin(), line.members.end(), [&](const auto& each) {
      const contender* const who = find(each);
      return who != nullptr && who->is == phase::held && !who->going;
    });
    out.emplace_back(close_order{number, line.own || holds});
  }
  contenders_.clear();
  lines_.clear();
  errands_.clear();
  interested_.clear();
  questions_.clear();
  names_.clear();
  timers_.clear();
}

// ---- time ----------------------------------------------------------------------------------------

time_point contention::wake_at() const noexcept {
  return timers_.empty() ? time_point::max() : timers_.begin()->first;
}

void contention::on_timer(time_point now, actions& out) {
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const timer due = timers_.begin()->second;
    timers_.erase(timers_.begin());
    const auto line = static_cast<line_number>(due.number);
    switch (due.what) {
      case alarm::answers:
        if (contender* const who = find(due.holder)) overdue(*who, now, out);
        break;
      case alarm::sync: {
        const auto found = lines_.find(line);
        if (found == lines_.end() || !found->second.syncing) break;
        // The server may have lost the leader; it goes on answering what does not need one.
        if (found->second.round == due.holder.low) out.emplace_back(doubt_order{line, true});
        break;
      }
      case alarm::nudge:
        nudge(line, now, out);
        break;
      case alarm::question:
        question_over(due.number, status::connection_lost, out);
        break;
      case alarm::go_on:
        if (contender* const who = find(due.holder)) advance(*who, now, out);
        break;
      case alarm::names:
        for (const auto& [name, state] : names_) {
          if (!state.armed) arm(name, now, out);
        }
        break;
    }
  }
}

void contention::overdue(contender& who, time_point now, actions& out) {
  std::erase_if(who.alarms, [&](time_point each) { return each <= now; });
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
  const bool reads_only = who.doing == step::none || who.doing == step::trying;
  const bool nothing = who.is == phase::outside && reads_only && !who.place.perhaps_there() &&
                       !who.lease.perhaps_there();
  if (who.leave && *who.leave <= now) {
    who.leave.reset();
    // It goes on leaving, whether or not it is asked to again.
    if (nothing) {
      out.emplace_back(leave_told{who.id, leave_answer::not_there});
    } else {
      out.emplace_back(leave_told{who.id, tl::unexpected(late())});
      if (base::planted(base::defect::zookeeper_leaving_given_up)) who.going = false;
    }
  }
  if (who.asked && who.asked->answer_by <= now) {
    who.asked.reset();
    const bool told_as_nothing =
        nothing || base::planted(base::defect::zookeeper_trouble_told_as_nothing);
    const base::failure why = told_as_nothing ? failure_of({.is = status::not_sent}) : late();
    out.emplace_back(acquire_told{who.id, tl::unexpected(why)});
  }
  if (nothing && !who.asked && !who.leave) forget(who);
}

}  // namespace sallyport::backends::zookeeper
