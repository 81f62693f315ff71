#include "sim/zookeeper_driver.hpp"

#include "base/planted.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace sallyport::sim {

using namespace std::chrono_literals;
using namespace backends::zookeeper;
using zookeeper_reply = backends::zookeeper::reply;
using zookeeper_request = backends::zookeeper::request;

namespace {

/// Between two tries to reach a server.
constexpr duration reach_pause = 20ms;
/// Each client has its own numbers for connections.
constexpr std::uint64_t connections_per_client = 1'000'000;

contention::settings settings_for(const context& shared) {
  return {.nodes = layout({.root = "/locks"}), .owner = {}, .tick = shared.plan.tick};
}

}  // namespace

zookeeper_driver::zookeeper_driver(context& shared, checkers& checks, process& owner,
                                   zookeeper_store& ensemble, std::uint64_t client)
    : machine_driver(shared, checks, owner, client, settings_for(shared)),
      store_(ensemble),
      members_(ensemble.members()),
      next_connection_(client * connections_per_client + 1),
      self_(std::make_shared<zookeeper_driver*>(this)) {
  members_.enter(client, *this);
}

zookeeper_driver::~zookeeper_driver() { zookeeper_driver::die(); }

void zookeeper_driver::die() {
  if (!be_dead()) return;
  self_.reset();
  members_.leave(client());
  for (const auto& [number, each] : lines_) store_.disconnect(each.by);
}

bool zookeeper_driver::idle() const noexcept {
  return nothing_asked() && its_machine().contenders() == 0;
}

std::uint64_t zookeeper_driver::made(fencing_token token) {
  return store_.made(static_cast<zxid>(token.value()));
}

void zookeeper_driver::entered(const backend_api::holder_id& who, std::size_t lock) {
  store_.check_order(who, lock);
}

void zookeeper_driver::watch(const lock_name& name, bool on) {
  step([&](contention& its, time_point now, actions& out) { its.watch(name, on, now, out); });
}

void zookeeper_driver::answer_overdue() {
  beat_ = time_point::max();
  beat();
  machine_driver::answer_overdue();
}

std::map<line_number, zookeeper_driver::line>::iterator zookeeper_driver::line_by(
    connection_number by) {
  return std::find_if(lines_.begin(), lines_.end(), [&](const auto& each) {
    return each.second.by == by || each.second.tried == by;
  });
}

// ---- what the machine wants done -----------------------------------------------------------------

void zookeeper_driver::carry_out(action& what) {
  if (dead()) return;
  if (auto* const order = std::get_if<send_order>(&what)) {
    send(order->line, order->errand, order->what);
  } else if (auto* const opening = std::get_if<open_order>(&what)) {
    line& fresh = lines_[opening->line];
    fresh.wanted = fresh.timeout = opening->timeout;
    reach(opening->line);
  } else if (auto* const closing = std::get_if<close_order>(&what)) {
    const auto found = lines_.find(closing->line);
    if (found == lines_.end()) return;
    if (!closing->abandon) {
      say(found->second, [&store = store_](connection_number by) { store.end_session(by); });
    }
    lines_.erase(found);
  } else if (auto* const doubt = std::get_if<doubt_order>(&what)) {
    const auto found = lines_.find(doubt->line);
    if (found == lines_.end()) return;
    if (!doubt->hangs) {
      found->second.avoided.reset();
    } else if (members_.size() > 1) {
      shared().count.add(counter::zookeeper_server_doubted);
      found->second.avoided = found->second.at;
      drop(doubt->line);
    }
  }
}

void zookeeper_driver::send(line_number number, errand_number errand,
                            const zookeeper_request& what) {
  const auto found = lines_.find(number);
  if (found == lines_.end() || found->second.by == 0) {
    const status how = found == lines_.end() ? status::not_sent : status::connection_lost;
    step([&](contention& its, time_point now, actions& out) {
      its.answered(errand, {.is = how}, now, out);
    });
    return;
  }
  found->second.under_way.emplace_back(errand, what);
  say(found->second, [&store = store_, what](connection_number by) { store.ask(by, what); });
  if (shared().strikes(fault::reset_on_send)) drop(number);
}

void zookeeper_driver::say(line& on, std::function<void(connection_number)> what) {
  if (on.by == 0) return;
  on.last_sent = owner().now();
  if (on.hole) return;
  // What its own process has given up may be done all the same.
  const bool sent =
      members_.send(client(), on.at, &on.there, [what = std::move(what), by = on.by] { what(by); });
  if (!sent) on.hole = true;
}

// ---- connections ---------------------------------------------------------------------------------

void zookeeper_driver::reach(line_number number) {
  const auto found = lines_.find(number);
  if (found == lines_.end() || found->second.by != 0) return;
  line& on = found->second;
  do {
    on.at = shared().random.below(members_.size());
  } while (on.at == on.avoided);
  on.tried = next_connection_++;
  shared().note("process #, line #: tries server #", static_cast<std::int64_t>(client()), number,
                static_cast<std::int64_t>(on.at));
  on.there = {};
  const zookeeper_store::hello what{.by = on.tried,
                                    .client = client(),
                                    .who = this,
                                    .session = on.session,
                                    .timeout = on.wanted,
                                    .seen = on.seen};
  const std::weak_ptr<zookeeper_driver*> weak = self_;
  members_.send(client(), on.at, &on.there, [&store = store_, weak, at = on.at, what] {
    if (!weak.expired()) store.connect(at, what);
  });
  // Whoever does not answer in a third of the time is left.
  owner().later(on.timeout / 3, [this, number, tried = on.tried] {
    const auto still = lines_.find(number);
    if (still == lines_.end() || still->second.by != 0 || still->second.tried != tried) return;
    store_.disconnect(tried);
    reach(number);
  });
}

void zookeeper_driver::welcomed(connection_number by, session_id session, duration timeout) {
  on_process([this, by, session, timeout] {
    const auto found = line_by(by);
    if (found == lines_.end() || found->second.tried != by || found->second.by != 0) return;
    const line_number number = found->first;
    line& on = found->second;
    if (session == 0) {
      shared().count.add(counter::zookeeper_session_told_ended);
      step(
          [&](contention& its, time_point now, actions& out) { its.line_ended(number, now, out); });
      return;
    }
    if (on.session != 0) shared().count.add(counter::zookeeper_reconnected);
    shared().note("process #, line #: is connected to server #",
                  static_cast<std::int64_t>(client()), number, static_cast<std::int64_t>(on.at));
    on.session = session;
    on.timeout = timeout;
    on.by = by;
    on.hole = false;
    on.last_sent = on.last_heard = owner().now();
    if (!on.watches.empty()) {
      say(on, [&store = store_, since = on.seen,
               all = std::vector(on.watches.begin(), on.watches.end())](connection_number to) {
        store.watch_again(to, all, since);
      });
    }
    set_beat(on.last_sent + timeout / 3);
    step([&](contention& its, time_point now, actions& out) {
      its.line_up(number, session, timeout, now, out);
    });
  });
}

void zookeeper_driver::drop(line_number number) {
  const auto found = lines_.find(number);
  if (found == lines_.end() || found->second.by == 0) return;
  line& on = found->second;
  // Its server may not hear of it at once, and does what has come.
  shared().loop.after(members_.draw_hop(), [&store = store_, by = on.by] { store.disconnect(by); });
  shared().note("process #, line #: drops its connection, with # requests under way",
                static_cast<std::int64_t>(client()), number,
                static_cast<std::int64_t>(on.under_way.size()));
  on.by = on.tried = 0;
  const auto lost = std::exchange(on.under_way, {});
  step([&](contention& its, time_point, actions&) { its.line_down(number); });
  const status how = base::planted(base::defect::trouble_told_as_nothing) ? status::not_sent
                                                                          : status::connection_lost;
  for (const auto& [errand, what] : lost) {
    step([&, which = errand](contention& its, time_point now, actions& out) {
      its.answered(which, {.is = how}, now, out);
    });
  }
  owner().later(draw_between(shared().random, duration{0}, reach_pause),
                [this, number] { reach(number); });
}

void zookeeper_driver::closed(connection_number by) {
  on_process([this, by] {
    const auto found = line_by(by);
    if (found == lines_.end()) return;
    if (found->second.by == by) {
      drop(found->first);
      return;
    }
    owner().later(draw_between(shared().random, duration{0}, reach_pause),
                  [this, number = found->first, by] {
                    const auto still = lines_.find(number);
                    if (still != lines_.end() && still->second.tried == by) reach(number);
                  });
  });
}

void zookeeper_driver::connection_ends(member_number which) {
  on_process([this, which] {
    std::vector<line_number> all;
    for (const auto& [number, each] : lines_) {
      if (each.by != 0 && each.at == which) all.push_back(number);
    }
    for (const line_number each : all) drop(each);
  });
}

// ---- what comes ----------------------------------------------------------------------------------

void zookeeper_driver::remember_watch(line& on, const zookeeper_request& what,
                                      const zookeeper_reply& said) {
  const bool there = said.is == status::ok;
  if (what.what == verb::await_end || (what.what == verb::list && what.watch)) {
    if (there) on.watches.insert({what.path, true, false});
  } else if (what.watch && (there || (what.what == verb::look && said.is == status::no_node))) {
    on.watches.insert({what.path, false, !there});
  }
}

void zookeeper_driver::answered(connection_number by, const zookeeper_reply& said, zxid seen) {
  on_process([this, by, said, seen] {
    const auto found = line_by(by);
    if (found == lines_.end() || found->second.by != by) return;
    line& on = found->second;
    on.last_heard = owner().now();
    on.seen = std::max(on.seen, seen);
    if (on.under_way.empty()) return;
    const auto [errand, what] = std::move(on.under_way.front());
    on.under_way.pop_front();
    remember_watch(on, what, said);
    step([&, which = errand](contention& its, time_point now, actions& out) {
      its.answered(which, said, now, out);
    });
  });
}

void zookeeper_driver::pinged(connection_number by) {
  on_process([this, by] {
    const auto found = line_by(by);
    if (found != lines_.end() && found->second.by == by) {
      found->second.last_heard = owner().now();
    }
  });
}

void zookeeper_driver::happened(connection_number by, const model_store::event& what) {
  on_process([this, by, what] {
    const auto found = line_by(by);
    if (found == lines_.end() || found->second.by != by) return;
    found->second.last_heard = owner().now();
    std::erase_if(found->second.watches, [&](const auto& each) { return each.path == what.path; });
    step([&](contention& its, time_point now, actions& out) {
      its.happened(what.path, what.gone, what.below, now, out);
    });
  });
}

// ---- time ----------------------------------------------------------------------------------------

void zookeeper_driver::set_beat(time_point when) {
  if (when >= beat_) return;
  beat_ = when;
  owner().at_local_time(when, [this, when] {
    if (beat_ != when) return;
    beat_ = time_point::max();
    beat();
  });
}

void zookeeper_driver::beat() {
  const time_point now = owner().now();
  std::vector<line_number> silent;
  time_point next = time_point::max();
  for (auto& [number, each] : lines_) {
    if (each.by == 0) continue;
    if (now - each.last_heard >= each.timeout * 2 / 3) {
      silent.push_back(number);
      continue;
    }
    if (now - each.last_sent >= each.timeout / 3) {
      say(each, [&store = store_](connection_number by) { store.ping(by); });
    }
    next =
        std::min({next, each.last_sent + each.timeout / 3, each.last_heard + each.timeout * 2 / 3});
  }
  for (const line_number each : silent) drop(each);
  if (next != time_point::max()) set_beat(std::max(next, now + 1ms));
}

}  // namespace sallyport::sim
