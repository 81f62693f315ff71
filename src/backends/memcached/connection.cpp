#include "backends/memcached/connection.hpp"

#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

namespace sallyport::backends::memcached {
namespace {

using namespace std::chrono_literals;

// Commands behind this many unwritten bytes wait outside of the buffer, where they can still be
// answered "not sent".
constexpr std::size_t enough_to_write = 256UL * 1024;
// Written bytes are cut off the buffer's front from here on.
constexpr std::size_t worth_cutting = 64UL * 1024;
// What one TLS record holds: an unfinished write may have sent so much.
constexpr std::uint64_t largest_record = 16UL * 1024;
// After its first reply was overdue, a peer that does say something is asked this often.
constexpr duration silence_patience = 1s;
// After a shorter pause nothing is looked at: the look is a system call.
constexpr duration worth_looking = 5ms;

}  // namespace

void connection::flight_queue::push(flight&& one) {
  if (empty()) {
    all_.clear();
    first_ = 0;
  } else if (first_ >= all_.size() / 2 && all_.size() == all_.capacity()) {
    all_.erase(all_.begin(), begin());
    first_ = 0;
  }
  all_.push_back(std::move(one));
}

connection::flight connection::flight_queue::pop() { return std::move(all_[first_++]); }

connection::flight_queue connection::flight_queue::take() {
  return std::exchange(*this, flight_queue{});
}

base::result<std::shared_ptr<connection>> connection::make(std::shared_ptr<net::pump> engine,
                                                           settings how,
                                                           std::weak_ptr<owner> whose) {
  auto made = std::make_shared<connection>(how, std::move(whose));
  auto linked = link::make(std::move(engine),
                           {.where = std::move(how.where),
                            .tls = std::move(how.tls),
                            .user = std::move(how.user),
                            .password = std::move(how.password),
                            .connect_timeout = how.connect_timeout},
                           made);
  if (!linked) return tl::unexpected(linked.error());
  made->link_ = std::move(*linked);
  return made;
}

connection::connection(const settings& how, std::weak_ptr<owner> whose)
    : max_waiting_bytes_(how.max_waiting_bytes),
      max_in_flight_(std::max<std::size_t>(how.max_in_flight, 1)),
      owner_(std::move(whose)) {}

connection::~connection() {
  if (link_) connection::close();
}

// Sending.

bool connection::room_in_flight() {
  return in_flight_.size() < max_in_flight_ && out_.size() - out_done_ < enough_to_write;
}

void connection::look_after_pause() {
  if (broken_ || !in_flight_.empty()) return;
  const time_point now = lease_clock::now();
  if (now - quiet_since_ < worth_looking) return;
  quiet_since_ = now;
  if (!link_->stream().peer_has_left()) return;
  // What is put in flight now is not written, and waits for the next connection.
  broken_ = true;
  why_broken_ = {make_error_code(errc::unavailable), "it closed the connection"};
  link_->alarm(now);
}

void connection::put_in_flight(std::unique_ptr<exchange> what) {
  flight one;
  one.answer = reply_builder(++last_tag_, what->command.lines);
  one.first_byte = written_ + (out_.size() - out_done_);
  one.heard_before = heard_;
  one.silent_by = what->answer_by;
  append_command(out_, what->command, last_tag_);
  what->sent_on = number_;
  one.who = std::move(what);
  in_flight_.push(std::move(one));
}

void connection::send_waiting() {
  do {
    while (up_ && !waiting_.empty() && room_in_flight()) {
      waiting_bytes_ -= waiting_.front()->command.size();
      put_in_flight(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    flush();
  } while (up_ && !broken_ && !watching_output_ && !waiting_.empty() && room_in_flight());
}

void connection::flush() {
  while (up_ && !broken_ && out_done_ < out_.size()) {
    net::stream& stream = link_->stream();
    net::transfer step = stream.write_some(std::string_view(out_).substr(out_done_));
    if (step.what == net::transfer::outcome::moved) {
      out_done_ += step.bytes;
      written_ += step.bytes;
      may_have_left_ = std::max(may_have_left_, written_);
      continue;
    }
    if (stream.encrypted()) may_have_left_ = written_ + largest_record;
    if (step.what == net::transfer::outcome::again) {
      if (!watching_output_) link_->watch_output(true);
      watching_output_ = true;
      if (out_done_ >= worth_cutting) out_.erase(0, std::exchange(out_done_, 0));
      return;
    }
    // Not dealt with here: this may be any caller's thread, and answers may still be readable.
    broken_ = true;
    why_broken_ =
        step.what == net::transfer::outcome::failed
            ? std::move(step.why)
            : base::failure{make_error_code(errc::unavailable), "it closed the connection"};
    link_->alarm(lease_clock::now());
    return;
  }
  if (!up_ || broken_) return;
  out_.clear();
  out_done_ = 0;
  if (watching_output_) link_->watch_output(false);
  watching_output_ = false;
}

void connection::expect_by(time_point when) {
  if (when >= next_due_) return;
  next_due_ = when;
  link_->alarm(when);
}

void connection::send(std::unique_ptr<exchange> what) {
  std::unique_ptr<exchange> unbound;
  std::unique_ptr<exchange> refused;
  base::failure refusal;
  bool connect = false;
  {
    const base::mutex_lock lock(mutex_);
    if (what->bound_to != 0 && what->bound_to != number_) {
      unbound = std::move(what);
    } else if (closed_) {
      refusal = {make_error_code(errc::closed), "the client was closed"};
      refused = std::move(what);
    } else if (waiting_bytes_ + out_.size() - out_done_ + what->command.size() >
               max_waiting_bytes_) {
      refusal = {make_error_code(errc::unavailable),
                 "too much waits to be sent" +
                     (last_failure_.code ? "; " + last_failure_.detail : std::string())};
      refused = std::move(what);
    } else {
      expect_by(what->answer_by);
      if (up_ && waiting_.empty() && room_in_flight()) {
        look_after_pause();
        put_in_flight(std::move(what));
        if (!busy_ && !watching_output_ && gatherings_ == 0) flush();
        return;
      }
      connect = !up_;
      waiting_bytes_ += what->command.size();
      waiting_.push_back(std::move(what));
    }
  }
  if (connect) link_->want();
  if (unbound) unbound->not_bound();
  if (refused) refused->answered(tl::unexpected(std::move(refusal)));
}

void connection::begin_gathering() {
  const base::mutex_lock lock(mutex_);
  ++gatherings_;
}

void connection::end_gathering() {
  const base::mutex_lock lock(mutex_);
  if (--gatherings_ == 0 && up_ && !busy_ && !watching_output_) flush();
}

// The end of a connection, for now or for good.

bool connection::was_sent(const flight& one) const { return one.first_byte < may_have_left_; }

void connection::take_back_flights(exchanges& lost) {
  flight_queue all = in_flight_.take();
  std::vector<std::unique_ptr<exchange>> unsent;
  for (flight& each : all) {
    if (!each.who) continue;
    if (was_sent(each)) {
      lost.push_back(std::move(each.who));
    } else {
      waiting_bytes_ += each.who->command.size();
      unsent.push_back(std::move(each.who));
    }
  }
  waiting_.insert(waiting_.begin(), std::make_move_iterator(unsent.begin()),
                  std::make_move_iterator(unsent.end()));
}

void connection::forget_connection() {
  up_ = false;
  busy_ = false;
  broken_ = false;
  watching_output_ = false;
  out_.clear();
  out_done_ = 0;
  written_ = 0;
  may_have_left_ = 0;
}

void connection::answer_all(exchanges& all, const base::failure& why) {
  for (auto& each : all) {
    each->answered(tl::unexpected(why));
    each.reset();
  }
}

void connection::answer_lost(exchanges& lost, const std::string& why) {
  if (lost.empty()) return;
  answer_all(lost, {make_error_code(errc::outcome_unknown), why});
}

void connection::drop(base::failure why) {
  link_->drop(std::move(why));
  const base::mutex_lock lock(mutex_);
  up_ = false;
}

void connection::close() {
  exchanges lost;
  exchanges unsent;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    take_back_flights(lost);
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(unsent));
    waiting_.clear();
    waiting_bytes_ = 0;
    up_ = false;
  }
  link_->close();
  answer_lost(lost, "the client was closed before " + link_->describe() + " had answered");
  answer_all(unsent, {make_error_code(errc::closed), "the client was closed"});
}

bool connection::unfinished() {
  const base::mutex_lock lock(mutex_);
  return !closed_ && (!in_flight_.empty() || !waiting_.empty());
}

// What the link tells.

std::uint64_t connection::number() {
  const base::mutex_lock lock(mutex_);
  return number_;
}

base::result<std::monostate> connection::link_greeted(const server_facts& said) {
  const std::shared_ptr<owner> whose = owner_.lock();
  if (!whose) return base::fail(errc::closed, "the client was closed");
  return whose->greeted(said);
}

void connection::link_up() {
  {
    const base::mutex_lock lock(mutex_);
    // It may have been told to leave this server while the greeting was on its way.
    if (closed_ || link_->drop_pending()) return;
    ++number_;
    quiet_since_ = lease_clock::now();
    last_failure_ = {};
  }
  if (const std::shared_ptr<owner> whose = owner_.lock()) whose->connected();
  sort_waiting();
  const base::mutex_lock lock(mutex_);
  if (closed_) return;
  up_ = true;
  send_waiting();
}

void connection::sort_waiting() {
  exchanges unbound;
  {
    const base::mutex_lock lock(mutex_);
    const auto late = std::stable_partition(
        waiting_.begin(), waiting_.end(),
        [now = number_](const auto& each) { return each->bound_to == 0 || each->bound_to == now; });
    for (auto each = late; each != waiting_.end(); ++each) {
      waiting_bytes_ -= (*each)->command.size();
      unbound.push_back(std::move(*each));
    }
    waiting_.erase(late, waiting_.end());
  }
  for (auto& each : unbound) each->not_bound();
}

void connection::link_down(const base::failure& why, bool was_up) {
  exchanges lost;
  exchanges unsent;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    take_back_flights(lost);
    forget_connection();
    last_failure_ = why;
    if (!was_up) {
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(unsent));
      waiting_.clear();
      waiting_bytes_ = 0;
    }
  }
  if (const std::shared_ptr<owner> whose = owner_.lock()) whose->disconnected(why);
  answer_lost(lost, "the connection was lost before the answer came: " + why.detail);
  // To those who wait it is all the same, and may pass: another server may answer here soon.
  answer_all(unsent, {make_error_code(errc::unavailable), why.detail});
  const base::mutex_lock lock(mutex_);
  if (!waiting_.empty()) link_->want();
}

void connection::link_ready(std::uint32_t /*events*/) { take_replies(); }

bool connection::take_replies() {
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

void connection::finish_batch() {
  const base::mutex_lock lock(mutex_);
  busy_ = false;
  quiet_since_ = lease_clock::now();
  send_waiting();
}

base::result<std::monostate> connection::dispatch() {
  if (said_.empty()) return std::monostate{};
  base::result<std::monostate> verdict = std::monostate{};
  {
    const base::mutex_lock lock(mutex_);
    ++heard_;
    verdict = match();
  }
  for (auto& [who, said] : batch_) {
    who->answered(std::move(said));
    who.reset();
  }
  batch_.clear();
  return verdict;
}

base::result<std::monostate> connection::match() {
  for (answer_line& line : said_) {
    if (in_flight_.empty()) {
      return base::fail(errc::unavailable, "it answered what nobody had asked");
    }
    flight& oldest = in_flight_.front();
    auto whole = oldest.answer.take(std::move(line));
    if (!whole) return tl::unexpected(whole.error());
    if (!*whole) continue;
    if (oldest.who) batch_.emplace_back(std::move(oldest.who), oldest.answer.finished());
    static_cast<void>(in_flight_.pop());
  }
  return std::monostate{};
}

bool connection::take_overdue(time_point now, exchanges& unknown, exchanges& unsent) {
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

void connection::link_due(time_point now) {
  // What has come in time is not late because nobody looked.
  if (!take_replies()) {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
  }
  exchanges unknown;
  exchanges unsent;
  bool silent = false;
  base::failure broken;
  std::string why_unsent;
  {
    const base::mutex_lock lock(mutex_);
    silent = take_overdue(now, unknown, unsent);
    if (broken_) broken = why_broken_;
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
  if (broken.code) {
    link_->fail(broken);
  } else if (silent) {
    link_->fail({make_error_code(errc::unavailable), "it has gone silent"});
  }
}

}  // namespace sallyport::backends::memcached
