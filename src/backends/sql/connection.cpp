#include "backends/sql/connection.hpp"

#include "backends/sql/answers.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <iterator>
#include <sys/epoll.h>
#include <utility>

namespace sallyport::backends::sql {
namespace {

using namespace std::chrono_literals;

// After its first reply was overdue, a server that does say something is asked this often.
constexpr duration silence_patience = 1s;
// After a shorter pause nothing is looked at: the look is a system call.
constexpr duration worth_looking = 5ms;
// How often one looks whether a host's addresses are known.
constexpr duration find_interval = 5ms;
// A connection that lasted so long has shown that the server is well.
constexpr duration proof_time = 1s;

}  // namespace

std::shared_ptr<connection> connection::make(std::shared_ptr<net::pump> engine, settings how,
                                             std::weak_ptr<owner> whose) {
  auto made = std::make_shared<connection>(std::move(engine), std::move(how), std::move(whose));
  made->number_ = made->pump_->enroll(made);
  return made;
}

connection::connection(std::shared_ptr<net::pump> engine, settings how, std::weak_ptr<owner> whose)
    : pump_(std::move(engine)),
      settings_(std::move(how)),
      owner_(std::move(whose)),
      random_(base::kernel_seed()) {}

connection::~connection() { connection::close(); }

// ---- sending -------------------------------------------------------------------------------------

bool connection::room_in_flight() {
  const std::size_t most = stateless_ ? 1 : settings_.max_in_flight;
  return !broken_ && !watching_output_ && in_flight_.size() < most;
}

void connection::break_off(const base::failure& why) {
  // Not dealt with here: this may be any caller's thread, and replies may still be readable.
  if (!broken_) broken_ = why;
  pump_->alarm(number_, lease_clock::now());
}

void connection::look_after_pause() {
  if (broken_ || !in_flight_.empty()) return;
  const time_point now = lease_clock::now();
  if (now - quiet_since_ < worth_looking) return;
  quiet_since_ = now;
  if (wire_->peer_has_left()) {
    break_off({make_error_code(errc::unavailable), "the server ended the connection"});
  }
}

void connection::put_in_flight(std::unique_ptr<exchange> what) {
  flight one;
  one.order_key = what->order_key;
  one.heard_before = heard_;
  one.silent_by = what->answer_by;
  const auto sent = wire_->send(what->what, !stateless_);
  one.who = std::move(what);
  in_flight_.push_back(std::move(one));
  if (!sent) break_off(sent.error());
  if (wire_->has_replies()) pump_->alarm(number_, lease_clock::now());
}

void connection::flush() {
  if (!up_ || broken_) return;
  const auto all_gone = wire_->flush();
  if (!all_gone) {
    break_off(all_gone.error());
    return;
  }
  if (wire_->has_replies()) pump_->alarm(number_, lease_clock::now());
  if (watching_output_ != *all_gone) return;
  watching_output_ = !*all_gone;
  watch(watching_output_);
}

void connection::send_waiting() {
  flush();
  while (up_ && !waiting_.empty() && room_in_flight()) {
    waiting_bytes_ -= waiting_.front()->what.size();
    std::unique_ptr<exchange> next = std::move(waiting_.front());
    waiting_.pop_front();
    put_in_flight(std::move(next));
    flush();
  }
}

void connection::expect_by(time_point when) {
  if (when >= next_due_) return;
  next_due_ = when;
  pump_->alarm(number_, when);
}

void connection::send(std::unique_ptr<exchange> what) {
  std::unique_ptr<exchange> refused;
  base::failure why;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) {
      why = {make_error_code(errc::closed), "the client was closed"};
      refused = std::move(what);
    } else if (waiting_bytes_ + what->what.size() > settings_.max_waiting_bytes) {
      why = {make_error_code(errc::unavailable),
             "too much waits to be sent" +
                 (last_failure_.code ? "; " + last_failure_.detail : std::string()),
             !last_failure_.code};
      refused = std::move(what);
    } else {
      expect_by(what->answer_by);
      if (up_ && waiting_.empty()) look_after_pause();
      if (up_ && waiting_.empty() && room_in_flight()) {
        put_in_flight(std::move(what));
        flush();
        return;
      }
      waiting_bytes_ += what->what.size();
      waiting_.push_back(std::move(what));
      if (up_) return;
      wanted_ = true;
      eager_ = true;
    }
  }
  if (refused) {
    refused->answered(tl::unexpected(std::move(why)));
  } else {
    pump_->alarm(number_, lease_clock::now());
  }
}

void connection::want() {
  {
    const base::mutex_lock lock(mutex_);
    if (closed_ || up_) return;
    wanted_ = true;
    eager_ = true;
  }
  pump_->alarm(number_, lease_clock::now());
}

bool connection::unfinished() {
  const base::mutex_lock lock(mutex_);
  return !closed_ && (!in_flight_.empty() || !waiting_.empty());
}

void connection::answer_all(exchanges& all, const base::failure& why) {
  for (auto& each : all) {
    each->answered(tl::unexpected(why));
    each.reset();
  }
}

void connection::close() {
  exchanges lost;
  exchanges unsent;
  std::unique_ptr<wire> last;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (flight& each : in_flight_) {
      if (each.who) lost.push_back(std::move(each.who));
    }
    in_flight_.clear();
    std::move(waiting_.begin(), waiting_.end(), std::back_inserter(unsent));
    waiting_.clear();
    waiting_bytes_ = 0;
    // While it is not up it is the pump's thread that uses it; it goes with this object then.
    if (up_) {
      pump_->unwatch(number_);
      last = std::move(wire_);
    }
    up_ = false;
  }
  pump_->dismiss(number_);
  last.reset();
  answer_all(lost, {make_error_code(errc::outcome_unknown),
                    "the client was closed before the server had answered"});
  answer_all(unsent, {make_error_code(errc::closed), "the client was closed"});
}

// ---- the pump's thread ---------------------------------------------------------------------------

void connection::watch(bool output) {
  pump_->watch(number_, wire_->descriptor(), output ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

duration connection::pause() {
  duration longest = first_pause;
  for (unsigned i = 0; i < failures_ && longest < longest_pause; ++i) longest *= 2;
  longest = std::min(longest, longest_pause);
  return duration(static_cast<duration::rep>(static_cast<double>(longest.count()) *
                                             (0.5 + random_.unit() / 2)));
}

void connection::begin(time_point now) {
  began_ = now;
  give_up_ = now + settings_.connect_timeout;
  stage_ = stage::finding;
  search_ = settings_.find();
  find();
}

void connection::find() {
  auto found = search_->poll();
  if (!found) return;
  search_.reset();
  if (!*found) {
    end(found->error());
    return;
  }
  stage_ = stage::dialing;
  wire_ = std::move(**found);
  dial();
}

void connection::dial() {
  const auto step = wire_->dial();
  if (!step) {
    end(step.error());
    return;
  }
  switch (*step) {
    case wire::wants::input:
      // The library may have gone on to another host, with another socket.
      pump_->unwatch(number_);
      pump_->watch(number_, wire_->descriptor(), EPOLLIN);
      break;
    case wire::wants::output:
      pump_->unwatch(number_);
      pump_->watch(number_, wire_->descriptor(), EPOLLOUT);
      break;
    case wire::wants::nothing:
      stage_ = stage::greeting;
      pump_->unwatch(number_);
      watch(false);
      greet(nullptr);
      break;
  }
}

void connection::greet(const reply* said) {
  const std::shared_ptr<owner> whose = owner_.lock();
  if (!whose) return;
  auto next = whose->greet(said, wire_->server_process());
  if (!next) {
    end(next.error());
    return;
  }
  if (*next) {
    if (const auto sent = wire_->say(**next); !sent) {
      end(sent.error());
    } else {
      hear_greeting();
    }
    return;
  }
  if (const auto began = wire_->begin_calls(); !began) {
    end(began.error());
    return;
  }
  come_up();
}

void connection::hear_greeting() {
  auto said = wire_->hear();
  if (!said) {
    end(said.error());
  } else if (*said) {
    greet(&**said);
  } else if (const auto all_gone = wire_->flush(); all_gone) {
    watch(!*all_gone);
  } else {
    end(all_gone.error());
  }
}

void connection::come_up() {
  const std::shared_ptr<owner> whose = owner_.lock();
  if (!whose) return;
  const bool stateless = whose->stateless();
  stage_ = stage::up;
  give_up_ = time_point::max();
  up_since_ = lease_clock::now();
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    up_ = true;
    stateless_ = stateless;
    watching_output_ = false;
    broken_.reset();
    quiet_since_ = up_since_;
    last_failure_ = {};
  }
  whose->connected();
  const base::mutex_lock lock(mutex_);
  if (up_) send_waiting();
}

void connection::end(base::failure why) {
  const bool was_up = stage_ == stage::up;
  const time_point now = lease_clock::now();
  stage_ = stage::idle;
  give_up_ = time_point::max();
  why.detail = settings_.description + ": " + why.detail;
  exchanges lost;
  exchanges unsent;
  std::unique_ptr<wire> last;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    up_ = false;
    broken_.reset();
    last_failure_ = why;
    for (flight& each : in_flight_) {
      if (each.who) lost.push_back(std::move(each.who));
    }
    in_flight_.clear();
    if (!was_up) {
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(unsent));
      waiting_.clear();
      waiting_bytes_ = 0;
    }
    wanted_ = wanted_ || !waiting_.empty();
    pump_->unwatch(number_);
    last = std::move(wire_);
  }
  last.reset();
  if (was_up && now - up_since_ >= proof_time) failures_ = 0;
  // One that was well is made again at once.
  next_attempt_ = was_up && failures_ == 0 ? now : now + pause();
  ++failures_;
  if (const std::shared_ptr<owner> whose = owner_.lock()) whose->disconnected(why, was_up);
  answer_all(lost, {make_error_code(errc::outcome_unknown),
                    "the connection was lost before the answer came: " + why.detail});
  // To those who wait it is all the same, and may pass.
  answer_all(unsent, {make_error_code(errc::unavailable), why.detail});
  pump_->alarm(number_, next_attempt_);
}

void connection::ready(std::uint32_t /*events*/) {
  const auto alive = shared_from_this();
  switch (stage_) {
    case stage::idle:
    case stage::finding:
      break;
    case stage::dialing:
      dial();
      break;
    case stage::greeting:
      hear_greeting();
      break;
    case stage::up:
      take_replies();
      break;
  }
}

bool connection::take_replies() {
  std::optional<base::failure> ended;
  {
    const base::mutex_lock lock(mutex_);
    if (!up_) return false;
    const auto got = wire_->receive(said_);
    wire_->take_notifications(heard_notices_);
    if (!got) ended = got.error();
    if (!said_.empty() || !heard_notices_.empty()) ++heard_;
    while (batch_.size() < said_.size() && !in_flight_.empty()) {
      batch_.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
    }
  }
  dispatch();
  if (ended) {
    end(*ended);
    return false;
  }
  const base::mutex_lock lock(mutex_);
  if (!up_) return false;
  quiet_since_ = lease_clock::now();
  if (!waiting_.empty() || watching_output_) send_waiting();
  return true;
}

void connection::dispatch() {
  for (std::size_t i = 0; i < batch_.size(); ++i) {
    if (!batch_[i].who) continue;
    if ((says_repeat(said_[i]) || settings_.worth_repeating(said_[i])) && repeat(i)) continue;
    batch_[i].who->answered(std::move(said_[i]));
    batch_[i].who.reset();
  }
  batch_.clear();
  said_.clear();
  std::vector<wire::notification> notices;
  notices.swap(heard_notices_);
  if (notices.empty()) return;
  if (const std::shared_ptr<owner> whose = owner_.lock()) {
    for (const auto& each : notices) whose->notified(each.channel, each.payload);
  }
}

bool connection::repeat(std::size_t index) {
  std::unique_ptr<exchange>& who = batch_[index].who;
  // What gets on is repeated until its time is over.
  if (!says_repeat(said_[index]) && ++who->repeated > most_repetitions) return false;
  const base::mutex_lock lock(mutex_);
  const auto same_key = [&](const flight& other) {
    return other.order_key == batch_[index].order_key;
  };
  const auto behind = batch_.begin() + static_cast<std::ptrdiff_t>(index) + 1;
  const bool overtaken = who->order_key != backend_api::holder_id{} &&
                         (std::any_of(behind, batch_.end(), same_key) ||
                          std::any_of(in_flight_.begin(), in_flight_.end(), same_key) ||
                          std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& each) {
                            return each->order_key == batch_[index].order_key;
                          }));
  if (!up_ || broken_ || overtaken || lease_clock::now() >= who->answer_by) return false;
  if (room_in_flight()) {
    put_in_flight(std::move(who));
    flush();
  } else {
    waiting_bytes_ += who->what.size();
    waiting_.push_front(std::move(who));
  }
  return true;
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
    waiting_bytes_ -= (*each)->what.size();
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

void connection::due(time_point now) {
  const auto alive = shared_from_this();
  bool wanted = false;
  bool eager = false;
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    wanted = wanted_ || !waiting_.empty();
    eager = std::exchange(eager_, false);
  }
  if (stage_ == stage::idle && wanted) {
    if (eager) next_attempt_ = std::min(next_attempt_, began_ + least_pause);
    if (now >= next_attempt_) begin(now);
  } else if (stage_ != stage::idle && stage_ != stage::up && now >= give_up_) {
    search_.reset();
    end({make_error_code(errc::unavailable), "it did not answer in time"});
  } else if (stage_ == stage::finding) {
    find();
  }
  // What has come in time is not late because nobody looked.
  if (stage_ == stage::up) take_replies();

  exchanges unknown;
  exchanges unsent;
  bool silent = false;
  std::optional<base::failure> broken;
  std::string why_unsent = "nothing could be sent";
  {
    const base::mutex_lock lock(mutex_);
    if (closed_) return;
    silent = take_overdue(now, unknown, unsent);
    broken = broken_;
    if (last_failure_.code) why_unsent = last_failure_.detail;
  }
  answer_all(unknown, {make_error_code(errc::outcome_unknown),
                       settings_.description + " did not answer in time"});
  answer_all(unsent, {make_error_code(errc::unavailable),
                      settings_.description + " was not reached in time: " + why_unsent});
  if (stage_ == stage::up && broken) {
    end(*broken);
  } else if (stage_ == stage::up && silent) {
    end({make_error_code(errc::unavailable), "it has gone silent"});
  }
  if (stage_ == stage::idle && wanted) pump_->alarm(number_, next_attempt_);
  if (stage_ == stage::finding) pump_->alarm(number_, now + find_interval);
  if (stage_ == stage::dialing || stage_ == stage::greeting) pump_->alarm(number_, give_up_);
}

}  // namespace sallyport::backends::sql
