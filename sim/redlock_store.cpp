#include "sim/redlock_store.hpp"

#include "backends/redis/words.hpp"
#include "sim/redlock_driver.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

namespace sallyport::sim {

using backends::redlock::node_mark;
using std::chrono::milliseconds;

namespace {

constexpr std::uint64_t nobody = 0;
/// How much of a foreign holder's time it relies on; the rest is for the clocks.
constexpr double share_relied_on = 0.97;
/// Farewells wait for a late request as long as its lease, by a clock that may run fast.
constexpr double longest_wait_of_farewell = 0.95;

constexpr std::array all_scripts{
    &backends::redlock::scripts::adopt,      &backends::redlock::scripts::bid,
    &backends::redlock::scripts::break_lock, &backends::redlock::scripts::enqueue,
    &backends::redlock::scripts::extend,     &backends::redlock::scripts::heal,
    &backends::redlock::scripts::leave,      &backends::redlock::scripts::look,
    &backends::redlock::scripts::raise,      &backends::redlock::scripts::who};

const backends::redlock::speech& words_of_nobody() {
  static const backends::redlock::speech words(
      {.prefix = "", .client = redlock_client_name(nobody)});
  return words;
}

/// The keys of one name, as the scripts get them.
struct keys_of_name {
  std::string lock;
  std::string line;
  std::string tickets;
};

keys_of_name keys_of(const lock_name& name) {
  const auto all = arguments_of(words_of_nobody().who(name.text()));
  return {all[1], all[2], all[3]};
}

std::string mark_key() { return arguments_of(words_of_nobody().read_mark()).back(); }
std::string counter_key() { return arguments_of(words_of_nobody().look("")).at(1); }

/// The values of locks and tickets name their client between blanks.
bool is_of(std::string_view value, client_number client) {
  return value.find(' ' + redlock_client_name(client) + ' ') != std::string_view::npos;
}

}  // namespace

std::string redlock_client_name(std::uint64_t client) {
  std::array<char, 17> number{};
  std::snprintf(number.data(), number.size(), "%016llx", static_cast<unsigned long long>(client));
  return number.data();
}

// ---- one node ------------------------------------------------------------------------------------

redlock_node::redlock_node(context& shared_world, std::uint32_t number, bool durable)
    : redis_server(shared_world, all_scripts),
      number_(number),
      durable_(durable),
      run_id_(fresh_run_id()) {}

std::string redlock_node::fresh_run_id() {
  return redlock_client_name(shared().random()) + redlock_client_name(number_);
}

void redlock_node::initialise(node_mark mark) {
  mark.max_lease = shared().plan.max_lease;
  mark.own = mark.members[std::min<std::size_t>(number_, mark.members.size() - 1)].id;
  mark.run_id = run_id_;
  mark.durable = durable_;
  greet();
  const auto ms = static_cast<std::uint64_t>(std::max<redis::wall_ms>(wall_ms(), 0));
  (void)run(words_of(words_of_nobody().adopt("", mark.text(), ms * 1024), false));
  if (!durable_ && shared().plan.rate(fault::data_loss) > 0) save_now_and_then();
}

reply redlock_node::execute(const request& asked, client_number from) {
  reply out{asked.number, asked.what, asked.holder, {}};
  out.raw = std::make_shared<const redis::reply>(run(*asked.command));
  const redis::reply& said = *out.raw;
  shared().note(
      "node # runs an errand of client #, ticket #, and says #", number_,
      static_cast<std::int64_t>(from), static_cast<std::int64_t>(asked.holder.low % 10'000),
      said.is_array() && !said.elements.empty() ? said.elements.front().integer : said.integer);
  if (said.is_error() && said.error_word() != "NOSCRIPT") shared().fail("scripts", said.text);
  const auto age = static_cast<double>(shared().loop.now() - asked.sent_at);
  const auto lease = static_cast<double>(asked.lease_length.count());
  if (lease > 0 && age > longest_wait_of_farewell * lease) {
    ghosts_until_[from] = shared().loop.now() + 4 * shared().plan.longest_lease.count();
  }
  return out;
}

reply redlock_node::refuse(const request& asked) {
  reply out{asked.number, asked.what, asked.holder, {}};
  out.raw = std::make_shared<const redis::reply>(draw_refusal());
  return out;
}

backends::redlock::node_facts redlock_node::facts() {
  return {.run_id = run_id_, .durable = durable_, .mark = run({"GET", mark_key()}).text};
}

bool redlock_node::without_state() {
  if (!away_) return false;
  const auto mark = node_mark::parse(facts().mark);
  away_ = !mark || mark->run_id != run_id_ || mark->is != node_mark::state::full;
  if (!away_) shared().count.add(counter::quorum_rejoined);
  return away_;
}

void redlock_node::restart(kept what) {
  shared().note("node # goes down, and keeps #", number_, static_cast<std::int64_t>(what));
  shared().count.add(counter::quorum_restart);
  stop();
  run_id_ = fresh_run_id();
  if (what != kept::everything || !durable_) away_ = true;
  if (what == kept::nothing) {
    shared().count.add(counter::quorum_amnesia);
    lose_everything();
  } else if (what == kept::what_was_saved) {
    shared().count.add(counter::quorum_rollback);
    lose_what_was_not_saved();
    has_old_data_ = true;
  }
}

void redlock_node::flush() {
  shared().note("somebody flushes node #", number_);
  shared().count.add(counter::quorum_flush);
  away_ = true;
  (void)run({"FLUSHALL"});
}

void redlock_node::lose_locks() {
  shared().note("node # loses its locks", number_);
  shared().count.add(counter::quorum_locks_lost);
  for (const lock_plan& each : shared().plan.locks) {
    const keys_of_name names = keys_of(each.name);
    (void)run({"DEL", names.lock, names.line, names.tickets});
  }
}

void redlock_node::evict_some_key() {
  const auto& locks = shared().plan.locks;
  const keys_of_name names = keys_of(locks[shared().random.below(locks.size())].name);
  const std::array<std::string, 3> all{names.line, names.tickets, mark_key()};
  const std::size_t chosen = shared().random.below(all.size());
  shared().note("node # evicts key #", number_, static_cast<std::int64_t>(chosen));
  if (run({"DEL", all[chosen]}).integer == 0) return;
  shared().count.add(counter::quorum_eviction);
  if (chosen == 2) away_ = true;
}

std::string redlock_node::left_of(client_number client, const lock_name& name, duration slack) {
  if (has_old_data_ || ghosts_until_[client] > shared().loop.now()) return {};
  const keys_of_name names = keys_of(name);
  const auto slack_ms = std::chrono::ceil<milliseconds>(slack).count();
  const redis::wall_ms now = wall_ms();
  const redis::entry* const lock = keys().find(names.lock, now);
  if (lock != nullptr && lock->expires_at > now + slack_ms) {
    const auto* const value = std::get_if<std::string>(&lock->value);
    if (value != nullptr && is_of(*value, client)) return *value;
  }
  const auto tickets = run({"HVALS", names.tickets});
  for (const redis::reply& each : tickets.elements) {
    if (!is_of(each.text, client)) continue;
    backends::redis::words ticket(each.text);
    ticket.next();
    if (ticket.number<std::int64_t>() > now + slack_ms) return "ticket " + each.text;
  }
  return {};
}

std::size_t redlock_node::entries_left() {
  keys().remove_expired(wall_ms());
  std::size_t left = keys().size();
  for (const std::string& stays : {mark_key(), counter_key()}) {
    if (run({"EXISTS", stays}).integer == 1) --left;
  }
  return left;
}

// ---- all of them ---------------------------------------------------------------------------------

redlock_store::redlock_store(context& shared, checkers& checks)
    : shared_(shared), checks_(checks), operator_(words_of_nobody()) {
  initialise();
  switch (nodes_.size()) {
    case 1:
      shared.count.add(counter::quorum_of_1);
      break;
    case 3:
      shared.count.add(counter::quorum_of_3);
      break;
    case 5:
      shared.count.add(counter::quorum_of_5);
      break;
    default:
      shared.count.add(counter::quorum_of_7);
      break;
  }
}

redlock_store::~redlock_store() = default;

void redlock_store::initialise() {
  const options& plan = shared_.plan;
  node_mark mark;
  mark.store = redlock_client_name(shared_.random()) + redlock_client_name(1);
  mark.epoch = 2;
  for (std::size_t i = 0; i < plan.nodes; ++i) {
    mark.members.push_back({"member-" + std::to_string(i), "node-" + std::to_string(i)});
  }
  for (std::uint32_t i = 0; i < plan.nodes; ++i) {
    nodes_.push_back(std::make_unique<redlock_node>(shared_, i, i < plan.durable_nodes));
    nodes_.back()->initialise(mark);
  }
  for (std::uint32_t i = 0; i < plan.spares; ++i) {
    spares_.push_back(std::make_unique<redlock_node>(shared_, plan.nodes + i, false));
  }
  if (!plan.former_member) return;
  // In the epoch before, it had the place of the last.
  mark.epoch = 1;
  mark.members.back() = {"former", "node-" + std::to_string(plan.nodes)};
  spares_.front()->initialise(mark);
}

const std::vector<redlock_store::list_entry>& redlock_store::list_of(std::uint64_t client) {
  const auto [found, fresh] = lists_.try_emplace(client);
  std::vector<list_entry>& list = found->second;
  if (!fresh) return list;
  for (std::size_t i = 0; i < nodes_.size(); ++i) list.push_back({"node-" + std::to_string(i), i});
  if (spares_.empty()) return list;
  base::random random(shared_.plan.seed * 1'000'003 + client);
  const std::size_t spare = nodes_.size() + random.below(spares_.size());
  const list_entry other{"node-" + std::to_string(spare), spare};
  const double drawn = random.unit();
  // Whoever comes after all faults is to get through.
  if (drawn < 0.35 && !shared_.healed) {
    shared_.count.add(counter::quorum_other_list);
    list[random.below(list.size())] = other;
  } else if (drawn < 0.5 && !shared_.healed) {
    shared_.count.add(counter::quorum_other_spelling);
    for (list_entry& each : list) each.name = "alias-of-" + each.name;
  } else if (drawn < 0.85) {
    shared_.count.add(counter::quorum_longer_list);
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(random.below(list.size() + 1)), other);
    // One of them twice, under another name.
    if (random.chance(0.3)) list.push_back({"again", random.below(nodes_.size())});
  }
  return list;
}

bool redlock_store::always_refuses(std::uint64_t client) const {
  const auto found = lists_.find(client);
  if (found == lists_.end()) return false;
  for (std::size_t member = 0; member < nodes_.size(); ++member) {
    const bool listed = std::any_of(found->second.begin(), found->second.end(),
                                    [&](const list_entry& each) { return each.node == member; });
    if (!listed) return true;
  }
  return false;
}

std::unique_ptr<store_driver> redlock_store::open(process& owner, std::uint64_t client) {
  return std::make_unique<redlock_driver>(shared_, checks_, owner, *this, client);
}

time_point redlock_store::now() const { return nodes_.front()->clock().at(shared_.loop.now()); }

redlock_node& redlock_store::some_node() { return *nodes_[shared_.random.below(nodes_.size())]; }

bool redlock_store::may_lose_one() {
  const auto lost = static_cast<std::size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const auto& each) { return each->without_state(); }));
  return lost + 1 + majority() <= nodes_.size();
}

duration redlock_store::slowness() const {
  // As in the product: how long a node that lost its state is kept out, and how long a change of a
  // mark may go unanswered, twice.
  const duration quiet =
      shared_.plan.max_lease + shared_.plan.max_lease / 10 + std::chrono::seconds{1};
  return quiet + std::chrono::seconds{6};
}

void redlock_store::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  struct view {
    std::string id;
    std::string last;
  };
  std::vector<std::optional<view>> views(nodes_.size());
  std::map<std::string, std::size_t> votes;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->reachable() || nodes_[i]->paused()) continue;
    nodes_[i]->greet();
    const auto said = nodes_[i]->ask(words_of(operator_.who(name.text()), false));
    if (said.elements.size() < 4 || !said.elements[3].text.starts_with("sp2 ")) continue;
    backends::redis::words record(said.elements[3].text);
    record.next();
    record.next();
    view& seen = views[i].emplace();
    seen.id = record.next();
    record.next();
    seen.last = record.next();
    if (record.next() != "t") ++votes[seen.id];
  }
  for (const auto& holder : views) {
    if (!holder || votes[holder->id] < majority()) continue;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i]->reachable() || nodes_[i]->paused()) continue;
      // A vote that was healed has an id of its own.
      const bool same = views[i] && (views[i]->id == holder->id || views[i]->last == holder->last);
      (void)nodes_[i]->ask(words_of(
          operator_.break_lock(name.text(), same ? views[i]->id : holder->id, mode), false));
    }
    shared_.note("the grant of lock # is broken, mode #",
                 static_cast<std::int64_t>(shared_.index_of(name)),
                 static_cast<std::int64_t>(mode));
    shared_.count.add(mode == backend_api::break_mode::safe ? counter::quorum_broken_safely
                                                            : counter::quorum_broken_at_once);
    return;
  }
}

std::size_t redlock_store::entries_left() {
  std::size_t left = 0;
  for (const auto& each : nodes_) {
    left += each->entries_left();
    if (each->without_state()) {
      shared_.fail("progress", "a node that had lost its data was not taken in again");
    }
  }
  for (const auto& each : spares_) {
    left += each->entries_left();
    const auto mark = node_mark::parse(each->facts().mark);
    if (mark && mark->epoch != 1) {
      shared_.fail("roster", "a node that is no member was taken in");
    }
  }
  return left;
}

void redlock_store::check_nothing_of(std::uint64_t client) {
  if (!shared_.plan.in_model) return;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i]->reachable() || nodes_[i]->paused()) continue;
    // Who may not vote for longer than a lease is left alone.
    if (nodes_[i]->without_state()) continue;
    for (const lock_plan& lock : shared_.plan.locks) {
      const std::string left =
          nodes_[i]->left_of(client, lock.name, shared_.plan.longest_lease / 20);
      if (left.empty()) continue;
      shared_.fail("nothing left behind", "client " + std::to_string(client) +
                                              " is quiet, but node " + std::to_string(i) +
                                              " has of it: " + left);
    }
  }
}

void redlock_store::lend_to_foreigner() {
  const std::size_t lock = shared_.random.below(shared_.plan.locks.size());
  const std::string& key = shared_.plan.locks[lock].name.text();
  const std::string value = "foreigner " + std::to_string(++foreigners_);
  const duration lease = draw_between(shared_.random, shared_.plan.lease / 8, shared_.plan.lease);
  std::size_t votes = 0;
  for (const auto& each : nodes_) {
    // It does not know of marks: whoever mixes libraries keeps it off nodes that lost their data.
    if (!each->reachable() || each->paused() || each->without_state()) continue;
    const auto said = each->ask({"SET", key, value, "NX", "PX",
                                 std::to_string(std::chrono::ceil<milliseconds>(lease).count())});
    if (!said.is_nil()) ++votes;
  }
  if (votes < majority()) {
    shared_.count.add(counter::quorum_foreigner_refused);
    return_from_foreigner(key, value);
    return;
  }
  shared_.note("a foreigner holds lock #", static_cast<std::int64_t>(lock));
  shared_.count.add(counter::quorum_foreigner_held);
  const auto relied_on = static_cast<double>(lease.count()) * share_relied_on;
  checks_.turns.foreigner_enters(lock, shared_.loop.now() + static_cast<true_time>(relied_on));
  if (shared_.random.chance(0.3)) return;  // it dies, and its keys lapse
  shared_.loop.after(draw_between(shared_.random, duration{0}, lease), [this, lock, key, value] {
    checks_.turns.foreigner_leaves(lock);
    return_from_foreigner(key, value);
  });
}

void redlock_store::return_from_foreigner(const std::string& key, const std::string& value) {
  for (const auto& each : nodes_) {
    each->arrive([node = each.get(), key, value] {
      (void)node->ask({"EVAL", foreign_release, "1", key, value});
    });
  }
}

void redlock_store::delete_some_lock() {
  redlock_node& victim = some_node();
  if (!victim.reachable()) return;
  const auto& lock = shared_.plan.locks[shared_.random.below(shared_.plan.locks.size())];
  shared_.note("somebody deletes lock # on a node",
               static_cast<std::int64_t>(shared_.index_of(lock.name)));
  if (victim.ask({"DEL", lock.name.text()}).integer == 1) {
    shared_.count.add(counter::quorum_lock_deleted);
  }
}

void redlock_store::heal() {
  for (const auto& each : nodes_) {
    each->start();
    each->resume();
  }
}

}  // namespace sallyport::sim
