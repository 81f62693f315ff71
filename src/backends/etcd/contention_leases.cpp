#include "backend_api/requests.hpp"
#include "backends/etcd/contention.hpp"
#include "base/planted.hpp"

#include <algorithm>
#include <utility>

// The leases that contenders' keys hang on.
namespace sallyport::backends::etcd {

using backend_api::gone;
using backend_api::holder_id;
using backend_api::renew_answer;

namespace {

using std::chrono::seconds;

/// A transaction of etcd has room for 128 operations.
constexpr std::size_t keys_per_read = 100;
/// How long an empty lease is kept for the next one to come: a part of its length, within bounds.
constexpr duration shortest_idle = std::chrono::seconds{1};
constexpr duration longest_idle = std::chrono::seconds{10};
/// A keep-alive that was not answered by then is said again, to another member.
constexpr duration shortest_repeat = std::chrono::milliseconds{300};
constexpr duration longest_repeat = std::chrono::seconds{1};

/// etcd counts in whole seconds.
seconds asked_for(duration length) { return std::chrono::ceil<seconds>(length); }

duration idle_time(const lease_state& lease) {
  return std::clamp(lease.length / 3, shortest_idle, longest_idle);
}

duration repeat_time(const lease_state& lease) {
  return std::clamp(lease.length / 6, shortest_repeat, longest_repeat);
}

}  // namespace

lease_state* contention::lease_of(const contender& who) {
  const auto found = leases_.find(who.lease);
  return found == leases_.end() ? nullptr : &found->second;
}

duration contention::remaining(const contender& who, time_point since) {
  const lease_state* const lease = lease_of(who);
  if (lease == nullptr) return duration::zero();
  return std::clamp(lease->valid_until - since, duration::zero(), who.length);
}

bool contention::fresh_enough(const contender& who, time_point now) {
  return remaining(who, now) > who.length * 2 / 3;
}

void contention::attach(contender& who, time_point now, time_point answer_by, actions& out) {
  lease_id chosen = 0;
  const auto known = shared_.find(who.length);
  if (const auto found = known == shared_.end() ? leases_.end() : leases_.find(known->second);
      who.renewed && found != leases_.end() && !found->second.retired) {
    // One that nobody kept alive may be gone before we are there.
    const lease_state& lease = found->second;
    const bool lasts =
        lease.is == lease_state::phase::granting || lease.valid_until - now > lease.length / 3;
    if (lasts) chosen = found->first;
  }
  if (chosen == 0) {
    chosen = how_.fresh_lease();
    lease_state& fresh = leases_[chosen];
    fresh.own = !who.renewed;
    fresh.length = who.length;
    fresh.sent = now;
    if (who.renewed) shared_[who.length] = chosen;
    out.emplace_back(grant_order{chosen, asked_for(who.length).count(), answer_by});
  }
  leases_.at(chosen).members.insert(who.id);
  who.lease = chosen;
  choose_key(who);
}

void contention::choose_key(contender& who) {
  who.doubtful = who.key_spent = false;
  if (free_keys_.empty()) {
    who.key_number = next_key_++;
  } else {
    who.key_number = free_keys_.back();
    free_keys_.pop_back();
  }
  who.key = how_.keys.key(who.name.text(), who.what, who.lease, who.key_number);
}

void contention::free_key(const contender& who) {
  // etcd goes through all keys of a name that it has not compacted yet, also deleted ones: with a new
  // key for every turn, a lock that is often taken would get slower and slower.
  if (who.lease != 0 && !who.doubtful) free_keys_.push_back(who.key_number);
}

void contention::detach(contender& who, time_point now, actions& out) {
  const lease_id id = who.lease;
  lease_state* const lease = lease_of(who);
  who.lease = 0;
  if (lease == nullptr || lease->members.erase(who.id) == 0 || !lease->members.empty()) return;
  lease->empty_since = now;
  if ((lease->own || lease->retired) && lease->is == lease_state::phase::live) {
    revoke(id, out);
  } else {
    set_timer(now + idle_time(*lease), {.what = alarm::lease, .lease = id});
  }
}

void contention::revoke(lease_id id, actions& out) {
  const auto found = leases_.find(id);
  if (found != leases_.end()) {
    const auto shared = shared_.find(found->second.length);
    if (shared != shared_.end() && shared->second == id) shared_.erase(shared);
    leases_.erase(found);
  }
  out.emplace_back(revoke_order{id});
}

void contention::retire(lease_id id, std::string late_key) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  found->second.retired = true;
  if (!late_key.empty()) found->second.late_keys.push_back(std::move(late_key));
}

void contention::lease_granted(lease_id id, const reply<std::int64_t>& said, time_point now,
                               actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  lease_state& lease = found->second;
  const std::vector<holder_id> members(lease.members.begin(), lease.members.end());
  const bool by_earlier_try = said.why == trouble::lease_exists && said.doubtful;
  if (said.value || by_earlier_try) {
    lease.is = lease_state::phase::live;
    // etcd never gives less than what was asked for.
    lease.valid_until = lease.sent + (said.value ? seconds{*said.value} : asked_for(lease.length));
    for (const holder_id& each : members) {
      if (contender* const who = find(each)) advance(*who, now, out);
    }
    if (const auto still = leases_.find(id);
        still != leases_.end() && still->second.members.empty()) {
      still->second.retired || still->second.own
          ? revoke(id, out)
          : set_timer(now + idle_time(still->second), {.what = alarm::lease, .lease = id});
    }
    return;
  }
  // Whether or not it is there, nobody uses it.
  const bool perhaps_there = said.doubtful || said.why == trouble::unknown;
  leases_.erase(found);
  if (perhaps_there) out.emplace_back(revoke_order{id});
  // None of them has a key yet: nothing has happened.
  const base::failure why =
      failure_of(said.why == trouble::unknown ? trouble::unavailable : said.why, said.text);
  for (const holder_id& each : members) {
    contender* const who = find(each);
    if (who == nullptr) continue;
    if (who->asked) out.emplace_back(acquire_told{each, tl::unexpected(why)});
    who->asked.reset();
    who->lease = 0;
    if (who->going) {
      advance(*who, now, out);
    } else {
      forget(*who, now, out);
    }
  }
}

// ---- keeping alive -------------------------------------------------------------------------------

void contention::keep(lease_id id, time_point now, actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.is != lease_state::phase::live) return;
  lease_state& lease = found->second;
  if (lease.keeping) return;
  lease.keeping.emplace();
  lease.keeping->sent = now;
  lease.keeping->repeat_at = now + repeat_time(lease);
  set_timer(lease.keeping->repeat_at, {.what = alarm::lease, .lease = id});
  out.emplace_back(keep_alive_order{id});
}

void contention::kept_alive(lease_id id, std::int64_t given, std::uint64_t term, time_point now,
                            actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  lease_state& lease = found->second;
  if (!lease.keeping || lease.keeping->reading) return;
  if (given <= 0) {
    lease_ended(id, now, out);
    return;
  }
  if (base::planted(base::defect::etcd_keep_alive_unproven)) {
    lease.valid_until = std::max(lease.valid_until, lease.keeping->sent + seconds{given});
    end_round(id, now, out);
    return;
  }
  lease.keeping->ttl = seconds{given};
  lease.keeping->term = term;
  lease.keeping->reading = true;
  read_keys(id, now, out);
}

void contention::read_keys(lease_id id, time_point now, actions& out) {
  lease_state& lease = leases_.at(id);
  std::vector<contender*> wanted;
  for (const holder_id& each : lease.members) {
    contender* const who = find(each);
    if (who == nullptr || who->is != phase::held || !who->renew || who->renew->draws) continue;
    who->renew->being_read = true;
    wanted.push_back(who);
  }
  std::size_t next = 0;
  do {
    errand what{.lease = id};
    txn order;
    for (; next < wanted.size() && what.read.size() < keys_per_read; ++next) {
      order.then.emplace_back(look_up{.key = wanted[next]->key, .keys_only = true});
      what.read.push_back(wanted[next]->id);
    }
    // Without a key to look at, any read proves who leads.
    if (what.read.empty())
      order.then.emplace_back(look_up{.key = how_.keys.card(how_.keys.prefix())});
    const errand_number number = next_errand_++;
    what.then = order.then.size();
    errands_.emplace(number, std::move(what));
    ++lease.keeping->reads;
    out.emplace_back(txn_order{number, std::move(order), now + repeat_time(lease) * 2});
  } while (next < wanted.size());
  // Puts whose answers were lost may be executed at any time while the lease lives.
  for (const std::string& key : lease.late_keys) {
    txn clean;
    clean.when = {{.what = condition::field::lease, .number = id, .key = key}};
    clean.then = {erase{key}};
    out.emplace_back(txn_order{next_errand_++, std::move(clean), now + repeat_time(lease) * 2});
  }
}

void contention::round_read(lease_id id, const errand& what, const reply<txn_answer>& said,
                            time_point now, actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || !found->second.keeping) return;
  keep_alive_round& round = *found->second.keeping;
  const bool proven = said.value && said.value->term == round.term;
  if (!proven) round.failed = true;
  const time_point proven_until = round.sent + round.ttl;
  if (proven) found->second.valid_until = std::max(found->second.valid_until, proven_until);
  for (std::size_t i = 0; i < what.read.size(); ++i) {
    contender* const who = find(what.read[i]);
    if (who == nullptr || who->is != phase::held || !who->renew || !who->renew->being_read)
      continue;
    who->renew->being_read = false;
    if (!proven) continue;
    const auto& own = said.value->answers.at(i).found;
    const bool there =
        own.size() == 1 && own.front().created == who->created && own.front().lease == who->lease;
    if (there) {
      answer_held(*who, true, now, out);
    } else {
      who->renew.reset();
      out.emplace_back(renew_told{who->id, renew_answer{gone{}}});
      lose(*who, out);
    }
  }
  if (--round.reads == 0) end_round(id, now, out);
}

void contention::end_round(lease_id id, time_point now, actions& out) {
  lease_state& lease = leases_.at(id);
  const bool again = lease.keeping->failed;
  lease.keeping.reset();
  bool wanted = false;
  const std::vector<holder_id> members(lease.members.begin(), lease.members.end());
  for (const holder_id& each : members) {
    contender* const who = find(each);
    if (who == nullptr || who->is != phase::held) continue;
    const bool unproven = base::planted(base::defect::etcd_keep_alive_unproven);
    if ((who->stale_lease || (unproven && who->renew && !who->renew->draws)) && !again) {
      answer_held(*who, true, now, out);
      advance(*who, now, out);
    }
    if (contender* const still = find(each)) {
      wanted = wanted || still->stale_lease || (still->renew && !still->renew->draws);
    }
  }
  // Requests that came meanwhile, or that this round did not prove; each ends at its answer_by.
  if (!wanted) return;
  if (again) {
    set_timer(now + shortest_repeat, {.what = alarm::lease, .lease = id});
  } else {
    keep(id, now, out);
  }
}

void contention::keep_alives_broken(time_point now, actions& out, bool trouble) {
  if (trouble) tell_disconnected(out);
  for (auto& [id, lease] : leases_) {
    if (!lease.keeping || lease.keeping->reading) continue;
    lease.keeping->sent = now;
    out.emplace_back(keep_alive_order{id});
  }
}

void contention::lease_due(lease_id id, time_point now, actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  lease_state& lease = found->second;
  const bool idle = lease.members.empty() && lease.is == lease_state::phase::live &&
                    now - lease.empty_since >= idle_time(lease);
  if (idle) {
    revoke(id, out);
    return;
  }
  if (lease.keeping && !lease.keeping->reading && lease.keeping->repeat_at <= now) {
    // It is said again once it is certain that the first one's answer will not come any more: that
    // answer must not count from the second one's sending.
    lease.keeping->repeat_at = now + repeat_time(lease);
    set_timer(lease.keeping->repeat_at, {.what = alarm::lease, .lease = id});
    out.emplace_back(doubt_order{});
    return;
  }
  const bool wanted = std::ranges::any_of(lease.members, [&](const holder_id& each) {
    const contender* const who = find(each);
    return who != nullptr && (who->stale_lease || (who->renew && !who->renew->draws));
  });
  if (wanted) keep(id, now, out);
}

void contention::lease_ended(lease_id id, time_point now, actions& out) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  const std::vector<holder_id> members(found->second.members.begin(), found->second.members.end());
  // Should it be there after all, its keys must not stand in anybody's way.
  revoke(id, out);
  for (const holder_id& each : members) {
    contender* const who = find(each);
    if (who == nullptr) continue;
    if (who->is == phase::held) {
      lose(*who, out);
    } else {
      drop_watch(*who, out);
      fall_out(*who);
    }
    advance(*who, now, out);
  }
}

}  // namespace sallyport::backends::etcd
