// The quorum as the engine and the nodes see it: requests, answers, timers. Entering, waiting, holding
// and leaving have files of their own.
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
using backend_api::holder_id;
using backend_api::renew_answer;
using backend_api::renew_request;
using backend_api::waiting;
using base::defect;
using base::planted;
using phase = contender::phase;

namespace {

using namespace std::chrono_literals;

/// What a node may take for one answer; a fraction of the lease, so that a slow one costs little.
constexpr duration longest_step = 500ms;
constexpr duration shortest_step = 50ms;
constexpr int steps_per_lease = 4;
/// So long a question waits for nodes that are tried again: whoever finds out by asking that they
/// were restarted should not have to ask twice.
constexpr duration returning_patience = 500ms;

}  // namespace

quorum::quorum(settings how, const speech& words)
    : speech_(words),
      fresh_id_(std::move(how.fresh_id)),
      members_(std::move(how.nodes)),
      random_(how.seed),
      debts_(members_.listed()),
      next_payment_(members_.listed(), time_point::max()),
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
    case errand::kind::look:
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
  contender& who = contenders_.try_emplace(request.holder, request.holder, listed()).first->second;
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
    out.all.emplace_back(entered_told{who.holder});
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
  if (count(members_.voters()) < majority() || !members_.missing().empty()) {
    return members_.trouble(now);
  }
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
    case errand::kind::look:
      membership_answered(why, said, now, out);
      return;
    default:
      break;
  }
  contender* const who = find(why.holder);
  if (who == nullptr) return;
  // What a node said tells more than that another one is away.
  if (!said && who->last_trouble.empty()) {
    who->last_trouble = members_.name_of(why.node) + ": " + said.error().detail;
  }
  if (said && said->is_error()) who->last_trouble = members_.name_of(why.node) + ": " + said->text;
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
    case errand::kind::look:
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
      out.all.emplace_back(entered_told{who->holder});
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
  for (node_number node = 0; node < listed(); ++node) pay(node, now, out);
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
