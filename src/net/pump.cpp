#include "net/pump.hpp"

#include "base/check.hpp"
#include "base/epoll.hpp"
#include "net/failure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <span>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace sallyport::net {
namespace {

// What an epoll event says: bell, timer, or a source with the generation of its descriptor.
constexpr std::uint64_t bell_label = 0;
constexpr std::uint64_t timer_label = 1;
constexpr unsigned generation_bits = 16;

constexpr std::uint64_t label_of(pump::number who, std::uint16_t generation) noexcept {
  return (who << generation_bits) | generation;
}

constexpr std::size_t events_at_a_time = 16;

timespec as_timespec(lease_clock::duration span) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(span);
  return {.tv_sec = whole.count(), .tv_nsec = (span - whole).count()};
}

int control(int set, int operation, int member, std::uint32_t events, std::uint64_t label) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = label;
  return ::epoll_ctl(set, operation, member, &event);
}

/// How long to wait; nothing: for ever.
const timespec* patience_until(lease_clock::time_point deadline, timespec& room) {
  if (deadline == lease_clock::time_point::max()) return nullptr;
  lease_clock::duration left{};
  if (deadline != lease_clock::time_point{}) {
    left = std::max(deadline - lease_clock::now(), lease_clock::duration::zero());
  }
  room = as_timespec(left);
  return &room;
}

}  // namespace

base::result<std::shared_ptr<pump>> pump::make() {
  base::descriptor everything(::epoll_create1(EPOLL_CLOEXEC));
  base::descriptor timer(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  base::descriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!everything.open() || !timer.open() || !bell.open() ||
      control(everything.number(), EPOLL_CTL_ADD, timer.number(), EPOLLIN, timer_label) != 0 ||
      control(everything.number(), EPOLL_CTL_ADD, bell.number(), EPOLLIN, bell_label) != 0) {
    return tl::unexpected(system_failure(errno, "making an epoll set"));
  }
  return std::make_shared<pump>(std::move(everything), std::move(timer), std::move(bell));
}

pump::pump(base::descriptor everything, base::descriptor timer, base::descriptor bell) noexcept
    : everything_(std::move(everything)), timer_(std::move(timer)), bell_(std::move(bell)) {}

pump::number pump::enroll(std::shared_ptr<source> who) {
  const base::mutex_lock lock(mutex_);
  const number given = ++last_number_;
  sources_[given].who = std::move(who);
  return given;
}

void pump::dismiss(number who) {
  std::shared_ptr<source> last;  // ends outside of the mutex
  const base::mutex_lock lock(mutex_);
  const auto found = sources_.find(who);
  if (found == sources_.end()) return;
  if (found->second.descriptor >= 0) {
    control(everything_.number(), EPOLL_CTL_DEL, found->second.descriptor, 0, 0);
  }
  last = std::move(found->second.who);
  sources_.erase(found);
}

bool pump::watch(number who, int descriptor, std::uint32_t events) {
  const base::mutex_lock lock(mutex_);
  const auto found = sources_.find(who);
  if (found == sources_.end()) return false;
  entry& one = found->second;
  const int set = everything_.number();
  if (one.descriptor == descriptor) {
    const auto label = label_of(who, one.generation);
    if (control(set, EPOLL_CTL_MOD, descriptor, events, label) == 0) return true;
  } else if (one.descriptor >= 0) {
    control(set, EPOLL_CTL_DEL, one.descriptor, 0, 0);
  }
  one.descriptor = descriptor;
  ++one.generation;
  return control(set, EPOLL_CTL_ADD, descriptor, events, label_of(who, one.generation)) == 0;
}

void pump::unwatch(number who) {
  const base::mutex_lock lock(mutex_);
  const auto found = sources_.find(who);
  if (found == sources_.end() || found->second.descriptor < 0) return;
  control(everything_.number(), EPOLL_CTL_DEL, found->second.descriptor, 0, 0);
  found->second.descriptor = -1;
}

void pump::alarm(number who, time_point when) {
  const base::mutex_lock lock(mutex_);
  const auto found = sources_.find(who);
  if (found == sources_.end() || when >= found->second.alarm) return;
  found->second.alarm = when;
  arm(when);
}

void pump::arm(time_point when) {
  if (when >= armed_for_) return;
  armed_for_ = when;
  itimerspec setting{};
  // Zero would disarm the timer; a time in the past fires at once, as it should.
  setting.it_value = as_timespec(std::max(when.time_since_epoch(), lease_clock::duration{1}));
  SALLYPORT_CHECK(::timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &setting, nullptr) == 0);
}

void pump::tell_ready(std::uint64_t label, std::uint32_t events) {
  std::shared_ptr<source> who;
  {
    const base::mutex_lock lock(mutex_);
    const auto found = sources_.find(label >> generation_bits);
    if (found == sources_.end()) return;
    const entry& one = found->second;
    if (one.descriptor < 0 || label_of(found->first, one.generation) != label) return;
    who = one.who;
  }
  who->ready(events);
}

void pump::tell_due() {
  const time_point now = lease_clock::now();
  std::vector<std::shared_ptr<source>> concerned;
  {
    const base::mutex_lock lock(mutex_);
    std::uint64_t count = 0;
    static_cast<void>(::read(timer_.number(), &count, sizeof count));
    armed_for_ = time_point::max();
    time_point next = time_point::max();
    for (auto& [who, one] : sources_) {
      if (one.alarm <= now) {
        one.alarm = time_point::max();
        concerned.push_back(one.who);
      }
      next = std::min(next, one.alarm);
    }
    arm(next);
  }
  for (const auto& each : concerned) each->due(now);
}

void pump::run_once(time_point deadline) {
  std::array<epoll_event, events_at_a_time>
      events;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  timespec room{};
  const int count =
      base::wait_for_events(everything_.number(), events, patience_until(deadline, room));
  if (count <= 0) return;
  bool time_has_come = false;
  for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(count))) {
    if (each.data.u64 == bell_label) {
      eventfd_t rings = 0;
      ::eventfd_read(bell_.number(), &rings);
    } else if (each.data.u64 == timer_label) {
      time_has_come = true;
    } else {
      tell_ready(each.data.u64, each.events);
    }
  }
  // Last: what has just come is not too late.
  if (time_has_come) tell_due();
}

void pump::ring() const noexcept { ::eventfd_write(bell_.number(), 1); }

}  // namespace sallyport::net
