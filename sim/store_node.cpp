#include "sim/store_node.hpp"

#include "base/planted.hpp"
#include "sim/sim_backend.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::sim {

using backends::memory::notice;

namespace {

constexpr time_point store_epoch{std::chrono::hours{24 * 365}};

backend_api::renew_request to_renewal(const request& asked) {
  return {.name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .answer_by = asked.answer_by};
}

}  // namespace

store_node::store_node(context& shared, checkers& checks)
    : server(draw_store_clock(shared.random, store_epoch)), shared_(shared), checks_(checks) {}

std::unique_ptr<store_driver> store_node::open(process& owner, client_number client) {
  return std::make_unique<sim_backend>(shared_, owner, *this, client);
}

void store_node::subscribe(client_number client, const std::shared_ptr<notice_listener>& listener) {
  listeners_[client] = listener;
}

answer store_node::serve(const request& asked, client_number from, std::vector<notice>& notices) {
  const backend_api::leave_request leave{.name = asked.name,
                                         .kind = asked.kind,
                                         .mode = asked.mode,
                                         .holder = asked.holder,
                                         .answer_by = {}};
  switch (asked.what) {
    case operation::acquire:
      return table_.acquire({.name = asked.name,
                             .kind = asked.kind,
                             .mode = asked.mode,
                             .holder = asked.holder,
                             .lease_length = asked.lease_length,
                             .claim_window = asked.claim_window,
                             .ticket_length = asked.ticket_length,
                             .may_wait = asked.may_wait,
                             .permits = asked.permits,
                             .token_count = asked.token_count,
                             .local_waiters = asked.local_waiters,
                             .value = asked.value,
                             .answer_by = asked.answer_by},
                            {.client = from, .owner = nullptr}, now(), notices);
    case operation::renew:
      return base::result<backend_api::renew_answer>{
          table_.renew(to_renewal(asked), now(), notices)};
    case operation::release:
      return table_.release(leave, now(), notices);
    case operation::withdraw:
      return table_.withdraw(leave, now(), notices);
    case operation::downgrade:
      return table_.downgrade(to_renewal(asked), now(), notices);
    case operation::set_value:
      return table_.set_value(to_renewal(asked), asked.value, now(), notices);
  }
  return false;
}

reply store_node::execute(const request& asked, client_number from) {
  std::vector<notice> notices;
  reply out{asked.number, asked.what, asked.holder, serve(asked, from, notices)};
  shared_.note("store serves operation # of client # for lock #, ticket #",
               static_cast<std::int64_t>(asked.what), static_cast<std::int64_t>(from),
               static_cast<std::int64_t>(shared_.index_of(asked.name)),
               static_cast<std::int64_t>(asked.holder.low % 10'000));
  const true_time age = shared_.loop.now() - asked.sent_at;
  if (asked.doubled || age > asked.lease_length.count() / 4) {
    shared_.note("  it was sent # ms ago, copy #", age / 1'000'000, asked.doubled ? 1 : 0);
  }
  if (base::planted(base::defect::none)) table_.audit();  // a defect may break what it looks at
  checks_.store.executed(asked, from, out.says, notices, now());
  publish(notices);
  return out;
}

reply store_node::refuse(const request& asked) {
  reply out{asked.number, asked.what, asked.holder, {}};
  const errc why = shared_.random.chance(0.7) ? errc::unavailable : errc::store_refused;
  out.failed = base::failure{make_error_code(why), "simulated"};
  return out;
}

void store_node::publish(const std::vector<notice>& notices) {
  for (const notice& each : notices) {
    const auto found = listeners_.find(each.client);
    if (found == listeners_.end()) continue;
    if (const auto listener = found->second.lock()) listener->publish(each);
  }
}

void store_node::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  std::vector<notice> notices;
  const auto seen = table_.who(name, now(), notices);
  checks_.store.noticed(notices, now());
  publish(notices);
  if (!seen || seen->holders.empty()) return;
  const std::size_t chosen = shared_.random.below(seen->holders.size());
  notices.clear();
  const auto broken = table_.break_lock(name, seen->holders[chosen].token, mode, now(), notices);
  if (!broken) return;
  shared_.note("the grant of lock # with token # is broken, mode #",
               static_cast<std::int64_t>(shared_.index_of(name)),
               static_cast<std::int64_t>(seen->holders[chosen].token.value()),
               static_cast<std::int64_t>(mode));
  shared_.count.add(mode == backend_api::break_mode::safe ? counter::broken_safely
                                                          : counter::broken_at_once);
  checks_.store.noticed(notices, now());
  publish(notices);
}

std::size_t store_node::entries_left() {
  std::vector<notice> notices;
  table_.sweep(now(), notices);
  checks_.store.noticed(notices, now());
  publish(notices);
  return table_.entry_count();
}

}  // namespace sallyport::sim
