#include "backends/zookeeper/contention.hpp"
#include "base/planted.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>

// What came of a contender's step.
namespace sallyport::backends::zookeeper {

using backend_api::held;

namespace {

/// The sequence is a signed number of 32 bits that wraps; other libraries compare it as text.
constexpr std::int64_t sequence_alarm = 2'000'000'000;
/// How often folders that go away at once are made anew.
constexpr std::uint32_t most_failures = 5;
constexpr std::size_t most_probes = 16;
/// Before the next step of one whose last the store has refused. It may refuse for long, or for ever.
constexpr duration refusal_pause = std::chrono::milliseconds{100};

base::failure unknown(base::failure why) {
  why.code = make_error_code(errc::outcome_unknown);
  return why;
}

std::optional<std::uint32_t> permits_in(const reply& folder) {
  if (folder.is != status::ok) return std::nullopt;
  return base::parse_number(folder.data, 1, 1'000'000'000);
}

}  // namespace

void contention::step_done(contender& who, time_point now, actions& out) {
  for (const reply& each : who.replies) {
    if (each.is != status::connection_lost && each.is != status::not_sent) continue;
    step_failed(who, each, now, out);
    return;
  }
  const reply* const refused = refusal_that_matters(who);
  if (refused != nullptr && !base::planted(base::defect::zookeeper_refusal_is_an_answer)) {
    step_refused(who, reply{*refused}, now, out);
    return;
  }
  const step done = std::exchange(who.doing, step::none);
  switch (done) {
    case step::none:
      break;
    case step::trying:
      tried(who, now, out);
      break;
    case step::entering:
      entered(who, now, out);
      break;
    case step::judging:
      judged(who, who.replies[0], nullptr, now, out);
      break;
    case step::probing:
      probed(who, now, out);
      break;
    case step::watching:
      watching_done(who, now, out);
      break;
    case step::looking:
      looked(who, now, out);
      break;
    case step::taking:
      taken(who, now, out);
      break;
    case step::counting:
      counted(who, who.replies[0], now, out);
      break;
    case step::tidying:
      who.place.clear();
      break;
    case step::reading:
      read_done(who, now, out);
      break;
    case step::drawing:
    case step::noting:
    case step::proclaiming:
      who.doing = done;
      written(who, now, out);
      break;
    case step::downgrading:
      downgraded(who, now, out);
      break;
    case step::finding:
      found(who, now, out);
      break;
    case step::recognising:
      recognised(who, now, out);
      break;
    case step::leaving:
      removed(who, now, out);
      break;
  }
  advance(who, now, out);
}

/// The connection broke. What has to be done is done again when it is back: advance() finds out from
/// what is known by then.
void contention::step_failed(contender& who, const reply&, time_point now, actions& out) {
  const step done = std::exchange(who.doing, step::none);
  const auto create_is_unknown = [&] {
    const reply& created = who.replies[who.skipped];
    return created.is == status::connection_lost;
  };
  const auto create_is_known = [&](own_node& node) {
    const reply& created = who.replies[who.skipped];
    if (created.is != status::ok) return;
    node.path = created.path;
    node.take(created.stat);
  };
  const bool forgets = base::planted(base::defect::zookeeper_create_forgotten);
  if (done == step::entering) {
    who.place.doubtful = create_is_unknown() && !forgets;
    create_is_known(who.place);
  } else if (done == step::taking) {
    who.lease.doubtful = create_is_unknown();
    create_is_known(who.lease);
    who.is = phase::waiting;
  } else if (done == step::downgrading) {
    who.half_downgraded = (who.half_downgraded || who.replies[0].is != status::not_sent) &&
                          !base::planted(base::defect::zookeeper_half_downgraded);
  } else if (done == step::leaving) {
    who.removal_lost = true;
  } else if (done == step::watching || done == step::judging || done == step::probing) {
    who.poked = who.is == phase::waiting;
  } else if (done == step::noting) {
    who.note_due = who.reread = true;
  } else if (done == step::drawing || done == step::proclaiming) {
    who.reread = true;
  }
  who.recheck = who.is == phase::waiting;
  advance(who, now, out);
}

/// One without which nothing is known. What it says of folders that may be there, and of a watch that the
/// next heartbeat sets again, is not asked.
const reply* contention::refusal_that_matters(const contender& who) {
  if (who.doing == step::watching) return nullptr;
  // Whoever looks for a node whose creation was lost needs the sync, too.
  const std::size_t first = who.doing == step::finding ? 0 : who.skipped;
  for (std::size_t i = first; i < who.replies.size(); ++i) {
    if (who.replies[i].is == status::refused) return &who.replies[i];
  }
  return nullptr;
}

/// A refusal says that nothing was done, and nothing else: what was there before is there still. Whoever
/// waits for the word on it is told; what has to be done is done again after a pause.
void contention::step_refused(contender& who, const reply& why, time_point now, actions& out) {
  const step done = std::exchange(who.doing, step::none);
  const base::failure refused = failure_of(why);
  const bool creates = done == step::entering || done == step::taking;
  if (creates) {
    own_node& node = done == step::entering ? who.place : who.lease;
    const reply& created = who.replies[who.skipped];
    if (created.is == status::ok) {
      node.path = created.path;
      node.take(created.stat);
    } else if (created.is == status::no_node) {
      who.make_folders = true;
    }
  }
  if (done == step::taking) be_interested(who, who.lease.folder);
  if (done == step::downgrading) {
    // Either a try before this one may have done it, or only the look at it was refused.
    who.half_downgraded = who.half_downgraded || who.replies[0].is != status::refused;
    if (who.downgrade) {
      out.emplace_back(
          downgrade_told{who.id, tl::unexpected(who.half_downgraded ? unknown(refused) : refused)});
    }
    who.downgrade.reset();
  }
  if (done == step::leaving) {
    for (const reply& each : who.replies) who.removal_lost |= each.is == status::ok;
    if (who.leave) out.emplace_back(leave_told{who.id, tl::unexpected(refused)});
    who.leave.reset();
  }
  if (done == step::proclaiming && !who.values.empty()) {
    out.emplace_back(value_told{who.values.front().ticket, tl::unexpected(refused)});
    who.values.pop_front();
  }
  if (who.renew) out.emplace_back(renew_told{who.id, tl::unexpected(refused)});
  who.renew.reset();
  const bool somewhere = who.place.perhaps_there() || who.lease.perhaps_there();
  const bool new_here = done == step::entering && !who.verdict;
  if (who.asked && (new_here || (!who.verdict && !somewhere))) {
    refuse(who, tl::unexpected(refused));  // told when its node is gone
  } else if (who.asked && somewhere) {
    // That nothing is there may not be said of one whose node is.
    out.emplace_back(acquire_told{who.id, tl::unexpected(unknown(refused))});
    who.asked.reset();
  }
  who.note_due = who.note_due || done == step::noting;
  who.reread = who.reread || done == step::reading;
  who.poked = who.poked || who.is == phase::waiting;
  if (somewhere && !new_here) {
    who.pause_until = now + refusal_pause;
    set_timer(who.pause_until, {.what = alarm::go_on, .holder = who.id});
  }
  advance(who, now, out);
}

void contention::refuse(contender& who, base::result<backend_api::acquire_answer> verdict) {
  who.verdict = std::move(verdict);
}

void contention::tried(contender& who, time_point, actions&) {
  if (!who.asked) return;
  who.known_free = true;
  const reply& queue = who.replies[1];
  std::vector<std::string> unknown;
  const auto line = contenders_among(queue.children, unknown);
  if (who.what == form::permit) {
    const auto leases = contenders_among(who.replies[2].children, unknown);
    if (!leases.empty()) who.permits = permits_in(who.replies[3]).value_or(who.permits);
    if (!line.empty() || leases.size() >= who.permits)
      refuse(who, backend_api::acquire_answer{held{}});
    return;
  }
  const lock_kind kind = kind_of(who.what);
  for (const child& each : line) {
    if (each.kind && *each.kind != kind) {
      refuse(who, base::fail(errc::wrong_kind, "the name is in use as another kind of lock"));
      return;
    }
    if (who.what != form::reader || !each.shared) refuse(who, backend_api::acquire_answer{held{}});
  }
}

void contention::entered(contender& who, time_point now, actions& out) {
  const reply& created = who.replies[who.skipped];
  if (created.is == status::no_node) {
    if (++who.failures > most_failures) {
      refuse(who, base::fail(errc::store_refused, "ZooKeeper: the folder " + who.place.folder +
                                                      " can't be made, or goes away at once"));
    }
    who.make_folders = true;
    return;
  }
  if (created.is != status::ok) {
    refuse(who, tl::unexpected(failure_of(created)));
    return;
  }
  who.failures = 0;
  who.place.path = created.path;
  who.place.take(created.stat);
  if (who.going) return;
  const bool permit = who.what == form::permit;
  judged(who, who.replies[who.skipped + 1], permit ? &who.replies[who.skipped + 2] : nullptr, now,
         out);
}

void contention::judged(contender& who, const reply& list, const reply* name_list, time_point now,
                        actions& out) {
  const bool permit = who.what == form::permit;
  who.seen_at = list.stat.children_changed;
  who.stands = stand(permit ? form::mutex : who.what, last_segment(who.place.path), list.children);
  if (who.stands.is == standing::word::missing) {
    fall_out(who);  // somebody has put it out
    return;
  }
  const auto own = read_child(last_segment(who.place.path));
  if (own->sequence < 0 || own->sequence > sequence_alarm) {
    refuse(who, base::fail(errc::store_refused,
                           "the sequence of " + who.place.folder +
                               " is about to wrap, and the libraries that share this lock would "
                               "disagree on who is first; remove the node while nobody uses it"));
    return;
  }
  std::vector<std::string> strangers;
  if (name_list != nullptr && !contenders_among(name_list->children, strangers).empty()) {
    who.stands.is = standing::word::wrong_kind;
  }
  if (who.stands.is == standing::word::wrong_kind) {
    refuse(who, base::fail(errc::wrong_kind, "the name is in use as another kind of lock"));
    return;
  }
  std::erase_if(who.stands.unknown, [&](const std::string& each) {
    return permit || known_folders_.contains(join(who.place.folder, each));
  });
  if (who.stands.unknown.empty()) {
    settle(who, now, out);
    return;
  }
  std::vector<request> all;
  for (const std::string& each : who.stands.unknown) {
    if (all.size() == most_probes) break;
    all.push_back({.what = verb::look, .path = join(who.place.folder, each)});
  }
  begin(who, step::probing, std::move(all), now, out);
}

void contention::probed(contender& who, time_point now, actions& out) {
  for (std::size_t i = 0; i < who.replies.size(); ++i) {
    const reply& said = who.replies[i];
    const std::string& name = who.stands.unknown[i];
    if (said.is != status::ok) continue;
    const std::string path = join(who.place.folder, name);
    const bool of_semaphore = name == line_folder || name == lease_folder;
    if (said.stat.owner != 0) {
      refuse(who, base::fail(errc::store_refused,
                             "the node " + path +
                                 " belongs to a library that Sallyport does not know; it would not "
                                 "be safe to share the lock with it"));
      return;
    }
    if (of_semaphore && said.stat.children > 0) {
      refuse(who, base::fail(errc::wrong_kind, "the name is in use as a semaphore"));
      return;
    }
    if (of_semaphore) continue;
    if (how_.nodes.names_are_paths()) {
      refuse(who, base::fail(errc::store_refused,
                             who.place.folder + " is also a folder of other names (" + name +
                                 "), and other libraries would take that for a contender; lock a "
                                 "node without folders"));
      return;
    }
    if (known_folders_.size() < 10'000) known_folders_.insert(path);
  }
  settle(who, now, out);
}

void contention::settle(contender& who, time_point now, actions& out) {
  if (who.stands.is == standing::word::admitted) {
    if (who.what == form::permit) {
      who.is = phase::waiting;
      be_no_longer_interested(who, who.behind);
      who.behind.clear();
      take(who, now, out);
    } else {
      won(who, who.seen_at, now, out);
    }
    return;
  }
  if (who.is == phase::outside && who.asked && !who.asked->may_wait) {
    refuse(who, backend_api::acquire_answer{held{}});
    return;
  }
  who.is = phase::waiting;
  be_no_longer_interested(who, who.behind);
  who.behind = join(who.place.folder, who.stands.behind);
  be_interested(who, who.behind);
  begin(who, step::watching, {{.what = verb::await_end, .path = who.behind}}, now, out);
}

void contention::watching_done(contender& who, time_point, actions& out) {
  const bool blind = base::planted(base::defect::zookeeper_watch_alone);
  if (who.replies[0].is == status::no_node && !blind) who.poked = true;
  if (!who.poked) answer_waiting(who, out);
}

void contention::looked(contender& who, time_point, actions& out) {
  const reply& own = who.replies[1];
  const line_state* const line = line_of(who);
  const bool of_others = own.is == status::ok && line != nullptr && own.stat.owner != line->session;
  if (own.is == status::no_node || of_others) {
    fall_out(who);
    return;
  }
  who.place.version = own.stat.version;
  const bool blind = base::planted(base::defect::zookeeper_watch_alone);
  if (who.replies[0].is == status::no_node && !blind) who.poked = true;
  if (!who.poked) answer_waiting(who, out);
}

// ---- permits -------------------------------------------------------------------------------------

void contention::taken(contender& who, time_point now, actions& out) {
  const reply& created = who.replies[who.skipped];
  if (created.is == status::no_node) {
    who.make_folders = true;
    who.poked = true;
    if (++who.failures > most_failures) refuse(who, tl::unexpected(failure_of(created)));
    return;
  }
  if (created.is != status::ok) {
    refuse(who, tl::unexpected(failure_of(created)));
    return;
  }
  who.failures = 0;
  who.lease.path = created.path;
  who.lease.take(created.stat);
  be_interested(who, who.lease.folder);
  const reply& list = who.replies[who.skipped + 1];
  const reply folder = who.replies[who.skipped + 2];
  // The first one decides how many there are. Whoever is first in the line is alone here.
  if (list.children.size() <= 1) {
    if (permits_in(folder) != who.permits) {
      send({.why = errand::kind::ignored, .line = who.line, .sent = now},
           {.what = verb::write, .path = who.lease.folder, .data = std::to_string(who.permits)},
           out);
    }
  } else {
    who.permits = permits_in(folder).value_or(who.permits);
  }
  counted(who, reply{list}, now, out);
}

void contention::counted(contender& who, const reply& list, time_point now, actions& out) {
  const std::string own{last_segment(who.lease.path)};
  const auto mine = std::find(list.children.begin(), list.children.end(), own);
  if (list.is != status::ok || mine == list.children.end()) {
    who.lease.clear();  // somebody has put it out
    who.poked = true;
    return;
  }
  if (list.children.size() <= who.permits) {
    won(who, who.lease.created, now, out);
    return;
  }
  if (who.asked && !who.asked->may_wait) {
    refuse(who, backend_api::acquire_answer{held{}});
    return;
  }
  const bool watched = who.replies.size() == 1;
  if (watched) {
    if (!who.poked) answer_waiting(who, out);
  } else {
    judge_again(who, now, out);
  }
}

// ---- after a lost connection, and at the end -----------------------------------------------------

void contention::found(contender& who, time_point now, actions& out) {
  own_node& which = who.place.doubtful ? who.place : who.lease;
  const std::string mine = how_.nodes.whose(who.uuid());
  for (const std::string& each : who.replies[1].children) {
    const auto read = read_child(each);
    if (!read || read->whose != mine) continue;
    which.path = join(which.folder, each);
    begin(who, step::recognising, {{.what = verb::look, .path = which.path}}, now, out);
    return;
  }
  // The sync came after the lost request, so it will not be executed any more.
  which.clear();
  if (&which == &who.lease) who.poked = true;
}

void contention::recognised(contender& who, time_point, actions&) {
  own_node& which = who.place.doubtful ? who.place : who.lease;
  const reply& said = who.replies[0];
  const line_state* const line = line_of(who);
  if (said.is == status::ok && line != nullptr && said.stat.owner == line->session) {
    which.doubtful = false;
    which.take(said.stat);
  } else {
    which.clear();
  }
  if (&which == &who.lease) who.poked = true;
}

void contention::removed(contender& who, time_point, actions&) {
  for (const reply& each : who.replies) {
    if (each.is == status::ok) who.removal_lost = true;  // something was there
  }
  const bool there = std::exchange(who.removal_lost, false);
  fall_out(who);
  who.removal_lost = there;
}

}  // namespace sallyport::backends::zookeeper
