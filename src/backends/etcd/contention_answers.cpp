#include "backends/etcd/contention.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>

// What the answers to a contender's transactions mean.
namespace sallyport::backends::etcd {

using backend_api::acquire_answer;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;
using base::defect;
using base::planted;

namespace {

/// A holder hears at once of the end of its key, but a short one is not worth a watch.
constexpr duration own_watch_delay = std::chrono::milliseconds{20};
/// Between two tries to leave that nobody waits for.
constexpr duration leave_pause = std::chrono::seconds{1};

token_block block_of(revision token) {
  const fencing_token only{static_cast<std::uint64_t>(token)};
  return {only, only};
}

/// Its own key, as a look_up has found it.
bool is_there(const contender& who, const operation_answer& own) {
  return own.found.size() == 1 && own.found.front().created == who.created &&
         own.found.front().lease == who.lease;
}

bool puts_its_key(contender::step what) {
  return what == contender::step::trying || what == contender::step::entering;
}

}  // namespace

void contention::txn_answered(errand_number errand_id, const reply<txn_answer>& said,
                              time_point now, actions& out) {
  const auto found = errands_.find(errand_id);
  if (found == errands_.end()) return;
  const errand what = std::move(found->second);
  errands_.erase(found);
  const bool strange = said.value && said.value->answers.size() !=
                                         (said.value->succeeded ? what.then : what.otherwise);
  const reply<txn_answer> nothing{
      .why = trouble::unknown, .text = "an answer that cannot be understood", .doubtful = true};
  const reply<txn_answer>& heard = strange ? nothing : said;
  if (what.lease != 0) {
    round_read(what.lease, what, heard, now, out);
  } else if (contender* const who = find(what.holder)) {
    stepped(*who, heard, now, out);
  }
}

void contention::stepped(contender& who, const reply<txn_answer>& said, time_point now,
                         actions& out) {
  const step what = std::exchange(who.doing, step::none);
  if (puts_its_key(what) && (said.doubtful || (!said.value && said.why == trouble::unknown))) {
    who.doubtful = true;
    if (!planted(defect::etcd_late_put_not_withdrawn)) retire(who.lease, {});
  }
  if (!said.value) {
    failed(who, what, said, now, out);
    return;
  }
  const txn_answer& heard = *said.value;
  switch (what) {
    case step::none:
      return;
    case step::trying:
      tried(who, heard, now, out);
      return;
    case step::surveying:
      surveyed(who, heard.answers.at(0), now, out);
      return;
    case step::entering:
      entered(who, heard, now, out);
      return;
    case step::looking:
      looked(who, heard, now, out);
      return;
    case step::confirming:
      if (!heard.succeeded) {
        listed(who, heard, now, out);
        return;
      }
      hold(who, planted(defect::etcd_token_from_creation) ? who.created : heard.at, now, out);
      return;
    case step::listing:
      listed(who, heard, now, out);
      return;
    case step::crowning:
      if (heard.succeeded) {
        hold(who, heard.at, now, out);
        return;
      }
      fall_out(who);
      break;
    case step::drawing:
    case step::noting:
    case step::downgrading:
    case step::proclaiming:
      if (!heard.succeeded) {
        who.is == phase::held ? lose(who, out) : fall_out(who);
        break;
      }
      if (what == step::drawing) who.token = heard.at;
      if (what == step::drawing && who.renew) answer_held(who, false, now, out);
      if (what == step::downgrading && who.downgrade) {
        out.emplace_back(downgrade_told{
            who.id, renew_answer{renewed{block_of(who.token), remaining(who, who.downgrade->at)}}});
        who.downgrade.reset();
      }
      if (what == step::proclaiming && !who.values.empty()) {
        out.emplace_back(value_told{who.values.front().ticket, true});
        who.value = std::move(who.values.front().value);
        who.values.pop_front();
      }
      who.known = std::max(who.known, heard.at);
      break;
    case step::leaving:
      // A first try may have done it, and only the second one was answered.
      if (said.doubtful && !heard.succeeded && who.leave) {
        out.emplace_back(
            leave_told{who.id, tl::unexpected(failure_of(trouble::unknown, "an answer was lost"))});
        who.leave.reset();
      }
      left(who, heard.succeeded, now, out);
      return;
    case step::undoing:
      left(who, heard.succeeded, now, out);
      return;
  }
  advance(who, now, out);
}

void contention::failed(contender& who, step what, const reply<txn_answer>& said, time_point now,
                        actions& out) {
  if (said.why == trouble::no_such_lease) {
    const backend_api::holder_id id = who.id;
    lease_ended(who.lease, now, out);
    // Goes on with another one, also if a keep-alive has told of the end before.
    if (contender* const still = find(id)) advance(*still, now, out);
    return;
  }
  const base::failure why = planted(defect::etcd_trouble_told_as_nothing)
                                ? failure_of(said.why, said.text)
                                : failure_of(said);
  if (what == step::leaving) {
    if (who.leave) out.emplace_back(leave_told{who.id, tl::unexpected(why)});
    who.leave.reset();
    // Core asks again until the lease must have lapsed; but others may keep it alive.
    if (planted(defect::etcd_leaving_given_up)) return;
    set_timer(now + leave_pause, {.what = alarm::leaving, .holder = who.id});
    return;
  }
  if (what == step::drawing && who.renew) {
    out.emplace_back(renew_told{who.id, tl::unexpected(why)});
    who.renew.reset();
  }
  if (what == step::downgrading) {
    who.card.shared = false;
    if (who.downgrade) out.emplace_back(downgrade_told{who.id, tl::unexpected(why)});
    who.downgrade.reset();
  }
  if (what == step::proclaiming && !who.values.empty()) {
    out.emplace_back(value_told{who.values.front().ticket, tl::unexpected(why)});
    who.values.pop_front();
  }
  if (what == step::confirming || what == step::crowning || what == step::listing) {
    who.poked = true;  // the next heartbeat tries again
    if (who.renew) {
      out.emplace_back(renew_told{who.id, tl::unexpected(why)});
      who.renew.reset();
    }
  }
  if (what == step::undoing) {
    // What was to be undone may be there: to be found again, or to be withdrawn.
    who.verdict.reset();
    who.doubtful = true;
  }
  const bool asking = puts_its_key(what) || what == step::surveying || what == step::undoing ||
                      what == step::looking || what == step::confirming || what == step::crowning ||
                      what == step::listing;
  if (asking && who.asked) {
    // `unavailable` and `store_refused` say that nothing is there, and core does not withdraw after
    // them. Of one whose key is there, or may be, they are never told.
    const bool there =
        (who.created != 0 || who.doubtful) && !planted(defect::etcd_trouble_told_as_nothing);
    out.emplace_back(acquire_told{
        who.id, tl::unexpected(there ? failure_of(trouble::unknown, said.text) : why)});
    who.asked.reset();
  }
  if (who.going) {
    advance(who, now, out);
  } else if ((puts_its_key(what) || what == step::surveying) && !who.doubtful) {
    forget(who, now, out);
  }
}

void contention::tried(contender& who, const txn_answer& said, time_point now, actions& out) {
  if (said.succeeded) {
    who.created = said.at;
    hold(who, said.at, now, out);
    return;
  }
  const operation_answer& others = said.answers.at(0);
  const auto own = std::ranges::find_if(others.found, [&](const key_value& each) {
    return each.key == who.key && each.lease == who.lease;
  });
  if (own != others.found.end()) {
    // An earlier try of the same question put it there, and its answer was lost.
    who.created = own->created;
    const bool complete = take_page(who, others);
    judge(who, complete, said.at, false, now, out);
    return;
  }
  who.before.clear();
  surveyed(who, others, now, out);
}

/// Whoever only tries writes nothing where somebody is, however many deeper names' keys are in
/// between.
void contention::surveyed(contender& who, const operation_answer& page, time_point now,
                          actions& out) {
  for (const key_value& each : page.found) {
    if (auto found = entry_of(who.folder, each)) who.before.push_back(std::move(*found));
  }
  const standing where = stand(who.what, who.permits, who.before, !page.more);
  const bool wants_in = who.asked && !who.going;
  if (wants_in && where.is == standing::word::unclear && !page.found.empty()) {
    survey(who, page.found.back().created - 1, now, out);
    return;
  }
  if (wants_in && where.is == standing::word::admitted) {
    // Others are there, but there is room. Somebody may come first: then this one goes again.
    join(who, where.permits, now, out);
    return;
  }
  if (who.asked) {
    out.emplace_back(where.is == standing::word::wrong_kind
                         ? acquire_told{who.id, base::fail(errc::wrong_kind,
                                                           "the name is in use as another kind")}
                         : acquire_told{who.id, acquire_answer{held{}}});
    who.asked.reset();
  }
  if (who.going) {
    advance(who, now, out);
  } else {
    free_key(who);
    forget(who, now, out);
  }
}

bool contention::take_page(contender& who, const operation_answer& page) {
  for (const key_value& each : page.found) {
    if (each.created >= who.created) continue;
    if (auto found = entry_of(who.folder, each)) who.before.push_back(std::move(*found));
  }
  return !page.more;
}

void contention::entered(contender& who, const txn_answer& said, time_point now, actions& out) {
  if (said.succeeded && who.first_try) {
    who.created = said.at;
    hold(who, said.at, now, out);
    return;
  }
  const operation_answer& own = said.answers.at(said.answers.size() - 2);
  if (own.found.size() != 1 || own.found.front().lease != who.lease) {
    // Somebody has broken it before we knew that we were in.
    fall_out(who);
    advance(who, now, out);
    return;
  }
  // Not the answer's revision: an earlier execution of the same request may have put it there.
  who.created = own.found.front().created;
  const bool shares = who.what == form::reader || who.what == form::permit;
  const bool fresh = shares && who.created == said.at;
  const operation_answer& page = said.answers.back();
  const bool complete = take_page(who, page);
  if (!complete) {
    const standing where = stand(who.what, who.permits, who.before, false);
    if (where.is == standing::word::unclear) {
      who.is = phase::waiting;
      who.known = said.at;
      list(who, page.found.empty() ? 0 : page.found.back().created - 1, now, out);
      return;
    }
  }
  judge(who, complete, said.at, fresh, now, out);
}

void contention::looked(contender& who, const txn_answer& said, time_point now, actions& out) {
  if (who.is == phase::outside || who.is == phase::lost) {
    advance(who, now, out);  // an event that is younger than this look has told
    return;
  }
  if (!is_there(who, said.answers.at(0))) {
    who.is == phase::held ? lose(who, out) : fall_out(who);
    advance(who, now, out);
    return;
  }
  if (who.is == phase::held) {
    who.known = said.at;
    if (who.asked) answer_held(who, false, now, out);
    advance(who, now, out);
    return;
  }
  const operation_answer& other = said.answers.at(1);
  bool changed = false;
  if (other.found.empty()) {
    changed = !planted(defect::etcd_watch_alone);
  } else {
    // A key that is younger than its own is another one under the same name: whoever was there has
    // gone, and has come again at the end of the line.
    const key_value& there = other.found.front();
    changed = there.created > who.created || (who.by_change && there.modified > who.known);
  }
  who.known = said.at;
  if (changed) {
    who.poked = true;
  } else {
    wait(who, {.is = standing::word::blocked, .behind = who.behind, .by_change = who.by_change},
         said.at, out);
  }
  advance(who, now, out);
}

void contention::listed(contender& who, const txn_answer& said, time_point now, actions& out) {
  if (!is_there(who, said.answers.at(0))) {
    fall_out(who);
    advance(who, now, out);
    return;
  }
  const operation_answer& page = said.answers.at(1);
  const bool complete = take_page(who, page);
  const standing where = stand(who.what, who.permits, who.before, complete);
  if (where.is == standing::word::unclear && !page.found.empty()) {
    list(who, page.found.back().created - 1, now, out);
    return;
  }
  judge(who, true, said.at, false, now, out);
}

void contention::judge(contender& who, bool complete, revision at, bool fresh, time_point now,
                       actions& out) {
  const standing where = stand(who.what, who.permits, who.before, complete);
  if (who.what == form::permit && where.is != standing::word::wrong_kind &&
      who.card.permits != where.permits) {
    who.card.permits = where.permits;
    who.note_due = true;
  }
  const bool settled = who.is == phase::waiting && !who.asked;
  switch (where.is) {
    case standing::word::admitted:
      if (fresh) {
        hold(who, at, now, out);
      } else {
        who.is = phase::waiting;
        put_description(who, step::crowning, patience(who, now), out);
      }
      return;
    case standing::word::blocked:
    case standing::word::unclear:
      if (who.asked && !who.asked->may_wait) {
        who.verdict = acquire_answer{held{}};
        go(who, step::undoing, who.asked->answer_by, out);
        return;
      }
      wait(who, where, at, out);
      advance(who, now, out);
      return;
    case standing::word::wrong_kind:
      if (settled || !who.asked) {
        // It was let in as the kind that the name had then; the others are about to go.
        wait(who, {.is = standing::word::blocked, .behind = who.before.front().key}, at, out);
        advance(who, now, out);
        return;
      }
      who.verdict = base::fail(errc::wrong_kind, "the name is in use as another kind");
      go(who, step::undoing, who.asked->answer_by, out);
      return;
  }
}

void contention::wait(contender& who, const standing& where, revision at, actions& out) {
  const bool same = who.is == phase::waiting && who.watch != 0 && who.behind == where.behind &&
                    who.by_change == where.by_change;
  who.is = phase::waiting;
  who.known = at;
  who.waiters_ahead = who.before.empty() ? 0 : who.before.size() - 1;
  who.before.clear();
  if (!same) {
    drop_watch(who, out);
    who.behind = where.behind;
    who.by_change = where.by_change;
    watch_for(who, out);
  }
  const waiting answer{.ask_again_after = no_hurry, .permits = std::max(who.card.permits, 1U)};
  if (who.asked) out.emplace_back(acquire_told{who.id, acquire_answer{answer}});
  if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{answer}});
  who.asked.reset();
  who.renew.reset();
}

void contention::hold(contender& who, revision token, time_point now, actions& out) {
  who.is = phase::held;
  who.token = token;
  who.known = token;
  who.claimed = false;
  who.poked = who.recheck = false;
  who.before.clear();
  drop_watch(who, out);
  set_timer(now + own_watch_delay, {.what = alarm::own_watch, .holder = who.id});
  if (who.asked || who.renew) {
    answer_held(who, false, now, out);
  } else if (!who.going) {
    out.emplace_back(entered_told{who.id});
  }
  advance(who, now, out);
}

void contention::answer_held(contender& who, bool just_kept, time_point now, actions& out) {
  if (!just_kept && !fresh_enough(who, now)) {
    who.stale_lease = true;
    keep(who.lease, now, out);
    return;
  }
  who.stale_lease = false;
  if (who.asked) {
    out.emplace_back(
        acquire_told{who.id, acquire_answer{granted{.tokens = block_of(who.token),
                                                    .remaining = remaining(who, who.asked->at),
                                                    .provisional = false,
                                                    .permits = std::max(who.card.permits, 1U)}}});
    who.asked.reset();
    who.claimed = true;
  }
  if (who.renew) {
    out.emplace_back(renew_told{
        who.id, renew_answer{renewed{block_of(who.token), remaining(who, who.renew->at)}}});
    who.renew.reset();
    who.claimed = true;
  }
}

void contention::fall_out(contender& who) {
  who.is = phase::outside;
  who.key_spent = true;
  who.created = 0;
  who.poked = who.recheck = who.note_due = false;
  who.before.clear();
}

void contention::lose(contender& who, actions& out) {
  who.is = phase::lost;
  who.key_spent = true;
  who.stale_lease = false;
  drop_watch(who, out);
  out.emplace_back(lost_told{who.id});
}

void contention::left(contender& who, bool was_there, time_point now, actions& out) {
  if (who.verdict) {
    if (who.asked) out.emplace_back(acquire_told{who.id, std::move(*who.verdict)});
    who.asked.reset();
    who.verdict.reset();
  }
  if (who.leave) {
    out.emplace_back(leave_told{who.id, was_there ? leave_answer::left : leave_answer::not_there});
  }
  if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{gone{}}});
  if (who.downgrade) out.emplace_back(downgrade_told{who.id, renew_answer{gone{}}});
  for (const auto& each : who.values) out.emplace_back(value_told{each.ticket, false});
  if (who.asked) {
    out.emplace_back(acquire_told{
        who.id, tl::unexpected(failure_of(trouble::unknown, "the contender has left"))});
  }
  if (was_there) free_key(who);
  forget(who, now, out);
}

}  // namespace sallyport::backends::etcd
