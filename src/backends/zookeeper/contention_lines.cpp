#include "backends/zookeeper/contention.hpp"
#include "base/planted.hpp"

#include <algorithm>
#include <utility>

// The sessions that contenders' nodes belong to, and what is asked on behalf of nobody.
namespace sallyport::backends::zookeeper {

using backend_api::holder_id;

namespace {

using namespace std::chrono_literals;

/// Of a session that only looks.
constexpr duration usual_timeout = 10s;
/// A sync that was not answered by then makes us doubt the server.
constexpr duration shortest_patience = 300ms;
/// A request that was not answered by then may be forgotten: see nudge().
constexpr duration first_nudge = 50ms;
constexpr duration longest_nudge_pause = 800ms;
/// Between two tries to watch a name.
constexpr duration name_pause = 1s;

}  // namespace

line_state* contention::line_of(const contender& who) {
  const auto found = lines_.find(who.line);
  return found == lines_.end() ? nullptr : &found->second;
}

line_number contention::open_new(duration timeout, bool own, actions& out) {
  const line_number number = next_line_++;
  lines_[number].wanted = timeout;
  lines_[number].own = own;
  out.emplace_back(open_order{number, timeout});
  return number;
}

/// A dead holder delays others by its session's timeout, so that is the lease's length; and who is
/// alive trusts the session for less. A lease that nobody renews has to last as long as it says, so
/// its session lasts longer.
line_number contention::line_of_length(duration length, bool renewed, actions& out) {
  const duration wanted = renewed ? length : (length + how_.tick) * 3 / 2;
  line_number chosen = 0;
  line_number longer = 0;
  std::size_t shared = 0;
  for (const auto& [number, line] : lines_) {
    if (line.own) continue;
    ++shared;
    if (line.wanted == wanted) chosen = number;
    const bool better =
        longer == 0 || (lines_.at(longer).wanted < wanted
                            ? line.wanted > lines_.at(longer).wanted
                            : line.wanted >= wanted && line.wanted < lines_.at(longer).wanted);
    if (better) longer = number;
  }
  if (chosen == 0) chosen = shared < most_lines ? open_new(wanted, false, out) : longer;
  return chosen;
}

void contention::attach(contender& who, actions& out) {
  who.line = line_of_length(who.length, who.renewed, out);
  lines_.at(who.line).members.insert(who.id);
}

bool contention::name_known(const line_state& line) const {
  return !how_.asks_name || (line.named_at == line.troubles && line.name == latest_name_);
}

std::optional<contention::name_question> contention::name_wanted(
    const backend_api::acquire_request& request, actions& out) {
  if (!how_.asks_name) return std::nullopt;
  const contender* const who = find(request.holder);
  const line_number number = who != nullptr && lines_.contains(who->line)
                                 ? who->line
                                 : line_of_length(request.lease_length, request.renewed, out);
  const line_state& line = lines_.at(number);
  if (name_known(line)) return std::nullopt;
  // One that could never be opened is tried again.
  if (!line.up) out.emplace_back(doubt_order{number, false});
  return name_question{.line = number, .trouble = line.troubles};
}

void contention::line_named(const name_question& asked, const std::string& name) {
  latest_name_ = name;
  const auto found = lines_.find(asked.line);
  if (found == lines_.end()) return;
  found->second.named_at = asked.trouble;
  found->second.name = name;
}

line_number contention::any_line(actions& out) {
  line_number chosen = 0;
  for (const auto& [number, line] : lines_) {
    if (!line.own && (chosen == 0 || line.up)) chosen = number;
  }
  return chosen == 0 ? open_new(usual_timeout, false, out) : chosen;
}

void contention::end_line(line_number line, bool keep_session, actions& out) {
  if (lines_.erase(line) > 0) out.emplace_back(close_order{line, keep_session});
}

errand_number contention::send(errand why, request what, actions& out) {
  const errand_number number = next_errand_++;
  why.what = what.what;
  const line_number line = why.line;
  if (const auto found = lines_.find(line); found != lines_.end() && !found->second.nudge_set) {
    found->second.nudge_set = true;
    found->second.nudge_pause = first_nudge;
    set_timer(why.sent + first_nudge, {.what = alarm::nudge, .number = line});
  }
  errands_.emplace(number, std::move(why));
  out.emplace_back(send_order{line, number, std::move(what)});
  return number;
}

/// Servers from 3.6.0 to 3.8.0 may overlook a change that was decided on until the next request comes
/// (ZOOKEEPER-4537), and a client that is alone waits for the answer before it sends one. So what is
/// not answered for a while is followed by something that harms nobody.
void contention::nudge(line_number number, time_point now, actions& out) {
  const auto found = lines_.find(number);
  if (found == lines_.end()) return;
  line_state& line = found->second;
  bool any = false;
  bool late = false;
  for (const auto& [ignored, each] : errands_) {
    if (each.line != number) continue;
    any = true;
    late = late || each.sent + first_nudge <= now;
  }
  line.nudge_set = any && line.up;
  if (!line.nudge_set) return;  // the next request sets it again
  if (late) send({.why = errand::kind::ignored, .line = number, .sent = now}, {}, out);
  line.nudge_pause = late ? std::min(2 * line.nudge_pause, longest_nudge_pause) : first_nudge;
  set_timer(now + line.nudge_pause, {.what = alarm::nudge, .number = number});
}

// ---- proofs --------------------------------------------------------------------------------------

duration contention::remaining(const contender& who, time_point since) {
  const line_state* const line = line_of(who);
  if (line == nullptr || line->proven == time_point::min()) return duration::zero();
  const time_point until = std::min(line->proven + line->span, who.trusted_until);
  return std::clamp(until - since, duration::zero(), who.length);
}

bool contention::fresh(const contender& who, time_point now) {
  const line_state* const line = line_of(who);
  if (line == nullptr || line->proven == time_point::min()) return false;
  return now - line->proven < line->span / 3;
}

void contention::keep(line_number number, time_point now, actions& out) {
  const auto found = lines_.find(number);
  if (found == lines_.end() || !found->second.up || found->second.syncing) return;
  line_state& line = found->second;
  line.syncing = true;
  ++line.round;
  set_timer(now + std::max(line.span / 6, shortest_patience),
            {.what = alarm::sync, .holder = {0, line.round}, .number = number});
  send({.why = errand::kind::sync, .line = number, .sent = now, .round = line.round}, {}, out);
}

void contention::proven(line_number number, time_point sent, time_point now, actions& out) {
  const auto found = lines_.find(number);
  if (found == lines_.end() || sent <= found->second.proven) return;
  found->second.proven = sent;
  const std::vector<holder_id> members(found->second.members.begin(), found->second.members.end());
  bool too_old = false;
  for (const holder_id& each : members) {
    contender* const who = find(each);
    if (who == nullptr || !who->stale) continue;
    if (!fresh(*who, now)) {
      too_old = true;
      continue;
    }
    who->stale = false;
    tell_entry(*who, now, out);
    advance(*who, now, out);
  }
  if (too_old) keep(number, now, out);
}

// ---- what happens to a line ----------------------------------------------------------------------

void contention::line_up(line_number number, session_id session, duration timeout, time_point now,
                         actions& out) {
  const auto found = lines_.find(number);
  if (found == lines_.end()) return;
  line_state& line = found->second;
  line.up = true;
  line.session = session;
  // Only what passes the leader proves the session. The leader hears of other signs of life from the
  // client's server up to a tick later, and before that the client may have been silent for a third
  // of the timeout.
  line.span = std::max(duration::zero(), timeout - timeout / 3 - how_.tick);
  const bool again = std::exchange(line.was_up, true);
  line.syncing = false;  // one that was under way belongs to the connection before
  keep(number, now, out);
  const std::vector<holder_id> members(line.members.begin(), line.members.end());
  for (const holder_id& each : members) {
    contender* const who = find(each);
    if (who == nullptr) continue;
    who->recheck = who->recheck || (again && who->is == phase::waiting);
    advance(*who, now, out);
  }
  std::vector<std::uint64_t> parked;
  for (const auto& [ticket, question] : questions_) {
    if (question.line == number && !question.sent) parked.push_back(ticket);
  }
  for (const std::uint64_t ticket : parked) send_question(ticket, now, out);
  for (const auto& [name, state] : names_) {
    if (!state.armed) arm(name, now, out);
  }
  if (again) out.emplace_back(reconnected_told{});
}

void contention::line_down(line_number number) {
  const auto found = lines_.find(number);
  if (found == lines_.end()) return;
  // What is under way is answered one by one.
  found->second.up = false;
  found->second.syncing = false;
  ++found->second.troubles;
}

void contention::line_ended(line_number number, time_point now, actions& out) {
  const auto found = lines_.find(number);
  if (found == lines_.end()) return;
  const line_state line = std::move(found->second);
  lines_.erase(found);
  out.emplace_back(close_order{number, false});
  std::erase_if(errands_, [&](const auto& each) {
    return each.second.line == number && each.second.why != errand::kind::question;
  });
  for (const holder_id& each : line.members) {
    contender* const who = find(each);
    if (who == nullptr) continue;
    ++who->round;
    who->doing = step::none;
    who->line = 0;
    // With the session all its nodes are gone, and nothing can be created in it any more.
    const bool was_in = who->is == phase::held;
    fall_out(*who);
    if (was_in) {
      who->is = phase::lost;
      out.emplace_back(lost_told{who->id});
    }
    advance(*who, now, out);
  }
  std::vector<std::uint64_t> over;
  for (const auto& [ticket, question] : questions_) {
    if (question.line == number) over.push_back(ticket);
  }
  for (const std::uint64_t ticket : over) question_over(ticket, status::session_ended, out);
  for (auto& [name, state] : names_) state = {.armed = false, .was_lost = true};
  if (!names_.empty()) set_timer(now, {.what = alarm::names});
}

// ---- watches -------------------------------------------------------------------------------------

void contention::be_interested(const contender& who, const std::string& path) {
  if (!path.empty()) interested_[path].insert(who.id);
}

void contention::be_no_longer_interested(const contender& who, const std::string& path) {
  const auto found = interested_.find(path);
  if (found == interested_.end()) return;
  found->second.erase(who.id);
  if (found->second.empty()) interested_.erase(found);
}

void contention::happened(const std::string& path, bool gone, bool below, time_point now,
                          actions& out) {
  const std::string folder{parent_of(path)};
  for (auto& [name, state] : names_) {
    const std::string watched = how_.nodes.folder(name.text());
    if (watched != path && watched != folder) continue;
    state.armed = false;
    out.emplace_back(changed_told{name});
    arm(name, now, out);
  }
  const auto found = interested_.find(path);
  if (found == interested_.end()) return;
  const std::vector<holder_id> all(found->second.begin(), found->second.end());
  for (const holder_id& each : all) {
    contender* const who = find(each);
    if (who == nullptr) continue;
    const bool own = path == who->grant().path;
    if (who->is == phase::held && own && gone && who->doing != step::leaving &&
        who->doing != step::downgrading && !who->half_downgraded) {
      ++who->round;
      who->doing = step::none;
      lose(*who, out);
    } else if (who->is == phase::waiting) {
      who->poked = who->poked || gone || below;
    }
    advance(*who, now, out);
  }
}

void contention::arm(const lock_name& name, time_point now, actions& out) {
  const line_number line = any_line(out);
  if (!lines_.at(line).up) return;  // line_up comes back to it
  watched_name& state = names_.at(name);
  state.armed = true;
  send({.why = errand::kind::name, .line = line, .sent = now, .name = name.text()},
       {.what = verb::list, .path = how_.nodes.folder(name.text()), .watch = true}, out);
}

void contention::name_answered(const errand& why, const reply& said, time_point now, actions& out) {
  const auto found = names_.find(lock_name(why.name));
  if (found == names_.end()) return;
  const std::string folder = how_.nodes.folder(why.name);
  if (said.is == status::no_node && why.what == verb::list) {
    send({.why = errand::kind::name, .line = why.line, .sent = now, .name = why.name},
         {.what = verb::look, .path = folder, .watch = true}, out);
    return;
  }
  if (said.is == status::ok && why.what == verb::look) {
    out.emplace_back(changed_told{found->first});  // it has come meanwhile
    arm(found->first, now, out);
    return;
  }
  if (said.is == status::ok && why.what == verb::list) {
    std::vector<std::string> unknown;
    const auto line = contenders_among(said.children, unknown);
    // What the first one says may change, too.
    if (!line.empty()) {
      send({.why = errand::kind::name, .line = why.line, .sent = now, .name = why.name},
           {.what = verb::read, .path = join(folder, line.front().name), .watch = true}, out);
    }
  }
  const bool failed = said.is != status::ok && said.is != status::no_node;
  if (failed) {
    found->second = {.armed = false, .was_lost = true};
    set_timer(now + name_pause, {.what = alarm::names});
  } else if (std::exchange(found->second.was_lost, false)) {
    out.emplace_back(changed_told{found->first});
  }
}

// ---- questions of nobody -------------------------------------------------------------------------

void contention::ask(line_number line, std::vector<request> all, std::uint64_t ticket,
                     time_point answer_by, time_point now, actions& out) {
  if (line == 0) line = any_line(out);
  outside_question& fresh = questions_[ticket];
  fresh.line = line;
  fresh.all = std::move(all);
  fresh.answer_by = answer_by;
  set_timer(answer_by, {.what = alarm::question, .number = ticket});
  const auto found = lines_.find(line);
  if (found == lines_.end()) {
    question_over(ticket, status::session_ended, out);
  } else if (found->second.up) {
    send_question(ticket, now, out);
  }
}

void contention::send_question(std::uint64_t ticket, time_point now, actions& out) {
  outside_question& asked = questions_.at(ticket);
  asked.sent = true;
  asked.open = asked.all.size();
  asked.answers.resize(asked.all.size(), reply{.is = status::connection_lost});
  for (std::size_t i = 0; i < asked.all.size(); ++i) {
    send({.why = errand::kind::question,
          .line = asked.line,
          .sent = now,
          .round = ticket,
          .index = i},
         asked.all[i], out);
  }
}

void contention::question_over(std::uint64_t ticket, status why, actions& out) {
  const auto found = questions_.find(ticket);
  if (found == questions_.end()) return;
  outside_question& asked = found->second;
  const status what = asked.sent ? why : status::not_sent;
  asked.answers.resize(asked.all.size(), reply{.is = what});
  auto answers = std::move(asked.answers);
  questions_.erase(found);
  out.emplace_back(asked_told{ticket, std::move(answers)});
}

// ---- answers -------------------------------------------------------------------------------------

void contention::answered(errand_number number, reply said, time_point now, actions& out) {
  const auto found = errands_.find(number);
  if (found == errands_.end()) return;
  const errand why = std::move(found->second);
  errands_.erase(found);
  if (said.is == status::session_ended) {
    line_ended(why.line, now, out);
    if (why.why != errand::kind::question) return;
  }
  if (said.is == status::not_sent) line_down(why.line);
  const bool answer = said.is == status::ok || said.is == status::no_node ||
                      said.is == status::node_exists || said.is == status::bad_version;
  if (why.why == errand::kind::sync) {
    const auto line = lines_.find(why.line);
    if (line != lines_.end() && line->second.round == why.round) line->second.syncing = false;
  }
  const bool from_answer = base::planted(base::defect::zookeeper_proof_from_answer);
  if (answer && passes_the_leader(why.what)) {
    proven(why.line, from_answer ? now : why.sent, now, out);
  }
  switch (why.why) {
    case errand::kind::sync:
    case errand::kind::ignored:
      break;
    case errand::kind::name:
      name_answered(why, said, now, out);
      break;
    case errand::kind::question: {
      const auto asked = questions_.find(why.round);
      if (asked == questions_.end()) break;
      asked->second.answers.at(why.index) = std::move(said);
      if (--asked->second.open == 0) question_over(why.round, status::ok, out);
      break;
    }
    case errand::kind::step: {
      contender* const who = find(why.holder);
      if (who == nullptr || who->round != why.round) break;
      who->replies.at(why.index) = std::move(said);
      if (--who->open == 0) step_done(*who, now, out);
      break;
    }
  }
}

}  // namespace sallyport::backends::zookeeper
