#include "backends/redlock/replacement.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::redlock {
namespace {

using kind = replacement_step::kind;

constexpr std::string_view offline =
    ". Stop all clients, wait for the longest lease, then `sallyport init --force ADDRESS`";

replacement_step refuse(errc code, std::string text) {
  return {.what = kind::refused, .why = {make_error_code(code), std::move(text)}};
}

const roster_member* at(const node_mark& roster, std::string_view address) {
  const auto found =
      std::find_if(roster.members.begin(), roster.members.end(),
                   [&](const roster_member& each) { return each.address == address; });
  return found == roster.members.end() ? nullptr : &*found;
}

/// Members, not entries: the list may name one twice.
unsigned how_many_full(const node_mark& roster, std::span<const sighting> seen) {
  std::set<std::string_view> full;
  for (const sighting& each : seen) {
    if (each.is_full() && same_roster(*each.mark, roster)) full.insert(each.mark->own);
  }
  return static_cast<unsigned>(full.size());
}

unsigned majority_in(const node_mark& roster) {
  return majority_of(static_cast<unsigned>(roster.members.size()));
}

/// The full marks of the store that most nodes belong to, one of each roster, newest first.
std::vector<const node_mark*> rosters_in(std::span<const sighting> seen) {
  std::map<std::string_view, unsigned> stores;
  for (const sighting& each : seen) {
    if (each.is_full()) ++stores[each.mark->store];
  }
  const auto most =
      std::max_element(stores.begin(), stores.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<const node_mark*> all;
  for (const sighting& each : seen) {
    if (!each.is_full() || each.mark->store != most->first) continue;
    const bool known = std::any_of(all.begin(), all.end(), [&](const node_mark* other) {
      return same_roster(*other, *each.mark);
    });
    if (!known) all.push_back(&*each.mark);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const node_mark* a, const node_mark* b) { return a->epoch > b->epoch; });
  return all;
}

/// Why the new server cannot take anybody's place; nothing: it can.
std::optional<std::string> flaw_of(const replacement& wanted, std::span<const sighting> seen) {
  const auto found = std::find_if(seen.begin(), seen.end(), [&](const sighting& each) {
    return each.name == wanted.new_member;
  });
  if (found == seen.end() || !found->reachable) return wanted.new_member + " is not reachable";
  if (found->facts.run_id.empty()) {
    return wanted.new_member + " does not tell its run id (the user needs +info)";
  }
  for (const sighting& each : seen) {
    if (&each != &*found && each.reachable && each.facts.run_id == found->facts.run_id) {
      return wanted.new_member + " is the same server as " + each.name;
    }
  }
  if (!found->facts.mark.empty()) {
    return wanted.new_member +
           " has a mark already: it belongs to a store, or did. Delete its data first";
  }
  return std::nullopt;
}

/// Takes the first member that stays and has a full mark of `before`, if a majority of `after` is
/// there with it.
replacement_step take_next(const node_mark& before, const node_mark& after,
                           std::span<const sighting> seen) {
  std::optional<node_number> next;
  const unsigned taken = how_many_full(after, seen);
  unsigned there = taken;
  node_set stay = 0;
  for (const roster_member& member : after.members) {
    for (node_number i = 0; i < seen.size(); ++i) {
      const sighting& each = seen[i];
      if (!each.is_full() || !same_roster(*each.mark, before) || each.mark->own != member.id) {
        continue;
      }
      ++there;
      stay |= only(i);
      if (!next) next = i;
      break;
    }
  }
  if (there < majority_in(after)) {
    return refuse(errc::unavailable, std::to_string(there) +
                                         " of the members that stay may vote, and " +
                                         std::to_string(majority_in(after)) + " are needed");
  }
  if (!next) return {.what = kind::done, .mark = after};
  replacement_step step{.what = kind::take, .node = *next, .mark = *seen[*next].mark};
  step.mark.epoch = after.epoch;
  step.mark.members = after.members;
  if (taken == 0) step.stay = stay;
  return step;
}

}  // namespace

node_mark roster_after(const replacement& wanted, const node_mark& before) {
  node_mark after = before;
  ++after.epoch;
  for (roster_member& each : after.members) {
    if (each.address != wanted.old_member) continue;
    // Nothing else was ever called so: the epoch is new.
    each.id = digest_of(before.store + ' ' + std::to_string(after.epoch) + ' ' + wanted.new_member);
    each.address = wanted.new_member;
  }
  return after;
}

bool is_one_replacement_later(const node_mark& later, const node_mark& before) {
  if (later.members.size() != before.members.size()) return false;
  for (std::size_t i = 0; i < before.members.size(); ++i) {
    const replacement made{before.members[i].address, later.members[i].address};
    if (before.members[i] != later.members[i])
      return same_roster(roster_after(made, before), later);
  }
  return false;
}

replacement_step next_step(const replacement& wanted, std::span<const sighting> seen) {
  const std::vector<const node_mark*> rosters = rosters_in(seen);
  if (rosters.empty()) {
    return refuse(errc::store_refused, "no node that is reachable may vote: nothing is replaced");
  }
  const auto in_force = std::find_if(rosters.begin(), rosters.end(), [&](const node_mark* each) {
    return how_many_full(*each, seen) >= majority_in(*each);
  });
  // What is to be changed: what is in force, or was before somebody began to replace a member.
  const auto newest = std::find_if(rosters.begin(), rosters.end(), [&](const node_mark* each) {
    return at(*each, wanted.old_member) != nullptr;
  });
  const bool decided = in_force != rosters.end();
  const node_mark& latest = *rosters.front();
  if (rosters.size() > 1 && rosters[1]->epoch == latest.epoch &&
      !(decided && (*in_force)->epoch == latest.epoch)) {
    // Whoever goes on with one of them meets the other, for ever.
    return refuse(errc::store_refused,
                  "two different replacements were begun, by which the members are " +
                      addresses_of(latest.members) + ", or " + addresses_of(rosters[1]->members) +
                      ", and none of them can be finished while clients run" +
                      std::string(offline));
  }
  const node_mark& before = decided ? **in_force : newest != rosters.end() ? **newest : latest;
  const bool has_old = at(before, wanted.old_member) != nullptr;
  const bool has_new = at(before, wanted.new_member) != nullptr;
  if (!has_old && has_new) {
    if (!decided) {
      return refuse(errc::unavailable,
                    "it was replaced, but fewer than a majority of the members "
                    "may vote: " +
                        addresses_of(before.members));
    }
    for (const node_mark* each : rosters) {
      if (each->epoch < before.epoch && same_roster(roster_after(wanted, *each), before)) {
        return take_next(*each, before, seen);
      }
    }
    return {.what = kind::done, .mark = before};
  }
  if (has_new) {
    return refuse(errc::bad_uri,
                  wanted.new_member +
                      " is a member already. A blank server at a member's own address comes back "
                      "by itself. The members are " +
                      addresses_of(before.members));
  }
  if (!has_old) {
    return refuse(errc::bad_uri, wanted.old_member + " is no member. The members are " +
                                     addresses_of(before.members) + ", spelled like this");
  }
  const node_mark after = roster_after(wanted, before);
  if (majority_in(after) >= after.members.size()) {
    return refuse(errc::not_supported, "of so few members none can be replaced while clients run" +
                                           std::string(offline));
  }
  bool begun = false;
  for (const node_mark* each : rosters) {
    if (each->epoch <= before.epoch) continue;
    if (!same_roster(*each, after)) {
      return refuse(errc::store_refused,
                    "another replacement was begun, by which the members are " +
                        addresses_of(each->members) +
                        ": finish that one first, or stop all clients, wait "
                        "for the longest lease, then `sallyport init --force "
                        "ADDRESS`");
    }
    begun = true;
  }
  if (!begun) {
    if (!decided) {
      return refuse(errc::unavailable, "fewer than a majority of the members may vote: " +
                                           addresses_of(before.members));
    }
    if (const auto flaw = flaw_of(wanted, seen)) return refuse(errc::store_refused, *flaw);
  }
  return take_next(before, after, seen);
}

}  // namespace sallyport::backends::redlock
