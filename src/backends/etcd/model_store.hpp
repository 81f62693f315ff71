#pragma once

#include "backends/etcd/speech.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::etcd {

/// An etcd cluster as far as locks see it: keys with revisions, leases by its own clock, watches from
/// now on. One step after the other, as raft has it. For the tests of the rules, and for the simulator.
class model_store {
 public:
  struct lease {
    duration length{};
    time_point ends;
    std::set<std::string> keys;
  };
  struct watcher {
    std::string key;
    std::string end;
    bool puts = false;
  };
  /// Who hears what; in the order of happening.
  struct report {
    int client = 0;
    watch_number watch = 0;
    revision began = 0;  // not zero: this is its beginning
    bool ended = false;  // the store serves it no more
    key_event event{};
  };

  revision at = 1;
  std::uint64_t term = 1;
  std::map<std::string, key_value> keys;
  std::map<lease_id, lease> leases;
  std::map<std::pair<int, watch_number>, watcher> watchers;
  std::vector<report> reports;

  bool grant(lease_id id, duration length, time_point now) {
    return leases.try_emplace(id, lease{length, now + length, {}}).second;
  }
  /// The seconds that are left; 0: there is none.
  std::int64_t keep_alive(lease_id id, time_point now) {
    const auto found = leases.find(id);
    if (found == leases.end()) return 0;
    found->second.ends = now + found->second.length;
    return std::chrono::duration_cast<std::chrono::seconds>(found->second.length).count();
  }
  void revoke(lease_id id) {
    const auto found = leases.find(id);
    if (found == leases.end()) return;
    const std::set<std::string> gone = std::move(found->second.keys);
    leases.erase(found);
    if (!gone.empty()) ++at;
    for (const std::string& key : gone) remove(key);
  }
  void expire(time_point now) {
    std::vector<lease_id> over;
    for (const auto& [id, each] : leases) {
      if (each.ends <= now) over.push_back(id);
    }
    for (const lease_id id : over) revoke(id);
  }
  void watch(int client, watch_number number, watcher what) {
    watchers[{client, number}] = std::move(what);
    reports.push_back({.client = client, .watch = number, .began = at});
  }
  void unwatch(int client, watch_number number) { watchers.erase({client, number}); }

  reply<txn_answer> apply(const txn& what) {
    const bool met =
        std::ranges::all_of(what.when, [&](const condition& each) { return holds(each); });
    const std::vector<operation>& todo = met ? what.then : what.otherwise;
    for (const operation& each : todo) {
      const auto* const putting = std::get_if<put>(&each);
      if (putting != nullptr && does(*putting) && putting->lease != 0 &&
          !leases.contains(putting->lease)) {
        return {.why = trouble::no_such_lease, .text = "requested lease not found"};
      }
    }
    const bool writes = std::ranges::any_of(todo, [&](const operation& each) {
      const auto* const erasing = std::get_if<erase>(&each);
      const auto* const putting = std::get_if<put>(&each);
      return (putting != nullptr && does(*putting)) ||
             (erasing != nullptr && keys.contains(erasing->key));
    });
    if (writes) ++at;
    txn_answer out{.succeeded = met, .at = at, .term = term};
    for (const operation& each : todo) out.answers.push_back(carry_out(each));
    return {.value = std::move(out)};
  }

 private:
  [[nodiscard]] bool does(const put& what) const {
    return !what.only_new || !keys.contains(what.key);
  }
  static bool within(const std::string& key, const std::string& first, const std::string& end) {
    return end.empty() ? key == first : key >= first && key < end;
  }
  [[nodiscard]] bool holds(const condition& what) const {
    const auto value_of = [&](const key_value& found) -> std::int64_t {
      switch (what.what) {
        case condition::field::created:
          return found.created;
        case condition::field::modified:
          return found.modified;
        case condition::field::lease:
          return found.lease;
      }
      return 0;
    };
    const auto compare = [&](std::int64_t value) {
      return what.greater ? value > what.number : value == what.number;
    };
    if (what.end.empty()) {
      const auto found = keys.find(what.key);
      return compare(found == keys.end() ? 0 : value_of(found->second));
    }
    return std::ranges::all_of(keys, [&](const auto& each) {
      return !within(each.first, what.key, what.end) || compare(value_of(each.second));
    });
  }
  operation_answer carry_out(const operation& what) {
    operation_answer out;
    if (const auto* const putting = std::get_if<put>(&what)) {
      if (!does(*putting)) return out;
      key_value& here = keys[putting->key];
      if (here.created == 0) here.created = at;
      if (here.lease != 0) leases[here.lease].keys.erase(putting->key);
      here = {.key = putting->key,
              .value = putting->value,
              .created = here.created,
              .modified = at,
              .lease = putting->lease};
      if (here.lease != 0) leases[here.lease].keys.insert(putting->key);
      tell({.deleted = false, .now = here});
    } else if (const auto* const erasing = std::get_if<erase>(&what)) {
      remove(erasing->key);
    } else {
      out = find(std::get<look_up>(what));
    }
    return out;
  }
  [[nodiscard]] operation_answer find(const look_up& what) const {
    operation_answer out;
    for (const auto& [key, value] : keys) {
      if (!within(key, what.key, what.end)) continue;
      if (what.created_at_most != 0 && value.created > what.created_at_most) continue;
      out.found.push_back(value);
      if (what.keys_only) out.found.back().value.clear();
    }
    if (what.youngest_first) {
      std::ranges::stable_sort(out.found, std::greater{}, &key_value::created);
    }
    const auto limit = static_cast<std::size_t>(what.limit);
    if (limit != 0 && out.found.size() > limit) {
      out.found.resize(limit);
      out.more = true;
    }
    return out;
  }
  void remove(const std::string& key) {
    const auto found = keys.find(key);
    if (found == keys.end()) return;
    if (const auto on = leases.find(found->second.lease); on != leases.end())
      on->second.keys.erase(key);
    keys.erase(found);
    tell({.deleted = true, .now = {.key = key, .modified = at}});
  }
  void tell(const key_event& what) {
    for (const auto& [who, where] : watchers) {
      if (!within(what.now.key, where.key, where.end)) continue;
      if (!what.deleted && !where.puts) continue;
      reports.push_back({.client = who.first, .watch = who.second, .event = what});
    }
  }
};

}  // namespace sallyport::backends::etcd
