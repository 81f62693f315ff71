#pragma once

#include "backends/pipeline/connection.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

/// The bodies of pipeline::connection. For the one file of a protocol that instantiates it.
namespace sallyport::backends::pipeline {

// Commands behind this many unwritten bytes wait outside of the outbox, where they can still be
// answered "not sent".
inline constexpr std::size_t enough_to_write = 256UL * 1024;
// After its first reply was overdue, a peer that does say something is asked this often.
inline constexpr duration silence_patience = std::chrono::seconds{1};
// After a shorter pause nothing is looked at: the look is a system call.
inline constexpr duration worth_looking = std::chrono::milliseconds{5};

template <class Link, class Exchange, class Owner, class Trace>
auto connection<Link, Exchange, Owner, Trace>::flight_queue::push() -> flight& {
  if (empty()) {
    all_.clear();
    first_ = 0;
  } else if (first_ >= all_.size() / 2 && all_.size() == all_.capacity()) {
    all_.erase(all_.begin(), begin());
    first_ = 0;
  }
  return all_.emplace_back();
}

template <class Link, class Exchange, class Owner, class Trace>
connection<Link, Exchange, Owner, Trace>::connection(limits most, std::weak_ptr<Owner> whose)
    : owner_(std::move(whose)),
      most_{.waiting_bytes = most.waiting_bytes,
            .in_flight = std::max<std::size_t>(most.in_flight, 1)} {}

template <class Link, class Exchange, class Owner, class Trace>
connection<Link, Exchange, Owner, Trace>::~connection() {
  if (link_) connection::close();
}

// Sending.

template <class Link, class Exchange, class Owner, class Trace>
auto connection<Link, Exchange, Owner, Trace>::begin_flight(Exchange& what) -> flight& {
  what.sent_on = number_;
  flight& one = in_flight_.push();
  one.first_byte = out_.end();
  one.heard_before = heard_;
  one.silent_by = what.answer_by;
  return one;
}

template <class Link, class Exchange, class Owner, class Trace>
bool connection<Link, Exchange, Owner, Trace>::bound_elsewhere(const Exchange& what) {
  return what.bound_to != 0 && what.bound_to != number_;
}

template <class Link, class Exchange, class Owner, class Trace>
bool connection<Link, Exchange, Owner, Trace>::room_in_flight() {
  return in_flight_.size() < most_.in_flight && out_.unwritten() < enough_to_write;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::look_after_pause() {
  if (out_.broken() || !in_flight_.empty()) return;
  const time_point now = lease_clock::now();
  if (now - quiet_since_ < worth_looking) return;
  quiet_since_ = now;
  if (!link_->stream().peer_has_left()) return;
  // What is put in flight now is not written, and waits for the next connection.
  out_.break_off(*link_, {make_error_code(errc::unavailable), "it closed the connection"});
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::flush() {
  if (up_) out_.flush(*link_);
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::send_waiting() {
  do {
    while (up_ && !waiting_.empty() && room_in_flight()) {
      waiting_bytes_ -= waiting_.front()->command.size();
      put_in_flight(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    flush();
  } while (up_ && !out_.broken() && !out_.blocked() && !waiting_.empty() && room_in_flight());
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::expect_by(time_point when) {
  if (when >= next_due_) return;
  next_due_ = when;
  link_->alarm(when);
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::send(std::unique_ptr<Exchange> what) {
  std::unique_ptr<Exchange> refused;
  base::failure refusal;
  bool connect = false;
  {
    const base::mutex_lock lock(mutex_);
    if (bound_elsewhere(*what)) {
      refused = std::move(what);
    } else if (closed_) {
      refused = std::move(what);
      refusal = {make_error_code(errc::closed), "the client was closed"};
    } else if (waiting_bytes_ + out_.unwritten() + what->command.size() > most_.waiting_bytes) {
      refused = std::move(what);
      refusal = {make_error_code(errc::unavailable),
                 "too much waits to be sent" +
                     (last_failure_.code ? "; " + last_failure_.detail : std::string()),
                 !last_failure_.code};
    } else {
      expect_by(what->answer_by);
      if (up_ && waiting_.empty() && room_in_flight()) {
        look_after_pause();
        put_in_flight(std::move(what));
        if (!busy_ && !out_.blocked() && gatherings_ == 0) flush();
        return;
      }
      connect = !up_;
      waiting_bytes_ += what->command.size();
      waiting_.push_back(std::move(what));
    }
  }
  if (connect) link_->want();
  if (!refused) return;
  if (refusal.code) {
    refused->answered(tl::unexpected(std::move(refusal)));
  } else {
    refused->not_meant();
  }
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::begin_gathering() {
  const base::mutex_lock lock(mutex_);
  ++gatherings_;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::end_gathering() {
  const base::mutex_lock lock(mutex_);
  if (--gatherings_ == 0 && !busy_ && !out_.blocked()) flush();
}

// The end of a connection, for now or for good.

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::take_back_flights(exchanges& lost) {
  flight_queue all = in_flight_.take();
  exchanges unsent;
  for (flight& each : all) {
    if (!each.who) continue;
    if (out_.may_have_left(each.first_byte)) {
      lost.push_back(std::move(each.who));
    } else {
      waiting_bytes_ += each.who->command.size();
      unsent.push_back(std::move(each.who));
    }
  }
  waiting_.insert(waiting_.begin(), std::make_move_iterator(unsent.begin()),
                  std::make_move_iterator(unsent.end()));
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::take_waiting(exchanges& all) {
  std::move(waiting_.begin(), waiting_.end(), std::back_inserter(all));
  waiting_.clear();
  waiting_bytes_ = 0;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::forget_connection() {
  up_ = false;
  busy_ = false;
  out_.forget();
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::answer_all(exchanges& all,
                                                          const base::failure& why) {
  for (auto& each : all) {
    each->answered(tl::unexpected(why));
    each.reset();
  }
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::answer_lost(exchanges& lost,
                                                           const std::string& why) {
  if (lost.empty()) return;
  answer_all(lost, {make_error_code(errc::outcome_unknown), why});
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::retarget(net::endpoint where) {
  link_->retarget(std::move(where));
  // What is sent from now on is meant for the new place. In this order: link_up() must not come
  // between and find nothing pending.
  const base::mutex_lock lock(mutex_);
  up_ = false;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::drop(base::failure why) {
  link_->drop(std::move(why));
  const base::mutex_lock lock(mutex_);
  up_ = false;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::rest(base::failure why) {
  link_->rest(std::move(why));
  const base::mutex_lock lock(mutex_);
  up_ = false;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::close() {
  exchanges lost;
  exchanges unsent;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    take_back_flights(lost);
    take_waiting(unsent);
    up_ = false;
  }
  link_->close();
  answer_lost(lost, "the client was closed before " + link_->describe() + " had answered");
  answer_all(unsent, {make_error_code(errc::closed), "the client was closed"});
}

template <class Link, class Exchange, class Owner, class Trace>
bool connection<Link, Exchange, Owner, Trace>::unfinished() {
  const base::mutex_lock lock(mutex_);
  return !closed_ && (!in_flight_.empty() || !waiting_.empty());
}

template <class Link, class Exchange, class Owner, class Trace>
std::uint64_t connection<Link, Exchange, Owner, Trace>::number() {
  const base::mutex_lock lock(mutex_);
  return number_;
}

// What the link tells.

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::link_up() {
  std::size_t waited = 0;
  {
    const base::mutex_lock lock(mutex_);
    // It may have been told to leave this server while the greeting was on its way.
    if (closed_ || link_->drop_pending()) return;
    ++number_;
    waited = waiting_.size();
    quiet_since_ = lease_clock::now();
    last_failure_ = {};
  }
  if (const std::shared_ptr<Owner> whose = owner_.lock()) whose->connected();
  sort_waiting(waited);
  const base::mutex_lock lock(mutex_);
  // Likewise while its owner was told. Only now: nothing may overtake what has waited.
  if (closed_ || link_->drop_pending()) return;
  up_ = true;
  send_waiting();
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::sort_waiting(std::size_t count) {
  exchanges asked;
  exchanges meant;
  exchanges refused;
  {
    const base::mutex_lock lock(mutex_);
    // close() takes them all.
    const auto end =
        waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(count, waiting_.size()));
    for (auto each = waiting_.begin(); each != end; ++each) {
      waiting_bytes_ -= (*each)->command.size();
      (bound_elsewhere(**each) ? refused : asked).push_back(std::move(*each));
    }
    waiting_.erase(waiting_.begin(), end);
  }
  for (auto& each : asked) (each->still_meant() ? meant : refused).push_back(std::move(each));
  for (auto& each : refused) {
    each->not_meant();
    each.reset();
  }
  if (meant.empty()) return;
  {
    const base::mutex_lock lock(mutex_);
    if (!closed_) {
      // Before what came meanwhile.
      for (const auto& each : meant) waiting_bytes_ += each->command.size();
      waiting_.insert(waiting_.begin(), std::make_move_iterator(meant.begin()),
                      std::make_move_iterator(meant.end()));
      return;
    }
  }
  answer_all(meant, {make_error_code(errc::closed), "the client was closed"});
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::link_down(const base::failure& why, bool was_up) {
  exchanges lost;
  exchanges unsent;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    take_back_flights(lost);
    forget_connection();
    last_failure_ = why;
    if (!was_up) take_waiting(unsent);
  }
  if (const std::shared_ptr<Owner> whose = owner_.lock()) whose->disconnected(why);
  answer_lost(lost, "the connection was lost before the answer came: " + why.detail);
  // To those who wait it is all the same, and may pass: another server may answer here soon.
  answer_all(unsent, {make_error_code(errc::unavailable), why.detail});
  const base::mutex_lock lock(mutex_);
  if (!waiting_.empty()) link_->want();
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::link_ready(std::uint32_t /*events*/) {
  take_replies();
}

template <class Link, class Exchange, class Owner, class Trace>
bool connection<Link, Exchange, Owner, Trace>::take_replies() {
  bool more = true;
  while (more) {
    {
      const base::mutex_lock lock(mutex_);
      if (!up_) return false;
      busy_ = true;
    }
    auto got = link_->read(said_);
    const auto understood = dispatch();
    said_.clear();
    if (!got || !understood) {
      link_->fail(understood ? got.error() : understood.error());
      return false;
    }
    more = *got;
    finish_batch();
  }
  return true;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::finish_batch() {
  const base::mutex_lock lock(mutex_);
  busy_ = false;
  quiet_since_ = lease_clock::now();
  send_waiting();
}

template <class Link, class Exchange, class Owner, class Trace>
base::result<std::monostate> connection<Link, Exchange, Owner, Trace>::dispatch() {
  if (said_.empty()) return std::monostate{};
  base::result<std::monostate> verdict = std::monostate{};
  {
    const base::mutex_lock lock(mutex_);
    ++heard_;
    verdict = match(said_);
  }
  for (answer& each : answers_) {
    if (each.said != nullptr) {
      each.who->answered(std::move(*each.said));
    } else {
      each.who->answered(tl::unexpected(std::move(*each.why)));
    }
    each.who.reset();
  }
  answers_.clear();
  return verdict;
}

template <class Link, class Exchange, class Owner, class Trace>
tl::unexpected<base::failure> connection<Link, Exchange, Owner, Trace>::nobody_asked() {
  return base::fail(errc::unavailable, "it answered what nobody had asked");
}

template <class Link, class Exchange, class Owner, class Trace>
bool connection<Link, Exchange, Owner, Trace>::take_overdue(time_point now, exchanges& unknown,
                                                            exchanges& unsent) {
  next_due_ = time_point::max();
  time_point next = time_point::max();
  for (flight& each : in_flight_) {
    if (!each.who) continue;
    if (each.who->answer_by <= now) {
      unknown.push_back(std::move(each.who));
    } else {
      next = std::min(next, each.who->answer_by);
    }
  }
  const auto late = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [&](const auto& each) { return each->answer_by > now; });
  for (auto each = late; each != waiting_.end(); ++each) {
    waiting_bytes_ -= (*each)->command.size();
    unsent.push_back(std::move(*each));
  }
  waiting_.erase(late, waiting_.end());
  for (const auto& each : waiting_) next = std::min(next, each->answer_by);

  bool silent = false;
  if (up_ && !in_flight_.empty()) {
    flight& oldest = in_flight_.front();
    if (oldest.silent_by <= now) {
      silent = oldest.heard_before == heard_;
      oldest.heard_before = heard_;
      oldest.silent_by = now + silence_patience;
    }
    next = std::min(next, oldest.silent_by);
  }
  if (next != time_point::max()) expect_by(next);
  return silent;
}

template <class Link, class Exchange, class Owner, class Trace>
void connection<Link, Exchange, Owner, Trace>::link_due(time_point now) {
  // What has come in time is not late because nobody looked.
  if (!take_replies()) {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
  }
  exchanges unknown;
  exchanges unsent;
  bool silent = false;
  std::optional<base::failure> broken;
  std::string why_unsent;
  {
    const base::mutex_lock lock(mutex_);
    silent = take_overdue(now, unknown, unsent);
    broken = out_.broken();
    if (!unsent.empty()) {
      why_unsent = last_failure_.code ? last_failure_.detail : std::string("nothing could be sent");
    }
  }
  const std::string server = link_->describe();
  answer_lost(unknown, server + " did not answer in time");
  if (!unsent.empty()) {
    answer_all(unsent, {make_error_code(errc::unavailable),
                        server + " was not reached in time: " + why_unsent});
  }
  if (broken) {
    link_->fail(*broken);
  } else if (silent) {
    link_->fail({make_error_code(errc::unavailable), "it has gone silent"});
  }
}

}  // namespace sallyport::backends::pipeline
