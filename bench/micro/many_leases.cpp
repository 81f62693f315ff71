#include "bench/harness/own_process.hpp"
#include "bench/micro/bare_locks.hpp"
#include "bench/micro/programs.hpp"
#include "bench/micro/timed_loop.hpp"
#include "tests/kit/own_process.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace sallyport::bench {
namespace {

using kit::count_of;
using kit::cpu_seconds_of;
using kit::memory_use;
using kit::read_memory_use;
using kit::read_threads;

constexpr std::size_t lease_count = 100'000;
constexpr std::chrono::seconds lease_length{30};
/// Leases are renewed every third of their length.
constexpr double renewal_seconds = 10;
constexpr double most_resident_bytes = 1024;
constexpr double most_cpu_percent = 5;
constexpr std::string_view watchdog_thread = "sally-watchdog";
constexpr std::string_view notifier_thread = "sally-notifier";

constexpr seconds any_hold{1e9};
constexpr std::string_view table_subject = "table";
constexpr std::string_view lease_subject = "lease";
constexpr std::string_view lease_and_mutex_subject = "lease-and-mutex";

std::string name_of(std::size_t number) { return "orders/" + std::to_string(1'000'000 + number); }

double each(double sum) { return sum / static_cast<double>(lease_count); }

double microseconds_each_since(stopwatch::time_point began) {
  return each(seconds{stopwatch::now() - began}.count() * 1e6);
}

void print(const std::vector<double>& figures) {
  for (const double value : figures) std::printf("%.17g\n", value);
}

void measure_bare_table() {
  const memory_use before = read_memory_use();
  bare_table table;
  const auto began = stopwatch::now();
  for (std::size_t i = 0; i < lease_count; ++i) table.insert(name_of(i), {});
  const double insert = microseconds_each_since(began);
  const memory_use after = read_memory_use();

  // Renewals come in no order that a cache would like: a step that is prime to the count.
  constexpr std::size_t step = 7919;
  timespec cpu_before{};
  timespec cpu_after{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_before);
  for (std::size_t i = 0; i < lease_count; ++i) {
    if (!table.set_deadline(name_of(i * step % lease_count), 1)) {
      throw std::runtime_error("an entry is missing");
    }
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu_after);
  const double sweep = static_cast<double>(cpu_after.tv_sec - cpu_before.tv_sec) +
                       static_cast<double>(cpu_after.tv_nsec - cpu_before.tv_nsec) / 1e9;

  const auto leaving = stopwatch::now();
  for (std::size_t i = 0; i < lease_count; ++i) table.erase(name_of(i));
  print({each(after.heap - before.heap), each(after.resident - before.resident),
         100 * sweep / renewal_seconds, insert, microseconds_each_since(leaving)});
}

/// What was seen of this process while the leases were held.
struct observed_use {
  memory_use most_memory;
  std::size_t watchdogs = 0;
  std::size_t notifiers = 0;
  std::size_t threads = 0;
  double watchdog_percent = 0;
};

observed_use hold_for(seconds hold) {
  observed_use seen;
  const auto began = stopwatch::now();
  const double cpu_before = cpu_seconds_of(read_threads(), watchdog_thread);
  for (;;) {
    const memory_use memory = read_memory_use();
    seen.most_memory = {.heap = std::max(seen.most_memory.heap, memory.heap),
                        .resident = std::max(seen.most_memory.resident, memory.resident)};
    const auto threads = read_threads();
    seen.watchdogs = std::max(seen.watchdogs, count_of(threads, watchdog_thread));
    seen.notifiers = std::max(seen.notifiers, count_of(threads, notifier_thread));
    seen.threads = std::max(seen.threads, threads.size());
    const seconds passed = stopwatch::now() - began;
    if (passed >= hold) {
      const double cpu = cpu_seconds_of(threads, watchdog_thread) - cpu_before;
      seen.watchdog_percent = 100 * cpu / passed.count();
      return seen;
    }
    std::this_thread::sleep_for(std::min(hold - passed, seconds{1}));
  }
}

void measure_client(bool keep_locks, seconds hold) {
  const auto store = client::open("memory:");
  // A first lock, so that what a client costs once is not counted as a lease's.
  static_cast<void>(mutex{store, "orders/first"}.acquire());

  const memory_use before = read_memory_use();
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> leases;
  if (keep_locks) locks.reserve(lease_count);
  leases.reserve(lease_count);
  const auto began = stopwatch::now();
  for (std::size_t i = 0; i < lease_count; ++i) {
    auto lock =
        std::make_unique<mutex>(store, name_of(i), lock_options{.lease_length = lease_length});
    leases.push_back(lock->acquire());
    if (keep_locks) locks.push_back(std::move(lock));
  }
  const double acquire = microseconds_each_since(began);

  const observed_use seen = hold_for(hold);
  const auto invalid = static_cast<double>(
      std::count_if(leases.begin(), leases.end(), [](const lease& held) { return !held.valid(); }));

  const auto leaving = stopwatch::now();
  for (lease& held : leases) static_cast<void>(held.release());
  const double release = microseconds_each_since(leaving);

  print({each(seen.most_memory.heap - before.heap),
         each(seen.most_memory.resident - before.resident), seen.watchdog_percent, acquire, release,
         static_cast<double>(seen.watchdogs), static_cast<double>(seen.notifiers),
         static_cast<double>(seen.threads - 1), invalid});
}

std::vector<double> measure_in_child(const std::string& subject, seconds hold,
                                     const std::function<void()>& tick, std::size_t figure_count) {
  std::istringstream text{
      run_self({many_leases_child_flag, subject, std::to_string(hold.count())}, tick)};
  std::vector<double> figures;
  for (double value = 0; text >> value;) figures.push_back(value);
  // Trailing figures that a program does not show are left out.
  if (figures.size() < figure_count) throw std::runtime_error("the child said too little");
  figures.resize(figure_count);
  return figures;
}

program make(std::string_view subject, std::string title, std::string limit, seconds longest_hold,
             std::vector<figure> figures) {
  const std::size_t count = figures.size();
  return {.id = "leases/" + std::string(subject),
          .group = "100,000 leases of 30 s, renewed by one client",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = std::move(figures),
          .repeat = repetition::once,
          .measure = [subject = std::string(subject), longest_hold,
                      count](const measure_settings& how) {
            return measure_in_child(subject, std::min(how.hold, longest_hold), how.tick, count);
          }};
}

}  // namespace

int run_many_leases_child(std::string_view subject, double hold_seconds) {
  if (subject == table_subject) {
    measure_bare_table();
  } else {
    measure_client(subject == lease_and_mutex_subject, seconds{hold_seconds});
  }
  return 0;
}

std::vector<program> many_leases_programs() {
  const std::string table = "leases/" + std::string(table_subject);
  const auto memory = [](bar wanted) -> std::vector<figure> {
    // The heap's bound is a test's: tests/costs.
    return {{.name = "heap a lease", .unit = "bytes"},
            {.name = "resident a lease", .unit = "bytes", .wanted = wanted}};
  };
  const auto with = [](std::vector<figure> some, const std::vector<figure>& more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
  };
  const auto work = [](bar wanted) -> std::vector<figure> {
    return {{.name = "CPU to renew", .unit = "% of a core", .wanted = wanted},
            {.name = "acquire", .unit = "us"},
            {.name = "release", .unit = "us"}};
  };
  const std::vector<figure> threads{
      {.name = "watchdog threads", .unit = "", .wanted = exactly(1)},
      {.name = "notifier threads", .unit = "", .wanted = at_most(1)},
      {.name = "threads but the program's own", .unit = "", .wanted = at_most(2)},
      {.name = "no longer valid at the end", .unit = "", .wanted = exactly(0)}};
  return {
      make(table_subject, "bare table: id, token, deadline", "", any_hold,
           with(memory({}), work({}))),
      make(lease_subject, "leases, their mutex objects gone", table, any_hold,
           with(with(memory(below(most_resident_bytes)), work(below(most_cpu_percent))), threads)),
      // Held until all were renewed once: a renewal may need memory of its own.
      make(lease_and_mutex_subject, "leases and their mutex objects", table,
           seconds{renewal_seconds + 2}, memory(below(most_resident_bytes))),
  };
}

}  // namespace sallyport::bench
