#include "sim/zookeeper_store.hpp"

#include "backends/zookeeper/description.hpp"
#include "sim/zookeeper_driver.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::sim {

using backends::zookeeper::child;
using backends::zookeeper::model_store;
using backends::zookeeper::read_child;
using backends::zookeeper::status;
using backends::zookeeper::verb;
using zookeeper_reply = backends::zookeeper::reply;

namespace {

/// What servers allow, in ticks.
constexpr int shortest_session = 2;
constexpr int longest_session = 20;
/// Tombstones are nobody's.
constexpr std::uint64_t nobody = 0;
/// What all names of a contender begin with; the rest tells its lives.
constexpr std::size_t common_part = std::string_view("_c_00000000-0000-0000").size();

}  // namespace

zookeeper_store::zookeeper_store(context& shared, checkers& checks)
    : shared_(shared),
      checks_(checks),
      nodes_({.root = "/locks"}),
      members_(shared, *this),
      servers_(members_.size()) {
  commit({.is = entry::kind::epoch, .epoch = epoch_});
  for (member_number i = 0; i < servers_.size(); ++i) apply(i, log_.size());
  tick();
}

zookeeper_store::~zookeeper_store() = default;

std::unique_ptr<store_driver> zookeeper_store::open(process& home, std::uint64_t client) {
  return std::make_unique<zookeeper_driver>(shared_, checks_, home, *this, client);
}

time_point zookeeper_store::now() const { return members_.now_at(members_.last_leader()); }

duration zookeeper_store::slowness() const {
  return 4 * shared_.plan.lease + 4 * shared_.plan.tick + std::chrono::seconds{3};
}

zookeeper_store::connection* zookeeper_store::find(connection_number by) {
  const auto found = connections_.find(by);
  return found == connections_.end() ? nullptr : &found->second;
}

zookeeper_store::session_id zookeeper_store::fresh_session() {
  return static_cast<session_id>(1 + (shared_.random() >> 2U));
}

// ---- connections ---------------------------------------------------------------------------------

void zookeeper_store::at_leader(member_number from, std::function<void()> what) {
  lane& order = servers_[from].to_leader;
  const duration hop = members_.leader() == from ? duration{0} : members_.draw_hop();
  order.last = std::max(order.last, shared_.loop.now() + hop.count());
  shared_.loop.at(order.last, [this, from, what = std::move(what)] {
    if (members_.in_touch(from) && members_.works(from) && members_.leader()) what();
  });
}

void zookeeper_store::connect(member_number at, const hello& what) {
  // Who is behind what the client has seen turns it away; and so does who has no leader.
  const bool serves = members_.in_touch(at) && members_.leader().has_value() &&
                      servers_[at].nodes.now() >= what.seen;
  if (!serves) {
    members_.send_back(at, what.client, nullptr,
                       [who = what.who, by = what.by, this, client = what.client] {
                         if (members_.lives(client)) who->closed(by);
                       });
    return;
  }
  at_leader(at, [this, at, what] { admit(at, what); });
}

void zookeeper_store::admit(member_number at, const hello& what) {
  session_id number = what.session;
  duration timeout = what.timeout;
  if (number == 0) {
    timeout = std::clamp(timeout, shortest_session * shared_.plan.tick,
                         longest_session * shared_.plan.tick);
    number = fresh_session();
    sessions_[number] = {what.client, timeout, now(), what.by};
  }
  const auto found = sessions_.find(number);
  connection& fresh = connections_[what.by];
  fresh = {.at = at, .client = what.client, .who = what.who, .session = number};
  if (found == sessions_.end()) {
    send(what.by, [by = what.by](zookeeper_listener& who) { who.welcomed(by, 0, {}); });
    connections_.erase(what.by);
    return;
  }
  // Whatever the old connection still has under way is not done any more.
  const connection_number old = std::exchange(found->second.by, what.by);
  if (old != what.by) disconnect(old);
  touch(number);
  timeout = found->second.timeout;
  send(what.by, [by = what.by, number, timeout](zookeeper_listener& who) {
    who.welcomed(by, number, timeout);
  });
}

void zookeeper_store::send(connection_number by, std::function<void(zookeeper_listener&)> what) {
  connection* const on = find(by);
  if (on == nullptr || on->hole) return;
  const bool sent =
      members_.send_back(on->at, on->client, &on->back,
                         [this, client = on->client, who = on->who, what = std::move(what)] {
                           if (members_.lives(client)) what(*who);
                         });
  if (!sent) on->hole = true;
}

void zookeeper_store::disconnect(connection_number by) {
  const connection* const on = find(by);
  if (on == nullptr) return;
  servers_[on->at].nodes.forget_watches(on->session);
  connections_.erase(by);
}

void zookeeper_store::close(connection_number by) {
  send(by, [by](zookeeper_listener& who) { who.closed(by); });
  disconnect(by);
}

void zookeeper_store::close_all(member_number at) {
  std::vector<connection_number> all;
  for (const auto& [by, each] : connections_) {
    if (each.at == at) all.push_back(by);
  }
  for (const connection_number each : all) close(each);
}

// ---- requests ------------------------------------------------------------------------------------

void zookeeper_store::sign_of_life(const connection& by) {
  if (members_.leader() == by.at) {
    touch(by.session);
  } else {
    servers_[by.at].touched.insert(by.session);
  }
}

void zookeeper_store::ping(connection_number by) {
  const connection* const on = find(by);
  if (on == nullptr) return;
  sign_of_life(*on);
  send(by, [by](zookeeper_listener& who) { who.pinged(by); });
}

void zookeeper_store::ask(connection_number by, const backends::zookeeper::request& what) {
  connection* const on = find(by);
  if (on == nullptr) return;
  sign_of_life(*on);
  shared_.note("zookeeper: client # asks server # for #", static_cast<std::int64_t>(on->client),
               static_cast<std::int64_t>(on->at), static_cast<std::int64_t>(what.what));
  const auto asked = std::make_shared<errand>(errand{.what = what});
  on->queue.push_back(asked);
  if (shared_.strikes(fault::refuse_request)) {
    shared_.count.add(counter::zookeeper_refused_request);
    asked->said = {.is = status::refused, .text = "simulated"};
    asked->done = true;
  } else if (passes_the_leader(what.what)) {
    forward(by, asked);
  }
  pump(by);
}

void zookeeper_store::forward(connection_number by, const std::shared_ptr<errand>& asked) {
  connection& on = *find(by);
  if (!members_.in_touch(on.at)) {
    // Who was the leader and does not know that it leads no more answers this on its own.
    if (asked->what.what == verb::sync && members_.seen_by(on.at).leader == on.at) {
      shared_.count.add(counter::zookeeper_sync_by_deposed);
      asked->said = {.is = status::ok};
      asked->done = true;
    }
    return;
  }
  at_leader(on.at, [this, by, asked] { decide(by, asked); });
}

void zookeeper_store::decide(connection_number by, const std::shared_ptr<errand>& asked) {
  // Its connection may be gone; it is done all the same, unless the session has moved.
  const auto owner_session = std::find_if(sessions_.begin(), sessions_.end(),
                                          [&](const auto& each) { return each.second.by == by; });
  connection* const on = find(by);
  if (owner_session == sessions_.end()) {
    if (on != nullptr) finish(by, asked, status::session_ended);
    return;
  }
  if (on == nullptr) shared_.count.add(counter::cluster_executed_late);
  if (asked->what.what != verb::sync) {
    commit({.is = entry::kind::change, .session = owner_session->first, .asked = asked, .by = by});
    return;
  }
  if (on == nullptr) return;
  // Its server has seen by then what the leader has decided on by now.
  lane& order = servers_[on->at].from_leader;
  order.last = std::max(order.last, shared_.loop.now() + members_.draw_hop().count());
  shared_.loop.at(order.last, [this, by, asked, up_to = log_.size()] {
    const connection* const still = find(by);
    if (still == nullptr || !members_.in_touch(still->at)) return;
    apply(still->at, up_to);
    finish(by, asked, status::ok);
  });
}

void zookeeper_store::finish(connection_number by, const std::shared_ptr<errand>& asked,
                             status how) {
  asked->said = {.is = how};
  asked->done = true;
  pump(by);
}

void zookeeper_store::pump(connection_number by) {
  for (connection* on = find(by); on != nullptr && !on->queue.empty(); on = find(by)) {
    const std::shared_ptr<errand> next = on->queue.front();
    model_store& nodes = servers_[on->at].nodes;
    if (!next->done) {
      if (passes_the_leader(next->what.what)) return;
      next->said = nodes.execute(on->session, next->what);
    } else if (next->changed && shared_.strikes(fault::fail_after)) {
      shared_.count.add(counter::zookeeper_trouble_after_effect);
      next->said = {.is = status::connection_lost};
    }
    on->queue.pop_front();
    send(by, [by, said = next->said, seen = nodes.now()](zookeeper_listener& who) {
      who.answered(by, said, seen);
    });
  }
}

void zookeeper_store::watch_again(connection_number by, const std::vector<old_watch>& all,
                                  zxid since) {
  const connection* const on = find(by);
  if (on == nullptr) return;
  for (const old_watch& each : all) {
    servers_[on->at].nodes.watch_again(on->session, each.path, each.of_children, each.absent,
                                       since);
  }
  tell_events(on->at);
}

void zookeeper_store::end_session(connection_number by) {
  const connection* const on = find(by);
  if (on == nullptr) return;
  at_leader(on->at, [this, by, number = on->session] {
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second.by != by) return;
    sessions_.erase(found);
    commit({.is = entry::kind::end_of_session, .session = number});
  });
}

// ---- the log -------------------------------------------------------------------------------------

void zookeeper_store::commit(entry what) {
  execute(truth_, what);
  static_cast<void>(truth_.take_events());
  if (made_.empty() || made_.rbegin()->first < truth_.now()) {
    made_[truth_.now()] = checks_.store.next_sequence();
  }
  shared_.note("zookeeper: change #, kind #", truth_.now() & 0xffff'ffff,
               static_cast<std::int64_t>(what.is));
  log_.push_back(std::move(what));
  for (member_number i = 0; i < servers_.size(); ++i) {
    if (!members_.in_touch(i)) continue;
    const duration hop = members_.last_leader() == i ? duration{0} : members_.draw_hop();
    lane& order = servers_[i].from_leader;
    order.last = std::max(order.last, shared_.loop.now() + hop.count());
    shared_.loop.at(order.last, [this, i, up_to = log_.size()] {
      if (members_.in_touch(i)) apply(i, up_to);
    });
  }
}

zookeeper_reply zookeeper_store::execute(model_store& on, const entry& what) {
  switch (what.is) {
    case entry::kind::change:
      return on.execute(what.session, what.asked->what);
    case entry::kind::end_of_session:
      on.end_session(what.session);
      break;
    case entry::kind::epoch:
      on.set_epoch(what.epoch);
      break;
  }
  return {};
}

void zookeeper_store::apply(member_number at, std::size_t up_to) {
  server& its = servers_[at];
  while (its.applied < up_to) {
    const entry what = log_[its.applied++];
    const zookeeper_reply said = execute(its.nodes, what);
    tell_events(at);
    if (what.is == entry::kind::end_of_session) {
      std::vector<connection_number> its_own;
      for (const auto& [by, each] : connections_) {
        if (each.at == at && each.session == what.session) its_own.push_back(by);
      }
      for (const connection_number each : its_own) close(each);
    }
    const connection* const on = find(what.by);
    if (what.is != entry::kind::change || on == nullptr || on->at != at) continue;
    what.asked->said = said;
    what.asked->done = true;
    what.asked->changed = true;
    pump(what.by);
  }
}

void zookeeper_store::tell_events(member_number at) {
  for (const model_store::event& each : servers_[at].nodes.take_events()) {
    for (const auto& [by, on] : connections_) {
      if (on.at != at || on.session != each.session) continue;
      send(by, [number = by, each](zookeeper_listener& who) { who.happened(number, each); });
      break;
    }
  }
}

std::uint64_t zookeeper_store::made(zxid which) const {
  const auto after = made_.upper_bound(which);
  return after == made_.begin() ? 0 : std::prev(after)->second;
}

// ---- time, and who leads -------------------------------------------------------------------------

void zookeeper_store::touch(session_id which) {
  const auto found = sessions_.find(which);
  if (found == sessions_.end()) return;
  // In whole ticks, rounded up.
  const duration due = now().time_since_epoch() + found->second.timeout;
  const duration tick_length = shared_.plan.tick;
  found->second.ends = time_point{(due / tick_length + 1) * tick_length};
}

void zookeeper_store::tick() {
  shared_.loop.after(shared_.plan.tick / 2, [this] { tick(); });
  if (!members_.leader()) return;
  for (member_number i = 0; i < servers_.size(); ++i) {
    if (!members_.in_touch(i) || !members_.works(i)) continue;
    for (const session_id each : std::exchange(servers_[i].touched, {})) touch(each);
  }
  std::vector<session_id> over;
  for (const auto& [number, each] : sessions_) {
    if (each.ends <= now()) over.push_back(number);
  }
  for (const session_id each : over) {
    count_ending(each);
    sessions_.erase(each);
    commit({.is = entry::kind::end_of_session, .session = each});
  }
}

void zookeeper_store::count_ending(session_id which) {
  const std::uint64_t client = sessions_.at(which).client;
  shared_.note("a session of client # ends", static_cast<std::int64_t>(client));
  if (!members_.lives(client)) return;
  for (const std::string& path : truth_.nodes_of(which)) {
    const auto mine = read_child(backends::zookeeper::last_segment(path));
    if (!mine) continue;
    bool first = true;
    for (const std::string& each :
         truth_.children(std::string(backends::zookeeper::parent_of(path)))) {
      const auto other = read_child(each);
      first = first && (!other || !(*other < *mine));
    }
    shared_.count.add(first ? counter::zookeeper_ended_holding : counter::zookeeper_ended_waiting);
  }
}

void zookeeper_store::elected() {
  // Whoever leads has all that was decided on, and begins to count anew.
  commit({.is = entry::kind::epoch, .epoch = ++epoch_});
  apply(members_.last_leader(), log_.size());
  for (auto& [number, each] : sessions_) touch(number);
  // A leader that was deposed waits for its followers hardly longer than they for it.
  for (member_number i = 0; i < servers_.size(); ++i) {
    if (members_.in_touch(i) || members_.seen_by(i).leader != i) continue;
    shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.tick),
                       [this, i, when = members_.touch_lost_at(i)] {
                         if (members_.touch_lost_at(i) == when) members_.notice(i);
                       });
  }
}

void zookeeper_store::touch_changed(member_number which) {
  if (!members_.in_touch(which)) return;
  // It follows anew, without the clients that it had.
  close_all(which);
  servers_[which].touched.clear();
  apply(which, log_.size());
}

void zookeeper_store::stopped(member_number which) {
  servers_[which].touched.clear();
  std::vector<connection_number> all;
  for (const auto& [by, each] : connections_) {
    if (each.at == which) all.push_back(by);
  }
  for (const connection_number each : all) disconnect(each);
}

void zookeeper_store::leader_lost() {
  for (member_number i = 0; i < servers_.size(); ++i) {
    if (members_.in_touch(i)) close_all(i);
  }
}

void zookeeper_store::noticed(member_number which) { close_all(which); }

duration zookeeper_store::draw_patience() {
  return draw_between(shared_.random, shared_.plan.tick, 5 * shared_.plan.tick);
}

// ---- what must be true ---------------------------------------------------------------------------

void zookeeper_store::check_order(const backend_api::holder_id& who, std::size_t lock) {
  if (!shared_.plan.in_model) return;
  const lock_plan& plan = shared_.plan.locks[lock];
  const bool permits = plan.kind == lock_kind::semaphore;
  std::string folder = nodes_.folder(plan.name.text());
  if (permits) folder = backends::zookeeper::join(folder, backends::zookeeper::lease_folder);
  const std::string mine = nodes_.whose(who).substr(0, common_part);
  std::vector<child> line;
  for (const std::string& each : truth_.children(folder)) {
    if (auto read = read_child(each)) line.push_back(std::move(*read));
  }
  std::sort(line.begin(), line.end());
  const auto own = std::find_if(line.begin(), line.end(),
                                [&](const child& each) { return each.whose.starts_with(mine); });
  if (own == line.end()) return;  // it has lost it meanwhile
  const auto before = static_cast<std::uint32_t>(own - line.begin());
  if (permits && before < plan.permits) return;
  for (auto each = line.begin(); each != own; ++each) {
    if (own->shared && each->shared) continue;
    shared_.fail("fifo", "lock " + std::to_string(lock) + ": " + own->name + " is in, and " +
                             each->name + " came before it");
    return;
  }
}

void zookeeper_store::check_nothing_of(std::uint64_t client) {
  if (!shared_.plan.in_model) return;
  for (const auto& [number, each] : sessions_) {
    if (each.client != client) continue;
    for (const std::string& path : truth_.nodes_of(number)) {
      shared_.fail("nothing left behind",
                   "client " + std::to_string(client) + " is quiet, but " + path + " is there");
      return;
    }
  }
}

std::string zookeeper_store::remains() const {
  std::string text;
  for (const auto& [number, each] : sessions_) {
    for (const std::string& path : truth_.nodes_of(number)) {
      text +=
          "\n  " + path + " of client " + std::to_string(each.client) + ": " + truth_.data(path);
    }
  }
  return text;
}

std::size_t zookeeper_store::entries_left() { return truth_.contenders(); }

void zookeeper_store::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  if (!members_.leader()) return;
  const lock_plan& plan = shared_.plan.locks[shared_.index_of(name)];
  std::string folder = nodes_.folder(name.text());
  if (plan.kind == lock_kind::semaphore) {
    folder = backends::zookeeper::join(folder, backends::zookeeper::lease_folder);
  }
  std::vector<child> line;
  for (const std::string& each : truth_.children(folder)) {
    if (auto read = read_child(each)) line.push_back(std::move(*read));
  }
  if (line.empty()) return;
  const child& holder = *std::min_element(line.begin(), line.end());
  const std::string path = backends::zookeeper::join(folder, holder.name);
  const auto said = backends::zookeeper::from_json(truth_.data(path));
  if (!said || said->closed) return;
  const bool safely = mode == backend_api::break_mode::safe;
  shared_.note("the grant of lock # is broken, mode #",
               static_cast<std::int64_t>(shared_.index_of(name)), safely ? 0 : 1);
  shared_.count.add(safely ? counter::cluster_broken_safely : counter::cluster_broken_at_once);
  const auto order = std::make_shared<errand>();
  order->what = {.what = verb::remove, .path = path};
  session_id stone = 0;
  if (safely) {
    stone = fresh_session();
    const duration trust = std::chrono::milliseconds{said->trust_ms};
    sessions_[stone] = {nobody, std::max(trust, shortest_session * shared_.plan.tick), now(), 0};
    touch(stone);
    order->what.what = verb::replace;
    order->what.data =
        to_json(backends::zookeeper::description{.trust_ms = said->trust_ms, .closed = true});
    const backend_api::holder_id fresh{shared_.random(), shared_.random()};
    order->what.other =
        backends::zookeeper::layout::in_place_of(folder, holder, nodes_.whose(fresh), false);
  }
  commit({.is = entry::kind::change, .session = stone, .asked = order});
}

}  // namespace sallyport::sim
