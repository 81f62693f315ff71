#include "sim/options.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <sstream>

namespace sallyport::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct fault_info {
  std::string_view name;
  double highest;  // rate
};

constexpr std::array<fault_info, fault_count> faults = {{
    {"lose_request", 0.15},
    {"lose_reply", 0.15},
    {"double_request", 0.2},
    {"slow_message", 0.1},
    {"lose_notice", 0.6},
    {"double_notice", 0.5},
    {"slow_notice", 0.5},
    {"reset_on_send", 0.05},
    {"pause_at_step", 0.02},
    {"reset", 0.5},
    {"cut_to_store", 0.25},
    {"cut_from_store", 0.25},
    {"partition", 0.25},
    {"pause", 0.5},
    {"kill", 0.2},
    {"suspend", 0.25},
    {"drift", 0.5},
    {"store_pause", 0.2},
    {"store_restart", 0.15},
    {"break_safely", 0.3},
    {"store_clock_step", 0.2},
    {"big_drift", 0.3},
    {"break_at_once", 0.3},
    {"stop_clock", 0.4},
    {"kill_in_transaction", 0.01},
    {"stop_in_gate", 0.005},
    {"stop_after_commit", 0.01},
    {"commit_fails", 0.05},
    {"reserve_fails", 0.5},
    {"power_cut", 0.1},
    {"script_flush", 0.3},
    {"foreign_lock", 0.5},
    {"data_loss", 0.3},
    {"flush_all", 0.1},
    {"foreign_delete", 0.2},
    {"eviction", 0.3},
    {"locks_lost", 0.5},
    {"isolation", 0.4},
    {"election", 0.4},
    {"watch_cancel", 0.5},
    {"full_store", 0.5},
    {"refuse_request", 0.12},
    {"fail_after", 0.08},
}};

/// What can happen on one machine; the last only outside of the model.
constexpr std::array local_faults = {fault::lose_notice,
                                     fault::slow_notice,
                                     fault::pause_at_step,
                                     fault::pause,
                                     fault::kill,
                                     fault::suspend,
                                     fault::break_safely,
                                     fault::power_cut,
                                     fault::kill_in_transaction,
                                     fault::stop_in_gate,
                                     fault::stop_after_commit,
                                     fault::commit_fails,
                                     fault::reserve_fails,
                                     fault::break_at_once};

/// What can happen to a Redis server and its clients, whose connections are TCP: nothing comes twice.
constexpr std::array redis_faults = {
    fault::lose_request,  fault::lose_reply,     fault::slow_message,  fault::lose_notice,
    fault::slow_notice,   fault::reset_on_send,  fault::pause_at_step, fault::reset,
    fault::cut_to_store,  fault::cut_from_store, fault::partition,     fault::pause,
    fault::kill,          fault::suspend,        fault::drift,         fault::store_pause,
    fault::store_restart, fault::break_safely,   fault::script_flush,  fault::foreign_lock};
constexpr std::array redis_faults_out_of_model = {
    fault::store_clock_step, fault::big_drift, fault::break_at_once, fault::stop_clock,
    fault::data_loss,        fault::flush_all, fault::foreign_delete};

/// What can happen to the nodes of a quorum, one at a time. Data are lost on fewer nodes than a
/// majority, and never in silence: so that is within the model.
constexpr std::array redlock_faults = {
    fault::lose_request,  fault::lose_reply,     fault::slow_message,  fault::lose_notice,
    fault::slow_notice,   fault::reset_on_send,  fault::pause_at_step, fault::reset,
    fault::cut_to_store,  fault::cut_from_store, fault::partition,     fault::pause,
    fault::kill,          fault::suspend,        fault::drift,         fault::store_pause,
    fault::store_restart, fault::break_safely,   fault::script_flush,  fault::foreign_lock,
    fault::data_loss,     fault::flush_all,      fault::eviction};
constexpr std::array redlock_faults_out_of_model = {fault::store_clock_step, fault::big_drift,
                                                    fault::break_at_once,    fault::stop_clock,
                                                    fault::foreign_delete,   fault::locks_lost};
/// What can happen to a cluster with a leader, and to its clients.
constexpr std::array cluster_faults = {
    fault::lose_request,  fault::lose_reply,     fault::slow_message,  fault::lose_notice,
    fault::slow_notice,   fault::reset_on_send,  fault::pause_at_step, fault::reset,
    fault::cut_to_store,  fault::cut_from_store, fault::partition,     fault::pause,
    fault::kill,          fault::suspend,        fault::drift,         fault::store_pause,
    fault::store_restart, fault::break_safely,   fault::isolation,     fault::election,
    fault::watch_cancel};
constexpr std::array cluster_faults_out_of_model = {fault::big_drift, fault::break_at_once,
                                                    fault::stop_clock};
/// Where much is lost, little is done: in half of the seeds it is less.
constexpr double cluster_message_faults = 0.2;
/// A round is several messages on each of several connections.
constexpr double redlock_message_faults = 0.3;
constexpr double redlock_share_out_of_model = 0.35;
constexpr double share_of_forgetting = 0.2;

constexpr double share_out_of_model = 0.2;
constexpr double share_of_prompt = 0.3;
constexpr double share_without_faults = 0.05;
constexpr double share_of_fault = 0.3;
constexpr double share_of_adversary = 0.4;

duration draw_scaled(base::random& random, duration base, double from, double to) {
  const double factor = from * std::pow(to / from, random.unit());
  return duration{static_cast<duration::rep>(static_cast<double>(base.count()) * factor)};
}

lock_kind draw_kind(base::random& random) {
  const std::uint64_t drawn = random.below(10);
  if (drawn < 5) return lock_kind::mutex;
  if (drawn < 8) return lock_kind::shared_mutex;
  return drawn < 9 ? lock_kind::semaphore : lock_kind::election;
}

void draw_faults(options& out, base::random& random) {
  out.in_model = !random.chance(share_out_of_model);
  if (random.chance(share_without_faults)) {
    out.in_model = true;
    return;
  }
  for (std::size_t i = 0; i < first_local_fault; ++i) {
    if (out.in_model && i >= first_fault_out_of_model) break;
    const double share = i >= first_fault_out_of_model ? 0.5 : share_of_fault;
    if (random.chance(share)) out.rates[i] = faults[i].highest * (0.05 + 0.95 * random.unit());
  }
}

void draw_local_faults(options& out, base::random& random) {
  out.in_model = !random.chance(share_out_of_model / 2);
  if (random.chance(share_without_faults)) {
    out.in_model = true;
    return;
  }
  out.prompt = random.chance(share_of_prompt);
  if (out.prompt) {
    out.in_model = true;
    for (const fault each : {fault::kill, fault::kill_in_transaction}) {
      const auto i = static_cast<std::size_t>(each);
      out.rates[i] = 2 * faults[i].highest * random.unit();
    }
    return;
  }
  for (const fault each : local_faults) {
    const auto i = static_cast<std::size_t>(each);
    if (out.in_model && each == fault::break_at_once) continue;
    if (random.chance(share_of_fault + 0.1)) {
      out.rates[i] = faults[i].highest * (0.05 + 0.95 * random.unit());
    }
  }
}

void draw_redis_faults(options& out, base::random& random) {
  out.in_model = !random.chance(share_out_of_model);
  if (random.chance(share_without_faults)) {
    out.in_model = true;
    return;
  }
  const auto draw = [&](fault each, double share) {
    const auto i = static_cast<std::size_t>(each);
    if (random.chance(share)) out.rates[i] = faults[i].highest * (0.05 + 0.95 * random.unit());
  };
  for (const fault each : redis_faults) draw(each, share_of_fault);
  if (out.in_model) return;
  for (const fault each : redis_faults_out_of_model) draw(each, 0.5);
  // Tokens that were lost go on above the clock, so the clock must not be set back as well.
  if (out.rate(fault::data_loss) > 0 || out.rate(fault::flush_all) > 0) {
    out.rates[static_cast<std::size_t>(fault::store_clock_step)] = 0;
  }
}

quorum_story draw_story(bool in_model, base::random& random) {
  if (in_model) {
    return random.chance(share_of_forgetting) ? quorum_story::forgetting : quorum_story::anything;
  }
  constexpr std::array stories = {quorum_story::anything,  quorum_story::anything,
                                  quorum_story::vanishing, quorum_story::vanishing,
                                  quorum_story::vanishing, quorum_story::clock_steps,
                                  quorum_story::amnesia};
  return stories[random.below(stories.size())];
}

/// How long a node that lost its data, and its counter, is kept out is counted by the others' clocks:
/// when they are set meanwhile, not even the order of tokens is promised.
void keep_clocks_where_data_are_lost(options& out) {
  const bool lost = out.rate(fault::data_loss) > 0 || out.rate(fault::flush_all) > 0 ||
                    out.rate(fault::eviction) > 0 || out.rate(fault::store_restart) > 0;
  if (lost) out.rates[static_cast<std::size_t>(fault::store_clock_step)] = 0;
}

void draw_redlock_faults(options& out, base::random& random) {
  out.in_model = !random.chance(redlock_share_out_of_model);
  if (random.chance(share_without_faults)) {
    out.in_model = true;
    return;
  }
  const auto draw = [&](fault each, double share) {
    const auto i = static_cast<std::size_t>(each);
    const double scale = i < first_timed_fault ? redlock_message_faults : 1.0;
    if (random.chance(share)) {
      out.rates[i] = scale * faults[i].highest * (0.05 + 0.95 * random.unit());
    }
  };
  out.story = draw_story(out.in_model, random);
  const auto often = [&](fault each, double times) {
    draw(each, 1.0);
    out.rates[static_cast<std::size_t>(each)] *= times;
  };
  switch (out.story) {
    case quorum_story::anything:
      for (const fault each : redlock_faults) draw(each, share_of_fault);
      if (out.in_model) return;
      for (const fault each : redlock_faults_out_of_model) draw(each, 0.5);
      keep_clocks_where_data_are_lost(out);
      return;
    case quorum_story::forgetting:
      often(fault::data_loss, 4);
      often(fault::flush_all, 4);
      often(fault::partition, 2);
      return;
    case quorum_story::vanishing:
      often(fault::slow_message, 1);
      often(fault::foreign_delete, 300);
      return;
    case quorum_story::clock_steps:
      often(fault::store_clock_step, 10);
      return;
    case quorum_story::amnesia:
      often(fault::locks_lost, 4);
      return;
  }
}

void draw_cluster_faults(options& out, base::random& random) {
  out.in_model = !random.chance(share_out_of_model / 2);
  if (random.chance(share_without_faults)) {
    out.in_model = true;
    return;
  }
  const double scale = random.chance(0.5) ? cluster_message_faults : 1.0;
  const auto draw = [&](fault each, double share) {
    const auto i = static_cast<std::size_t>(each);
    if (!random.chance(share)) return;
    out.rates[i] = faults[i].highest * (0.05 + 0.95 * random.unit());
    if (i < first_timed_fault) out.rates[i] *= scale;
  };
  for (const fault each : cluster_faults) draw(each, share_of_fault);
  if (out.in_model) return;
  for (const fault each : cluster_faults_out_of_model) draw(each, 0.5);
}

/// Decided apart from all other draws, as which store it is.
void draw_for_etcd(options& out) {
  constexpr std::uint64_t salt = 0xe7cd000000;
  base::random random(out.seed ^ salt);
  const bool faults_drawn = std::ranges::any_of(out.rates, [](double each) { return each > 0; });
  constexpr auto full = static_cast<std::size_t>(fault::full_store);
  if (faults_drawn && random.chance(share_of_fault)) {
    out.rates[full] = faults[full].highest * (0.05 + 0.95 * random.unit());
  }
  // Names below another one: whoever takes that one meets their keys in its range.
  if (!random.chance(0.5)) return;
  for (std::size_t i = 1; i < out.locks.size(); ++i) {
    out.locks[i].name = lock_name{"lock-0/" + std::to_string(i)};
  }
}

/// The store's own words for trouble; apart from all other draws, too. A file of one's own machine has
/// them among its own faults (commit_fails).
void draw_adversary(options& out) {
  constexpr std::uint64_t salt = 0xb3682670000000;
  base::random random(out.seed ^ salt);
  const bool faults_drawn = std::ranges::any_of(out.rates, [](double each) { return each > 0; });
  if (!random.chance(share_of_adversary) || !faults_drawn || out.local) return;
  const auto draw = [&](fault each) {
    const auto i = static_cast<std::size_t>(each);
    if (random.chance(0.7)) out.rates[i] = faults[i].highest * (0.05 + 0.95 * random.unit());
  };
  draw(fault::refuse_request);
  draw(fault::fail_after);
}

/// How long the product waits for one node before it goes on without; slower ones are as good as down.
duration patience_with_a_node(duration lease) {
  return std::clamp<duration>(lease / 4, milliseconds{50}, milliseconds{500});
}

void draw_nodes(options& out, base::random& random) {
  constexpr std::array<std::uint32_t, 4> counts = {1, 3, 5, 7};
  constexpr std::array<std::uint64_t, 4> up_to = {1, 6, 9, 10};  // three are the usual
  const bool few = out.story == quorum_story::vanishing || out.story == quorum_story::forgetting;
  const std::uint64_t drawn = few ? 1 + random.below(up_to[2] - 1) : random.below(up_to.back());
  std::size_t which = 0;
  while (drawn >= up_to[which]) ++which;
  out.nodes = counts[which];
  out.durable_nodes =
      random.chance(0.4) ? out.nodes : static_cast<std::uint32_t>(random.below(out.nodes + 1));
  out.max_lease = std::chrono::ceil<milliseconds>(draw_scaled(random, out.lease, 1.0, 1.5));
}

/// Apart from all other draws, too.
void draw_spares(options& out, std::uint64_t seed) {
  constexpr std::uint64_t salt = 0x76000000000;
  base::random random(seed ^ salt);
  if (out.nodes < 3 || !random.chance(0.4)) return;
  out.spares = 1 + static_cast<std::uint32_t>(random.below(2));
  out.former_member = random.chance(0.5);
}

/// Decided apart from all other draws: so a seed of one kind of store draws the same as before there
/// were others. The salts leave the seeds of seeds.txt where they were found.
bool draws_local_store(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0x21ce00000000;
  return base::random(seed ^ salt).chance(0.5);
}
bool draws_redis_store(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0xd150017200000;
  return base::random(seed ^ salt).chance(1.0 / 3);
}

/// Redis: the largest blocks of tokens that a user can ask for.
bool draws_large_blocks(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0xb142500000000;
  return base::random(seed ^ salt).chance(0.5);
}
constexpr std::uint32_t most_local_turns = 1'000'000;

/// Redis: some clients may not subscribe, or a proxy has no channels.
bool draws_deaf_clients(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0xdeaf00000000;
  return base::random(seed ^ salt).chance(0.2);
}

/// Redis: queues here are short, so in half of the seeds what is done for long ones begins early.
bool draws_small_bounds(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0x128000000000;
  return base::random(seed ^ salt).chance(0.5);
}

/// A tenth of all seeds each for etcd and ZooKeeper.
double draw_for_clusters(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0xbc200000000;
  return base::random(seed ^ salt).unit();
}
bool draws_etcd(std::uint64_t seed) { return draw_for_clusters(seed) < 0.1; }
constexpr double share_of_zookeeper = 0.1;
bool draws_zookeeper(std::uint64_t seed) {
  const double drawn = draw_for_clusters(seed);
  return drawn >= 0.1 && drawn < 0.1 + share_of_zookeeper;
}

/// ZooKeeper: sessions of two to four ticks, of which there is not much left to trust.
bool draws_short_sessions(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0x5e5500000000;
  return base::random(seed ^ salt).chance(0.25);
}

bool draws_redlock_store(std::uint64_t seed) {
  constexpr std::uint64_t salt = 0x35710c4000000;
  return base::random(seed ^ salt).chance(0.2);
}

}  // namespace

std::string_view to_string(fault which) noexcept {
  return faults[static_cast<std::size_t>(which)].name;
}

duration draw_between(base::random& random, duration from, duration to) {
  if (to <= from) return from;
  return from + duration{static_cast<duration::rep>(
                    random.below(static_cast<std::uint64_t>((to - from).count()) + 1))};
}

duration draw_around(base::random& random, duration mean) {
  const double drawn = -std::log(1.0 - random.unit()) * static_cast<double>(mean.count());
  const double longest = 10.0 * static_cast<double>(mean.count());
  return duration{static_cast<duration::rep>(std::min(drawn, longest))};
}

std::string_view store_of(std::uint64_t seed) {
  if (draws_etcd(seed)) return "etcd";
  if (draws_zookeeper(seed)) return "zookeeper";
  if (draws_redlock_store(seed)) return "redlock";
  if (draws_redis_store(seed)) return "redis";
  return draws_local_store(seed) ? "local" : "network";
}

options draw_options(std::uint64_t seed, base::random& random) {
  options out;
  out.seed = seed;
  out.redlock = store_of(seed) == "redlock";
  out.redis = store_of(seed) == "redis";
  out.local = store_of(seed) == "local";
  out.etcd = store_of(seed) == "etcd";
  out.zookeeper = store_of(seed) == "zookeeper";
  if (out.clustered()) {
    draw_cluster_faults(out, random);
  } else if (out.redlock) {
    draw_redlock_faults(out, random);
  } else if (out.redis) {
    draw_redis_faults(out, random);
  } else if (out.local) {
    draw_local_faults(out, random);
  } else {
    draw_faults(out, random);
  }

  const std::size_t names = out.story != quorum_story::anything ? 1 : 1 + random.below(3);
  for (std::size_t i = 0; i < names; ++i) {
    const lock_kind kind = out.redlock ? lock_kind::mutex : draw_kind(random);
    const std::uint32_t permits =
        kind == lock_kind::semaphore ? 1 + static_cast<std::uint32_t>(random.below(3)) : 1;
    out.locks.push_back({lock_name{"lock-" + std::to_string(i)}, kind, permits});
  }
  if (out.etcd) draw_for_etcd(out);
  out.processes = 2 + static_cast<std::uint32_t>(random.below(5));
  out.callers = 1 + static_cast<std::uint32_t>(random.below(3));
  out.local_turns = random.chance(0.4) ? 1 : 2 + static_cast<std::uint32_t>(random.below(7));
  if (out.redis && draws_large_blocks(seed)) out.local_turns = most_local_turns;
  if (out.redis && draws_deaf_clients(seed)) out.deaf_clients = 2 + seed % 2;
  out.small_bounds = out.redis && draws_small_bounds(seed);
  out.single_tokens = random.chance(0.3);
  out.notices_without_grant = random.chance(0.2);
  out.readers = 0.2 + 0.6 * random.unit();
  out.tries = 0.4 * random.unit();
  out.timed = 0.5 * random.unit();
  out.cancels = random.chance(0.5) ? 0.3 * random.unit() : 0.0;
  out.long_holds = 0.3 * random.unit();
  out.fixed_leases = random.chance(0.5) ? 0.5 * random.unit() : 0.0;

  out.shortest_lease = milliseconds{200};
  out.lease = draw_scaled(random, milliseconds{200}, 1.0, 25.0);
  if (out.etcd) {
    out.shortest_lease = std::chrono::seconds{2};  // as in the product; whole seconds, too
    out.lease = std::chrono::ceil<std::chrono::seconds>(
        draw_scaled(random, std::chrono::seconds{2}, 1.0, 4.0));
  }
  if (out.zookeeper) {
    out.lease = draw_scaled(random, std::chrono::seconds{1}, 1.0, 5.0);
    out.shortest_lease = out.lease / 2;
  }
  out.longest_lease = out.lease;
  out.heartbeat = draw_scaled(random, out.lease, 0.04, 0.6);
  out.request_timeout = draw_scaled(random, out.lease, 0.1, 2.0);
  out.store_patience = draw_scaled(random, out.lease, 0.5, 6.0);
  out.local_turn_time = draw_scaled(random, out.lease, 0.1, 4.0);
  out.expiry_granularity = random.chance(0.3) ? milliseconds{2} : milliseconds{0};
  // What the product says of it.
  if (out.redis || out.redlock) out.expiry_granularity = milliseconds{2};
  out.message_delay = draw_scaled(random, out.lease, 0.0005, 0.05);
  if (out.prompt) out.message_delay = out.lease / 1000;
  out.think_time = draw_scaled(random, out.lease, 0.05, 1.0);
  out.safety_phase = draw_scaled(random, out.lease, 12.0, 40.0);
  if (out.story == quorum_story::vanishing) {
    out.message_delay = draw_scaled(random, out.lease, 0.01, 0.05);
  }
  if (out.redlock) {
    draw_nodes(out, random);
    draw_spares(out, seed);
    out.message_delay = std::min(out.message_delay, patience_with_a_node(out.lease) / 10);
    out.safety_phase = draw_scaled(random, out.lease, 5.0, 16.0);  // every command is a script
  }
  if (out.clustered()) {
    constexpr std::array<std::uint32_t, 5> counts = {1, 3, 3, 3, 5};
    out.nodes = counts[random.below(counts.size())];
    out.message_delay = draw_scaled(random, milliseconds{1}, 1.0, 40.0);
    if (out.zookeeper) out.message_delay = std::min(out.message_delay, out.lease / 100);
    out.tick = draw_scaled(random, out.lease, 0.05, 0.2);
    if (out.zookeeper && draws_short_sessions(seed)) out.tick = out.tick * 5 / 2;
  }
  draw_adversary(out);
  return out;
}

std::string describe(const options& drawn) {
  const auto ms = [](duration span) { return static_cast<double>(span.count()) / 1e6; };
  std::ostringstream text;
  text << "seed " << drawn.seed
       << (drawn.prompt      ? ", local store, prompt"
           : drawn.local     ? ", local store"
           : drawn.redis     ? ", Redis"
           : drawn.etcd      ? ", etcd of " + std::to_string(drawn.nodes) + " members"
           : drawn.zookeeper ? ", ZooKeeper of " + std::to_string(drawn.nodes) + " servers, tick " +
                                   std::to_string(drawn.tick.count() / 1'000'000) + " ms"
           : drawn.redlock ? ", redlock of " + std::to_string(drawn.nodes) + " nodes, " +
                                 std::to_string(drawn.durable_nodes) + " durable, " +
                                 std::to_string(drawn.spares) + " others"
                           : ", networked store")
       << (drawn.in_model ? ", in model" : ", out of model") << '\n';
  for (std::size_t i = 0; i < fault_count; ++i) {
    if (drawn.rates[i] > 0) text << "  fault " << faults[i].name << " " << drawn.rates[i] << '\n';
  }
  for (const lock_plan& lock : drawn.locks) {
    text << "  " << lock.name.text() << " " << to_string(lock.kind);
    if (lock.kind == lock_kind::semaphore) text << " of " << lock.permits;
    text << '\n';
  }
  text << "  processes " << drawn.processes << ", callers " << drawn.callers << ", local_turns "
       << drawn.local_turns << (drawn.single_tokens ? ", single tokens" : "")
       << (drawn.notices_without_grant ? ", notices without grant" : "")
       << (drawn.deaf_clients > 0 ? ", deaf clients" : "")
       << (drawn.small_bounds ? ", small bounds" : "") << '\n'
       << "  readers " << drawn.readers << ", tries " << drawn.tries << ", timed " << drawn.timed
       << ", cancels " << drawn.cancels << ", long holds " << drawn.long_holds << ", fixed leases "
       << drawn.fixed_leases << '\n'
       << "  in ms: lease " << ms(drawn.lease) << ", heartbeat " << ms(drawn.heartbeat)
       << ", request_timeout " << ms(drawn.request_timeout) << ", store_patience "
       << ms(drawn.store_patience) << ", local_turn_time " << ms(drawn.local_turn_time)
       << ", expiry_granularity " << ms(drawn.expiry_granularity) << ", message_delay "
       << ms(drawn.message_delay) << ", think_time " << ms(drawn.think_time) << ", safety_phase "
       << ms(drawn.safety_phase) << '\n';
  return text.str();
}

}  // namespace sallyport::sim
