#include "sim/etcd_store.hpp"

#include "backends/etcd/description.hpp"
#include "sim/etcd_driver.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace sallyport::sim {

using namespace backends::etcd;

namespace {

using std::chrono::seconds;

/// Of the requests that a member has kept while it had no leader, this share is executed late.
constexpr double share_executed_late = 0.5;
/// How often the leader looks for leases that have ended, in parts of a lease.
constexpr int sweeps_per_lease = 24;
/// Tombstones are nobody's.
constexpr std::uint64_t nobody = 0;

/// etcd does not look which of its two ways a transaction would go.
bool wants_room(const backends::etcd::txn& what) {
  const auto writes = [](const backends::etcd::operation& each) {
    return std::holds_alternative<put>(each);
  };
  return std::ranges::any_of(what.then, writes) || std::ranges::any_of(what.otherwise, writes);
}

}  // namespace

etcd_store::etcd_store(context& shared, checkers& checks)
    : shared_(shared), checks_(checks), keys_(""), members_(shared, *this) {
  made_.assign(static_cast<std::size_t>(model_.at) + 1, 0);
  sweep();
}

etcd_store::~etcd_store() = default;

std::unique_ptr<store_driver> etcd_store::open(process& home, std::uint64_t client) {
  return std::make_unique<etcd_driver>(shared_, checks_, home, *this, client);
}

time_point etcd_store::now() const { return members_.now_at(members_.last_leader()); }

duration etcd_store::slowness() const { return 2 * shared_.plan.lease + seconds{12}; }

// ---- requests ------------------------------------------------------------------------------------

void etcd_store::through_leader(member_number at, std::function<void()> what, const respond& says) {
  if (!members_.seen_by(at).leader) {
    says({.is = answer::word::no_leader});
    return;
  }
  const auto now_or_never = [this, at, what = std::move(what)] {
    if (members_.in_touch(at) && members_.leader()) {
      what();
    } else {
      hanging_[at].push_back(what);
    }
  };
  if (members_.leader() == at) {
    now_or_never();
  } else {
    shared_.loop.after(members_.draw_hop(), now_or_never);
  }
}

bool etcd_store::refuses(const respond& says) {
  if (!shared_.strikes(fault::refuse_request)) return false;
  shared_.count.add(counter::etcd_refused_request);
  says({.is = shared_.random.chance(0.5) ? answer::word::refused : answer::word::no_leader});
  return true;
}

etcd_store::respond etcd_store::with_trouble(const respond& says) {
  if (!shared_.strikes(fault::fail_after)) return says;
  shared_.count.add(counter::etcd_trouble_after_effect);
  return [says](const answer&) { says({.is = answer::word::timed_out}); };
}

void etcd_store::txn(member_number at, const backends::etcd::txn& what, const respond& says) {
  if (refuses(says)) return;
  through_leader(
      at, [this, at, what, says = with_trouble(says)] { apply(at, what, says); }, says);
}

void etcd_store::apply(member_number at, const backends::etcd::txn& what, const respond& says) {
  if (full_ && wants_room(what)) {
    shared_.count.add(counter::etcd_refused);
    says({.is = answer::word::refused});
    return;
  }
  const revision before = model_.at;
  model_.term = members_.seen_by(at).term;
  const auto said = model_.apply(what);
  if (!said.value) {
    says({.is = answer::word::no_such_lease});
    return;
  }
  note_txn(what, *said.value);
  changed(before);
  if (model_.at != before) {
    check_entries(said.value->succeeded ? what.then : what.otherwise);
    check_tombstones();
  }
  says({.is = answer::word::done, .value = *said.value});
}

void etcd_store::grant(member_number at, std::uint64_t client, lease_id id, std::int64_t length,
                       const respond& says) {
  if (refuses(says)) return;
  through_leader(
      at,
      [this, client, id, length, says = with_trouble(says)] {
        if (full_) {
          says({.is = answer::word::refused});
          return;
        }
        if (!model_.grant(id, seconds{length}, now())) {
          says({.is = answer::word::lease_exists});
          return;
        }
        // A request that came after the revocation makes it anew, for nobody: what is put on it by
        // another late one lapses by itself.
        if (owners_.contains(id)) not_revoked_.insert(id);
        owners_[id] = client;
        granted_at_[id] = shared_.loop.now();
        seconds_[id] = length;
        says({.is = answer::word::done, .seconds = length});
      },
      says);
}

void etcd_store::revoke(member_number at, lease_id id, const respond& says) {
  if (refuses(says)) return;
  through_leader(
      at,
      [this, id, says = with_trouble(says)] {
        const bool there = model_.leases.contains(id);
        const revision before = model_.at;
        model_.revoke(id);
        changed(before);
        says({.is = there ? answer::word::done : answer::word::no_such_lease});
      },
      says);
}

std::optional<etcd_store::kept> etcd_store::keep_alive(member_number at, lease_id id) {
  const cluster::view seen = members_.seen_by(at);
  if (!seen.leader) return std::nullopt;
  if (members_.in_touch(at)) {
    if (!members_.leader()) return std::nullopt;
    return kept{model_.keep_alive(id, now()), seen.term};
  }
  // Only one who was cut off together with it can still ask a leader that leads no more.
  const member_number led_by = *seen.leader;
  const bool asks_itself = led_by == at;
  const bool together = asks_itself || (!members_.in_touch(led_by) && members_.works(led_by) &&
                                        members_.seen_by(led_by).leader == led_by);
  if (!together) return std::nullopt;
  const auto granted = granted_at_.find(id);
  if (granted == granted_at_.end() || granted->second > members_.touch_lost_at(led_by)) {
    return kept{0, seen.term};
  }
  shared_.count.add(counter::etcd_kept_by_deposed);
  return kept{seconds_.at(id), seen.term};
}

// ---- what happens by itself ----------------------------------------------------------------------

void etcd_store::elected() {
  for (auto& [id, each] : model_.leases) each.ends = now() + each.length;
}

void etcd_store::touch_changed(member_number which) {
  if (!members_.in_touch(which)) return;
  for (auto& what : std::exchange(hanging_[which], {})) {
    if (!shared_.random.chance(share_executed_late)) continue;
    shared_.loop.after(members_.draw_hop(), [this, which, what = std::move(what)] {
      if (members_.in_touch(which) && members_.leader()) what();
    });
  }
  for (auto& [client, each] : streams_) {
    if (each.at != which) continue;
    for (const auto& said : std::exchange(each.held, {})) send_report(client, each, said);
  }
}

void etcd_store::stopped(member_number which) { hanging_[which].clear(); }

void etcd_store::noticed(member_number which) {
  // As was asked for: a member without a leader serves no watches.
  for (auto& [client, each] : streams_) {
    if (each.at == which && !each.deaf && shared_.random.chance(0.5)) go_deaf(client, each);
  }
}

duration etcd_store::draw_patience() {
  return draw_between(shared_.random, shared_.plan.lease / 20,
                      shared_.plan.lease + shared_.plan.lease / 2);
}

void etcd_store::sweep() {
  if (members_.leader()) {
    for (const auto& [id, each] : model_.leases) {
      if (each.ends <= now()) count_ending(id);
    }
    const revision before = model_.at;
    model_.expire(now());
    changed(before);
  }
  shared_.loop.after(
      draw_between(shared_.random, duration{1}, 2 * shared_.plan.lease / sweeps_per_lease),
      [this] { sweep(); });
}

void etcd_store::count_ending(lease_id id) {
  const auto its = owners_.find(id);
  if (its == owners_.end() || !members_.lives(its->second)) return;
  shared_.note("the lease # of client # ends", id % 10'000, static_cast<std::int64_t>(its->second));
  for (const std::string& key : model_.leases.at(id).keys) {
    const auto said = from_json(model_.keys.at(key).value);
    if (said) {
      shared_.count.add(said->held ? counter::etcd_ended_holding : counter::etcd_ended_waiting);
    }
  }
}

void etcd_store::changed(revision before) {
  for (revision each = before; each < model_.at; ++each) {
    made_.push_back(checks_.store.next_sequence());
  }
  publish();
}

std::uint64_t etcd_store::made(revision which) const {
  const auto index = static_cast<std::size_t>(which);
  return index < made_.size() ? made_[index] : 0;
}

void etcd_store::note_txn(const backends::etcd::txn& what, const txn_answer& said) {
  shared_.note("etcd: a transaction of # operations, revision #, succeeded #",
               static_cast<std::int64_t>(what.then.size()), said.at, said.succeeded ? 1 : 0);
}

// ---- watches -------------------------------------------------------------------------------------

void etcd_store::open_stream(std::uint64_t client, std::uint64_t number, member_number at,
                             etcd_watcher& who) {
  close_stream(client);
  stream& fresh = streams_[client];
  fresh.number = number;
  fresh.at = at;
  fresh.who = &who;
}

void etcd_store::close_stream(std::uint64_t client) {
  streams_.erase(client);
  std::erase_if(model_.watchers,
                [&](const auto& each) { return each.first.first == static_cast<int>(client); });
}

void etcd_store::watch(std::uint64_t client, std::uint64_t number, watch_number which,
                       model_store::watcher what) {
  const auto found = streams_.find(client);
  if (found == streams_.end() || found->second.number != number) return;
  if (!members_.seen_by(found->second.at).leader) {
    // As was asked for: a member without a leader serves no watches.
    go_deaf(client, found->second);
    return;
  }
  model_.watch(static_cast<int>(client), which, std::move(what));
  publish();
}

void etcd_store::unwatch(std::uint64_t client, std::uint64_t number, watch_number which) {
  const auto found = streams_.find(client);
  if (found == streams_.end() || found->second.number != number) return;
  model_.unwatch(static_cast<int>(client), which);
}

void etcd_store::publish() {
  for (const model_store::report& each : std::exchange(model_.reports, {})) {
    const auto client = static_cast<std::uint64_t>(each.client);
    const auto found = streams_.find(client);
    if (found == streams_.end()) continue;
    stream& on = found->second;
    if (members_.in_touch(on.at)) {
      send_report(client, on, each);
    } else {
      on.held.push_back(each);
    }
  }
}

void etcd_store::send_report(std::uint64_t client, stream& on, const model_store::report& said) {
  if (on.deaf) return;
  if (shared_.strikes(fault::lose_notice)) {
    go_deaf(client, on);
    return;
  }
  if (shared_.strikes(fault::slow_notice)) {
    on.back.last =
        shared_.loop.now() + draw_between(shared_.random, duration{0}, shared_.plan.lease).count();
  }
  const bool sent =
      members_.send_back(on.at, client, &on.back, [this, client, number = on.number, said] {
        const auto still = streams_.find(client);
        if (still != streams_.end() && still->second.number == number) {
          still->second.who->reported(number, said);
        }
      });
  if (!sent) go_deaf(client, on);
}

void etcd_store::go_deaf(std::uint64_t client, stream& on) {
  shared_.count.add(counter::etcd_watches_deaf);
  on.deaf = true;
  shared_.loop.after(draw_between(shared_.random, shared_.plan.lease / 2, 3 * shared_.plan.lease),
                     [this, client, number = on.number] {
                       const auto still = streams_.find(client);
                       if (still != streams_.end() && still->second.number == number) {
                         still->second.who->stream_ended(number);
                       }
                     });
}

void etcd_store::fill_up() {
  shared_.note("etcd is full");
  shared_.count.add(counter::etcd_full);
  be_full(true);
  shared_.loop.after(draw_between(shared_.random, shared_.plan.lease / 20, shared_.plan.lease),
                     [this] { be_full(false); });
}

void etcd_store::cancel_some_watch() {
  if (model_.watchers.empty()) return;
  const auto chosen =
      std::next(model_.watchers.begin(),
                static_cast<std::ptrdiff_t>(shared_.random.below(model_.watchers.size())));
  const auto [client, which] = chosen->first;
  model_.watchers.erase(chosen);
  shared_.count.add(counter::etcd_watch_cancelled);
  model_.reports.push_back({.client = client, .watch = which, .ended = true});
  publish();
}

// ---- what must be true ---------------------------------------------------------------------------

void etcd_store::check_entries(const std::vector<backends::etcd::operation>& done) {
  if (!shared_.plan.in_model) return;
  for (const backends::etcd::operation& each : done) {
    const auto* const written = std::get_if<put>(&each);
    if (written == nullptr) continue;
    const auto said = from_json(written->value);
    if (said && said->shared) were_shared_.insert(written->key);
    if (!said || !said->held || said->closed) continue;
    // A candidate's card says it for the candidate's key.
    std::string key = written->key;
    if (!key.empty() && key.front() == '\x01') key.erase(0, 1);
    const auto found = model_.keys.find(key);
    if (found != model_.keys.end()) check_order(found->second);
  }
}

/// Nobody enters before its time, and that means who was put out, too.
void etcd_store::check_tombstones() {
  for (const auto& [stone, keys] : stones_) {
    const auto found = model_.leases.find(stone);
    if (found == model_.leases.end() || found->second.keys.size() >= keys) continue;
    shared_.fail("tombstones", "a tombstone was overwritten or removed before its time");
    return;
  }
}

void etcd_store::check_order(const key_value& in) {
  const std::string folder = in.key.substr(0, in.key.rfind('/') + 1);
  const auto index = static_cast<std::size_t>(folder[folder.size() - 2] - '0');
  const lock_plan& lock = shared_.plan.locks.at(index);
  const form mine = form_of(std::string_view(in.key).substr(folder.size()));
  const bool i_share = mine == form::reader || were_shared_.contains(in.key);
  std::uint32_t before = 0;
  for (const auto& [key, each] : model_.keys) {
    if (!segment_in(folder, key) || each.created >= in.created) continue;
    const form its = form_of(std::string_view(key).substr(folder.size()));
    // A writer whose downgrade was not answered relies on being a reader, and says the contrary.
    const bool shares = its == form::reader || were_shared_.contains(key);
    ++before;
    if (lock.kind == lock_kind::semaphore || (i_share && shares)) continue;
    shared_.fail("fifo", "lock " + std::to_string(index) + ": " + in.key + " is in, and " + key +
                             " came before it");
    return;
  }
  if (lock.kind == lock_kind::semaphore && before >= lock.permits) {
    shared_.fail("fifo", "lock " + std::to_string(index) + ": " + in.key + " is in, and " +
                             std::to_string(before) + " came before it");
  }
}

void etcd_store::check_nothing_of(std::uint64_t client) {
  if (!shared_.plan.in_model) return;
  for (const auto& [key, each] : model_.keys) {
    const auto its = owners_.find(each.lease);
    if (its == owners_.end() || its->second != client || not_revoked_.contains(each.lease)) {
      continue;
    }
    shared_.fail("nothing left behind",
                 "client " + std::to_string(client) + " is quiet, but " + key + " is there");
    return;
  }
}

std::string etcd_store::remains() const {
  std::string text;
  for (const auto& [key, each] : model_.keys) {
    const auto its = owners_.find(each.lease);
    text += "\n  " + key + " created at " + std::to_string(each.created) + ", of client " +
            std::to_string(its == owners_.end() ? nobody : its->second) + ": " + each.value;
  }
  return text;
}

std::size_t etcd_store::entries_left() {
  // Idle leases are given back by whoever has them.
  return model_.keys.size() + model_.leases.size();
}

void etcd_store::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  if (!members_.leader()) return;
  const std::string folder = keys_.folder(name.text());
  for (const auto& [key, each] : model_.keys) {
    if (!segment_in(folder, key)) continue;
    const std::string card = keys_.card(key);
    const bool has_card = model_.keys.contains(card);
    const key_value& described = has_card ? model_.keys.at(card) : each;
    auto said = from_json(described.value);
    if (!said || !said->held || said->closed) continue;
    const bool safely = mode == backend_api::break_mode::safe;
    shared_.note("the grant of lock # is broken, mode #",
                 static_cast<std::int64_t>(shared_.index_of(name)), safely ? 0 : 1);
    shared_.count.add(safely ? counter::cluster_broken_safely : counter::cluster_broken_at_once);
    backends::etcd::txn order;
    if (safely) {
      const auto stone = static_cast<lease_id>(1 + shared_.random.below(1U << 30U));
      const duration length = model_.leases.at(each.lease).length;
      model_.grant(stone, length, now());
      owners_[stone] = nobody;
      stones_[stone] = has_card ? 2 : 1;
      granted_at_[stone] = shared_.loop.now();
      seconds_[stone] = std::chrono::duration_cast<seconds>(length).count();
      if (said->token == 0) said->token = static_cast<std::uint64_t>(described.modified);
      said->closed = true;
      order.then.emplace_back(put{key, has_card ? each.value : to_json(*said), stone});
      if (has_card) order.then.emplace_back(put{card, to_json(*said), stone});
    } else {
      order.then.emplace_back(erase{key});
      if (has_card) order.then.emplace_back(erase{card});
    }
    const revision before = model_.at;
    static_cast<void>(model_.apply(order));
    changed(before);
    return;
  }
}

}  // namespace sallyport::sim
