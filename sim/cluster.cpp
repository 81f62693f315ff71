#include "sim/cluster.hpp"

#include "sim/store.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::sim {
namespace {

constexpr duration shortest_delay = std::chrono::microseconds{20};
/// How long members wait for their leader before they elect another one, in leases.
constexpr double shortest_election = 0.05;
constexpr double longest_election = 0.5;

duration part_of(duration whole, double share) {
  return duration{static_cast<duration::rep>(static_cast<double>(whole.count()) * share)};
}

}  // namespace

cluster::cluster(context& shared, owner& whose) : shared_(shared), owner_(whose) {
  for (std::uint32_t i = 0; i < shared.plan.nodes; ++i) {
    const time_point start{
        std::chrono::seconds{1000 + static_cast<std::int64_t>(shared.random.below(1'000'000))}};
    members_.emplace_back(draw_store_clock(shared.random, start));
  }
  leader_ = shared.random.below(members_.size());
  switch (members_.size()) {
    case 1:
      shared.count.add(counter::cluster_of_1);
      break;
    case 3:
      shared.count.add(counter::cluster_of_3);
      break;
    default:
      shared.count.add(counter::cluster_of_5);
      break;
  }
}

// ---- who leads -----------------------------------------------------------------------------------

bool cluster::may_lead(member_number which) const noexcept {
  const member& one = members_[which];
  return one.up && !one.paused && !one.cut_off;
}

std::optional<member_number> cluster::leader() const {
  if (electing_ || !members_[leader_].touch || !may_lead(leader_)) return std::nullopt;
  std::size_t together = 0;
  for (member_number i = 0; i < members_.size(); ++i) together += may_lead(i) ? 1U : 0U;
  if (together < majority()) return std::nullopt;
  return leader_;
}

cluster::view cluster::seen_by(member_number which) const {
  if (!members_[which].touch) return members_[which].frozen;
  if (electing_) return {std::nullopt, term_};
  return {leader_, term_};
}

void cluster::lose_touch(member_number which) {
  member& one = members_[which];
  if (!one.touch) return;
  one.frozen = seen_by(which);
  one.touch = false;
  one.lost_at = shared_.loop.now();
  const std::uint64_t cut = ++one.cuts;
  owner_.touch_changed(which);
  // Sooner or later it notices that its leader is not there, or that it does not lead.
  shared_.loop.after(owner_.draw_patience(), [this, which, cut] {
    if (members_[which].cuts == cut) notice(which);
  });
}

void cluster::notice(member_number which) {
  member& one = members_[which];
  if (one.touch || !one.frozen.leader) return;
  one.frozen.leader.reset();
  owner_.noticed(which);
}

void cluster::regain_touch(member_number which) {
  member& one = members_[which];
  if (one.touch || !may_lead(which)) return;
  one.touch = true;
  owner_.touch_changed(which);
}

void cluster::regain_touch_soon(member_number which) {
  shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.lease / 8),
                     [this, which, cut = members_[which].cuts] {
                       if (members_[which].cuts == cut) regain_touch(which);
                     });
}

void cluster::review() {
  if (electing_ || leader()) return;
  if (!may_lead(leader_)) lose_touch(leader_);
  electing_ = true;
  owner_.leader_lost();
  shared_.loop.after(draw_between(shared_.random, part_of(shared_.plan.lease, shortest_election),
                                  part_of(shared_.plan.lease, longest_election)),
                     [this] { elect(std::nullopt); });
}

void cluster::elect(std::optional<member_number> unaware) {
  std::vector<member_number> able;
  for (member_number i = 0; i < members_.size(); ++i) {
    if (may_lead(i) && i != unaware) able.push_back(i);
  }
  if (able.size() < majority()) {
    shared_.loop.after(part_of(shared_.plan.lease, shortest_election),
                       [this] { elect(std::nullopt); });
    return;
  }
  electing_ = false;
  leader_ = able[shared_.random.below(able.size())];
  ++term_;
  shared_.note("member # leads, term #", static_cast<std::int64_t>(leader_),
               static_cast<std::int64_t>(term_));
  shared_.count.add(counter::cluster_election);
  for (const member_number each : able) regain_touch(each);
  owner_.elected();
}

void cluster::change_leader() {
  if (!leader()) return;
  const member_number old = leader_;
  electing_ = true;
  owner_.leader_lost();
  shared_.count.add(counter::cluster_leader_moved);
  // The old one may be the last to hear of it.
  const bool unaware = members_.size() > 1 && shared_.random.chance(0.7);
  if (unaware) {
    lose_touch(old);
    members_[old].frozen.leader = old;
    shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.lease),
                       [this, old, cut = members_[old].cuts] {
                         if (members_[old].cuts == cut) regain_touch(old);
                       });
  }
  elect(unaware ? std::optional(old) : std::nullopt);
}

// ---- members -------------------------------------------------------------------------------------

void cluster::at_member(member_number which, std::function<void()> what) {
  member& one = members_[which];
  if (!one.up) return;
  if (one.paused) {
    one.backlog.push_back(std::move(what));
  } else {
    what();
  }
}

void cluster::pause_some() {
  const member_number which =
      shared_.random.chance(0.5) ? leader_ : shared_.random.below(members_.size());
  member& one = members_[which];
  if (!one.up || one.paused) return;
  shared_.count.add(counter::cluster_pause);
  shared_.note("member # is frozen", static_cast<std::int64_t>(which));
  one.paused = true;
  lose_touch(which);
  review();
  shared_.loop.after(
      draw_between(shared_.random, duration{0}, shared_.plan.lease + shared_.plan.lease / 2),
      [this, which] { resume(which); });
}

void cluster::resume(member_number which) {
  member& one = members_[which];
  if (!one.paused) return;
  one.paused = false;
  shared_.note("member # goes on", static_cast<std::int64_t>(which));
  if (!owner_.answers_after_pause()) {
    one.backlog.clear();
    notice(which);
  }
  for (const auto& what : std::exchange(one.backlog, {})) what();
  if (!one.cut_off) regain_touch_soon(which);
  review();
}

void cluster::restart_some() {
  const member_number which =
      shared_.random.chance(0.5) ? leader_ : shared_.random.below(members_.size());
  member& one = members_[which];
  if (!one.up || one.paused) return;
  shared_.count.add(counter::cluster_restart);
  shared_.note("member # goes down", static_cast<std::int64_t>(which));
  one.up = false;
  ++one.life;
  one.backlog.clear();
  lose_touch(which);
  one.frozen.leader.reset();
  owner_.stopped(which);
  end_connections(which);
  review();
  shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.lease),
                     [this, which] { start(which); });
}

void cluster::start(member_number which) {
  member& one = members_[which];
  if (one.up) return;
  shared_.note("member # is up again", static_cast<std::int64_t>(which));
  one.up = true;
  if (!one.cut_off) regain_touch_soon(which);
  review();
}

void cluster::isolate_some() {
  if (members_.size() < 3) return;
  shared_.count.add(counter::cluster_isolation);
  const std::size_t most = members_.size() - majority();
  const std::size_t count = 1 + shared_.random.below(most);
  std::vector<member_number> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const member_number which =
        i == 0 && shared_.random.chance(0.6) ? leader_ : shared_.random.below(members_.size());
    if (members_[which].cut_off) continue;
    shared_.note("member # is cut off from the others", static_cast<std::int64_t>(which));
    members_[which].cut_off = true;
    chosen.push_back(which);
  }
  for (const member_number each : chosen) lose_touch(each);
  review();
  shared_.loop.after(draw_between(shared_.random, duration{0}, 3 * shared_.plan.lease),
                     [this, chosen] {
                       for (const member_number each : chosen) {
                         members_[each].cut_off = false;
                         regain_touch_soon(each);
                       }
                       review();
                     });
}

void cluster::heal() {
  for (member_number i = 0; i < members_.size(); ++i) {
    members_[i].cut_off = false;
    resume(i);
    start(i);
    regain_touch_soon(i);
  }
  for (auto& [number, each] : clients_) each.paths.clear();
  review();
}

// ---- clients -------------------------------------------------------------------------------------

bool cluster::reachable(std::uint64_t client, member_number which) {
  const path& way = clients_[client].paths[which];
  return members_[which].up && !way.cut_to && !way.cut_from;
}

duration cluster::draw_hop() { return draw_around(shared_.random, shared_.plan.message_delay / 4); }

duration cluster::draw_delay() {
  // A healed network answers in time.
  const duration usual =
      shared_.healed ? std::min(shared_.plan.message_delay, shared_.plan.request_timeout / 25)
                     : shared_.plan.message_delay;
  duration delay = shortest_delay + draw_around(shared_.random, usual);
  if (shared_.strikes(fault::slow_message)) {
    shared_.count.add(counter::request_slow);
    delay += draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  }
  return delay;
}

bool cluster::send(std::uint64_t from, member_number to, lane* order,
                   std::function<void()> arrive) {
  if (clients_[from].paths[to].cut_to) return false;
  if (shared_.strikes(fault::lose_request)) {
    shared_.count.add(counter::request_lost);
    return false;
  }
  true_time when = shared_.loop.now() + draw_delay().count();
  if (order != nullptr) when = order->last = std::max(when, order->last);
  shared_.loop.at(when, [this, to, life = members_[to].life, arrive = std::move(arrive)]() mutable {
    if (members_[to].life == life) at_member(to, std::move(arrive));
  });
  return true;
}

bool cluster::send_back(member_number from, std::uint64_t to, lane* order,
                        std::function<void()> arrive) {
  const auto client = clients_.find(to);
  if (client == clients_.end() || client->second.paths[from].cut_from) {
    return false;
  }
  if (shared_.strikes(fault::lose_reply)) {
    shared_.count.add(counter::reply_lost);
    return false;
  }
  true_time when = shared_.loop.now() + draw_delay().count();
  if (order != nullptr) when = order->last = std::max(when, order->last);
  shared_.loop.at(when, std::move(arrive));
  return true;
}

void cluster::end_connections(member_number which) {
  std::vector<std::uint64_t> all;
  for (const auto& [number, each] : clients_) all.push_back(number);
  for (const std::uint64_t each : all) {
    const auto found = clients_.find(each);
    if (found != clients_.end()) found->second.user->connection_ends(which);
  }
}

void cluster::reset_some(std::uint64_t client) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  shared_.count.add(counter::connection_reset);
  found->second.user->connection_ends(shared_.random.below(members_.size()));
}

void cluster::cut_some(std::uint64_t client, bool to_member, bool from_member) {
  const auto found = clients_.find(client);
  if (found == clients_.end()) return;
  shared_.count.add(counter::cluster_cut);
  shared_.note("process # is cut off from some members: # #", static_cast<std::int64_t>(client),
               to_member ? 1 : 0, from_member ? 1 : 0);
  const double share = shared_.random.chance(0.5) ? 1.0 : 0.2 + 0.8 * shared_.random.unit();
  for (member_number i = 0; i < members_.size(); ++i) {
    if (shared_.random.chance(share)) found->second.paths[i] = {to_member, from_member};
  }
  shared_.loop.after(draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease),
                     [this, client] {
                       const auto still = clients_.find(client);
                       if (still != clients_.end()) still->second.paths.clear();
                     });
}

}  // namespace sallyport::sim
