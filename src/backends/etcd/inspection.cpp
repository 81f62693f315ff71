#include "backends/etcd/session.hpp"
#include "base/wall_clock.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

// list, who and break_lock: what the store shows of a name, and putting a holder out.
namespace sallyport::backends::etcd {

using backend_api::break_mode;
using backend_api::completion;
using std::chrono::milliseconds;

namespace {

constexpr const char* grant_method = "/etcdserverpb.Lease/LeaseGrant";
constexpr const char* ttl_method = "/etcdserverpb.Lease/LeaseTimeToLive";
constexpr std::int64_t keys_per_page = 1000;
/// A holder whose key changes while it is being broken is looked at again, this often.
constexpr int most_looks = 5;

/// A contender with what it says about itself.
struct seen_entry {
  entry place;
  description said;
  std::string value;         // of an election
  std::string described_in;  // the key of the description: its own, or the card
  revision modified = 0;     // of that key
  lease_id lease = 0;
  bool inside = false;

  [[nodiscard]] fencing_token token() const {
    return fencing_token{said.token != 0 ? said.token : static_cast<std::uint64_t>(modified)};
  }
};

/// What failed before anything was written.
tl::unexpected<base::failure> nothing_broken(base::failure why) {
  if (why.code == errc::outcome_unknown) why.code = make_error_code(errc::unavailable);
  why.detail += "; nothing was broken";
  return tl::unexpected(std::move(why));
}

milliseconds since(std::int64_t then_ms) {
  const std::int64_t passed = then_ms == 0 ? 0 : base::wall_clock_ms() - then_ms;
  return milliseconds{std::max<std::int64_t>(passed, 0)};
}

/// The oldest first.
std::vector<seen_entry> entries_of(const layout& keys, const std::string& folder,
                                   const txn_answer& said) {
  std::map<std::string_view, const key_value*> cards;
  for (const key_value& each : said.answers.at(1).found) cards.emplace(each.key, &each);
  std::vector<seen_entry> out;
  for (const key_value& each : said.answers.at(0).found) {
    auto place = entry_of(folder, each);
    if (!place) continue;
    seen_entry& fresh = out.emplace_back();
    const key_value* described = &each;
    if (place->what == form::election) {
      fresh.value = each.value;
      const auto card = cards.find(keys.card(each.key));
      if (card != cards.end()) described = card->second;
    }
    const auto said_of_itself = from_json(described->value);
    // Others describe nobody: what is in their keys is what a candidate says.
    if (place->what == form::foreign && !said_of_itself) fresh.value = each.value;
    fresh.said = said_of_itself.value_or(description{});
    fresh.place = std::move(*place);
    fresh.place.closed = fresh.said.closed;
    fresh.described_in = described->key;
    fresh.modified = described->modified;
    fresh.lease = each.lease;
  }
  std::ranges::sort(out, {}, [](const seen_entry& each) { return each.place.created; });
  std::vector<entry> youngest_first;
  youngest_first.reserve(out.size());
  for (const seen_entry& each : out) youngest_first.push_back(each.place);
  std::ranges::reverse(youngest_first);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::span<const entry> before = std::span(youngest_first).subspan(out.size() - i);
    const entry& mine = out[i].place;
    const form what = mine.what == form::writer && mine.shared ? form::reader : mine.what;
    out[i].inside =
        stand(what, std::max(mine.permits, 1U), before, true).is == standing::word::admitted;
  }
  return out;
}

}  // namespace

/// A name as it was at one moment.
struct session::sight {
  std::string name;
  std::vector<seen_entry> entries;
  std::map<lease_id, codec::time_to_live> leases;
  std::size_t untimed = 0;
  std::optional<base::failure> timeless;  // the time of some lease is not known
  revision at = 0;

  [[nodiscard]] base::result<std::optional<lock_info>> describe() const;
};

base::result<std::optional<lock_info>> session::sight::describe() const {
  if (entries.empty()) return std::nullopt;
  // Not known is not "none": who sees a holder without time takes the lock for free.
  if (timeless) return tl::unexpected(*timeless);
  lock_info out;
  out.name = name;
  bool kind_known = false;
  for (const seen_entry& each : entries) {
    if (!kind_known && each.place.what != form::foreign) {
      out.kind = kind_of(each.place.what);
      out.permits = std::max(each.place.permits, 1U);
      kind_known = true;
    }
    // The keys of others do not tell locks from elections, but those of locks are empty.
    if (!kind_known && !each.value.empty()) out.kind = lock_kind::election;
    const auto timed = leases.find(each.lease);
    const std::int64_t left =
        timed == leases.end() ? 0 : std::max<std::int64_t>(timed->second.seconds, 0);
    const milliseconds remaining = std::chrono::seconds{left};
    if (each.place.closed) {
      out.closed_for = std::max({out.closed_for, remaining, milliseconds{1}});
    } else if (each.inside) {
      const bool shares = each.place.what == form::reader || each.place.what == form::permit ||
                          each.place.what == form::foreign;
      out.holders.push_back({.token = each.token(),
                             .mode = each.place.shared ? lock_mode::shared : lock_mode::exclusive,
                             .host = each.said.host,
                             .pid = each.said.pid,
                             .label = each.said.label,
                             .value = each.value,
                             .held_for = since(each.said.since_ms),
                             .remaining = std::max(remaining, milliseconds{1}),
                             .local_waiters = each.said.waiters,
                             .claimed = each.said.held || shares});
    } else {
      out.waiters.push_back({.mode = each.place.shared ? lock_mode::shared : lock_mode::exclusive,
                             .host = each.said.host,
                             .pid = each.said.pid,
                             .label = each.said.label,
                             .waited = since(each.said.since_ms),
                             .local_waiters = each.said.waiters});
    }
  }
  return out;
}

void session::see(const std::string& name, std::function<void(base::result<sight>)> done) {
  txn order;
  const std::string folder = keys_.folder(name);
  const std::string end = keys_.folder_end(name);
  order.then = {look_up{.key = folder, .end = end},
                look_up{.key = keys_.card(folder), .end = keys_.card(end)}};
  ask(order, [this, name, folder, done = std::move(done)](const reply<txn_answer>& said) {
    if (!said.value) {
      done(tl::unexpected(failure_of(said)));
      return;
    }
    auto found = std::make_shared<sight>();
    found->name = name;
    found->at = said.value->at;
    found->entries = entries_of(keys_, folder, *said.value);
    time_leases(found, done);
  });
}

void session::time_leases(const std::shared_ptr<sight>& what,
                          const std::function<void(base::result<sight>)>& done) {
  std::set<lease_id> wanted;
  for (const seen_entry& each : what->entries) {
    if (each.inside || each.place.closed) wanted.insert(each.lease);
  }
  what->untimed = wanted.size();
  if (wanted.empty()) {
    done(std::move(*what));
    return;
  }
  // All answers come on one thread, one after the other.
  for (const lease_id lease : wanted) {
    transport_->call(
        ttl_method, codec::time_to_live_request(lease), lease_clock::now() + housekeeping_patience,
        [what, lease, done](const reply<std::string>& said) {
          const auto found = said.value ? codec::read_time_to_live(*said.value) : std::nullopt;
          if (found) {
            what->leases.emplace(lease, *found);
          } else {
            what->timeless =
                base::failure{make_error_code(errc::unavailable),
                              "etcd did not say how long a lease still is: " + said.text};
          }
          if (--what->untimed == 0) done(std::move(*what));
        });
  }
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  const backend_api::delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(base::fail(errc::closed, "the client was closed"));
    return;
  }
  see(name.text(), [done = std::move(done)](base::result<sight> found) {
    if (!found) {
      done(tl::unexpected(found.error()));
    } else {
      done(found->describe());
    }
  });
}

// ---- list ----------------------------------------------------------------------------------------

struct session::scan {
  std::string start;  // of the next page
  std::string end;
  std::string prefix;
  std::string after;
  std::size_t limit = 0;
  std::set<std::string> names;
  std::map<std::string, lock_info> found;
  std::size_t unseen = 0;
  std::optional<base::failure> failed;
  completion<std::vector<lock_info>> done;
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  const backend_api::delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(base::fail(errc::closed, "the client was closed"));
    return;
  }
  auto all = std::make_shared<scan>();
  all->start = keys_.prefix() + std::string(prefix);
  all->end = behind(all->start);
  const std::string zero(1, '\0');  // etcd's word for "from the first" and "to the last"
  if (all->start.empty()) all->start = zero;
  if (all->end.empty()) all->end = zero;
  all->prefix = prefix;
  all->after = after;
  all->limit = limit;
  all->done = std::move(done);
  if (limit == 0) {
    all->done(std::vector<lock_info>{});
    return;
  }
  scan_on(all);
}

// The order of keys is not that of names ("a!/" comes before "a/"), so all have to be gone through.
void session::scan_on(const std::shared_ptr<scan>& all) {
  txn order;
  order.then = {
      look_up{.key = all->start, .end = all->end, .limit = keys_per_page, .keys_only = true}};
  ask(order, [this, all](const reply<txn_answer>& said) {
    if (!said.value) {
      all->done(tl::unexpected(failure_of(said)));
      return;
    }
    const operation_answer& page = said.value->answers.at(0);
    for (const key_value& each : page.found) {
      const auto name = keys_.name_of(each);
      if (!name || !name->starts_with(all->prefix)) continue;
      if (!all->after.empty() && *name <= all->after) continue;
      all->names.emplace(*name);
      if (all->names.size() > all->limit) all->names.erase(std::prev(all->names.end()));
    }
    if (page.more && !page.found.empty()) {
      all->start = page.found.back().key + std::string(1, '\0');
      scan_on(all);
    } else {
      scanned(all);
    }
  });
}

void session::scanned(const std::shared_ptr<scan>& all) {
  all->unseen = all->names.size();
  if (all->names.empty()) {
    all->done(std::vector<lock_info>{});
    return;
  }
  for (const std::string& each : all->names) {
    see(each, [all](base::result<sight> found) {
      auto seen = found ? found->describe() : tl::unexpected(found.error());
      if (!seen) {
        all->failed = seen.error();
      } else if (*seen) {
        all->found.emplace((*seen)->name, std::move(**seen));
      }
      if (--all->unseen != 0) return;
      if (all->failed) {
        all->done(tl::unexpected(*all->failed));
        return;
      }
      std::vector<lock_info> page;
      for (auto& [name, info] : all->found) page.push_back(std::move(info));
      all->done(std::move(page));
    });
  }
}

// ---- break ---------------------------------------------------------------------------------------

struct session::breaking {
  std::string name;
  fencing_token observed;
  break_mode mode = break_mode::safe;
  completion<std::monostate> done;
  seen_entry target;
  int looks = 0;
};

void session::break_lock(const lock_name& name, fencing_token observed, break_mode mode,
                         completion<std::monostate> done) {
  const backend_api::delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(base::fail(errc::closed, "the client was closed"));
    return;
  }
  auto what = std::make_shared<breaking>();
  what->name = name.text();
  what->observed = observed;
  what->mode = mode;
  what->done = std::move(done);
  break_seen(what);
}

void session::break_seen(const std::shared_ptr<breaking>& what) {
  ++what->looks;
  see(what->name, [this, what](base::result<sight> found) {
    if (!found) {
      what->done(nothing_broken(found.error()));
      return;
    }
    bool held = false;
    const seen_entry* target = nullptr;
    for (const seen_entry& each : found->entries) {
      if (!each.inside || each.place.closed) continue;
      held = true;
      if (each.token() == what->observed) target = &each;
    }
    if (target == nullptr) {
      what->done(held ? base::fail(errc::token_mismatch, "the lock is held under another token")
                      : base::fail(errc::no_such_lock, "nobody holds '" + what->name + "'"));
      return;
    }
    what->target = *target;
    if (what->mode == break_mode::at_once) {
      put_tombstone(what, 0);
      return;
    }
    if (found->timeless) {
      // Nobody knows for how long the holder may trust its lease.
      what->done(nothing_broken(*found->timeless));
      return;
    }
    const std::int64_t granted = found->leases.at(target->lease).granted;
    if (granted <= 0) {
      what->done(base::fail(errc::no_such_lock,
                            "the lease of who held '" + what->name + "' has ended just now"));
      return;
    }
    put_tombstone(what, granted);
  });
}

// The tombstone takes the holder's key over, and with it its place, so that everybody goes on waiting,
// whatever library they use. It stands for the whole length of the holder's lease: a keep-alive that
// the holder has proven just before counts no longer than that.
void session::put_tombstone(const std::shared_ptr<breaking>& what, std::int64_t seconds) {
  txn order;
  order.when = {{.what = condition::field::created,
                 .number = what->target.place.created,
                 .key = what->target.place.key},
                {.what = condition::field::modified,
                 .number = what->target.modified,
                 .key = what->target.described_in}};
  // Should it fail: was it done by an earlier try, whose answer was lost?
  order.otherwise = {look_up{.key = what->target.place.key, .keys_only = true}};
  const bool has_card = what->target.described_in != what->target.place.key;
  if (seconds == 0) {
    order.then = {erase{what->target.place.key}};
    if (has_card) order.then.emplace_back(erase{what->target.described_in});
    ask(order, [this, what](const reply<txn_answer>& said) { broken(what, said, 0); });
    return;
  }
  const lease_id stone = fresh_lease();
  description said = what->target.said;
  said.closed = true;
  said.token = what->observed.value();
  if (has_card) {
    order.then = {put{what->target.place.key, what->target.value, stone},
                  put{what->target.described_in, to_json(said), stone}};
  } else {
    order.then = {put{what->target.place.key, to_json(said), stone}};
  }
  transport_->call(grant_method, codec::grant_request(stone, seconds),
                   lease_clock::now() + housekeeping_patience,
                   [this, what, order, stone, seconds](const reply<std::string>& granted) {
                     if (!granted.value) {
                       // Whether or not it is there, nobody uses it. One that was granted by an earlier
                       // try is older than it says, and the tombstone must not end early.
                       const bool old = granted.why == trouble::lease_exists;
                       action give_back = revoke_order{stone};
                       if (granted.doubtful || granted.why == trouble::unknown)
                         carry_out(give_back);
                       if (old && ++what->looks <= most_looks) {
                         put_tombstone(what, seconds);
                         return;
                       }
                       what->done(nothing_broken(failure_of(granted)));
                       return;
                     }
                     ask(order, [this, what, stone](const reply<txn_answer>& answer) {
                       broken(what, answer, stone);
                     });
                   });
}

void session::broken(const std::shared_ptr<breaking>& what, const reply<txn_answer>& said,
                     lease_id stone) {
  if (!said.value) {
    // The tombstone may be there: its lease stays.
    what->done(tl::unexpected(failure_of(said)));
    return;
  }
  const bool there = !said.value->succeeded && !said.value->answers.empty() &&
                     !said.value->answers.front().found.empty();
  const lease_id its_lease = there ? said.value->answers.front().found.front().lease : 0;
  if (said.value->succeeded || (stone != 0 && its_lease == stone)) {
    // The holder may have renewed between the grant of this lease and the transaction.
    action count_anew = keep_alive_order{stone};
    if (stone != 0) carry_out(count_anew);
    what->done(std::monostate{});
    return;
  }
  if (stone != 0) {
    action give_back = revoke_order{stone};
    carry_out(give_back);
  }
  if (stone == 0 && !there && said.doubtful) {
    what->done(base::fail(errc::outcome_unknown,
                          "etcd: an answer was lost; the grant has gone, by this break or before"));
  } else if (what->looks < most_looks) {
    break_seen(what);  // it has changed; is it still the same grant?
  } else {
    what->done(base::fail(errc::token_mismatch, "the lock changes hands too fast"));
  }
}

}  // namespace sallyport::backends::etcd
