#include "bench/micro/bare_locks.hpp"
#include "bench/micro/programs.hpp"
#include "bench/micro/timed_loop.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <atomic>
#include <barrier>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/random.h>
#include <thread>

namespace sallyport::bench {
namespace {

constexpr int many = 8;

void take_and_give_back(mutex& lock) {
  lease held = lock.acquire();
  if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
}

double mutex_pair(seconds time) {
  const auto store = client::open("memory:");
  mutex lock{store, "bench/uncontended"};
  return nanoseconds_per_call(time, [&lock] { take_and_give_back(lock); });
}

double lockable_pair(seconds time) {
  const auto store = client::open("memory:");
  mutex lock{store, "bench/uncontended"};
  return nanoseconds_per_call(time, [&lock] {
    lock.lock();
    lock.unlock();
  });
}

double std_mutex_pair(seconds time) {
  std::mutex lock;
  return nanoseconds_per_call(time, [&lock] {
    lock.lock();
    keep(lock);
    lock.unlock();
  });
}

double clocks_and_random(seconds time) {
  return nanoseconds_per_call(time, [] {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    keep(now);
    clock_gettime(CLOCK_BOOTTIME, &now);
    keep(now);
    std::array<std::byte, 16> id{};
    if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
      throw std::runtime_error("getrandom failed");
    }
    keep(id);
  });
}

double table_pair(seconds time) {
  bare_table table;
  const std::string name = "bench/uncontended";
  return nanoseconds_per_call(time, [&] {
    keep(table.insert(name, {}));
    keep(table.erase(name));
  });
}

/// Runs `body(i)` on `many` threads; the time per call of all of them together, in nanoseconds.
template <class Body>
double together(seconds time, Body&& body) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};
  std::barrier<> start{many + 1};
  std::vector<std::jthread> threads;
  threads.reserve(many);
  for (int me = 0; me < many; ++me) {
    threads.emplace_back([&, me] {
      std::uint64_t mine = 0;
      start.arrive_and_wait();
      for (; !stop.load(std::memory_order_relaxed); ++mine) body(static_cast<std::size_t>(me));
      calls += mine;
    });
  }
  start.arrive_and_wait();
  const auto began = stopwatch::now();
  std::this_thread::sleep_for(time);
  stop = true;
  threads.clear();
  const seconds passed = stopwatch::now() - began;
  return passed.count() * 1e9 / static_cast<double>(calls.load());
}

std::string distinct_name(std::size_t number) { return "bench/apart/" + std::to_string(number); }

double many_mutex_pairs(seconds time) {
  const auto store = client::open("memory:");
  std::vector<std::unique_ptr<mutex>> locks;
  for (std::size_t i = 0; i < many; ++i) {
    locks.push_back(std::make_unique<mutex>(store, distinct_name(i)));
  }
  return together(time, [&locks](std::size_t me) { take_and_give_back(*locks[me]); });
}

double many_table_pairs(seconds time) {
  bare_table table;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < many; ++i) names.push_back(distinct_name(i));
  return together(time, [&](std::size_t me) {
    keep(table.insert(names[me], {}));
    keep(table.erase(names[me]));
  });
}

program make(std::string id, std::string group, std::string title, std::string limit,
             double (*measure)(seconds)) {
  return {.id = std::move(id),
          .group = std::move(group),
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "ns"}},
          .measure = [measure](const measure_settings& how) {
            return std::vector<double>{measure(how.time)};
          }};
}

}  // namespace

std::vector<program> uncontended_programs() {
  const std::string alone = "uncontended acquire and release: 1 thread";
  const std::string apart = "uncontended acquire and release: 8 threads, 8 names, one client";
  return {
      make("uncontended-1/std-mutex", alone, "std::mutex lock, unlock", "", &std_mutex_pair),
      make("uncontended-1/clock-random", alone, "2 x clock_gettime, getrandom of 16 bytes", "",
           &clocks_and_random),
      make("uncontended-1/table", alone, "bare table: mutex, hash map insert, erase", "",
           &table_pair),
      make("uncontended-1/acquire", alone, "sallyport::mutex acquire(), release()",
           "uncontended-1/table", &mutex_pair),
      make("uncontended-1/lock", alone, "sallyport::mutex lock(), unlock()", "uncontended-1/table",
           &lockable_pair),
      make("uncontended-8/table", apart, "one bare table", "", &many_table_pairs),
      make("uncontended-8/acquire", apart, "sallyport::mutex acquire(), release()",
           "uncontended-8/table", &many_mutex_pairs),
  };
}

}  // namespace sallyport::bench
