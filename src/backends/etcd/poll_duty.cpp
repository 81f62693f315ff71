#include "backends/etcd/poll_duty.hpp"

#include "base/futex.hpp"

namespace sallyport::backends::etcd {

namespace {

/// How long the own thread sleeps at a time while one caller polls: it is woken when that one goes.
constexpr lease_clock::duration long_sleep = std::chrono::seconds{10};

}  // namespace

void poll_duty::await_turn() {
  std::uint64_t callers_seen = 0;
  for (;;) {
    lease_clock::duration longest{};
    std::uint32_t calls = 0;
    {
      const base::mutex_lock lock(mutex_);
      const auto now = lease_clock::now();
      const bool somebody_sleeps = sleepers_ > 1 || (sleepers_ == 1 && !served_already());
      const bool may_rest = now < rests_until_ && !somebody_sleeps;
      if (closed_ || (!polled_ && !may_rest)) {
        polled_ = true;
        sleeps_until_ = lease_clock::time_point::min();
        return;
      }
      // Callers that come and go all the time are not to wake this thread each time. Only one that
      // has polled for the whole of a short sleep wakes it when it goes.
      if (!polled_) {
        longest = rests_until_ - now;
      } else {
        longest = callers_seen == callers_ ? long_sleep : rest;
      }
      callers_seen = callers_;
      sleeps_until_ = now + longest;
      calls = calls_.load();
    }
    base::futex_sleep_for(calls_, calls, longest);
  }
}

void poll_duty::end_turn() {
  const base::mutex_lock lock(mutex_);
  polled_ = false;
  if (served_one_ || served_already()) rests_until_ = lease_clock::now() + rest;
  served_one_ = false;
}

bool poll_duty::begin(const backend_api::drive_ticket& call) {
  const base::mutex_lock lock(mutex_);
  if (!polled_ && !closed_) {
    polled_ = true;
    ++callers_;
    return true;
  }
  alone_ = sleepers_ == 0 ? &call : nullptr;
  ++sleepers_;
  return false;
}

void poll_duty::end(bool polled) {
  const base::mutex_lock lock(mutex_);
  if (!polled) {
    --sleepers_;
    served_one_ = alone_ != nullptr;
    alone_ = nullptr;
    return;
  }
  polled_ = false;
  const auto now = lease_clock::now();
  rests_until_ = sleepers_ > 0 ? now : now + rest;
  if (sleeps_until_ > rests_until_) wake_own_thread();
}

void poll_duty::hurry() {
  const base::mutex_lock lock(mutex_);
  served_one_ = false;
  if (polled_ || rests_until_ == lease_clock::time_point::min()) return;
  rests_until_ = lease_clock::time_point::min();
  wake_own_thread();
}

void poll_duty::close() {
  const base::mutex_lock lock(mutex_);
  closed_ = true;
  wake_own_thread();
}

bool poll_duty::served_already() const { return alone_ != nullptr && alone_->finished(); }

void poll_duty::wake_own_thread() {
  calls_.fetch_add(1);
  base::futex_wake_one(&calls_);
}

}  // namespace sallyport::backends::etcd
