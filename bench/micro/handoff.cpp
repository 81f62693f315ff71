#include "bench/harness/stats.hpp"
#include "bench/micro/bare_locks.hpp"
#include "bench/micro/programs.hpp"
#include "bench/micro/timed_loop.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <atomic>
#include <barrier>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

namespace sallyport::bench {
namespace {

constexpr std::size_t samples_per_thread = std::size_t{1} << 17U;
constexpr double wanted_times_limit = 4;

/// What the holder leaves for the next one; guarded by the lock under test.
struct baton {
  int released_by = -1;
  stopwatch::time_point released_at;
  std::uint64_t turns = 0;
};

/// One thread's part. A sample is the time from just before another thread's release until our
/// acquire returned; it counts when we were waiting already, so that it is a hand-off and no
/// chance.
template <class Seat>
void pass_on(Seat& seat, int me, baton& shared, const std::atomic<bool>& stop, sampler& latencies,
             std::uint64_t& turns) {
  while (!stop.load(std::memory_order_relaxed)) {
    const auto wanted_at = stopwatch::now();
    seat.acquire();
    const auto inside_at = stopwatch::now();
    if (shared.released_by != me && shared.released_by >= 0 && wanted_at < shared.released_at) {
      latencies.add((inside_at - shared.released_at).count());
    }
    ++shared.turns;
    ++turns;
    shared.released_by = me;
    shared.released_at = stopwatch::now();
    seat.release();
  }
}

/// Figures: p50 and p99 in microseconds. `make_seat(i)` makes thread i's way to the lock.
template <class MakeSeat>
std::vector<double> measure_handoff(int thread_count, seconds time, MakeSeat&& make_seat) {
  static_assert(std::is_same_v<stopwatch::duration, std::chrono::nanoseconds>);
  baton shared;
  std::atomic<bool> stop{false};
  std::barrier<> start{thread_count + 1};
  std::vector<sampler> latencies(static_cast<std::size_t>(thread_count),
                                 sampler{samples_per_thread});
  std::vector<std::uint64_t> turns(static_cast<std::size_t>(thread_count));
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(thread_count));
    for (int me = 0; me < thread_count; ++me) {
      threads.emplace_back([&, me] {
        const auto i = static_cast<std::size_t>(me);
        auto seat = make_seat(me);
        std::uint64_t mine = 0;
        start.arrive_and_wait();
        pass_on(seat, me, shared, stop, latencies[i], mine);
        turns[i] = mine;
      });
    }
    start.arrive_and_wait();
    std::this_thread::sleep_for(time);
    stop = true;
  }

  std::vector<std::int64_t> all;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < latencies.size(); ++i) {
    all.insert(all.end(), latencies[i].kept().begin(), latencies[i].kept().end());
    sum += turns[i];
  }
  if (sum != shared.turns) throw std::runtime_error("two threads were inside at once");
  if (all.empty()) throw std::runtime_error("the lock was never handed on");
  return {percentile(all, 0.5) / 1e3, percentile(all, 0.99) / 1e3};
}

/// One thread's way to a sallyport::mutex.
class lease_seat {
 public:
  explicit lease_seat(mutex& lock) : lock_(lock) {}
  void acquire() { held_.emplace(lock_.acquire()); }
  void release() {
    if (held_->release() != release_result::released) throw std::runtime_error("a lease was lost");
    held_.reset();
  }

 private:
  mutex& lock_;
  std::optional<lease> held_;
};

class bare_seat {
 public:
  bare_seat(condition_variable_lock& lock, condition_variable_lock::place& mine)
      : lock_(lock), mine_(mine) {}
  void acquire() { lock_.acquire(mine_); }
  void release() { lock_.release(); }

 private:
  condition_variable_lock& lock_;
  condition_variable_lock::place& mine_;
};

std::vector<double> measure_bare(int thread_count, seconds time) {
  condition_variable_lock lock;
  std::deque<condition_variable_lock::place> places(static_cast<std::size_t>(thread_count));
  return measure_handoff(thread_count, time, [&](int me) {
    return bare_seat{lock, places[static_cast<std::size_t>(me)]};
  });
}

std::vector<double> measure_mutex(int thread_count, seconds time, const lock_options& how) {
  const auto store = client::open("memory:");
  mutex lock{store, "bench/hand-off", how};
  return measure_handoff(thread_count, time, [&lock](int) { return lease_seat{lock}; });
}

std::vector<figure> figures(bar wanted) {
  return {{.name = "hand-off p50", .unit = "us", .wanted = wanted},
          {.name = "hand-off p99", .unit = "us"}};
}

}  // namespace

std::vector<program> handoff_programs() {
  std::vector<program> made;
  for (const int count : {2, 8}) {
    const std::string prefix = "handoff-" + std::to_string(count) + "/";
    const std::string group = "threads on one name: " + std::to_string(count) + " threads";
    made.push_back({.id = prefix + "condvar",
                    .group = group,
                    .title = "bare condition variables",
                    .limit = {},
                    .figures = figures({}),
                    .measure = [count](const measure_settings& how) {
                      return measure_bare(count, how.time);
                    }});
    made.push_back({.id = prefix + "mutex",
                    .group = group,
                    .title = "sallyport::mutex",
                    .limit = prefix + "condvar",
                    .figures = figures(times_limit(wanted_times_limit)),
                    .measure = [count](const measure_settings& how) {
                      return measure_mutex(count, how.time, {});
                    }});
    made.push_back({.id = prefix + "mutex-turns-1",
                    .group = group,
                    .title = "the same, local_turns = 1",
                    .limit = prefix + "condvar",
                    .figures = figures(times_limit(wanted_times_limit)),
                    .measure = [count](const measure_settings& how) {
                      return measure_mutex(count, how.time, {.local_turns = 1});
                    }});
  }
  return made;
}

}  // namespace sallyport::bench
