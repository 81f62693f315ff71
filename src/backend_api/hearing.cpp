#include "backend_api/hearing.hpp"

#include "base/check.hpp"
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace sallyport::backend_api {
namespace {

using namespace std::chrono_literals;

// A watchdog is started when the first timer is set. Until it was seen here once, somebody who
// sleeps looks whether anybody hears at all.
constexpr duration first_look = 5ms;
constexpr duration longest_look = 1s;

int control(int set, int operation, int member) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(set, operation, member, &event);
}

bool has_come(time_point deadline) {
  return deadline != time_point::max() && lease_clock::now() >= deadline;
}

}  // namespace

base::result<hearing::attention> hearing::make_attention(int everything) {
  attention made{base::descriptor(::epoll_create1(EPOLL_CLOEXEC)),
                 base::descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))};
  if (!made.set.open() || !made.alarm.open() ||
      control(made.set.number(), EPOLL_CTL_ADD, made.alarm.number()) != 0 ||
      control(made.set.number(), EPOLL_CTL_ADD, everything) != 0) {
    return base::fail(std::error_code(errno, std::generic_category()), "cannot make an epoll set");
  }
  return made;
}

hearing::hearing(ear& who, int everything, attention how) noexcept
    : ear_(who), everything_(everything), attention_(std::move(how)) {}

void hearing::wake() noexcept {
  // The leader looks at its ticket after all that it did itself.
  if (pthread_equal(leader_.load(), pthread_self()) == 0) ear_.ring();
}

void hearing::switch_attention(bool on) {
  if (attention_on_ == on) return;
  attention_on_ = on;
  ++switches_;
  // Taken out, not only silenced: as a member it would cost something with every event.
  SALLYPORT_CHECK(
      control(attention_.set.number(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, everything_) == 0);
}

void hearing::attend_to(urgency what) {
  if (what == urgency::now && heard_) {
    attention_wanted_ = true;
  } else if (what == urgency::now) {
    switch_attention(true);
  } else if (what == urgency::later && !attention_on_) {
    set_alarm();
  }
}

void hearing::set_alarm() {
  // One that is set already may ring early for what came since: that costs a look, and setting it
  // anew would cost a system call for every request.
  if (std::exchange(alarm_set_, true)) return;
  itimerspec when{};
  when.it_value.tv_nsec = std::chrono::nanoseconds(stragglers_time).count();
  SALLYPORT_CHECK(::timerfd_settime(attention_.alarm.number(), 0, &when, nullptr) == 0);
}

bool hearing::take_alarm() {
  std::uint64_t rings = 0;
  if (!alarm_set_ ||
      ::read(attention_.alarm.number(), &rings, sizeof rings) != ssize_t{sizeof rings}) {
    return false;
  }
  alarm_set_ = false;
  return true;
}

std::size_t hearing::blocked() {
  const base::mutex_lock lock(mutex_);
  return blocked_;
}

std::size_t hearing::switches() {
  const base::mutex_lock lock(mutex_);
  return switches_;
}

void hearing::begin_leading() {
  heard_ = true;
  leader_.store(pthread_self());
  switch_attention(false);
}

hearing::role hearing::come_in() {
  const base::mutex_lock lock(mutex_);
  // Only where the watchdog is known to run: it hears instead.
  if (++blocked_ > 1 && attended_.load(std::memory_order_relaxed)) {
    last_crowd_ = lease_clock::now();
  }
  if (heard_) {
    // If it is a leader that hears, it will see on leaving that somebody is left.
    return role::follower;
  }
  if (blocked_ == 1 && !crowd_was_here()) {
    begin_leading();
    return role::leader;
  }
  switch_attention(true);
  return role::follower;
}

bool hearing::crowd_was_here() {
  if (last_crowd_ == time_point::min()) return false;
  if (lease_clock::now() - last_crowd_ < crowd_memory) return true;
  last_crowd_ = time_point::min();
  return false;
}

bool hearing::take_the_lead() {
  const base::mutex_lock lock(mutex_);
  if (heard_) return false;
  begin_leading();
  return true;
}

void hearing::go(role mine) {
  // Before the mutex: who sends something after this looks calls be_heard() after that.
  const urgency rest = mine == role::leader ? ear_.unfinished() : urgency::nothing;
  const base::mutex_lock lock(mutex_);
  --blocked_;
  if (mine == role::follower) return;
  heard_ = false;
  leader_.store({});
  const bool wanted = std::exchange(attention_wanted_, false) || blocked_ > 0;
  attend_to(wanted ? urgency::now : rest);
}

void hearing::be_heard() {
  const base::mutex_lock lock(mutex_);
  attend_to(urgency::now);
}

drive_outcome hearing::lead(drive_ticket& ticket, time_point deadline) {
  if (!ticket.begin_drive(*this)) return drive_outcome::finished;
  struct driven {
    drive_ticket& ticket;
    ~driven() { ticket.end_drive(); }
  };
  const driven until_the_end{ticket};
  while (!ticket.finished()) {
    if (has_come(deadline)) return drive_outcome::deadline_passed;
    if (ear_.hear(deadline)) continue;
    return ticket.finished() ? drive_outcome::finished : drive_outcome::not_driven;
  }
  return drive_outcome::finished;
}

drive_outcome hearing::drive(drive_ticket& ticket, time_point deadline) {
  if (ticket.finished()) {
    // Not by an answer, perhaps: a caller whose time was up before it came here has left a request
    // that nobody else hears about.
    if (const urgency rest = ear_.unfinished(); rest != urgency::nothing) {
      const base::mutex_lock lock(mutex_);
      attend_to(rest);
    }
    return drive_outcome::finished;
  }
  role mine = come_in();
  drive_outcome outcome = drive_outcome::finished;
  duration look = first_look;
  while (mine == role::follower) {
    if (attended_.load() && deadline == time_point::max()) {
      ticket.wait();
      break;
    }
    const time_point now = lease_clock::now();
    if (now >= deadline) {
      outcome = ticket.finished() ? drive_outcome::finished : drive_outcome::deadline_passed;
      break;
    }
    const duration left = deadline == time_point::max() ? longest_look : deadline - now;
    if (ticket.wait_for(attended_.load() ? left : std::min(left, look))) break;
    look = std::min(2 * look, longest_look);
    if (!attended_.load() && take_the_lead()) mine = role::leader;
  }
  if (mine == role::leader) {
    try {
      outcome = lead(ticket, deadline);
    } catch (...) {
      be_heard();
      go(mine);
      throw;
    }
  }
  go(mine);
  return outcome;
}

void hearing::attend() {
  attended_.store(true);
  {
    const base::mutex_lock lock(mutex_);
    const bool due = take_alarm();
    // A leader hears for everybody, and sets the alarm again if need be.
    if (heard_) return;
    if (due) switch_attention(true);
    heard_ = true;
  }
  try {
    ear_.hear(time_point{});
  } catch (...) {
    end_attending();
    throw;
  }
  end_attending();
}

void hearing::end_attending() {
  const base::mutex_lock lock(mutex_);
  heard_ = false;
  // A lone caller may have silenced the attention that called us here, and gone; whoever came since
  // found somebody hearing, and sleeps.
  if (std::exchange(attention_wanted_, false) || blocked_ > 0) switch_attention(true);
}

}  // namespace sallyport::backend_api
