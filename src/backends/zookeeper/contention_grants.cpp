#include "backends/zookeeper/contention.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>

// Contenders that are in: their tokens, renewals and what they say.
namespace sallyport::backends::zookeeper {

using backend_api::gone;
using backend_api::granted;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;

namespace {

/// Tokens are below 2^53: after two million elections of a leader there are none left.
constexpr zxid tokens_end = zxid{1} << 53U;
/// Nothing changes for a waiter without an event; its heartbeat asks anyway.
constexpr duration no_hurry = std::chrono::hours{1};
/// Whoever gives the lock back before this has nothing to say about it; the note would only keep its
/// release waiting.
constexpr duration note_delay = std::chrono::milliseconds{10};
constexpr std::string_view revoke_word = "__REVOKE__";  // Curator's

token_block block_of(zxid token) {
  const fencing_token number{static_cast<std::uint64_t>(token)};
  return {number, number};
}

}  // namespace

void contention::won(contender& who, zxid seen, time_point now, actions& out) {
  own_node& node = who.grant();
  const bool waited = who.is == phase::waiting;
  // Whoever was before us left before `seen`, and all that it wrote came before that.
  const bool by_creation = base::planted(base::defect::zookeeper_token_from_creation);
  who.token = by_creation ? node.created : std::max(seen, node.created);
  if (who.token >= tokens_end) {
    refuse(who,
           base::fail(errc::store_refused,
                      "ZooKeeper's epoch is above two million, and tokens have no room for it; "
                      "a new ensemble begins at zero"));
    return;
  }
  be_no_longer_interested(who, who.behind);
  be_no_longer_interested(who, who.lease.folder);
  who.behind.clear();
  be_interested(who, node.path);
  who.is = phase::held;
  who.claimed = who.poked = who.recheck = false;
  // `who` shows the number of the node's last change, unless the node says otherwise.
  who.note_due = who.note_due || who.token != node.modified;
  if (who.note_due) {
    who.note_after = now + note_delay;
    set_timer(who.note_after, {.what = alarm::go_on, .holder = who.id});
  }
  if (!who.renewed) {
    const line_state* const line = line_of(who);
    if (line->proven != time_point::min()) who.trusted_until = line->proven + who.length;
  }
  if (waited && !fresh(who, now)) {
    who.stale = true;
    keep(who.line, now, out);
  } else {
    tell_entry(who, now, out);
  }
}

void contention::tell_entry(contender& who, time_point now, actions& out) {
  if (!who.renewed) {
    const line_state* const line = line_of(who);
    who.trusted_until = line->proven + who.length;
  }
  if (who.asked || (who.renew && !who.renew->draws)) {
    answer_held(who, now, out);
  } else {
    out.emplace_back(entered_told{who.id});
  }
}

void contention::answer_held(contender& who, time_point, actions& out) {
  who.claimed = true;
  const line_state* const line = line_of(who);
  if (who.asked && (line == nullptr || !name_known(*line))) {
    // It may be the grant of a store of another name. It stays; when it is asked for again, so is the
    // name.
    out.emplace_back(acquire_told{
        who.id, base::fail(errc::outcome_unknown, "the connection broke while it was granted")});
    who.asked.reset();
  } else if (who.asked) {
    out.emplace_back(acquire_told{
        who.id, backend_api::acquire_answer{granted{.tokens = block_of(who.token),
                                                    .remaining = remaining(who, who.asked->at),
                                                    .permits = who.permits}}});
    who.asked.reset();
  }
  if (who.renew && !who.renew->draws) {
    out.emplace_back(renew_told{
        who.id, renew_answer{renewed{block_of(who.token), remaining(who, who.renew->at)}}});
    who.renew.reset();
  }
}

void contention::answer_waiting(contender& who, actions& out) {
  const waiting answer{.ask_again_after = no_hurry, .permits = who.permits};
  if (who.asked) out.emplace_back(acquire_told{who.id, backend_api::acquire_answer{answer}});
  if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{answer}});
  who.asked.reset();
  who.renew.reset();
}

void contention::read_done(contender& who, time_point now, actions& out) {
  const reply& said = who.replies[0];
  const line_state* const line = line_of(who);
  const bool ours = said.is == status::ok && line != nullptr && said.stat.owner == line->session;
  if (!ours) {
    lose(who, out);
    return;
  }
  const bool only_reread = std::exchange(who.reread, false);
  who.guarded = who.guarded || (who.replies.size() > 1 && who.replies[1].is == status::ok);
  who.grant().version = said.stat.version;
  who.grant().modified = said.stat.modified;
  if (said.data == revoke_word) {
    if (!std::exchange(who.revoked, true)) out.emplace_back(wanted_told{who.id});
    who.note_due = true;  // which takes the word back, so that the next one is seen
  }
  // A renewal has a look of its own, after a sync.
  if (!only_reread) answer_held(who, now, out);
}

void contention::written(contender& who, time_point now, actions& out) {
  const step why = std::exchange(who.doing, step::none);
  const reply& said = who.replies[0];
  own_node& node = who.is == phase::held ? who.grant() : who.place;
  if (said.is == status::no_node) {
    who.is == phase::held ? lose(who, out) : fall_out(who);
    return;
  }
  if (said.is == status::bad_version) {
    who.note_due = who.note_due || why == step::noting;
    who.reread = who.is == phase::held;
    who.recheck = who.is == phase::waiting;
    return;
  }
  if (said.is != status::ok) {
    const base::failure failed = failure_of(said);
    if (why == step::drawing && who.renew) {
      out.emplace_back(renew_told{who.id, tl::unexpected(failed)});
      who.renew.reset();
    }
    if (why == step::proclaiming && !who.values.empty()) {
      out.emplace_back(value_told{who.values.front().ticket, tl::unexpected(failed)});
      who.values.pop_front();
    }
    return;
  }
  node.version = said.stat.version;
  node.modified = said.stat.modified;
  who.revoked = false;
  if (why == step::proclaiming && !who.values.empty()) {
    out.emplace_back(value_told{who.values.front().ticket, true});
    who.values.pop_front();
  }
  if (why == step::drawing) {
    who.token = said.stat.modified;
    if (who.renew) {
      who.renew->draws = false;
      answer_held(who, now, out);
    }
  }
}

void contention::downgraded(contender& who, time_point now, actions& out) {
  const reply& look = who.replies[1];
  const line_state* const line = line_of(who);
  const bool there = look.is == status::ok && line != nullptr && look.stat.owner == line->session;
  who.half_downgraded = false;
  if (!there) {
    if (who.downgrade) out.emplace_back(downgrade_told{who.id, renew_answer{gone{}}});
    who.downgrade.reset();
    lose(who, out);
    return;
  }
  be_no_longer_interested(who, who.place.path);
  who.place.path = path_as_reader(who);
  who.place.take(look.stat);
  who.what = form::reader;
  be_interested(who, who.place.path);
  if (who.downgrade) {
    out.emplace_back(downgrade_told{
        who.id, renew_answer{renewed{block_of(who.token), remaining(who, who.downgrade->at)}}});
  }
  who.downgrade.reset();
  static_cast<void>(now);
}

}  // namespace sallyport::backends::zookeeper
