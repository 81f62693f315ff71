// How a contender waits: in the line of every node, and for nodes that are away.
#include "backends/redlock/quorum.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::backends::redlock {

using backend_api::holder_id;
using phase = contender::phase;

namespace {

using namespace std::chrono_literals;

/// "When you like": the engine asks again at its heartbeat.
constexpr duration whenever = 24h;
/// After votes were split, a contender waits for a random part of this, and longer the next time.
constexpr duration split_pause = 10ms;
/// While the holder is somebody who does not know of the line, the first in it asks this often.
constexpr duration shortest_poll = 50ms;
constexpr duration longest_poll = 250ms;
/// What a new waiter is told that would not be heard yet.
constexpr duration until_heard = 50ms;

duration part_of(duration span, double part) {
  return duration{static_cast<duration::rep>(static_cast<double>(span.count()) * part)};
}

}  // namespace

// ---- in line ------------------------------------------------------------------------------------

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
  who.lines.assign(listed(), std::nullopt);
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
    out.all.emplace_back(entered_told{who.holder});
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

// ---- for nodes that are away --------------------------------------------------------------------

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
    // They were reached, and are only writing their new marks.
    if (waits && members_.majority_is_coming()) who->patient_until = who->acquire->answer_by;
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

}  // namespace sallyport::backends::redlock
