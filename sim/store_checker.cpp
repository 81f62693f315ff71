#include "sim/checkers.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace sallyport::sim {

using backend_api::holder_id;
using backends::memory::notice;
using backends::memory::notice_kind;

namespace {

/// Farewells wait for a late request as long as its lease, by a clock that may run fast.
constexpr double longest_wait_of_farewell = 0.95;

bool creates_a_ghost(const request& asked, true_time now) {
  const auto age = static_cast<double>(now - asked.sent_at);
  return asked.doubled ||
         age > longest_wait_of_farewell * static_cast<double>(asked.lease_length.count());
}

}  // namespace

void store_checker::executed(const request& asked, std::uint64_t client, const answer& said,
                             const std::vector<notice>& notices, time_point store_now) {
  const std::size_t lock = shared_.index_of(asked.name);
  switch (asked.what) {
    case operation::acquire:
      if (creates_a_ghost(asked, shared_.loop.now())) ghosts_.insert(asked.holder);
      noticed(notices, store_now);
      acquire_executed(asked, client, std::get<base::result<backend_api::acquire_answer>>(said),
                       store_now);
      return;
    case operation::renew:
    case operation::downgrade:
      noticed(notices, store_now);
      renew_executed(asked, std::get<base::result<backend_api::renew_answer>>(said), store_now);
      return;
    case operation::release:
    case operation::withdraw:
      // A withdrawal leaves the queue before it is served; a release does not touch tickets.
      if (asked.what == operation::withdraw) leave_queue(lock, asked.holder);
      noticed(notices, store_now);
      if (std::get<backend_api::leave_answer>(said) == backend_api::leave_answer::left) {
        left(lock, asked.holder);
      }
      return;
    case operation::set_value:
      noticed(notices, store_now);
      return;
  }
}

void store_checker::noticed(const std::vector<notice>& notices, time_point store_now) {
  for (const notice& each : notices) {
    const std::size_t lock = shared_.index_of(each.name);
    switch (each.kind) {
      case notice_kind::granted:
        shared_.count.add(counter::contended_grant);
        granted(lock, each.holder, each.client, *each.grant, store_now);
        break;
      case notice_kind::lost:
        left(lock, each.holder);
        break;
      case notice_kind::changed:
        break;
    }
  }
}

void store_checker::acquire_executed(const request& asked, std::uint64_t client,
                                     const base::result<backend_api::acquire_answer>& said,
                                     time_point store_now) {
  const std::size_t lock = shared_.index_of(asked.name);
  if (!said) return;
  if (const auto* grant = std::get_if<backend_api::granted>(&*said)) {
    // "Already yours" tells of tokens that were reserved before.
    if (drawn(lock, grant->tokens.first)) return;
    granted(lock, asked.holder, client, *grant, store_now);
  } else if (const auto* queued = std::get_if<backend_api::waiting>(&*said)) {
    if (queued->ticket_stretch > 1) shared_.count.add(counter::ticket_stretched);
    waits(asked, client, store_now + asked.ticket_length * queued->ticket_stretch, store_now);
  } else {
    no_holder(lock, asked.holder);
  }
}

void store_checker::renew_executed(const request& asked,
                                   const base::result<backend_api::renew_answer>& said,
                                   time_point store_now) {
  const std::size_t lock = shared_.index_of(asked.name);
  if (!said) return;
  if (const auto* mine = std::get_if<backend_api::renewed>(&*said)) {
    presence& entry = present_[asked.holder];
    if (entry.provisional) shared_.count.add(counter::claim);
    if (asked.token_count > 0) shared_.count.add(counter::draw);
    entry.holds = true;
    entry.provisional = false;
    entry.until = store_now + mine->remaining;
    remember_draw(lock, mine->tokens);
  } else if (std::holds_alternative<backend_api::gone>(*said) && asked.what == operation::renew) {
    no_holder(lock, asked.holder);  // a downgrade says so to a waiter too
  }
}

void store_checker::granted(std::size_t lock, const holder_id& who, std::uint64_t client,
                            const backend_api::granted& grant, time_point store_now) {
  shared_.note("lock # is granted to client #, ticket #, token #", static_cast<std::int64_t>(lock),
               static_cast<std::int64_t>(client), static_cast<std::int64_t>(who.low % 10'000),
               static_cast<std::int64_t>(grant.tokens.first.value()));
  if (shared_.plan.in_model) check_order(lock, who, store_now);
  leave_queue(lock, who);
  present_[who] = {client, true, grant.provisional, store_now + grant.remaining};
  remember_draw(lock, grant.tokens);
}

void store_checker::waits(const request& asked, std::uint64_t client, time_point lapses,
                          time_point store_now) {
  present_[asked.holder] = {client, false, false, lapses};
  auto& queue = queues_[shared_.index_of(asked.name)];
  for (place& each : queue) {
    if (each.holder != asked.holder) continue;
    each.lapsed_once = each.lapsed_once || each.lapses <= store_now;
    each.lapses = lapses;
    each.set_aside = false;
    return;
  }
  queue.push_back({asked.holder, lapses});
}

void store_checker::check_order(std::size_t lock, const holder_id& who, time_point store_now) {
  auto& queue = queues_[lock];
  const auto mine = std::find_if(queue.begin(), queue.end(),
                                 [&](const place& each) { return each.holder == who; });
  if (mine != queue.end() && mine->lapsed_once) return;
  for (auto each = queue.begin(); each != mine; ++each) {
    if (each->lapses <= store_now) each->lapsed_once = true;
    if (each->lapsed_once || each->set_aside) continue;
    shared_.fail("fifo", "lock " + std::to_string(lock) + " was granted past ticket " +
                             std::to_string(each->holder.low % 10'000) + ", which lives");
  }
}

void store_checker::leave_queue(std::size_t lock, const holder_id& who) {
  std::erase_if(queues_[lock], [&](const place& each) { return each.holder == who; });
}

void store_checker::set_aside(const lock_name& name, const holder_id& who) {
  for (place& each : queues_[shared_.index_of(name)]) {
    if (each.holder != who || each.set_aside) continue;
    if (each.passed_over && !each.lapsed_once && shared_.plan.in_model) {
      shared_.fail("fifo", "lock " + name.text() + " was granted past ticket " +
                               std::to_string(who.low % 10'000) + " twice");
    }
    each.set_aside = true;
    each.passed_over = true;
  }
}

void store_checker::no_holder(std::size_t lock, const holder_id& who) {
  // On Redis neither a renewal nor a question without queueing looks at tickets.
  const auto found = present_.find(who);
  if (shared_.plan.redis && found != present_.end() && !found->second.holds) return;
  left(lock, who);
}

void store_checker::left(std::size_t lock, const holder_id& who) {
  present_.erase(who);
  leave_queue(lock, who);
}

void store_checker::client_gone(std::uint64_t client) {
  std::erase_if(present_, [&](const auto& entry) {
    if (entry.second.client != client) return false;
    for (auto& queue : queues_) {
      std::erase_if(queue, [&](const place& each) { return each.holder == entry.first; });
    }
    return true;
  });
}

void store_checker::everything_gone() {
  present_.clear();
  for (auto& queue : queues_) queue.clear();
}

void store_checker::remember_draw(std::size_t lock, const backend_api::token_block& tokens) {
  draws_[lock].try_emplace(tokens.first, block{tokens.last, next_sequence(), {}, false});
}

void store_checker::quorum_granted(std::size_t lock, const holder_id& who,
                                   const backend_api::token_block& tokens, std::uint64_t since) {
  auto& draws = draws_[lock];
  const auto same = draws.find(tokens.first);
  if (same != draws.end() && same->second.owner == who && same->second.last == tokens.last) return;
  const auto after = draws.upper_bound(tokens.last);
  if (after != draws.begin() && std::prev(after)->second.last >= tokens.first) {
    shared_.fail("tokens", "lock " + std::to_string(lock) + ": tokens " +
                               std::to_string(tokens.first.value()) + " to " +
                               std::to_string(tokens.last.value()) +
                               " were given, and some of them had been given before");
    return;
  }
  shared_.note("lock # is granted to ticket #, token #, since #", static_cast<std::int64_t>(lock),
               static_cast<std::int64_t>(who.low % 10'000),
               static_cast<std::int64_t>(tokens.first.value()), static_cast<std::int64_t>(since));
  draws.emplace(tokens.first, block{tokens.last, since, who, false});
}

void store_checker::session_granted(std::size_t lock, const holder_id& who,
                                    const backend_api::token_block& tokens, std::uint64_t since,
                                    bool several) {
  const auto [known, fresh] =
      draws_[lock].try_emplace(tokens.first, block{tokens.last, since, who, several});
  if (!fresh) {
    if (known->second.owner == who || (several && known->second.several)) return;
    shared_.fail("tokens", "lock " + std::to_string(lock) + ": token " +
                               std::to_string(tokens.first.value()) + " was given to two");
    return;
  }
  shared_.note("lock # is granted to ticket #, token #", static_cast<std::int64_t>(lock),
               static_cast<std::int64_t>(who.low % 10'000),
               static_cast<std::int64_t>(tokens.first.value()));
}

std::optional<std::uint64_t> store_checker::drawn(std::size_t lock, fencing_token token) const {
  auto found = draws_[lock].upper_bound(token);
  if (found == draws_[lock].begin()) return std::nullopt;
  --found;
  if (found->second.last < token) return std::nullopt;
  return found->second.sequence;
}

void store_checker::check_nothing_of(std::uint64_t client, time_point store_now) {
  if (!shared_.plan.in_model)
    return;  // the clients' clocks say nothing about when the store forgets
  const duration slack = shared_.plan.longest_lease / 20;
  for (const auto& [holder, entry] : present_) {
    if (entry.client != client || entry.until <= store_now + slack) continue;
    if (ghosts_.contains(holder)) continue;
    shared_.fail("nothing left behind",
                 "client " + std::to_string(client) + " is quiet, but " +
                     (entry.holds ? "holds a lock" : "stands in a queue") + " with ticket " +
                     std::to_string(holder.low % 10'000) + " for " +
                     std::to_string((entry.until - store_now).count() / 1'000'000) + " ms more");
  }
}

}  // namespace sallyport::sim
