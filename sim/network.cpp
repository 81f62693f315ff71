#include "sim/network.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::sim {

using backends::memory::notice;
using backends::memory::notice_kind;

namespace {

constexpr duration shortest_delay = std::chrono::microseconds{20};
/// Of the requests that a closed connection has sent and not delivered, this share is executed all
/// the same.
constexpr double share_executed_late = 0.5;
/// Of the messages that meet a cut, this share is sent again until they get through.
constexpr double share_sent_again = 0.3;

}  // namespace

duration link::draw_delay(fault slow, counter counted) {
  if (shared_.strikes(slow)) {
    shared_.count.add(counted);
    return draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  }
  // A healed network answers in time: a delay is at most ten times its mean.
  const duration usual =
      shared_.healed ? std::min(shared_.plan.message_delay, shared_.plan.request_timeout / 25)
                     : shared_.plan.message_delay;
  return shortest_delay + draw_around(shared_.random, usual);
}

true_time link::in_order(direction& way, duration delay) {
  way.last = std::max(way.last, shared_.loop.now() + delay.count());
  return way.last;
}

void link::send(std::vector<request> batch) {
  if (shared_.strikes(fault::lose_request)) {
    shared_.count.add(counter::request_lost);
    shared_.note("a request of client # is lost", static_cast<std::int64_t>(client_));
    to_store_.stalled = how_ == carriage::stream;
    return;
  }
  if (to_store_.stalled) return;
  duration delay = draw_delay(fault::slow_message, counter::request_slow);
  if (to_store_.cut) {
    if (!shared_.random.chance(share_sent_again)) {
      to_store_.stalled = how_ == carriage::stream;
      return;
    }
    delay += draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  }
  if (shared_.strikes(fault::double_request)) {
    shared_.count.add(counter::request_doubled);
    std::vector<request> copy = batch;
    for (request& each : copy) each.doubled = true;
    const duration later =
        delay + draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
    shared_.loop.after(later, [self = shared_from_this(), copy = std::move(copy)] {
      self->store_.arrive([self, copy] { self->serve(copy, 0); });
    });
  }
  shared_.loop.at(in_order(to_store_, delay), [self = shared_from_this(), batch = std::move(batch),
                                               by = sender{epoch_, store_.life()}] {
    self->arrive_at_store(batch, by, false);
  });
  if (shared_.strikes(fault::reset_on_send)) reset();
}

void link::arrive_at_store(const std::vector<request>& batch, sender by, bool late) {
  if (by.store_life != store_.life()) return;
  if (by.connection != epoch_ && !late && how_ == carriage::stream) {
    const auto when = late_in_order(by.connection);
    if (!when) return;
    shared_.count.add(counter::request_late);
    shared_.loop.at(
        *when, [self = shared_from_this(), batch, by] { self->arrive_at_store(batch, by, true); });
    return;
  }
  // As a stream it has met the cut when it was sent.
  if (to_store_.cut && how_ == carriage::messages && !shared_.random.chance(share_sent_again)) {
    return;
  }
  if (by.connection != epoch_ && !late) {
    if (!shared_.random.chance(share_executed_late)) return;
    shared_.count.add(counter::request_late);
    const duration delay = draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
    shared_.loop.after(
        delay, [self = shared_from_this(), batch, by] { self->arrive_at_store(batch, by, true); });
    return;
  }
  store_.arrive([self = shared_from_this(), batch, by] { self->serve(batch, by.connection); });
}

std::optional<true_time> link::late_in_order(std::uint64_t connection) {
  direction& rest = old_[connection];
  rest.stalled = rest.stalled || !shared_.random.chance(share_executed_late);
  if (rest.stalled) return std::nullopt;
  return in_order(rest, draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease));
}

void link::serve(const std::vector<request>& batch, std::uint64_t sent_by) {
  std::vector<reply> replies;
  replies.reserve(batch.size());
  for (const request& each : batch) replies.push_back(answer_to(each));
  if (sent_by == epoch_) send_back(std::move(replies));
}

reply link::answer_to(const request& asked) {
  if (shared_.strikes(fault::refuse_request)) {
    shared_.count.add(how_ == carriage::stream ? counter::quorum_refused : counter::store_refused);
    shared_.note("a request of client # is refused, ticket #", static_cast<std::int64_t>(client_),
                 static_cast<std::int64_t>(asked.holder.low % 10'000));
    return store_.refuse(asked);
  }
  reply said = store_.execute(asked, client_);
  const bool done = !said.unknown_script && !said.ask_in_full && !said.ask_again;
  if (done && shared_.strikes(fault::fail_after)) {
    shared_.count.add(how_ == carriage::stream ? counter::quorum_trouble_after_effect
                                               : counter::trouble_after_effect);
    said.in_trouble = true;
  }
  return said;
}

void link::send_back(std::vector<reply> batch) {
  if (shared_.strikes(fault::lose_reply)) {
    shared_.count.add(counter::reply_lost);
    shared_.note("a reply to client # is lost", static_cast<std::int64_t>(client_));
    from_store_.stalled = how_ == carriage::stream;
    return;
  }
  if (from_store_.stalled) return;
  duration delay = draw_delay(fault::slow_message, counter::request_slow);
  if (from_store_.cut) {
    if (!shared_.random.chance(share_sent_again)) {
      from_store_.stalled = how_ == carriage::stream;
      return;
    }
    delay += draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  }
  shared_.loop.at(
      in_order(from_store_, delay),
      [self = shared_from_this(), batch = std::move(batch), sent_by = epoch_]() mutable {
        if (sent_by != self->epoch_ || self->user_ == nullptr) return;
        self->user_->replies_arrive(std::move(batch));
      });
}

void link::publish(const notice& what) {
  if (!subscribed_ || from_store_.cut || shared_.strikes(fault::lose_notice)) {
    shared_.count.add(counter::notice_lost);
    return;
  }
  send_notice(what, draw_delay(fault::slow_notice, counter::notice_slow));
  if (shared_.strikes(fault::double_notice)) {
    shared_.count.add(counter::notice_doubled);
    send_notice(what, draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease));
  }
}

void link::send_notice(const notice& what, duration delay) {
  notice told = what;
  if (told.kind == notice_kind::granted && shared_.plan.notices_without_grant) {
    told.grant.reset();
    shared_.count.add(counter::notice_without_grant);
  }
  shared_.loop.after(delay, [self = shared_from_this(), told = std::move(told)] {
    if (self->user_ != nullptr) self->user_->notice_arrives(told);
  });
}

void link::reset() {
  if (!connected_) return;
  shared_.count.add(counter::connection_reset);
  shared_.note("the connection of client # is reset", static_cast<std::int64_t>(client_));
  connected_ = false;
  const std::uint64_t ended = epoch_++;
  if (user_ != nullptr) user_->connection_ends(ended);
  connect_after(draw_between(shared_.random, shortest_delay, shared_.plan.lease / 4));
}

void link::reset_notices() {
  if (!subscribed_) return;
  subscribed_ = false;
  shared_.loop.after(draw_between(shared_.random, shortest_delay, shared_.plan.lease / 2),
                     [self = shared_from_this()] {
                       self->subscribed_ = true;
                       if (self->user_ != nullptr) self->user_->connection_begins();
                     });
}

void link::connect_after(duration delay) {
  if (connecting_) return;
  connecting_ = true;
  shared_.loop.after(delay, [self = shared_from_this()] { self->try_to_connect(); });
}

void link::try_to_connect() {
  connecting_ = false;
  if (connected_ || user_ == nullptr) return;
  if (cut_off() || !store_.reachable()) {
    connect_after(draw_between(shared_.random, shortest_delay, shared_.plan.lease / 4));
    return;
  }
  connected_ = true;
  to_store_.last = shared_.loop.now();
  from_store_.last = shared_.loop.now();
  to_store_.stalled = false;
  from_store_.stalled = false;
  shared_.note("client # is connected", static_cast<std::int64_t>(client_));
  store_.greet();
  user_->connection_begins();
}

void link::cut(bool to_store, bool from_store) noexcept {
  to_store_.cut = to_store_.cut || to_store;
  from_store_.cut = from_store_.cut || from_store;
}

void link::heal() {
  to_store_.cut = false;
  from_store_.cut = false;
  // Nobody waits for ever behind a byte that is stuck: TCP gives up, or the path has come back.
  if (shared_.random.chance(0.5)) reset();
}

}  // namespace sallyport::sim
