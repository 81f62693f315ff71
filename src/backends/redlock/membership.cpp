#include "backends/redlock/membership.hpp"

#include "base/planted.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;
using base::defect;
using base::planted;

/// Marks of earlier versions begin so; they name no members.
constexpr std::string_view older_tag = "sp2";
/// Between two attempts to read the others' counters, or to change a mark.
constexpr duration retry_pause = 500ms;
/// So long the others' clocks and ours go together well enough; at the usual drift for milliseconds.
constexpr duration clocks_good_for = 1min;
/// Scripts count with doubles. A counter beyond half of what those can do was not counted up.
constexpr std::uint64_t largest_sane_counter = std::uint64_t{1} << 52U;

std::int64_t microseconds_of(duration span) {
  return std::chrono::duration_cast<std::chrono::microseconds>(span).count();
}

std::string in_seconds(duration span) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(span).count();
  return std::to_string(std::max<std::int64_t>(whole, 0)) + " s";
}

bool may_vote_or_did(const node_mark& mark) { return mark.is != node_mark::state::candidate; }

}  // namespace

membership::membership(settings how)
    : how_(std::move(how)), nodes_(how_.names.size()), max_lease_(how_.max_lease) {
  initialising_ = how_.initialise;
}

duration membership::quiet_time() const {
  if (planted(defect::rejoin_at_once)) return duration::zero();
  // Whoever holds a vote from before has counted its deadline on another clock: a tenth for that.
  return max_lease_ + max_lease_ / 10 + 1s;
}

unsigned membership::how_many(state which) const noexcept {
  return static_cast<unsigned>(std::count_if(nodes_.begin(), nodes_.end(),
                                             [&](const entry& each) { return each.is == which; }));
}

node_set membership::reachable() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < listed(); ++i) {
    if (nodes_[i].is != state::unreachable) all |= only(i);
  }
  return all;
}

node_set membership::outsiders() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < listed(); ++i) {
    const state is = nodes_[i].is;
    const bool none =
        is == state::outsider || is == state::stranger || is == state::former || is == state::twice;
    if (none) all |= only(i);
  }
  return all;
}

node_set membership::members() const noexcept {
  node_set all = voters_ | quiet_ones();
  for (node_number i = 0; i < listed(); ++i) {
    if (nodes_[i].is == state::marking) all |= only(i);
  }
  return all;
}

node_set membership::roster_nodes() const noexcept {
  if (!roster_) return everybody();
  node_set all = 0;
  for (node_number i = 0; i < listed(); ++i) {
    if (member_with(nodes_[i].own) != nullptr) all |= only(i);
  }
  return all & ~outsiders();
}

void membership::expect_all() noexcept {
  for (entry& each : nodes_) each.returning = true;
}

bool membership::majority_may_return() const noexcept {
  const auto hopeful = std::count_if(nodes_.begin(), nodes_.end(), [](const entry& each) {
    return each.is == state::voter || each.is == state::marking || each.is == state::ahead ||
           each.is == state::behind || (each.is == state::unreachable && each.returning);
  });
  return static_cast<unsigned>(hopeful) >= majority();
}

bool membership::durable() const noexcept {
  bool some = false;
  for (const entry& each : nodes_) {
    const bool member = each.is == state::voter || each.is == state::marking ||
                        each.is == state::unjudged || is_quiet(each);
    if (member && !each.facts.durable) return false;
    some = some || member;
  }
  return some;
}

std::string membership::mark_for(const entry& which, std::uint64_t quiet_since_us) const {
  node_mark mark = *roster_;
  mark.own = which.own;
  mark.run_id = which.facts.run_id;
  mark.durable = which.facts.durable;
  mark.is = quiet_since_us == 0 ? node_mark::state::full : node_mark::state::quiet;
  mark.quiet_since_us = quiet_since_us;
  return mark.text();
}

void membership::set_mark(entry& which, std::string text) {
  which.facts.mark = std::move(text);
  which.mark = node_mark::parse(which.facts.mark);
}

// ---- the store and its members -------------------------------------------------------------------

const roster_member* membership::member_with(std::string_view id) const {
  if (!roster_) return nullptr;
  const auto found = std::find_if(roster_->members.begin(), roster_->members.end(),
                                  [&](const roster_member& each) { return each.id == id; });
  return found == roster_->members.end() ? nullptr : &*found;
}

const roster_member* membership::member_at(std::string_view address) const {
  if (!roster_) return nullptr;
  const auto found =
      std::find_if(roster_->members.begin(), roster_->members.end(),
                   [&](const roster_member& each) { return each.address == address; });
  return found == roster_->members.end() ? nullptr : &*found;
}

bool membership::is_of_roster(const entry& which) const {
  return which.is != state::unreachable && which.mark && roster_ &&
         same_roster(*which.mark, *roster_);
}

bool membership::is_elsewhere(const std::string& id, node_number number) const {
  for (node_number i = 0; i < listed(); ++i) {
    if (i != number && is_of_roster(nodes_[i]) && nodes_[i].mark->own == id) return true;
  }
  return false;
}

bool membership::is_at_its_address(node_number number, std::string_view id) const {
  const roster_member* const member = member_with(id);
  return member != nullptr && member->address == how_.names[number];
}

bool membership::majority_is_full() const { return roster_ && is_in_force(*roster_); }

void membership::find_store() {
  // Which store: known for good once a majority of its members votes for us; until then that of most
  // marks. Which epoch: the newest, which has taken the place of all before it.
  if (count(voters_) < majority()) {
    std::map<std::string, unsigned> found;
    for (const entry& each : nodes_) {
      if (each.is != state::unreachable && each.mark) ++found[each.mark->store];
    }
    if (found.empty()) return;
    store_ = std::max_element(found.begin(), found.end(), [](const auto& a, const auto& b) {
               return a.second < b.second;
             })->first;
    if (roster_ && roster_->store != store_) {
      roster_.reset();
      settled_epoch_ = 0;
    }
  }
  std::map<std::string, unsigned> alike;  // by their members, of one epoch
  const auto comes_before = [&](const node_mark& a, const node_mark& b) {
    // Candidates may come to nothing.
    if (may_vote_or_did(a) != may_vote_or_did(b)) return may_vote_or_did(a);
    if (a.epoch == b.epoch) {
      const auto rank = [&](const node_mark& mark) {
        return std::pair(is_in_force(mark), alike[addresses_of(mark.members)]);
      };
      return rank(a) > rank(b);
    }
    // So may a replacement that was begun. What was made by force ends all that was before it.
    const bool is_later = a.epoch > b.epoch;
    const node_mark& later = is_later ? a : b;
    const node_mark& earlier = is_later ? b : a;
    const bool earlier_stays =
        is_in_force(earlier) && !is_in_force(later) && is_one_replacement_later(later, earlier);
    return is_later != earlier_stays;
  };
  for (const entry& each : nodes_) {
    if (each.is == state::unreachable || !each.mark || each.mark->store != store_) continue;
    ++alike[addresses_of(each.mark->members)];
  }
  for (const entry& each : nodes_) {
    if (each.is == state::unreachable || !each.mark || each.mark->store != store_) continue;
    if (each.mark->epoch < settled_epoch_) continue;
    if (!roster_ || comes_before(*each.mark, *roster_)) take_roster(*each.mark);
  }
  if (roster_) max_lease_ = roster_->max_lease;
}

void membership::take_roster(const node_mark& from) {
  const bool same = roster_ && same_roster(*roster_, from);
  roster_ = from;
  if (same) return;
  // What members of another roster said of clocks and counters does not count in this one.
  clocks_ = {.reading = clocks_.reading + 1};
  ++reading_;
  counted_ = 0;
  largest_counter_ = 0;
  for (entry& each : nodes_) {
    if (is_quiet(each)) each.is = state::unjudged;
  }
}

bool membership::is_in_force(const node_mark& roster) const {
  std::set<std::string_view> full;  // members, not entries: the list may name one twice
  for (const entry& each : nodes_) {
    if (each.is == state::unreachable || !each.mark || !same_roster(*each.mark, roster)) continue;
    if (each.mark->is == node_mark::state::full) full.insert(each.mark->own);
  }
  if (planted(defect::minority_in_force)) return !full.empty();
  return full.size() >= majority_of(static_cast<unsigned>(roster.members.size()));
}

void membership::find_missing() {
  missing_.clear();
  list_in_doubt_ = false;
  if (!roster_) return;
  // One that was never reached may be any member, under a name of its own.
  const bool unknown = std::any_of(nodes_.begin(), nodes_.end(), [&](const entry& each) {
    const auto number = static_cast<std::size_t>(&each - nodes_.data());
    return each.is == state::unreachable && each.own.empty() &&
           member_at(how_.names[number]) == nullptr;
  });
  for (const roster_member& each : roster_->members) {
    bool found = false;
    for (node_number i = 0; i < listed() && !found; ++i) {
      const entry& node = nodes_[i];
      // Whoever answers there, the list is not to blame, unless it is another member.
      const bool named =
          how_.names[i] == each.address && (!is_of_roster(node) || node.mark->own == each.id);
      found = named || (node.own == each.id && node.is != state::twice);
    }
    if (!found) missing_.push_back(each.address);
  }
  list_in_doubt_ = unknown && !missing_.empty();
  if (unknown) missing_.clear();
}

bool membership::is_as_listed() const { return roster_ && missing_.empty() && size() == listed(); }

// ---- judging -------------------------------------------------------------------------------------

bool membership::same_server_as_another(node_number number) const {
  const entry& which = nodes_[number];
  return std::any_of(nodes_.begin(), nodes_.begin() + number, [&](const entry& other) {
    return other.is != state::unreachable && !which.facts.run_id.empty() &&
           other.facts.run_id == which.facts.run_id;
  });
}

bool membership::copy_of_another(node_number number) const {
  const entry& which = nodes_[number];
  const auto intact = [](const entry& each) { return each.mark->run_id == each.facts.run_id; };
  for (node_number i = 0; i < listed(); ++i) {
    const entry& other = nodes_[i];
    if (i == number || !is_of_roster(other) || other.mark->own != which.mark->own) continue;
    if (intact(other) != intact(which) ? intact(other) : i < number) return true;
  }
  return false;
}

void membership::judge(node_number number, time_point now, actions& out) {
  entry& which = nodes_[number];
  if (which.is == state::unreachable || which.is == state::marking) return;
  const bool again = same_server_as_another(number);
  if (again || which.facts.run_id.empty()) {
    which.is = again ? state::twice : state::stranger;
    return;
  }
  if (!which.facts.mark.empty()) {
    judge_marked(number, now, out);
    return;
  }
  if (!roster_) {
    which.is = state::unjudged;
    return;
  }
  const roster_member* member = member_at(how_.names[number]);
  if (member == nullptr && planted(defect::blank_node_taken_in)) {
    for (const roster_member& each : roster_->members) {
      if (!is_elsewhere(each.id, number)) member = &each;
    }
  }
  if (member == nullptr || is_elsewhere(member->id, number)) {
    which.is = state::outsider;
    return;
  }
  which.own = member->id;
  if (!is_quiet(which)) be_quiet(number, std::nullopt, now, out);
}

void membership::judge_marked(node_number number, time_point now, actions& out) {
  entry& which = nodes_[number];
  if (!which.mark || which.mark->store != store_) {
    which.is = state::stranger;
    return;
  }
  const node_mark mark = *which.mark;
  if (!is_of_roster(which)) {
    if (planted(defect::former_member_votes) && mark.is == node_mark::state::full) {
      which.is = state::voter;
      which.stamp = stamp_of(which.facts.mark);
    } else if (mark.epoch < roster_->epoch && member_with(mark.own) != nullptr &&
               !(majority_is_full() && is_elsewhere(mark.own, number))) {
      which.own = mark.own;
      if (!majority_is_full() || !is_at_its_address(number, mark.own)) {
        // Whether the new roster comes about is open, or somebody else has to move it who calls it by
        // its address: nothing is done to it, and it is read again.
        which.is = state::behind;
      } else if (mark.is == node_mark::state::full && mark.run_id == which.facts.run_id &&
                 is_one_replacement_later(*roster_, mark)) {
        // A member was replaced meanwhile, and it was left behind: it has all that it had.
        adopt(number, mark_for(which), 0, out);
      } else if (!is_quiet(which)) {
        // It has forgotten what it has done since.
        be_quiet(number, std::nullopt, now, out);
      }
    } else if (mark.epoch > roster_->epoch) {
      which.is = may_vote_or_did(mark) ? state::ahead : state::candidate;
    } else {
      which.is = mark.epoch == roster_->epoch ? state::stranger : state::former;
    }
    return;
  }
  if (copy_of_another(number)) {
    which.is = state::twice;
    return;
  }
  which.own = mark.own;
  const bool same_life = mark.run_id == which.facts.run_id;
  const bool votes = mark.is == node_mark::state::full && same_life;
  const bool candidate = mark.is == node_mark::state::candidate && same_life;
  const bool comes_back = !votes && !(candidate && !majority_is_full());
  if (comes_back && !is_at_its_address(number, mark.own)) {
    // Another server may have come back in its place meanwhile, at the member's address, for clients
    // that do not see this one: as the same member both would vote.
    which.is = state::moved;
    return;
  }
  if (candidate) {
    // While a floor is being read, it becomes a member with that.
    if (!majority_is_full() || floor_wanted_) {
      which.is = state::candidate;
    } else if (!is_quiet(which)) {
      // It has never voted, so nothing has to be waited for.
      which.is = state::quiet;
      which.quiet_until = now;
      which.read_at = now;
    }
  } else if (mark.is == node_mark::state::quiet) {
    if (!is_quiet(which)) be_quiet(number, mark, now, out);
  } else if (votes) {
    if (std::exchange(which.greeted, false) && mark.durable != which.facts.durable) {
      // What holds from now on is what counts after the next restart.
      adopt(number, mark_for(which), 0, out);
      return;
    }
    which.is = state::voter;
    which.stamp = stamp_of(which.facts.mark);
  } else if (mark.is == node_mark::state::full && mark.durable && which.facts.durable) {
    // It has restarted, and nothing that it had said was lost.
    adopt(number, mark_for(which), 0, out);
  } else {
    // It has restarted, and may have come back with less than it had said.
    if (!is_quiet(which)) be_quiet(number, std::nullopt, now, out);
  }
}

void membership::be_quiet(node_number number, const std::optional<node_mark>& noted, time_point now,
                          actions& out) {
  entry& which = nodes_[number];
  which.is = state::quiet;
  which.quiet_until = time_point::max();
  which.read_at = now;
  if (!clocks_known(now)) return;  // judged anew when they are
  const std::int64_t ours = microseconds_of(now.time_since_epoch());
  // What was noted in an earlier life of the node says nothing about what it did in this one.
  if (noted && noted->run_id == which.facts.run_id) {
    const duration left =
        std::chrono::microseconds{static_cast<std::int64_t>(noted->quiet_since_us) -
                                  (ours + clocks_.least_us)} +
        quiet_time();
    // More than that: the others' clocks were set back meanwhile. What is noted now counts from the
    // latest of them, so it must not be too late for the next look, however far they are apart.
    const duration apart = std::chrono::microseconds{clocks_.most_us - clocks_.least_us};
    if (left <= apart + 2 * quiet_time()) {
      which.quiet_until = now + std::max(left, duration::zero());
      return;
    }
  }
  adopt(number, mark_for(which, static_cast<std::uint64_t>(ours + clocks_.most_us)), 0, out);
}

unsigned membership::believed() const noexcept {
  return planted(defect::minority_in_force) ? 1 : majority();
}

bool membership::clocks_known(time_point now) const noexcept {
  return count(clocks_.read) >= believed() && now - clocks_.asked_at <= clocks_good_for;
}

bool membership::clocks_wanted() const noexcept {
  return unnoted_ones() != 0 && count(voters_) >= believed();
}

void membership::read_clocks_if_needed(time_point now, actions& out) {
  if (!clocks_wanted() || now < clocks_.asked_at + retry_pause) return;
  clocks_ = {.reading = clocks_.reading + 1, .asked_at = now};
  out.read_clocks = voters_;
  out.clock_reading = clocks_.reading;
}

void membership::adopt(node_number number, std::string mark, std::uint64_t floor, actions& out) {
  nodes_[number].is = state::marking;
  out.adopt.push_back({number, nodes_[number].facts.mark, std::move(mark), floor});
}

void membership::judge_all(time_point now, actions& out) {
  find_store();
  if (initialising_) initialise(now, out);
  if (how_.replace && !replaced_) replace(out);
  for (node_number i = 0; i < listed(); ++i) judge(i, now, out);
  find_missing();
  recount(now, out);
  read_clocks_if_needed(now, out);
  read_again_if_unsettled(now, out);
}

/// While a member is being replaced, every node learns of it at another moment; and so do we.
void membership::read_again_if_unsettled(time_point now, actions& out) {
  const bool before =
      std::exchange(unsettled_, how_many(state::ahead) + how_many(state::behind) > 0);
  if (!unsettled_) return;
  retry_at_ = std::min(retry_at_, now + retry_pause);
  if (!before) out.read_marks |= reachable();
}

void membership::replace(actions& out) {
  std::vector<sighting> seen;
  for (node_number i = 0; i < listed(); ++i) {
    const entry& each = nodes_[i];
    const bool reachable = each.is != state::unreachable;
    const bool tried = reachable || each.why.code;
    if (!tried || each.is == state::marking) return;
    const bool there = reachable && (looks_.unanswered & only(i)) == 0;
    seen.push_back({how_.names[i], there, each.facts, there ? each.mark : std::nullopt});
  }
  replacement_step next = next_step(*how_.replace, seen);
  switch (next.what) {
    case replacement_step::kind::take:
      if ((next.stay & ~looks_.answered) != 0) {
        // All at once, so that what the first one said is not old when the last one answers.
        if ((next.stay & ~looks_.answered & ~looks_.open) == 0) break;
        looks_ = {.number = looks_.number + 1,
                  .open = next.stay,
                  .answered = 0,
                  .unanswered = looks_.unanswered};
        out.look_at = next.stay;
        out.looking = looks_.number;
        break;
      }
      looks_.answered = 0;
      nodes_[next.node].own = next.mark.own;
      adopt(next.node, next.mark.text(), 0, out);
      break;
    case replacement_step::kind::done:
      replaced_ = std::monostate{};
      break;
    case replacement_step::kind::refused:
      replaced_ = tl::unexpected(std::move(next.why));
      break;
  }
}

membership::actions membership::looked_at(node_number number, std::uint64_t looking, bool answered,
                                          time_point now) {
  actions out;
  if (looking != looks_.number || (looks_.open & only(number)) == 0) return out;
  looks_.open &= ~only(number);
  (answered ? looks_.answered : looks_.unanswered) |= only(number);
  judge_all(now, out);
  return out;
}

void membership::forget_looks_at(node_number number) noexcept {
  looks_.open &= ~only(number);
  looks_.answered &= ~only(number);
  looks_.unanswered &= ~only(number);
}

bool membership::votes(std::string_view address) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const entry& each) {
    const roster_member* const member = member_with(each.own);
    return each.is == state::voter && member != nullptr && member->address == address;
  });
}

// ---- initialising --------------------------------------------------------------------------------

bool membership::may_be_initialised() const {
  // All of them, or none: a node that is not reachable may have a mark and locks, and one with a
  // mark that says nothing to us belongs to somebody else.
  if (how_many(state::unreachable) + how_many(state::marking) > 0) return false;
  std::set<std::string_view> servers;
  for (const entry& each : nodes_) {
    if (each.facts.run_id.empty() || !servers.insert(each.facts.run_id).second) return false;
    if (each.facts.mark.empty()) continue;
    const bool older = how_.force && each.facts.mark.starts_with(older_tag);
    if (each.mark ? each.mark->store != store_ : !older) return false;
  }
  return true;
}

/// Two steps, so that no node votes before all were reached, and none is taken for new that has voted:
/// every node becomes a candidate, and when all are, every candidate a full member.
void membership::initialise(time_point now, actions& out) {
  if (!may_be_initialised()) {
    floor_wanted_ = false;  // asked for again when all are there
    return;
  }
  if (how_.force && !earlier_epoch_) {
    earlier_epoch_ = 0;
    for (const entry& each : nodes_) {
      if (each.mark) earlier_epoch_ = std::max(*earlier_epoch_, each.mark->epoch);
    }
  }
  // Forcing, what was there before does not count. Otherwise candidates that somebody else's force left
  // behind do not, where others have their marks.
  const auto rank = [](const node_mark& mark) {
    return std::pair(may_vote_or_did(mark), mark.epoch);
  };
  const node_mark* plan = nullptr;
  for (const entry& each : nodes_) {
    if (!each.mark || each.mark->epoch <= earlier_epoch_.value_or(0)) continue;
    if (plan == nullptr || rank(*each.mark) > rank(*plan)) plan = &*each.mark;
  }
  if (plan == nullptr) {
    propose_roster(out);
    return;
  }
  const auto members = matched(*plan);
  if (members.empty()) return;
  node_mark wanted = *plan;
  wanted.is = node_mark::state::candidate;
  wanted.quiet_since_us = 0;
  unsigned candidates = 0;
  node_set others = 0;
  bool begun = false;
  for (node_number i = 0; i < listed(); ++i) {
    const entry& each = nodes_[i];
    const bool there = each.mark && same_roster(*each.mark, *plan);
    if (there && may_vote_or_did(*each.mark)) begun = true;
    if (there && !may_vote_or_did(*each.mark)) ++candidates;
    if (!there) others |= only(i);
  }
  const node_set outdated = begun ? others & ~read_again_ : 0;
  if (outdated != 0) {
    // Somebody else is further than we saw: who was blank for us may be a member by now.
    read_again_ |= outdated;
    out.read_marks |= outdated;
    for_each(outdated, [&](node_number each) { nodes_[each].is = state::marking; });
  } else if (!begun && others != 0) {
    for (node_number i = 0; i < listed(); ++i) {
      entry& each = nodes_[i];
      if (each.mark && same_roster(*each.mark, *plan)) continue;
      wanted.own = members[i]->id;
      wanted.run_id = each.facts.run_id;
      wanted.durable = each.facts.durable;
      adopt(i, wanted.text(), 0, out);
    }
  } else if (candidates > 0) {
    // The first full mark says that all were candidates.
    roster_ = wanted;
    max_lease_ = wanted.max_lease;
    if (!floor_wanted_) read_floor(now, out);
  } else {
    initialising_ = false;
  }
}

void membership::propose_roster(actions& out) {
  node_mark plan{.store = store_.empty() ? how_.fresh_store : store_,
                 .epoch = earlier_epoch_.value_or(0) + 1,
                 .max_lease = how_.max_lease};
  std::set<std::string> taken;
  for (node_number i = 0; i < listed(); ++i) {
    const entry& each = nodes_[i];
    std::string id = each.mark ? each.mark->own : std::string();
    if (id.empty() || taken.contains(id)) id = digest_of(how_.fresh_store + how_.names[i]);
    taken.insert(id);
    plan.members.push_back({id, how_.names[i]});
  }
  // Several clients may be at it: the node whose run id is the smallest decides whose store it is.
  const auto first = std::min_element(
      nodes_.begin(), nodes_.end(),
      [](const entry& a, const entry& b) { return a.facts.run_id < b.facts.run_id; });
  const auto number = static_cast<node_number>(first - nodes_.begin());
  plan.is = node_mark::state::candidate;
  plan.own = plan.members[number].id;
  plan.run_id = first->facts.run_id;
  plan.durable = first->facts.durable;
  adopt(number, plan.text(), 0, out);
}

std::vector<const roster_member*> membership::matched(const node_mark& plan) const {
  std::vector<const roster_member*> all;
  if (plan.members.size() != nodes_.size()) return {};
  std::set<std::string> taken;
  for (node_number i = 0; i < listed(); ++i) {
    const entry& each = nodes_[i];
    const roster_member* found = nullptr;
    for (const roster_member& member : plan.members) {
      const bool by_mark = each.mark && each.mark->own == member.id;
      const bool by_address = how_.names[i] == member.address;
      if (by_mark || (by_address && found == nullptr)) found = &member;
    }
    if (found == nullptr || !taken.insert(found->id).second) return {};
    all.push_back(found);
  }
  return all;
}

/// One floor for all counters, so that none is far behind the others from the beginning: a node's
/// clock may be days ahead.
void membership::read_floor(time_point now, actions& out) {
  floor_wanted_ = true;
  clocks_ = {.reading = clocks_.reading + 1, .asked_at = now};
  ++reading_;
  counted_ = 0;
  largest_counter_ = 0;
  out.read_clocks = everybody();
  out.clock_reading = clocks_.reading;
  out.read_counters = everybody();
  out.reading = reading_;
}

void membership::activate(time_point now, actions& out) {
  if (!floor_wanted_ || clocks_.read != everybody() || counted_ != everybody()) return;
  floor_wanted_ = false;
  const std::int64_t latest = microseconds_of(now.time_since_epoch()) + clocks_.most_us;
  const std::uint64_t floor =
      std::max(largest_counter_,
               static_cast<std::uint64_t>(std::max<std::int64_t>(latest, 0)) / 1000 * 1024);
  for (node_number i = 0; i < listed(); ++i) {
    entry& each = nodes_[i];
    if (!is_of_roster(each) || each.mark->is != node_mark::state::candidate) continue;
    each.own = each.mark->own;
    adopt(i, mark_for(each), floor, out);
  }
}

void membership::recount(time_point now, actions& out) {
  const node_set before = voters_;
  voters_ = 0;
  for (node_number i = 0; i < listed(); ++i) {
    if (nodes_[i].is == state::voter) voters_ |= only(i);
  }
  out.changed = out.changed || voters_ != before;
  if (count(voters_) >= majority()) {
    settled_epoch_ = roster_->epoch;
    return;
  }
  // Without a majority we can take nobody in. But another client may have done so before, having
  // seen the node earlier: read what is quiet for us again.
  if (quiet_ones() != 0) retry_at_ = std::min(retry_at_, now + retry_pause);
  if (count(before) < majority()) return;
  majority_lost_at_ = now;
  for (node_number i = 0; i < listed(); ++i) {
    if (may_have_a_mark(nodes_[i])) out.read_marks |= only(i);
  }
}

node_set membership::quiet_ones() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < listed(); ++i) {
    if (is_quiet(nodes_[i])) all |= only(i);
  }
  return all;
}

node_set membership::unnoted_ones() const noexcept {
  node_set all = 0;
  for (node_number i = 0; i < listed(); ++i) {
    if (nodes_[i].is == state::quiet && nodes_[i].quiet_until == time_point::max()) all |= only(i);
  }
  return all;
}

bool membership::may_have_a_mark(const entry& which) const noexcept {
  return is_quiet(which) && which.read_at < majority_lost_at_;
}

// ---- events --------------------------------------------------------------------------------------

membership::actions membership::node_up(node_number number, node_facts facts, time_point now) {
  actions out;
  entry& which = nodes_[number];
  which.facts = std::move(facts);
  set_mark(which, which.facts.mark);
  which.greeted = true;
  which.is = state::unjudged;
  doubtful_ &= ~only(number);
  forget_looks_at(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::node_down(node_number number, base::failure why, time_point now) {
  actions out;
  nodes_[number].returning = nodes_[number].is != state::unreachable;
  nodes_[number].is = state::unreachable;
  nodes_[number].why = std::move(why);
  counted_ &= ~only(number);
  doubtful_ &= ~only(number);
  forget_looks_at(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::mark_differs(node_number number, std::string found,
                                             time_point now) {
  actions out;
  entry& which = nodes_[number];
  if (which.is != state::voter || which.stamp == stamp_of(found)) return out;
  set_mark(which, std::move(found));
  which.is = state::unjudged;
  judge_all(now, out);
  return out;
}

membership::actions membership::adopted(node_number number, std::string mark, time_point now) {
  actions out;
  entry& which = nodes_[number];
  if (which.is == state::unreachable) return out;
  if (is_quiet(which)) which.read_at = now;
  if (which.is != state::marking && mark == which.facts.mark) return out;
  set_mark(which, std::move(mark));
  which.is = state::unjudged;
  doubtful_ &= ~only(number);
  judge_all(now, out);
  return out;
}

membership::actions membership::adoption_failed(node_number number, time_point now) {
  if (nodes_[number].is != state::marking) return {};
  // Whether it was done is unknown: its mark is read when it comes back, or again soon. Not at once:
  // a server that refuses to write answers quickly.
  doubtful_ |= only(number);
  retry_at_ = std::min(retry_at_, now + retry_pause);
  return {};
}

membership::actions membership::counter_read(node_number number, std::uint64_t reading,
                                             std::optional<std::uint64_t> value, time_point now) {
  actions out;
  if (reading != reading_ || (how_many(state::priming) == 0 && !floor_wanted_)) return out;
  if (!value) {
    retry_at_ = std::min(retry_at_, now + retry_pause);
    return out;
  }
  counted_ |= only(number);
  largest_counter_ = std::max(largest_counter_, *value);
  if (floor_wanted_) {
    activate(now, out);
    return out;
  }
  if (count(counted_ & voters_) < believed()) return out;
  for (node_number i = 0; i < listed(); ++i) {
    if (nodes_[i].is != state::priming) continue;
    const bool forgets = planted(defect::rejoin_without_counter);
    adopt(i, mark_for(nodes_[i]), forgets ? 0 : largest_counter_, out);
  }
  return out;
}

membership::actions membership::clock_read(node_number number, std::uint64_t reading,
                                           std::optional<std::uint64_t> server_us, time_point now) {
  actions out;
  if (reading != clocks_.reading || !server_us) return out;
  if (!floor_wanted_ && clocks_known(now)) return out;
  // Too long ago to say what time it is now: this client was frozen, and asks again.
  if (now > clocks_.asked_at + retry_pause) return out;
  // It read its clock at some moment between our question and now.
  const auto theirs = static_cast<std::int64_t>(*server_us);
  const std::int64_t least = theirs - microseconds_of(now.time_since_epoch());
  const std::int64_t most = theirs - microseconds_of(clocks_.asked_at.time_since_epoch());
  clocks_.least_us = clocks_.read == 0 ? least : std::min(clocks_.least_us, least);
  clocks_.most_us = clocks_.read == 0 ? most : std::max(clocks_.most_us, most);
  clocks_.read |= only(number);
  if (floor_wanted_) {
    activate(now, out);
    return out;
  }
  if (!clocks_known(now)) return out;
  for_each(unnoted_ones(), [&](node_number each) { nodes_[each].is = state::unjudged; });
  judge_all(now, out);
  return out;
}

membership::actions membership::far_behind(node_number number, std::uint64_t token) {
  actions out;
  // It was set back, or lost its counter alone. A token larger than it need be does no harm, unless
  // counters come to an end by it.
  if (nodes_[number].is != state::voter || token > largest_sane_counter) return out;
  if (planted(defect::rejoin_without_counter)) return out;  // it would be mended here
  out.adopt.push_back({number, nodes_[number].facts.mark, nodes_[number].facts.mark, token});
  return out;
}

void membership::prime(time_point now, actions& out) {
  bool fresh = false;
  for (entry& each : nodes_) {
    if (each.is != state::quiet || now < each.quiet_until) continue;
    each.is = state::priming;
    fresh = true;
  }
  if (how_many(state::priming) == 0) return;
  if (fresh) {
    // What was read before a node had been quiet for long enough does not count for it; nor does
    // what is just being read.
    ++reading_;
    counted_ = 0;
    largest_counter_ = 0;
  }
  if (count(voters_) >= believed()) {
    out.read_counters = voters_ & ~counted_;
    out.reading = reading_;
  } else {
    retry_at_ = std::min(retry_at_, now + retry_pause);
  }
}

membership::actions membership::on_timer(time_point now) {
  actions out;
  if (now >= retry_at_) {
    out.read_marks = doubtful_ | (count(voters_) < majority() ? quiet_ones() : 0) |
                     (unsettled_ ? reachable() : 0);
    retry_at_ = out.read_marks == 0 ? time_point::max() : now + retry_pause;
  }
  read_clocks_if_needed(now, out);
  if (floor_wanted_ && now >= clocks_.asked_at + retry_pause) read_floor(now, out);
  if (!floor_wanted_) prime(now, out);
  return out;
}

time_point membership::wake_at() const noexcept {
  time_point next = retry_at_;
  if (clocks_wanted() || floor_wanted_) next = std::min(next, clocks_.asked_at + retry_pause);
  for (const entry& each : nodes_) {
    if (each.is == state::quiet && !floor_wanted_) next = std::min(next, each.quiet_until);
  }
  return next;
}

// ---- words ---------------------------------------------------------------------------------------

std::vector<std::string> membership::complaints(time_point now) const {
  std::vector<std::string> all;
  for (node_number i = 0; i < listed(); ++i) {
    const entry& each = nodes_[i];
    const std::string& name = how_.names[i];
    switch (each.is) {
      case state::voter:
        break;
      case state::unreachable:
        all.push_back(name + " is not reachable" +
                      (each.why.detail.empty() ? "" : " (" + each.why.detail + ")"));
        break;
      case state::unjudged:
        all.push_back(name + " was never initialised, or has lost its data");
        break;
      case state::marking:
        all.push_back(name + " is being taken in");
        break;
      case state::quiet:
      case state::priming:
        all.push_back(
            name + " has lost its data, or may have, and votes again " +
            (each.quiet_until == time_point::max()
                 ? "when the others are there, and so long after that: " + in_seconds(quiet_time())
                 : "in " + in_seconds(each.quiet_until - now)));
        break;
      case state::candidate:
        all.push_back(name + " is initialised in part only");
        break;
      case state::outsider:
        all.push_back(name + " has no mark and is at no member's address, so it is not asked");
        break;
      case state::stranger:
        if (each.facts.run_id.empty()) {
          all.push_back(name + " does not tell its run id (the user needs +info)");
        } else if (each.facts.mark.starts_with(older_tag)) {
          all.push_back(name + " has the mark of an earlier version, which names no members");
        } else if (each.mark && each.mark->store == store_ && each.mark->members.size() == size()) {
          all.push_back(name + " has the mark of another replacement, by which the members are " +
                        addresses_of(each.mark->members));
        } else {
          all.push_back(name + " belongs to another set of nodes");
        }
        break;
      case state::former:
        all.push_back(name + " was a member once, and is none any more");
        break;
      case state::ahead:
        all.push_back(name +
                      " has the mark of a replacement that was begun, by which the members are " +
                      addresses_of(each.mark->members));
        break;
      case state::behind:
        all.push_back(name + " has not got the mark of the newest members yet");
        break;
      case state::moved: {
        const roster_member* const member = member_with(each.own);
        all.push_back(name +
                      " is a member under another address and was restarted: it votes again when a "
                      "client calls it " +
                      (member == nullptr ? "by that" : member->address) +
                      ", as the members are called");
        break;
      }
      case state::twice:
        all.push_back(name + " is the same server as another node of the list, or a copy of it");
        break;
    }
  }
  for (const std::string& each : missing_) {
    all.push_back(each + " is a member of this store, and is not in the list");
  }
  return all;
}

base::failure membership::trouble(time_point now) const {
  std::string text = std::to_string(count(voters_)) + " of " + std::to_string(size()) +
                     " nodes may vote, and " + std::to_string(majority()) + " are needed";
  for (const std::string& each : complaints(now)) text += "; " + each;
  const auto refused = [&](std::string_view more) {
    text += more;
    return base::failure{make_error_code(errc::store_refused), std::move(text)};
  };
  if (!missing_.empty()) {
    return refused(
        ". The members are " + addresses_of(roster_->members) +
        ": name them all, spelled like this. To have others, stop all clients, wait for the "
        "longest lease, then `sallyport init --force ADDRESS`");
  }
  if (how_.initialise && !how_.force && roster_ && !is_as_listed()) {
    return refused(
        ". The members are " + addresses_of(roster_->members) +
        ". To have others, stop all clients, wait for the longest lease, then add --force");
  }
  const bool older = std::any_of(nodes_.begin(), nodes_.end(), [](const entry& each) {
    return each.is == state::stranger && each.facts.mark.starts_with(older_tag);
  });
  if (older && !roster_) {
    return refused(
        ". Stop all clients, wait for the longest lease, then `sallyport init --force ADDRESS`");
  }
  const unsigned empty =
      how_many(state::unjudged) + how_many(state::quiet) + how_many(state::priming);
  const bool sure = std::none_of(nodes_.begin(), nodes_.end(),
                                 [&](const entry& each) { return may_have_a_mark(each); });
  if (how_many(state::candidate) + empty + majority() > size() && how_many(state::candidate) > 0) {
    return refused(
        ". Initialising them was begun and not finished: `sallyport init ADDRESS` goes on");
  }
  if (empty + majority() > size() && sure) {
    if (!roster_) {
      return refused(
          ". A majority has no mark: if these nodes are new, say so with `sallyport init ADDRESS`");
    }
    return refused(
        ". A majority has lost its mark: stop all clients, wait for the longest lease, then "
        "`sallyport init --force ADDRESS`");
  }
  if (how_many(state::ahead) + how_many(state::behind) > 0 && count(voters_) < majority()) {
    text += ". If nobody is at it, `sallyport init --replace OLD NEW ADDRESS` goes on";
    return {make_error_code(errc::unavailable), std::move(text)};
  }
  const unsigned wrong = how_many(state::stranger) + how_many(state::twice) +
                         how_many(state::former) + how_many(state::outsider);
  if (listed() - wrong < majority()) {
    return refused(
        ". The list of nodes in the address is not the one that they were initialised with");
  }
  return {make_error_code(errc::unavailable), std::move(text)};
}

}  // namespace sallyport::backends::redlock
