#include "backends/redlock/quorum.hpp"

#include "backends/redis/words.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::acquire_answer;
using backend_api::acquire_request;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::holder_id;
using backend_api::renew_answer;
using backend_api::renew_request;
using backend_api::waiting;
using base::defect;
using base::planted;
using phase = contender::phase;

namespace {

using namespace std::chrono_literals;

/// "When you like": the engine asks again at its heartbeat.
constexpr duration whenever = 24h;
/// What a node may take for one answer; a fraction of the lease, so that a slow one costs little.
constexpr duration longest_step = 500ms;
constexpr duration shortest_step = 50ms;
constexpr int steps_per_lease = 4;
/// So long the notices of one hand-over may be apart before the other nodes are asked, too.
constexpr duration notices_apart = 10ms;
/// How often a contender bids at once when its nodes say that the lock is free.
constexpr unsigned bids_at_once = 3;
/// So long a question waits for nodes that are tried again: whoever finds out by asking that they
/// were restarted should not have to ask twice.
constexpr duration returning_patience = 500ms;
/// After votes were split, a contender waits for a random part of this, and longer the next time.
constexpr duration split_pause = 10ms;
/// While the holder is somebody who does not know of the line, the first in it asks this often.
constexpr duration shortest_poll = 50ms;
constexpr duration longest_poll = 250ms;
/// What a new waiter is told that would not be heard yet.
constexpr duration until_heard = 50ms;

/// A lease counts from before anything of its round was sent: a node may have begun it then.
time_point counted_from(const contender& who, time_point now) {
  return planted(defect::deadline_from_last_vote) ? now : who.began;
}

bool is_unknown(const base::result<vote>& said) {
  return !said && said.error().code == errc::outcome_unknown;
}

duration part_of(duration span, double part) {
  return duration{static_cast<duration::rep>(static_cast<double>(span.count()) * part)};
}

}  // namespace

quorum::quorum(settings how, const speech& words)
    : speech_(words),
      fresh_id_(std::move(how.fresh_id)),
      members_(std::move(how.nodes)),
      random_(how.seed),
      debts_(members_.size()),
      next_payment_(members_.size(), time_point::max()),
      hearing_patience_(how.hearing_patience) {}

contender* quorum::find(const holder_id& who) {
  const auto found = contenders_.find(who);
  return found == contenders_.end() ? nullptr : &found->second;
}

std::string quorum::fresh() const { return std::string(redis::view(redis::hex_of(fresh_id_()))); }

time_point quorum::step_by(const contender& who, time_point now) const {
  const duration step =
      std::clamp<duration>(who.what.lease_length / steps_per_lease, shortest_step, longest_step);
  time_point by = now + step;
  if (who.acquire) by = std::min(by, who.acquire->answer_by);
  if (who.claim) by = std::min(by, who.claim->answer_by);
  return by;
}

void quorum::send(node_number node, redis::wire_command command, errand why, time_point by,
                  quorum_actions& out) const {
  why.node = node;
  std::string mark;
  switch (why.what) {
    case errand::kind::bid:
    case errand::kind::extend:
    case errand::kind::raise:
    case errand::kind::enqueue:
    case errand::kind::heal:
      mark = members_.mark_of(node);
      break;
    case errand::kind::leave:
    case errand::kind::settle:
    case errand::kind::adopt:
    case errand::kind::read_mark:
    case errand::kind::read_clock:
    case errand::kind::read_counter:
      break;
  }
  out.all.emplace_back(delivery{std::move(command), std::move(why), by, std::move(mark)});
}

bool quorum::still_meant(const errand& why, const std::string& mark) const {
  if (why.what == errand::kind::adopt) return false;  // it is judged anew
  if (mark.empty()) return true;
  return (members_.voters() & only(why.node)) != 0 && members_.mark_of(why.node) == mark;
}

// ---- the engine's requests -----------------------------------------------------------------------

void quorum::acquire(const acquire_request& request, time_point now, quorum_actions& out) {
  contender& who = contenders_.try_emplace(request.holder, request.holder, size()).first->second;
  if (who.is == phase::leaving) {
    // Overtaken by its contender's end, on another thread.
    out.all.emplace_back(
        acquire_told{request.holder, base::fail(errc::unavailable, "the contender has left")});
    return;
  }
  who.what = {.name = request.name.text(),
              .contender = std::string(redis::view(redis::hex_of(request.holder))),
              .lease_length = request.lease_length,
              .claim_window = request.claim_window,
              .ticket_length = request.ticket_length,
              .tokens = std::max(request.token_count, 1U),
              .local_waiters = request.local_waiters,
              .value = std::string(request.value)};
  who.may_wait = request.may_wait;
  who.acquire = contender::question{now, request.answer_by};
  who.patient_until = std::min(request.answer_by, now + returning_patience);
  who.called_nodes = false;
  who.told = false;
  if (who.is == phase::held) {
    if (now < who.good_until) {
      answer_won(who, out);
      return;
    }
    // By our own count nothing of it is left.
    for (const std::string& id : std::vector<std::string>(who.ids)) {
      if (!id.empty()) give_back(who, id, now, out);
    }
    who.is = phase::idle;
  }
  look(who, now, out);
}

void quorum::renew(const renew_request& request, time_point now, quorum_actions& out) {
  contender* const who = find(request.holder);
  if (who == nullptr || who->is == phase::leaving) {
    out.all.emplace_back(renew_told{request.holder, renew_answer(gone{})});
    return;
  }
  who->claim = contender::question{now, request.answer_by};
  who->what.lease_length = request.lease_length;
  who->what.local_waiters = request.local_waiters;
  who->told = false;
  if (who->is == phase::held) {
    renew_held(*who, request.token_count, now, out);
  } else if (who->is == phase::queued && who->offers.empty()) {
    who->bids = 0;
    bid(*who, now, out);
  } else {
    look(*who, now, out);
  }
}

/// The next step of a contender that does not hold the lock, unless one is under way.
void quorum::look(contender& who, time_point now, quorum_actions& out) {
  switch (who.is) {
    case phase::idle:
      who.bids = 0;
      bid(who, now, out);
      break;
    case phase::queued:
      who.bids = 0;
      if (who.offers.empty()) {
        enroll(who, now, out);
      } else {
        claim_best(who, now, out);
      }
      break;
    case phase::bidding:
    case phase::enrolling:
    case phase::claiming:
    case phase::held:
    case phase::leaving:
      break;
  }
}

// ---- bids ----------------------------------------------------------------------------------------

void quorum::bid(contender& who, time_point now, quorum_actions& out) {
  if (count(members_.voters()) < majority() && try_again(who, now, out)) return;
  if (const auto why_not = hindrance(who, now)) {
    answer_failed(who, *why_not, out);
    return;
  }
  const node_set asked = members_.voters();
  who.is = phase::bidding;
  who.round = ++last_round_;
  who.began = now;
  who.lease = who.what.lease_length;
  const bool first = who.round_id.empty() || who.round_id.find('|') != std::string::npos;
  if (first || !planted(defect::same_id_for_second_bid)) who.round_id = fresh();
  who.drawn = who.what.tokens;
  who.renewing = false;
  ++who.bids;
  who.votes.emplace(size(), asked, true);
  const time_point by = step_by(who, now);
  for_each(asked, [&](node_number node) {
    who.ids[node] = who.round_id;
    send(node, speech_.bid(members_.mark_of(node), who.what, who.round_id),
         {errand::kind::bid, node, who.holder, who.round, who.round_id}, by, out);
  });
}

void quorum::bid_answered(contender& who, const errand& why, base::result<vote> said,
                          time_point now, quorum_actions& out) {
  const bool current = who.round == why.round;
  const bool has_it = said && said->what == vote::kind::yes;
  const bool unknown = is_unknown(said);
  if (!has_it && !unknown && who.ids[why.node] == why.id) who.ids[why.node].clear();
  if (unknown && who.is == phase::leaving) owe(why.node, late_vote(who, why.id, now));
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  if (said && said->what == vote::kind::handed_over) offered(who, why.node, said->nonce, now, out);
  if (!current || !who.votes) return;
  if (has_it) {
    who.votes->voted(why.node, said->counter);
  } else if (said && said->what != vote::kind::not_a_member) {
    // Once it stands in the line, its place there is its own.
    if (!who.enrolled) who.came = std::max(who.came, said->server_us);
    who.votes->refused(why.node);
  } else {
    who.votes->failed(why.node);
  }
  advance(who, now, out);
}

// ---- claims and renewals -------------------------------------------------------------------------

void quorum::offered(contender& who, node_number node, const std::string& nonce, time_point now,
                     quorum_actions& out) {
  const std::string id = who.what.contender + '|' + nonce;
  if (who.is == phase::held && who.round_id == id && !who.renewing && who.ids[node].empty()) {
    // The others were enough; this one comes as well.
    ask_for_claim(who, only(node), now, out);
    return;
  }
  const bool wanted =
      who.is != phase::held && who.is != phase::leaving && !who.spent.contains(nonce);
  if (!wanted) {
    if (who.ids[node] != id) give_back_at(node, who, id, now, out);
    return;
  }
  who.offers[nonce] |= only(node);
  if (who.is == phase::claiming && who.round_id == id) {
    ask_for_claim(who, only(node), now, out);
  } else if (who.is == phase::queued && !std::exchange(who.told, true)) {
    out.all.emplace_back(look_told{who.holder});
  }
}

void quorum::claim_best(contender& who, time_point now, quorum_actions& out) {
  const auto best = std::max_element(
      who.offers.begin(), who.offers.end(),
      [](const auto& a, const auto& b) { return count(a.second) < count(b.second); });
  claim(who, std::string(best->first), now, out);
}

void quorum::claim(contender& who, const std::string& nonce, time_point now, quorum_actions& out) {
  if (const auto why_not = hindrance(who, now)) {
    answer_failed(who, *why_not, out);
    return;
  }
  const node_set asked = members_.voters();
  who.is = phase::claiming;
  who.round = ++last_round_;
  who.began = now;
  who.lease = who.what.lease_length;
  who.round_id = who.what.contender + '|' + nonce;
  who.drawn = who.what.tokens;
  who.renewing = false;
  who.votes.emplace(size(), asked, true);
  who.asked = 0;
  who.ask_the_rest_at = std::min(now + notices_apart, step_by(who, now));
  claiming_.insert(who.holder);
  ask_for_claim(who, who.offers[nonce], now, out);
}

void quorum::ask_for_claim(contender& who, node_set nodes, time_point now, quorum_actions& out) {
  nodes &= members_.voters() & ~who.asked;
  who.asked |= nodes;
  const time_point by = step_by(who, now);
  wish what = who.what;
  what.lease_length = who.lease;  // the round's: the engine may have asked for another since
  for_each(nodes, [&](node_number node) {
    who.ids[node] = who.round_id;
    send(node, speech_.extend(members_.mark_of(node), what, who.round_id, who.drawn),
         {errand::kind::extend, node, who.holder, who.round, who.round_id}, by, out);
  });
}

void quorum::ask_the_rest(contender& who, time_point now, quorum_actions& out) {
  ask_for_claim(who, members_.voters(), now, out);
  // Nobody else will answer: those were lost meanwhile.
  for_each(who.votes->unheard() & ~who.asked, [&](node_number node) { who.votes->failed(node); });
  advance(who, now, out);
}

void quorum::renew_held(contender& who, std::uint32_t tokens, time_point now, quorum_actions& out) {
  const node_set voters = members_.voters();
  node_set asked = 0;
  for_each(voters, [&](node_number node) {
    if (!who.ids[node].empty()) asked |= only(node);
  });
  who.round = ++last_round_;
  who.began = now;
  who.lease = who.what.lease_length;
  who.drawn = tokens;
  who.renewing = true;
  who.votes.emplace(size(), voters, tokens > 0);
  // Those that did not vote for it, or no longer do, need not be asked.
  for_each(voters & ~asked, [&](node_number node) { who.votes->refused(node); });
  const time_point by = step_by(who, now);
  for_each(asked, [&](node_number node) {
    send(node, speech_.extend(members_.mark_of(node), who.what, who.ids[node], tokens),
         {errand::kind::extend, node, who.holder, who.round, who.ids[node]}, by, out);
  });
  advance(who, now, out);
}

void quorum::extend_answered(contender& who, const errand& why, base::result<vote> said,
                             time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  const bool is_not_ours = said && said->what != vote::kind::yes;
  if (is_not_ours && who.ids[why.node] == why.id) who.ids[why.node].clear();
  if (who.round != why.round || !who.votes) return;
  if (said && said->what == vote::kind::yes) {
    who.votes->voted(why.node, said->counter);
  } else if (said && said->what == vote::kind::no) {
    who.votes->refused(why.node);
  } else {
    who.votes->failed(why.node);
  }
  advance(who, now, out);
}

// ---- how a round ends ----------------------------------------------------------------------------

void quorum::advance(contender& who, time_point now, quorum_actions& out) {
  const time_point by = step_by(who, now);
  for_each(who.votes->take_raises(), [&](node_number node) {
    send(node,
         speech_.raise(members_.mark_of(node), who.what.name, who.ids[node], who.votes->token()),
         {errand::kind::raise, node, who.holder, who.round, who.ids[node]}, by, out);
  });
  const bool under_way = who.is == phase::bidding || who.is == phase::claiming ||
                         (who.is == phase::held && who.renewing);
  if (!under_way) return;
  switch (who.votes->result()) {
    case token_round::verdict::open:
      break;
    case token_round::verdict::won:
      if (who.is == phase::held) {
        renewed(who, now, out);
      } else {
        won(who, now, out);
      }
      break;
    case token_round::verdict::lost:
      if (who.is == phase::held) {
        renewal_lost(who, now, out);
      } else if (reachability_is_known(who)) {
        lost(who, now, out);
      }
      break;
  }
}

void quorum::won(contender& who, time_point now, quorum_actions& out) {
  who.is = phase::held;
  who.ask_the_rest_at = time_point::max();
  who.good_until = counted_from(who, now) + who.lease;
  const std::uint64_t last = who.votes->token();
  who.tokens = {fencing_token(last - who.drawn + 1), fencing_token(last)};
  for (const auto& [nonce, nodes] : std::exchange(who.offers, {})) {
    const std::string id = who.what.contender + '|' + nonce;
    if (id == who.round_id) continue;
    for_each(nodes, [&](node_number node) { give_back_at(node, who, id, now, out); });
  }
  answer_won(who, out);
}

void quorum::renewed(contender& who, time_point now, quorum_actions& out) {
  who.renewing = false;
  who.good_until = counted_from(who, now) + who.lease;
  if (who.drawn > 0) {
    const std::uint64_t last = who.votes->token();
    who.tokens = {fencing_token(last - who.drawn + 1), fencing_token(last)};
  }
  answer_won(who, out);
  heal(who, now, out);
}

void quorum::renewal_lost(contender& who, time_point now, quorum_actions& out) {
  // So many say that it is not ours that no majority can be left.
  const unsigned refusals = count(who.votes->refusals());
  const bool is_gone = refusals + majority() > size();
  const bool others_may_tell = refusals + count(who.votes->unheard()) + majority() > size();
  if (!is_gone && others_may_tell) return;
  who.renewing = false;
  if (is_gone) who.good_until = now;
  if (!who.claim) return;
  who.claim.reset();
  if (is_gone) {
    out.all.emplace_back(renew_told{who.holder, renew_answer(gone{})});
  } else {
    out.all.emplace_back(renew_told{who.holder, tl::unexpected(too_few(who, now))});
  }
}

/// "Held" is said only when a majority has answered: a try waits for that.
bool quorum::reachability_is_known(const contender& who) const {
  if (who.may_wait || who.enrolled) return true;
  const unsigned failed = count(who.votes->failures());
  return failed + majority() > size() ||
         failed + count(who.votes->unheard()) + majority() <= size();
}

void quorum::lost(contender& who, time_point now, quorum_actions& out) {
  const bool claimed = who.is == phase::claiming;
  if (claimed) {
    const std::string nonce = who.round_id.substr(who.what.contender.size() + 1);
    who.spent.insert(nonce);
    for_each(std::exchange(who.offers[nonce], 0) & ~who.asked,
             [&](node_number node) { give_back_at(node, who, who.round_id, now, out); });
    who.offers.erase(nonce);
    who.ask_the_rest_at = time_point::max();
  }
  if (!planted(defect::failed_round_kept)) give_back(who, who.round_id, now, out);
  const unsigned failed = count(who.votes->failures());
  who.is = who.enrolled ? phase::queued : phase::idle;
  if (failed + majority() > size()) {
    if (!try_again(who, now, out)) answer_failed(who, too_few(who, now), out);
  } else if (!who.may_wait && !who.enrolled) {
    if (who.acquire) out.all.emplace_back(acquire_told{who.holder, acquire_answer(held{})});
    if (who.claim) out.all.emplace_back(renew_told{who.holder, renew_answer(gone{})});
    contenders_.erase(holder_id{who.holder});
  } else {
    enroll(who, now, out);
  }
}

bool quorum::try_again(contender& who, time_point now, quorum_actions& out) {
  if (!who.acquire || now >= who.patient_until) return false;
  if (count(members_.voters()) < majority()) {
    if (!std::exchange(who.called_nodes, true)) {
      out.reach = true;
      members_.expect_all();
    }
    if (!members_.majority_may_return()) return false;
    postponed_.insert(who.holder);
    return true;
  }
  // They came back while the round was under way.
  if (welcomed_at_ <= who.began) return false;
  look(who, now, out);
  return true;
}

void quorum::resume_postponed(time_point now, quorum_actions& out) {
  if (postponed_.empty()) return;
  const bool there = count(members_.voters()) >= majority();
  const bool hopeless = !there && !members_.majority_may_return();
  for (const holder_id& each : std::vector<holder_id>(postponed_.begin(), postponed_.end())) {
    contender* const who = find(each);
    const bool waits =
        who != nullptr && who->acquire && (who->is == phase::idle || who->is == phase::queued);
    if (waits && !there && !hopeless && now < who->patient_until) continue;
    postponed_.erase(each);
    if (!waits) continue;
    if (there) {
      look(*who, now, out);
    } else {
      answer_failed(*who, members_.trouble(now), out);
    }
  }
}

void quorum::raise_answered(contender& who, const errand& why, const base::result<vote>& said,
                            time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  if (who.round != why.round || !who.votes) return;
  if (!said) {
    who.votes->raise_failed(why.node);
  } else if (said->what == vote::kind::yes) {
    who.votes->raised(why.node);
  } else {
    who.votes->not_raised(why.node);
  }
  advance(who, now, out);
}

/// Nodes that came back, or that missed the bid, get an id of their own: they never saw this one, and
/// must not vote twice under one id. Whether they agree does not matter to anybody.
void quorum::heal(contender& who, time_point now, quorum_actions& out) {
  const time_point by = step_by(who, now);
  for_each(members_.voters(), [&](node_number node) {
    if (!who.ids[node].empty()) return;
    who.ids[node] = fresh();
    send(node, speech_.heal(members_.mark_of(node), who.what, who.ids[node], who.tokens),
         {errand::kind::heal, node, who.holder, who.round, who.ids[node]}, by, out);
  });
}

void quorum::heal_answered(contender& who, const errand& why, const base::result<vote>& said,
                           time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  if (said && said->what == vote::kind::yes) return;
  if (is_unknown(said) && who.is == phase::leaving) owe(why.node, late_vote(who, why.id, now));
  if (who.ids[why.node] != why.id) return;
  who.ids[why.node].clear();
  if (!is_unknown(said)) return;
  give_back_at(why.node, who, why.id, now, out);
  owe(why.node, late_vote(who, why.id, now));
}

// ---- waiting -------------------------------------------------------------------------------------

bool quorum::would_be_heard(time_point now) const {
  if (hearing_patience_ == duration::zero()) return true;
  return (members_.voters() & ~heard_) == 0 || now - *listening_ >= hearing_patience_;
}

void quorum::node_heard(node_number node, bool is_heard) noexcept {
  heard_ = is_heard ? heard_ | only(node) : heard_ & ~only(node);
}

void quorum::enroll(contender& who, time_point now, quorum_actions& out) {
  const node_set asked = members_.voters();
  if (count(asked) < majority()) {
    if (!try_again(who, now, out)) answer_failed(who, members_.trouble(now), out);
    return;
  }
  out.listen = true;
  if (!listening_) listening_ = now;
  if (!would_be_heard(now)) {
    // It asks again when it would be, which the engine is told then.
    answer_waiting(who, until_heard, out);
    return;
  }
  who.woken = false;
  who.is = phase::enrolling;
  who.enrolled = true;
  who.round = ++last_round_;
  who.lines.assign(size(), std::nullopt);
  who.lines_open = asked;
  const time_point by = step_by(who, now);
  for_each(asked, [&](node_number node) {
    send(node, speech_.enqueue(members_.mark_of(node), who.what, who.came),
         {errand::kind::enqueue, node, who.holder, who.round, {}}, by, out);
  });
}

void quorum::enqueue_answered(contender& who, const errand& why, base::result<vote> said,
                              time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  if (said && said->what == vote::kind::handed_over) offered(who, why.node, said->nonce, now, out);
  if (is_unknown(said)) ticket_in_doubt(who, why.node, now);
  if (who.round != why.round || who.is != phase::enrolling) return;
  who.lines_open &= ~only(why.node);
  if (said && said->what != vote::kind::not_a_member) who.lines[why.node] = std::move(*said);
  const auto heard = static_cast<unsigned>(
      std::count_if(who.lines.begin(), who.lines.end(), [](const auto& each) { return each; }));
  if (heard >= majority()) {
    enrolled(who, now, out);
  } else if (heard + count(who.lines_open) < majority()) {
    who.is = phase::queued;
    answer_failed(who, too_few(who, now), out);
  }
}

void quorum::enrolled(contender& who, time_point now, quorum_actions& out) {
  who.is = phase::queued;
  if (!who.offers.empty()) {
    claim_best(who, now, out);
    return;
  }
  const auto free = std::count_if(who.lines.begin(), who.lines.end(),
                                  [](const auto& each) { return each && each->free; });
  if (static_cast<unsigned>(free) >= majority() && who.bids < bids_at_once) {
    bid(who, now, out);
    return;
  }
  answer_waiting(who, ask_again_after(who), out);
  // A node that had answered was left since.
  if (std::exchange(who.woken, false) && !std::exchange(who.told, true)) {
    out.all.emplace_back(look_told{who.holder});
  }
}

duration quorum::ask_again_after(const contender& who) {
  std::vector<duration> ends;
  unsigned first = 0;
  bool foreign = false;
  for (const auto& each : who.lines) {
    if (!each || each->what != vote::kind::yes) continue;
    ends.push_back(each->remaining);
    first += each->first ? 1U : 0U;
    foreign = foreign || each->foreign;
  }
  duration pause = whenever;
  // Only the first in line looks when the holder's time is up: when a majority of nodes is free.
  if (first * 2 > ends.size()) {
    std::sort(ends.begin(), ends.end());
    pause = ends[std::min<std::size_t>(majority(), ends.size()) - 1] +
            part_of(split_pause, random_.unit());
    if (foreign) {
      pause =
          std::min(pause, shortest_poll + part_of(longest_poll - shortest_poll, random_.unit()));
    }
  }
  if (who.bids > 0 && who.votes && who.votes->voters() != 0) {
    // Its votes were split. The line decides who comes first; but not everybody stands in it.
    pause =
        std::min(pause, part_of(split_pause * std::int64_t{1 + who.bids}, 0.2 + random_.unit()));
  }
  return pause;
}

// ---- answers to the engine -----------------------------------------------------------------------

void quorum::answer_won(contender& who, quorum_actions& out) {
  const auto left = [&](const contender::question& asked) {
    const duration rest = who.good_until - asked.received;
    if (planted(defect::deadline_from_last_vote)) return rest;
    return std::min(who.lease, rest);
  };
  if (who.acquire) {
    out.all.emplace_back(acquire_told{
        who.holder,
        acquire_answer(granted{.tokens = who.tokens, .remaining = left(*who.acquire)})});
  }
  if (who.claim) {
    out.all.emplace_back(
        renew_told{who.holder, renew_answer(backend_api::renewed{who.tokens, left(*who.claim)})});
  }
  if (!who.acquire && !who.claim && !std::exchange(who.told, true)) {
    out.all.emplace_back(look_told{who.holder});
  }
  who.acquire.reset();
  who.claim.reset();
}

void quorum::answer_waiting(contender& who, duration ask_again, quorum_actions& out) {
  who.said_so = true;
  if (who.acquire) {
    out.all.emplace_back(acquire_told{who.holder, acquire_answer(waiting{ask_again})});
  }
  if (who.claim) {
    out.all.emplace_back(renew_told{who.holder, renew_answer(waiting{ask_again})});
  }
  who.acquire.reset();
  who.claim.reset();
}

void quorum::fail_questions(contender& who, const base::failure& why, quorum_actions& out) {
  if (who.acquire) out.all.emplace_back(acquire_told{who.holder, tl::unexpected(why)});
  if (who.claim) out.all.emplace_back(renew_told{who.holder, tl::unexpected(why)});
  who.acquire.reset();
  who.claim.reset();
}

void quorum::answer_failed(contender& who, const base::failure& why, quorum_actions& out) {
  base::failure what = why;
  if (who.enrolled && !who.said_so && what.code == errc::unavailable) {
    // Nothing to clean up, that would say; but there may be tickets.
    what.code = make_error_code(errc::outcome_unknown);
  }
  fail_questions(who, what, out);
  // Everything was given back: the engine may forget it without a word, or come again.
  if (!who.enrolled && who.is == phase::idle) contenders_.erase(holder_id{who.holder});
}

std::optional<base::failure> quorum::hindrance(const contender& who, time_point now) const {
  if (count(members_.voters()) < majority()) return members_.trouble(now);
  // A node that forgot is taken back when the longest lease has passed, by the marks' word.
  if (who.what.lease_length > members_.max_lease()) {
    return base::failure{make_error_code(errc::bad_option),
                         "the longest lease that these nodes were initialised for is " +
                             std::to_string(members_.max_lease().count()) + " ms"};
  }
  return std::nullopt;
}

base::failure quorum::too_few(const contender& who, time_point now) const {
  if (count(members_.voters()) < majority()) return members_.trouble(now);
  return {make_error_code(errc::unavailable),
          "fewer than " + std::to_string(majority()) + " of " + std::to_string(size()) +
              " nodes gave an answer; one of the others: " + who.last_trouble};
}

// ---- events --------------------------------------------------------------------------------------

void quorum::answered(const errand& why, base::result<reply> said, time_point now,
                      quorum_actions& out) {
  const auto as_vote = [&](auto decode) -> base::result<vote> {
    if (!said) return tl::unexpected(said.error());
    return decode(*said);
  };
  switch (why.what) {
    case errand::kind::settle:
      settled(why, said && !said->is_error());
      return;
    case errand::kind::adopt:
    case errand::kind::read_mark:
    case errand::kind::read_clock:
    case errand::kind::read_counter:
      membership_answered(why, said, now, out);
      return;
    default:
      break;
  }
  contender* const who = find(why.holder);
  if (who == nullptr) return;
  if (!said) who->last_trouble = said.error().detail;
  if (said && said->is_error()) who->last_trouble = said->text;
  switch (why.what) {
    case errand::kind::bid:
      bid_answered(*who, why, as_vote(bid_answer_of), now, out);
      break;
    case errand::kind::extend:
      extend_answered(*who, why, as_vote(extend_answer_of), now, out);
      break;
    case errand::kind::raise:
      raise_answered(*who, why, as_vote(plain_answer_of), now, out);
      break;
    case errand::kind::enqueue:
      enqueue_answered(*who, why, as_vote(enqueue_answer_of), now, out);
      break;
    case errand::kind::heal:
      heal_answered(*who, why, as_vote(plain_answer_of), now, out);
      break;
    case errand::kind::leave:
      leave_answered(
          *who, why,
          said ? leave_answer_of(*said) : base::result<bool>(tl::unexpected(said.error())), now,
          out);
      break;
    case errand::kind::settle:
    case errand::kind::adopt:
    case errand::kind::read_mark:
    case errand::kind::read_clock:
    case errand::kind::read_counter:
      break;
  }
}

void quorum::heard(node_number node, std::string_view message, time_point now,
                   quorum_actions& out) {
  const auto said = parse_notice(message);
  if (!said) return;
  if (said->what == notice::kind::lost) {
    for (const auto& [holder, who] : contenders_) {
      if (who.is == phase::held && who.ids[node] == said->whom) {
        out.all.emplace_back(lost_told{holder});
      }
    }
    return;
  }
  const auto holder = redis::holder_of(said->whom);
  contender* const who = holder ? find(*holder) : nullptr;
  if (said->what == notice::kind::wake) {
    if (who != nullptr && who->is == phase::enrolling) who->woken = true;
    if (who != nullptr && who->is == phase::queued && !std::exchange(who->told, true)) {
      out.all.emplace_back(look_told{who->holder});
    }
    return;
  }
  // Without a name nothing can be given back: then it ends with its claim window.
  if (who != nullptr) offered(*who, node, said->nonce, now, out);
}

void quorum::on_timer(time_point now, quorum_actions& out) {
  follow(members_.on_timer(now), now, out);
  std::vector<holder_id> due;
  for (auto each = claiming_.begin(); each != claiming_.end();) {
    contender* const who = find(*each);
    const bool claims = who != nullptr && who->is == phase::claiming;
    if (claims && now < who->ask_the_rest_at) {
      ++each;
      continue;
    }
    if (claims) due.push_back(*each);
    each = claiming_.erase(each);
  }
  for (const holder_id& each : due) ask_the_rest(*find(each), now, out);
  resume_postponed(now, out);
  for (node_number node = 0; node < size(); ++node) pay(node, now, out);
}

time_point quorum::wake_at() const {
  time_point next = members_.wake_at();
  for (const holder_id& each : claiming_) {
    const auto who = contenders_.find(each);
    if (who != contenders_.end()) next = std::min(next, who->second.ask_the_rest_at);
  }
  for (const holder_id& each : postponed_) {
    const auto who = contenders_.find(each);
    if (who != contenders_.end()) next = std::min(next, who->second.patient_until);
  }
  return std::min(next, *std::min_element(next_payment_.begin(), next_payment_.end()));
}

}  // namespace sallyport::backends::redlock
