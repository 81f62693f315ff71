#include "bench/harness/stats.hpp"
#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/process_group.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "tests/kit/redis_commands.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

/// One lock that many want, beside PING.
namespace sallyport::bench {

namespace {

using namespace std::chrono_literals;
using kit::count_commands;

constexpr double rate_bar = 1 / 0.25;
constexpr double latency_bar = 3.5;
constexpr double tail_bar = 5;
constexpr double commands_bar = 3;
constexpr double fairness_bar = 1.1;
constexpr double idle_bar = 200;

std::vector<double> ping_figures(seconds time, bool durable) {
  const auto server = bench_server(durable);
  raw_connection raw(server->port());
  sampler each(std::size_t{1} << 15U);
  const auto began = stopwatch::now();
  auto before = began;
  std::uint64_t calls = 0;
  while (before - began < time) {
    raw.command("PING");
    const auto after = stopwatch::now();
    each.add((after - before).count());
    before = after;
    ++calls;
  }
  std::vector<std::int64_t> kept = each.kept();
  const double p50 = percentile(kept, 0.5) / 1e3;
  return {p50, percentile(kept, 0.99) / 1e3 / p50,
          seconds(before - began).count() * 1e6 / static_cast<double>(calls), 1};
}

class redis_seat final : public process_seat {
 public:
  explicit redis_seat(const std::string& store) : lock_(client::open(store), "bench/hand-off") {}
  void acquire() override { held_.emplace(lock_.acquire()); }
  void release() override {
    if (held_->release() != release_result::released) throw std::runtime_error("a lease was lost");
    held_.reset();
  }

 private:
  mutex lock_;
  std::optional<lease> held_;
};

std::vector<double> group_of_eight(seconds time, seconds hold, bool durable) {
  const auto server = bench_server(durable);
  const std::string where = address_of(*server);
  const group_figures all =
      measure_group(time, hold, [&where](int) -> std::unique_ptr<process_seat> {
        return std::make_unique<redis_seat>(where);
      });
  return {all.handoff_p50_us, all.handoff_p99_us / all.handoff_p50_us, all.us_per_change,
          all.most_to_fewest};
}

/// What a crowd of processes shares.
struct crowd_board {
  static constexpr int most = 128;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::atomic<int> inside{0};
  std::array<std::atomic<std::uint64_t>, most> turns{};
};

class shared_crowd {
 public:
  shared_crowd()
      : place_(::mmap(nullptr, sizeof(crowd_board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (place_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    board_ = new (place_) crowd_board;
  }
  shared_crowd(const shared_crowd&) = delete;
  shared_crowd& operator=(const shared_crowd&) = delete;
  ~shared_crowd() { ::munmap(place_, sizeof(crowd_board)); }
  crowd_board* operator->() const { return board_; }
  crowd_board& operator*() const { return *board_; }

 private:
  void* place_;
  crowd_board* board_ = nullptr;
};

constexpr int crowd_processes = 8;

void wait_in_line(crowd_board& board, const std::shared_ptr<client>& store, std::size_t seat) {
  try {
    // With one local turn every thread is a contender of its own.
    mutex lock{*store, "bench/crowd", {.local_turns = 1}};
    ++board.ready;
    while (!board.go) std::this_thread::sleep_for(200us);
    while (!board.stop) {
      lease held = lock.acquire();
      if (++board.inside != 1) board.failed = true;
      std::this_thread::sleep_for(1ms);
      ++board.turns[seat];
      --board.inside;
      held.release();
    }
  } catch (const std::exception&) {
    board.failed = true;
  }
}

[[noreturn]] void be_a_crowd(crowd_board& board, const std::string& where, int process,
                             int threads) {
  try {
    const auto store = std::make_shared<client>(client::open(where));
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
      const int seat_number = process * threads + i;
      const auto seat = static_cast<std::size_t>(seat_number);
      all.emplace_back([&board, store, seat] { wait_in_line(board, store, seat); });
    }
  } catch (const std::exception&) {
    board.failed = true;
  }
  ::_exit(0);
}

/// Commands per hand-off, and most to fewest turns, of `waiters` in eight processes that hold the
/// lock for a millisecond each.
std::vector<double> crowd_of(int waiters, seconds time) {
  const auto server = bench_server(false);
  const std::string where = address_of(*server);
  const shared_crowd board;
  std::vector<pid_t> children;
  for (int i = 0; i < crowd_processes; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) be_a_crowd(*board, where, i, waiters / crowd_processes);
  }
  for (int tries = 0; board->ready < waiters && tries < 20'000; ++tries)
    std::this_thread::sleep_for(1ms);
  board->go = true;
  const auto turns = [&] {
    std::uint64_t sum = 0;
    for (const auto& each : board->turns) sum += each;
    return sum;
  };
  // Everybody stands in line before the counting begins, and all along it.
  for (int tries = 0; turns() < static_cast<std::uint64_t>(waiters) && tries < 20'000; ++tries) {
    std::this_thread::sleep_for(1ms);
  }
  auto probe = server->probe();
  std::vector<std::uint64_t> before;
  before.reserve(static_cast<std::size_t>(waiters));
  for (int i = 0; i < waiters; ++i) before.push_back(board->turns[static_cast<std::size_t>(i)]);
  const std::uint64_t commands_before = count_commands(probe).of_clients;
  const std::uint64_t turns_before = turns();
  // Long enough for every waiter to have some turns.
  std::this_thread::sleep_for(
      std::max<seconds>(time, std::chrono::duration<double>(waiters * 0.02)));
  const auto commands = static_cast<double>(count_commands(probe).of_clients - commands_before);
  const auto handoffs = static_cast<double>(turns() - turns_before);
  std::uint64_t most = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  for (std::size_t i = 0; i < before.size(); ++i) {
    most = std::max(most, board->turns[i] - before[i]);
    fewest = std::min(fewest, board->turns[i] - before[i]);
  }
  board->stop = true;
  for (const pid_t child : children) {
    int status = 0;
    for (int tries = 0; ::waitpid(child, &status, WNOHANG) == 0; ++tries) {
      if (tries == 20'000) ::kill(child, SIGKILL);
      std::this_thread::sleep_for(1ms);
    }
  }
  if (board->failed || handoffs < 1) throw std::runtime_error("a process of the crowd failed");
  return {commands / handoffs,
          static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(fewest, 1)),
          seconds(time).count() > 0 ? handoffs : 0};
}

/// Commands a second of a thousand callers that wait for a thousand locks that nobody releases.
std::vector<double> idle_waiters(seconds time) {
  constexpr int waiters = 1000;
  constexpr int clients = 10;
  const auto server = bench_server(false);
  const auto holder = client::open(address_of(*server));
  std::vector<client> stores;
  stores.reserve(clients);
  for (int i = 0; i < clients; ++i) stores.push_back(client::open(address_of(*server)));
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> held;
  std::stop_source enough;
  std::vector<std::jthread> threads;
  for (int i = 0; i < waiters; ++i) {
    const std::string name = "bench/idle/" + std::to_string(i);
    locks.push_back(std::make_unique<mutex>(holder, name));
    held.push_back(locks.back()->acquire());
    threads.emplace_back([store = stores[static_cast<std::size_t>(i % clients)], name,
                          stop = enough.get_token()]() mutable {
      mutex lock{store, name};
      static_cast<void>(lock.acquire(stop));
    });
  }
  auto probe = server->probe();
  const auto queued = [&] {
    return probe.expect({"EVAL", "return #redis.call('KEYS', '*\1queue')", "0"}).integer;
  };
  for (int tries = 0; queued() < waiters && tries < 500; ++tries) std::this_thread::sleep_for(20ms);
  const std::uint64_t before = count_commands(probe).of_clients;
  const auto began = stopwatch::now();
  std::this_thread::sleep_for(std::max<seconds>(time, 5s));
  const auto commands = static_cast<double>(count_commands(probe).of_clients - before);
  const seconds passed = stopwatch::now() - began;
  enough.request_stop();
  threads.clear();
  return {commands / passed.count()};
}

std::vector<figure> handoff_figures(bar latency, bar tail, bar rate, bar fairness) {
  return {{.name = "hand-off p50", .unit = "us", .wanted = latency},
          {.name = "p99 / p50", .unit = "", .wanted = tail, .compared = false},
          {.name = "time per change of holder", .unit = "us", .wanted = rate},
          {.name = "most/fewest turns", .unit = "", .wanted = fairness, .compared = false}};
}

program make(std::string id, std::string group, std::string title, std::string limit,
             std::vector<figure> figures, std::function<std::vector<double>(seconds)> measure) {
  return {.id = std::move(id),
          .group = std::move(group),
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = std::move(figures),
          .measure = [measure = std::move(measure)](const measure_settings& how) {
            return measure(how.time);
          }};
}

program crowd(int waiters) {
  auto made =
      make("redis-crowd/" + std::to_string(waiters), "redis: a crowd in 8 processes, held for 1 ms",
           std::to_string(waiters) + " waiters", "",
           {{.name = "commands per hand-off", .unit = "", .wanted = at_most(commands_bar)},
            {.name = "most/fewest turns", .unit = "", .wanted = at_most(fairness_bar)},
            {.name = "hand-offs in the round", .unit = ""}},
           [waiters](seconds time) { return crowd_of(waiters, time); });
  made.repeat = repetition::once;
  return made;
}

}  // namespace

std::vector<program> redis_contended_programs() {
  const std::string busy = "redis: 8 processes, empty critical section";
  const std::string disk = "redis, appendfsync always: 8 processes, empty critical section";
  const std::string held = "redis: 8 processes, held for 1 ms";
  auto idle = make("redis-idle/1000", "redis: 1,000 idle waiters in 10 clients", "sallyport::mutex",
                   "", {{.name = "commands per second", .unit = "", .wanted = below(idle_bar)}},
                   [](seconds time) { return idle_waiters(time); });
  idle.repeat = repetition::once;
  return {
      make("redis-8/ping", busy, "hiredis: PING, one connection", "",
           handoff_figures({}, {}, {}, {}), [](seconds time) { return ping_figures(time, false); }),
      make("redis-8/mutex", busy, "sallyport::mutex", "redis-8/ping",
           handoff_figures(times_limit(latency_bar), at_most(tail_bar), times_limit(rate_bar),
                           at_most(fairness_bar)),
           [](seconds time) { return group_of_eight(time, 0s, false); }),
      make("redis-8-disk/ping", disk, "hiredis: PING, one connection", "",
           handoff_figures({}, {}, {}, {}), [](seconds time) { return ping_figures(time, true); }),
      make("redis-8-disk/mutex", disk, "sallyport::mutex", "redis-8-disk/ping",
           handoff_figures({}, {}, {}, {}),
           [](seconds time) { return group_of_eight(time, 0s, true); }),
      make("redis-8-hold/mutex", held, "sallyport::mutex", "", handoff_figures({}, {}, {}, {}),
           [](seconds time) { return group_of_eight(time, 1ms, false); }),
      crowd(8),
      crowd(32),
      crowd(128),
      std::move(idle),
  };
}

}  // namespace sallyport::bench
