// How a contender keeps what it has: renewals, and the votes of nodes that did not give theirs.
#include "backends/redlock/quorum.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::gone;
using backend_api::renew_answer;
using phase = contender::phase;

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
  who.epoch = members_.epoch();
  who.votes.emplace(size(), listed(), voters, tokens > 0);
  // Those that did not vote for it, or no longer do, need not be asked.
  for_each(voters & ~asked, [&](node_number node) { who.votes->refused(node); });
  const time_point by = step_by(who, now);
  for_each(asked, [&](node_number node) {
    send(node, speech_.extend(members_.mark_of(node), who.what, who.ids[node], tokens),
         {errand::kind::extend, node, who.holder, who.round, who.ids[node]}, by, out);
  });
  advance(who, now, out);
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
  if (std::exchange(who.claim, std::nullopt)) {
    if (is_gone) {
      out.all.emplace_back(renew_told{who.holder, renew_answer(gone{})});
    } else {
      out.all.emplace_back(renew_told{who.holder, tl::unexpected(too_few(who, now))});
    }
  }
  // Who may vote can have changed in this round, by a member that was replaced: the next renewal
  // needs the votes of those that did not vote before.
  if (now < who.good_until) heal(who, now, out);
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

}  // namespace sallyport::backends::redlock
