// How a contender comes in: bids, claims of what was handed over, and how a round of votes ends.
#include "backends/redlock/quorum.hpp"
#include "base/planted.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::acquire_answer;
using backend_api::gone;
using backend_api::held;
using backend_api::holder_id;
using backend_api::renew_answer;
using base::defect;
using base::planted;
using phase = contender::phase;

namespace {

using namespace std::chrono_literals;

/// So long the notices of one hand-over may be apart before the other nodes are asked, too.
constexpr duration notices_apart = 10ms;

}  // namespace

time_point counted_from(const contender& who, time_point now) {
  // From before anything of it was sent: a node may have begun it then.
  return planted(defect::deadline_from_last_vote) ? now : who.began;
}

// ---- bids ---------------------------------------------------------------------------------------

void quorum::bid(contender& who, time_point now, quorum_actions& out) {
  if (count(members_.voters()) < majority() && try_again(who, now, out)) return;
  if (const auto why_not = hindrance(who, now)) {
    answer_failed(who, *why_not, out);
    return;
  }
  const node_set asked = members_.voters();
  who.is = phase::bidding;
  who.round = ++last_round_;
  who.last_trouble.clear();
  who.began = now;
  who.lease = who.what.lease_length;
  const bool first = who.round_id.empty() || who.round_id.find('|') != std::string::npos;
  if (first || !planted(defect::same_id_for_second_bid)) who.round_id = fresh();
  who.drawn = who.what.tokens;
  who.renewing = false;
  ++who.bids;
  who.brought_up = false;
  who.epoch = members_.epoch();
  who.votes.emplace(size(), listed(), asked, true);
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

// ---- claims -------------------------------------------------------------------------------------

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
    out.all.emplace_back(entered_told{who.holder});
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
  who.last_trouble.clear();
  who.began = now;
  who.lease = who.what.lease_length;
  who.round_id = who.what.contender + '|' + nonce;
  who.drawn = who.what.tokens;
  who.renewing = false;
  who.brought_up = false;
  who.epoch = members_.epoch();
  who.votes.emplace(size(), listed(), asked, true);
  who.asked = 0;
  who.ask_the_rest_at = std::min(now + notices_apart, step_by(who, now));
  claiming_.insert(who.holder);
  ask_for_claim(who, who.offers[nonce], now, out);
}

void quorum::ask_for_claim(contender& who, node_set nodes, time_point now, quorum_actions& out) {
  // Votes of two rosters do not make a majority of one.
  if (who.epoch != members_.epoch()) return;
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

void quorum::extend_answered(contender& who, const errand& why, base::result<vote> said,
                             time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  // A member that has another mark may have its vote as before: another member was replaced.
  const bool is_not_ours = said && said->what == vote::kind::no;
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

// ---- how a round ends ---------------------------------------------------------------------------

void quorum::advance(contender& who, time_point now, quorum_actions& out) {
  const time_point by = step_by(who, now);
  for_each(who.votes->take_raises(), [&](node_number node) {
    if (who.epoch != members_.epoch()) {
      // Its mark is another one by now: what this round voted on under the old one is not raised.
      who.votes->raise_failed(node);
      return;
    }
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

/// "Held" is said only when a majority has answered: a try waits for that.
bool quorum::reachability_is_known(const contender& who) const {
  if (who.may_wait || who.enrolled) return true;
  const unsigned failed = who.votes->failed_members();
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
  const unsigned failed = who.votes->failed_members();
  who.is = who.enrolled ? phase::queued : phase::idle;
  const bool others_are_there = who.votes->met_another();
  if (std::exchange(who.brought_up, false) && who.bids < bids_at_once) {
    // A counter that was far behind is not any more, when the next bid comes there.
    bid(who, now, out);
  } else if (failed + majority() > size()) {
    if (!try_again(who, now, out)) answer_failed(who, too_few(who, now), out);
  } else if (!others_are_there && failed > 0) {
    // Nobody has it: a node failed between its vote and its raise. The others may do without it.
    if (who.bids < bids_at_once) {
      bid(who, now, out);
    } else {
      answer_failed(who, too_few(who, now), out);
    }
  } else if (!who.may_wait && !who.enrolled) {
    if (who.acquire) out.all.emplace_back(acquire_told{who.holder, acquire_answer(held{})});
    if (who.claim) out.all.emplace_back(renew_told{who.holder, renew_answer(gone{})});
    contenders_.erase(holder_id{who.holder});
  } else {
    enroll(who, now, out);
  }
}

void quorum::raise_answered(contender& who, const errand& why, const base::result<vote>& said,
                            time_point now, quorum_actions& out) {
  if (said && said->what == vote::kind::not_a_member) mark_differs(why.node, *said, now, out);
  if (who.round != why.round || !who.votes) return;
  if (said && said->what == vote::kind::far_behind) {
    who.last_trouble = members_.name_of(why.node) +
                       "'s counter of tokens is far behind the others': it was set back, or lost";
    const auto todo = members_.far_behind(why.node, who.votes->token());
    who.brought_up = who.brought_up || !todo.adopt.empty();
    follow(todo, now, out);
  }
  if (said && said->what == vote::kind::yes) {
    who.votes->raised(why.node);
  } else if (said && said->what == vote::kind::no) {
    who.votes->not_raised(why.node);
  } else {
    who.votes->raise_failed(why.node);
  }
  advance(who, now, out);
}

}  // namespace sallyport::backends::redlock
