// How a contender leaves: giving votes back, also those that come late; and who may vote.
#include "backends/redis/words.hpp"
#include "backends/redlock/quorum.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::holder_id;
using backend_api::leave_request;
using phase = contender::phase;

namespace {

using namespace std::chrono_literals;

/// More than so many votes to give back are left to end by themselves.
constexpr std::size_t most_debts = 4096;
constexpr duration shortest_pause = 100ms;
constexpr duration membership_patience = 2s;

/// Of whatever a contender may leave on a node.
duration longest_life(const contender& who) {
  return std::max(who.what.lease_length, who.what.ticket_length);
}

}  // namespace

// ---- leaving -------------------------------------------------------------------------------------

void quorum::leave(const leave_request& request, bool withdraw, time_point now,
                   quorum_actions& out) {
  contender& who = contenders_.try_emplace(request.holder, request.holder, listed()).first->second;
  if (who.what.name.empty()) {
    // Nothing is known of it any more; a ticket, or what was handed over to it, may be there.
    who.what.name = request.name.text();
    who.what.contender = std::string(redis::view(redis::hex_of(request.holder)));
    who.enrolled = true;
  }
  const base::failure overtaken{make_error_code(errc::unavailable), "the contender has left"};
  fail_questions(who, overtaken, out);
  const node_set unknown = who.votes ? who.votes->failures() : 0;
  const bool hands_over = who.is == phase::held;
  who.was_held = hands_over;
  who.is = phase::leaving;
  who.round = ++last_round_;
  who.votes.reset();
  who.ask_the_rest_at = time_point::max();
  who.leave_received = now;
  who.leave_votes = who.leave_open = who.leave_yes = who.leave_no = 0;
  const std::string nonce = hands_over ? fresh() : std::string();
  const bool line_too = withdraw || who.enrolled;
  const node_set reachable = members_.reachable();
  const duration life = longest_life(who);
  for (node_number node = 0; node < listed(); ++node) {
    const std::string id = std::exchange(who.ids[node], {});
    if (id.empty() && (!line_too || (members_.outsiders() & only(node)) != 0)) continue;
    if (!id.empty()) who.leave_votes |= only(node);
    const debt what{.name = who.what.name,
                    .contender = who.what.contender,
                    .id = id,
                    .withdraw = line_too,
                    .pause = who.what.lease_length / 4,
                    .until = now + life,
                    .life = life};
    if ((reachable & only(node)) == 0) {
      owe(node, what);
      continue;
    }
    who.leave_open |= only(node);
    send(node,
         speech_.leave({.name = what.name,
                        .contender = what.contender,
                        .id = id,
                        .hand_over = hands_over,
                        .nonce = nonce,
                        .withdraw = line_too}),
         {errand::kind::leave, node, who.holder, who.round, id}, request.answer_by, out);
    if (!id.empty() && (unknown & only(node)) != 0) owe(node, late_vote(who, id, now));
    if ((who.unsure & only(node)) != 0) owe(node, late_ticket(who, now));
  }
  conclude_leave(who, now, out);
}

void quorum::leave_answered(contender& who, const errand& why, base::result<bool> said,
                            time_point now, quorum_actions& out) {
  if (who.is != phase::leaving || who.round != why.round) return;
  who.leave_open &= ~only(why.node);
  if (said) {
    (*said ? who.leave_yes : who.leave_no) |= only(why.node);
  } else {
    // A hand-over is not sent twice: what is repeated only gives back.
    const duration life = longest_life(who);
    owe(why.node, {.name = who.what.name,
                   .contender = who.what.contender,
                   .id = why.id,
                   .withdraw = true,
                   .pause = who.what.lease_length / 4,
                   .next = now + shortest_pause,
                   .until = now + life,
                   .life = life});
  }
  conclude_leave(who, now, out);
}

void quorum::conclude_leave(contender& who, time_point, quorum_actions& out) {
  using backend_api::leave_answer;
  // Who is no member any more does not speak for the majority.
  const node_set members = members_.roster_nodes();
  const unsigned yes = count(who.leave_yes & members);
  const unsigned no = count(who.leave_no & members);
  const unsigned heard = yes + no;
  if (who.leave_received) {
    // Whoever they were: all of them have given back what made a majority.
    const bool nothing_is_left =
        count(who.leave_votes) >= majority() && (who.leave_votes & ~who.leave_yes) == 0;
    std::optional<base::result<leave_answer>> answer;
    if (who.was_held && (yes >= majority() || nothing_is_left)) {
      answer = leave_answer::left;
    } else if (!who.was_held && heard >= majority()) {
      answer = who.leave_yes != 0 ? leave_answer::left : leave_answer::not_there;
    } else if (who.was_held && no + majority() > size()) {
      answer = leave_answer::not_there;
    } else if (who.leave_open == 0) {
      answer = base::fail(errc::outcome_unknown, std::to_string(heard) + " of " +
                                                     std::to_string(size()) +
                                                     " nodes have heard of the release");
    }
    if (answer) {
      who.leave_received.reset();
      out.all.emplace_back(leave_told{who.holder, std::move(*answer)});
    }
  }
  if (who.leave_open == 0) contenders_.erase(holder_id{who.holder});
}

// ---- votes that are not wanted -------------------------------------------------------------------

void quorum::give_back(contender& who, const std::string& id, time_point now, quorum_actions& out) {
  const node_set unknown = who.votes ? who.votes->failures() : 0;
  for (node_number node = 0; node < listed(); ++node) {
    if (who.ids[node] != id) continue;
    who.ids[node].clear();
    give_back_at(node, who, id, now, out);
    if ((unknown & only(node)) != 0) owe(node, late_vote(who, id, now));
  }
}

quorum::debt quorum::late_vote(const contender& who, const std::string& id, time_point now) {
  // Bytes of a connection that broke may still be executed: again and again until the lease that
  // they ask for has passed.
  const duration lease = std::max(who.lease, who.what.lease_length);
  return {.name = who.what.name,
          .contender = who.what.contender,
          .id = id,
          .pause = lease / 4,
          .next = now + lease / 4,
          .until = now + lease,
          .life = lease};
}

quorum::debt quorum::late_ticket(const contender& who, time_point now) {
  // Tickets may be short; what comes late does not come sooner for that.
  const duration life = longest_life(who);
  return {.name = who.what.name,
          .contender = who.what.contender,
          .id = {},
          .withdraw = true,
          .pause = who.what.lease_length / 4,
          .next = now + who.what.lease_length / 4,
          .until = now + life,
          .life = life};
}

void quorum::ticket_in_doubt(contender& who, node_number node, time_point now) {
  if ((members_.reachable() & only(node)) != 0) {
    // A farewell comes after it, as long as they share the connection.
    who.overdue |= only(node);
    return;
  }
  who.unsure |= only(node);
  // Its farewell may have waited for the next connection.
  if (who.is == phase::leaving) owe(node, late_ticket(who, now));
}

void quorum::give_back_at(node_number node, contender& who, const std::string& id, time_point now,
                          quorum_actions& out) {
  // It may be given back more than once, and so must not become ours again.
  const std::string head = who.what.contender + '|';
  if (id.starts_with(head)) who.spent.insert(id.substr(head.size()));
  debt what = late_vote(who, id, now);
  what.next = now + shortest_pause;
  if ((members_.reachable() & only(node)) == 0) {
    owe(node, std::move(what));
    return;
  }
  const std::uint64_t number = ++last_round_;
  send(node, speech_.leave({.name = what.name, .contender = what.contender, .id = id}),
       {errand::kind::settle, node, who.holder, number, id}, now + membership_patience, out);
  settling_.emplace(number, std::move(what));
}

void quorum::settled(const errand& why, bool heard) {
  const auto found = settling_.find(why.round);
  if (found == settling_.end()) return;
  if (!heard) owe(why.node, std::move(found->second));
  settling_.erase(found);
}

void quorum::owe(node_number node, debt what) {
  what.pause = std::max(what.pause, shortest_pause);
  if (debts_[node].size() == most_debts) debts_[node].pop_front();
  next_payment_[node] = std::min(next_payment_[node], what.next);
  debts_[node].push_back(std::move(what));
}

bool quorum::idle() const noexcept {
  return contenders_.empty() && settling_.empty() &&
         std::all_of(debts_.begin(), debts_.end(), [](const auto& each) { return each.empty(); });
}

void quorum::pay(node_number node, time_point now, quorum_actions& out) {
  if (now < next_payment_[node]) return;
  std::deque<debt>& all = debts_[node];
  const bool reachable = (members_.reachable() & only(node)) != 0;
  next_payment_[node] = time_point::max();
  for (debt& each : all) {
    if (now >= each.next) {
      each.next = now + each.pause;
      if (reachable) {
        each.paid = now >= each.until;
        send(node,
             speech_.leave({.name = each.name,
                            .contender = each.contender,
                            .id = each.id,
                            .withdraw = each.withdraw}),
             {errand::kind::settle, node, {}, 0, each.id}, now + membership_patience, out);
      }
    }
    if (!each.paid) next_payment_[node] = std::min(next_payment_[node], each.next);
  }
  // Whoever could not be told at the end is told when it is there again, while it can matter.
  std::erase_if(all, [&](const debt& each) { return each.paid || now >= each.until + each.life; });
  if (all.empty()) next_payment_[node] = time_point::max();
}

// ---- who may vote --------------------------------------------------------------------------------

void quorum::follow(const membership::actions& todo, time_point now, quorum_actions& out) {
  const time_point by = now + membership_patience;
  for (const membership::adoption& each : todo.adopt) {
    send(each.node, speech_.adopt(each.expected, each.mark, each.floor),
         {errand::kind::adopt, each.node, {}, 0, {}}, by, out);
  }
  for_each(todo.read_counters, [&](node_number node) {
    send(node, speech_.look(members_.seen_mark_of(node)),
         {errand::kind::read_counter, node, {}, todo.reading, {}}, by, out);
  });
  for_each(todo.read_clocks, [&](node_number node) {
    send(node, speech_.look(members_.seen_mark_of(node)),
         {errand::kind::read_clock, node, {}, todo.clock_reading, {}}, by, out);
  });
  for_each(todo.look_at, [&](node_number node) {
    send(node, speech_.look(members_.seen_mark_of(node)),
         {errand::kind::look, node, {}, todo.looking, {}}, by, out);
  });
  for_each(todo.read_marks, [&](node_number node) {
    send(node, speech_.read_mark(), {errand::kind::read_mark, node, {}, 0, {}}, by, out);
  });
}

void quorum::membership_answered(const errand& why, const base::result<reply>& said, time_point now,
                                 quorum_actions& out) {
  const node_set before = members_.voters();
  if (why.what == errand::kind::adopt) {
    const auto answer =
        said ? adopt_answer_of(*said) : base::result<adopt_answer>(tl::unexpected(said.error()));
    follow(answer ? members_.adopted(why.node, answer->mark, now)
                  : members_.adoption_failed(why.node, now),
           now, out);
  } else if (why.what == errand::kind::read_mark) {
    if (said && !said->is_error()) follow(members_.adopted(why.node, said->text, now), now, out);
  } else {
    const look_answer found = said ? look_answer_of(*said) : look_answer{};
    if (found.other_mark) {
      // Whoever it is: also a candidate that another client has made a member meanwhile.
      follow(members_.adopted(why.node, *found.other_mark, now), now, out);
    }
    if (why.what == errand::kind::read_clock) {
      follow(members_.clock_read(why.node, why.round, found.server_us, now), now, out);
    } else if (why.what == errand::kind::read_counter) {
      follow(members_.counter_read(why.node, why.round, found.counter, now), now, out);
    } else {
      const bool answered = found.other_mark || found.server_us;
      follow(members_.looked_at(why.node, why.round, answered, now), now, out);
    }
  }
  welcome_new_voters(before, now, out);
}

void quorum::welcome_new_voters(node_set before, time_point now, quorum_actions& out) {
  if ((members_.voters() & ~before) == 0) {
    resume_postponed(now, out);
    return;
  }
  welcomed_at_ = now;
  // Holders take its vote, so that a bare majority does not stay one for long.
  for (auto& [holder, who] : contenders_) {
    if (who.is == phase::held && !who.renewing && now < who.good_until) heal(who, now, out);
  }
  // Waiters stand in line there, too, as soon as they ask again.
  if (count(members_.voters()) >= majority()) out.all.emplace_back(reconnected_told{});
  resume_postponed(now, out);
}

void quorum::mark_differs(node_number node, const vote& said, time_point now, quorum_actions& out) {
  follow(members_.mark_differs(node, said.mark, now), now, out);
}

void quorum::node_up(node_number node, node_facts facts, time_point now, quorum_actions& out) {
  const node_set before = members_.voters();
  follow(members_.node_up(node, std::move(facts), now), now, out);
  if (!debts_[node].empty()) {
    for (debt& each : debts_[node]) each.next = now;
    next_payment_[node] = now;
    pay(node, now, out);
  }
  welcome_new_voters(before, now, out);
}

void quorum::node_down(node_number node, base::failure why, time_point now, quorum_actions& out) {
  follow(members_.node_down(node, std::move(why), now), now, out);
  for (auto& [holder, who] : contenders_) {
    if ((who.overdue & only(node)) == 0) continue;
    who.overdue &= ~only(node);
    ticket_in_doubt(who, node, now);
  }
  resume_postponed(now, out);
}

}  // namespace sallyport::backends::redlock
