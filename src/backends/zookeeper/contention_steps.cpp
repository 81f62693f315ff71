#include "backends/zookeeper/contention.hpp"
#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <utility>

// What a contender does next.
namespace sallyport::backends::zookeeper {

using backend_api::gone;
using backend_api::leave_answer;
using backend_api::renew_answer;

namespace {

/// How many times shorter than asked for a lease may be, because sessions are.
constexpr int most_cut = 4;

std::string in_ms(duration span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) +
         " ms";
}

}  // namespace

void contention::begin(contender& who, step what, std::vector<request> all, time_point now,
                       actions& out, std::size_t skipped) {
  who.doing = what;
  who.open = all.size();
  who.skipped = skipped;
  who.replies.assign(all.size(), reply{});
  ++who.round;
  for (std::size_t i = 0; i < all.size(); ++i) {
    send({.why = errand::kind::step,
          .line = who.line,
          .sent = now,
          .holder = who.id,
          .round = who.round,
          .index = i},
         std::move(all[i]), out);
  }
}

/// Whether it has a session that can be talked to now; line_up comes back to it.
bool contention::reach(contender& who, time_point, actions& out) {
  if (line_of(who) == nullptr) attach(who, out);
  return line_of(who)->up;
}

void contention::advance(contender& who, time_point now, actions& out) {
  if (who.doing != step::none || now < who.pause_until) return;
  const bool somewhere = who.place.perhaps_there() || who.lease.perhaps_there();
  if (who.going || who.verdict) {
    if (somewhere) {
      if (reach(who, now, out)) remove_nodes(who, now, out);
      return;
    }
    if (who.verdict && who.asked) out.emplace_back(acquire_told{who.id, std::move(*who.verdict)});
    if (who.leave) {
      const bool perhaps = who.removal_lost || who.is == phase::held || who.is == phase::waiting;
      out.emplace_back(leave_told{who.id, perhaps ? leave_answer::left : leave_answer::not_there});
    }
    if (who.going && who.asked && !who.verdict) {
      out.emplace_back(
          acquire_told{who.id, base::fail(errc::unavailable, "the contender has left")});
    }
    if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{gone{}}});
    if (who.downgrade) out.emplace_back(downgrade_told{who.id, renew_answer{gone{}}});
    for (const auto& each : who.values) out.emplace_back(value_told{each.ticket, false});
    forget(who);
    return;
  }
  switch (who.is) {
    case phase::outside:
    case phase::lost:
      if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{gone{}}});
      if (who.downgrade) out.emplace_back(downgrade_told{who.id, renew_answer{gone{}}});
      for (const auto& each : who.values) out.emplace_back(value_told{each.ticket, false});
      who.renew.reset();
      who.downgrade.reset();
      who.values.clear();
      if (who.asked && reach(who, now, out)) enter(who, now, out);
      break;
    case phase::waiting:
      if (reach(who, now, out)) advance_waiting(who, now, out);
      break;
    case phase::held:
      if (reach(who, now, out)) advance_held(who, now, out);
      break;
  }
}

void contention::advance_waiting(contender& who, time_point now, actions& out) {
  if (who.lease.doubtful) {
    find_node(who, who.lease, now, out);
    return;
  }
  if (who.poked) {
    judge_again(who, now, out);
    return;
  }
  if (who.asked || who.recheck) {
    who.recheck = false;
    if (!who.lease.path.empty()) {
      begin(who, step::counting, {{.what = verb::list, .path = who.lease.folder, .watch = true}},
            now, out);
    } else if (who.behind.empty()) {
      judge_again(who, now, out);
    } else {
      begin(who, step::looking,
            {{.what = verb::await_end, .path = who.behind},
             {.what = verb::look, .path = who.place.path}},
            now, out);
    }
    return;
  }
  if (who.renew) {
    who.renew.reset();
    out.emplace_back(
        renew_told{who.id, renew_answer{backend_api::waiting{
                               .ask_again_after = std::chrono::hours{1}, .permits = who.permits}}});
  }
  if (who.note_due) write_card(who, step::noting, 0, now, out);
}

void contention::advance_held(contender& who, time_point now, actions& out) {
  if (who.stale) {
    keep(who.line, now, out);
    return;
  }
  if ((who.asked || who.renew) && now >= who.trusted_until &&
      !base::planted(base::defect::zookeeper_fixed_lease_goes_on)) {
    // Nobody renews it, and its time is over, also if the session goes on: it is asked for anew.
    if (who.renew) out.emplace_back(renew_told{who.id, renew_answer{gone{}}});
    who.renew.reset();
    remove_nodes(who, now, out);
    return;
  }
  const bool renews = who.renew && !who.renew->draws;
  if (who.reread && !who.half_downgraded) {
    begin(who, step::reading, {{.what = verb::read, .path = who.grant().path}}, now, out);
  } else if (who.downgrade || who.half_downgraded) {
    who.card.token = static_cast<std::uint64_t>(who.token);
    const std::string other = path_as_reader(who);
    begin(
        who, step::downgrading,
        {{.what = verb::replace, .path = who.place.path, .data = to_json(who.card), .other = other},
         {.what = verb::look, .path = other}},
        now, out);
  } else if (!who.values.empty()) {
    who.card.value = who.values.front().value;
    write_card(who, step::proclaiming, static_cast<std::uint64_t>(who.token), now, out);
  } else if (who.renew && who.renew->draws) {
    write_card(who, step::drawing, 0, now, out);
  } else if ((renews && who.claimed) || ((renews || who.asked) && !fresh(who, now))) {
    // The read comes after the sync on the same connection, so it sees what the leader knew then.
    keep(who.line, now, out);
    std::vector<request> all{{.what = verb::read, .path = who.grant().path}};
    if (!who.guarded) all.push_back({.what = verb::await_end, .path = who.grant().path});
    begin(who, step::reading, std::move(all), now, out);
  } else if (renews || who.asked) {
    // The claim of one who got in just now: the store has confirmed it already.
    answer_held(who, now, out);
    advance(who, now, out);
  } else if (who.note_due && now >= who.note_after) {
    write_card(who, step::noting, static_cast<std::uint64_t>(who.token), now, out);
  } else if (who.what == form::permit && !who.place.path.empty()) {
    begin(who, step::tidying, {{.what = verb::remove, .path = who.place.path}}, now, out);
  }
}

std::string contention::path_as_reader(const contender& who) const {
  const auto name = read_child(last_segment(who.place.path));
  return layout::in_place_of(who.place.folder, *name, how_.nodes.whose(who.uuid()), true);
}

// ---- entering ------------------------------------------------------------------------------------

void contention::enter(contender& who, time_point now, actions& out) {
  const line_state& line = *line_of(who);
  if (line.span * most_cut < who.length && line.span < who.length - who.length / 3 - how_.tick) {
    refuse(who, base::fail(errc::bad_option,
                           "the servers' sessions may be trusted for " + in_ms(line.span) +
                               " only, so a lease of " + in_ms(who.length) +
                               " is too long; ask for a shorter one, or raise maxSessionTimeout"));
    advance(who, now, out);
  } else if (line.span <= duration::zero()) {
    refuse(who, base::fail(errc::bad_option,
                           "the session is not longer than one and a half ticks of the servers; "
                           "ask for a longer lease, or name their tick: ?tick=MS"));
    advance(who, now, out);
  } else if (who.place.doubtful) {
    find_node(who, who.place, now, out);
  } else if (!who.place.path.empty()) {
    judge_again(who, now, out);
  } else if (!who.asked->may_wait && !who.known_free) {
    // Whoever only tries writes nothing where somebody is.
    std::vector<request> all{{}};
    if (who.what == form::permit) {
      all.push_back({.what = verb::list, .path = who.place.folder});
      all.push_back({.what = verb::list, .path = who.lease.folder});
      all.push_back({.what = verb::read, .path = who.lease.folder});
    } else {
      all.push_back({.what = verb::list, .path = who.folder});
    }
    begin(who, step::trying, std::move(all), now, out, 1);
  } else {
    create(who, now, out);
  }
}

std::vector<request> contention::folders_for(const contender& who, bool lease) const {
  std::vector<request> all;
  const std::string& folder = lease ? who.lease.folder : who.place.folder;
  for (std::size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    all.push_back({.what = verb::create_folder, .path = folder.substr(0, end)});
    if (end == std::string::npos) break;
  }
  return all;
}

/// The creation and the look travel together: one round trip where nobody is in the way.
void contention::create(contender& who, time_point now, actions& out) {
  std::vector<request> all;
  if (std::exchange(who.make_folders, false)) all = folders_for(who, false);
  const std::size_t folders = all.size();
  const line_state& line = *line_of(who);
  const duration trust = who.renewed ? std::min(line.span, who.length) : who.length;
  who.card.token = 0;
  who.card.trust_ms = std::chrono::ceil<std::chrono::milliseconds>(trust).count();
  all.push_back({.what = verb::create_contender,
                 .path = how_.nodes.stem(who.place.folder, who.what, false, who.uuid()),
                 .data = to_json(who.card)});
  all.push_back({.what = verb::list, .path = who.place.folder});
  if (who.what == form::permit) all.push_back({.what = verb::list, .path = who.folder});
  begin(who, step::entering, std::move(all), now, out, folders);
}

void contention::take(contender& who, time_point now, actions& out) {
  std::vector<request> all;
  if (std::exchange(who.make_folders, false)) all = folders_for(who, true);
  const std::size_t folders = all.size();
  all.push_back({.what = verb::create_contender,
                 .path = how_.nodes.stem(who.lease.folder, who.what, true, who.uuid()),
                 .data = to_json(who.card)});
  all.push_back({.what = verb::list, .path = who.lease.folder});
  all.push_back({.what = verb::read, .path = who.lease.folder});
  begin(who, step::taking, std::move(all), now, out, folders);
}

void contention::judge_again(contender& who, time_point now, actions& out) {
  who.poked = false;
  if (!who.lease.path.empty()) {
    begin(who, step::counting, {{.what = verb::list, .path = who.lease.folder, .watch = true}}, now,
          out);
    return;
  }
  begin(who, step::judging, {{.what = verb::list, .path = who.place.folder}}, now, out);
}

// ---- after a lost connection, and at the end -----------------------------------------------------

void contention::find_node(contender& who, own_node& which, time_point now, actions& out) {
  // Another server may be behind the one that created it: the sync makes it catch up.
  begin(who, step::finding, {{}, {.what = verb::list, .path = which.folder}}, now, out, 1);
}

void contention::remove_nodes(contender& who, time_point now, actions& out) {
  if (who.place.doubtful) {
    find_node(who, who.place, now, out);
    return;
  }
  if (who.lease.doubtful) {
    find_node(who, who.lease, now, out);
    return;
  }
  std::vector<request> all;
  for (const own_node* each : {&who.lease, &who.place}) {
    if (!each->path.empty()) all.push_back({.what = verb::remove, .path = each->path});
  }
  if (who.half_downgraded) all.push_back({.what = verb::remove, .path = path_as_reader(who)});
  begin(who, step::leaving, std::move(all), now, out);
}

void contention::write_card(contender& who, step why, std::uint64_t token, time_point now,
                            actions& out) {
  own_node& node = who.is == phase::held ? who.grant() : who.place;
  who.note_due = false;
  who.card.token = token;
  begin(who, why,
        {{.what = verb::write,
          .path = node.path,
          .data = to_json(who.card),
          .version = node.version}},
        now, out);
}

}  // namespace sallyport::backends::zookeeper
