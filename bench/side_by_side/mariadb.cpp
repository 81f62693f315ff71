#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/mariadb_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mysql.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// MariaDB beside libmariadb itself: the same two calls in a loop, and the server's own GET_LOCK, which
/// blocks a connection for every waiter. One server, whose data are in memory: a commit's fsync costs
/// nothing there.
namespace sallyport::bench {
namespace {

/// The bar is 0.8 times the speed of libmariadb alone.
constexpr double raw_bar = 1.25;
/// Waiters ask; that must not be felt.
constexpr double handoff_bar_us = 5000;

/// libmariadb as simple as it can be used.
class libmariadb_loop {
 public:
  explicit libmariadb_loop(std::uint16_t port) : connection_(mysql_init(nullptr)) {
    if (mysql_real_connect(connection_, "127.0.0.1", "root", "", "test", port, nullptr,
                           CLIENT_MULTI_RESULTS) == nullptr) {
      throw std::runtime_error(mysql_error(connection_));
    }
  }
  libmariadb_loop(const libmariadb_loop&) = delete;
  libmariadb_loop& operator=(const libmariadb_loop&) = delete;
  ~libmariadb_loop() { mysql_close(connection_); }

  void say(const std::string& text) {
    int more = mysql_real_query(connection_, text.data(), text.size());
    while (more == 0) {
      mysql_free_result(mysql_store_result(connection_));
      more = mysql_next_result(connection_);
    }
    if (more > 0) throw std::runtime_error(mysql_error(connection_));
  }

 private:
  MYSQL* connection_;
};

/// Started when first asked for.
class mariadb_bench_server {
 public:
  const kit::mariadb_server& get() {
    if (!running_) {
      running_ = std::make_unique<kit::mariadb_server>();
      static_cast<void>(client::open(running_->address()));  // makes the tables
    }
    return *running_;
  }

 private:
  std::unique_ptr<kit::mariadb_server> running_;
};

program mariadb_alone(std::string id, std::string title, std::string limit, bar wanted,
                      std::function<double(seconds)> microseconds) {
  return {.id = "mariadb-1/" + std::move(id),
          .group = "mariadb: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure = [microseconds = std::move(microseconds)](const measure_settings& how) {
            return std::vector<double>{microseconds(how.time)};
          }};
}

std::int64_t monotonic_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1};
}

/// What one contender does: takes the lock, notes it, and gives it back.
using contender = std::function<void(const std::function<void()>& inside)>;

/// So many threads take turns without a pause, each with a contender of its own.
turn_figures take_turns(int seats, seconds time, const std::function<contender()>& make) {
  std::vector<std::vector<turn>> all(static_cast<std::size_t>(seats));
  std::atomic<bool> over{false};
  std::atomic<int> ready{0};
  std::vector<contender> contenders;
  contenders.reserve(static_cast<std::size_t>(seats));
  for (int seat = 0; seat < seats; ++seat) contenders.push_back(make());
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(seats));
  for (int seat = 0; seat < seats; ++seat) {
    threads.emplace_back([&, seat] {
      const contender& mine = contenders[static_cast<std::size_t>(seat)];
      ++ready;
      while (ready.load() < seats) std::this_thread::yield();
      while (!over.load(std::memory_order_relaxed)) {
        turn one{.seat = seat, .wanted_at = monotonic_ns()};
        mine([&] {
          one.entered_at = monotonic_ns();
          one.released_at = monotonic_ns();
        });
        all[static_cast<std::size_t>(seat)].push_back(one);
      }
    });
  }
  while (ready.load() < seats) std::this_thread::yield();
  const std::int64_t begin = monotonic_ns();
  std::this_thread::sleep_for(std::max<std::chrono::duration<double>>(time, seconds{1}));
  const turn_window counted{begin, monotonic_ns()};
  over = true;
  threads.clear();
  std::vector<turn> turns;
  for (const auto& each : all) turns.insert(turns.end(), each.begin(), each.end());
  return figures_of(std::move(turns), counted, seats);
}

program mariadb_contended(int seats, std::string id, std::string title, bar handoff,
                          std::function<contender()> make) {
  const std::string many = std::to_string(seats);
  return {.id = "mariadb-" + many + "/" + std::move(id),
          .group = "mariadb: " + many + " contenders, each with a connection of its own",
          .title = std::move(title),
          .limit = {},
          .figures = {{.name = "hand-over p50", .unit = "us", .wanted = handoff},
                      {.name = "hand-over p99", .unit = "us", .wanted = {}},
                      {.name = "turns", .unit = "1/s", .wanted = {}},
                      {.name = "most to fewest turns", .unit = "x", .wanted = {}}},
          .measure = [seats, make = std::move(make)](const measure_settings& how) {
            const turn_figures made = take_turns(seats, how.time, make);
            return std::vector<double>{made.handoff_p50_us, made.handoff_p99_us,
                                       made.turns_per_second, made.most_to_fewest};
          }};
}

contender with_mutex(mariadb_bench_server& where) {
  auto lock = std::make_shared<mutex>(client::open(where.get().address()), "turns",
                                      lock_options{.local_turns = 1});
  return [lock](const std::function<void()>& inside) {
    auto held = lock->acquire();
    inside();
    held.release();
  };
}

contender with_get_lock(mariadb_bench_server& where) {
  auto raw = std::make_shared<libmariadb_loop>(where.get().port());
  return [raw](const std::function<void()>& inside) {
    raw->say("SELECT GET_LOCK('turns', 60)");
    inside();
    raw->say("SELECT RELEASE_LOCK('turns')");
  };
}

}  // namespace

std::vector<program> mariadb_programs() {
  const auto where = std::make_shared<mariadb_bench_server>();
  std::vector<program> all{
      mariadb_alone(
          "raw", "libmariadb: the same two calls", "", {},
          [where](seconds time) {
            libmariadb_loop raw(where->get().port());
            return nanoseconds_per_call(
                       time,
                       [&] {
                         raw.say(
                             "CALL `sallyport_acquire`(X'726177',"
                             "X'30313233343536373839616263646566',1,0,30000,3000,4000,1,0,1,1,0,"
                             "7,X'686F7374',X'6C6162656C',X'')");
                         raw.say(
                             "CALL `sallyport_leave`(X'726177',"
                             "X'30313233343536373839616263646566',0)");
                       }) /
                   1e3;
          }),
      mariadb_alone("mutex", "sallyport::mutex acquire(), release()", "mariadb-1/raw",
                    times_limit(raw_bar),
                    [where](seconds time) {
                      mutex lock{client::open(where->get().address()), "ours", {.local_turns = 1}};
                      return nanoseconds_per_call(time, [&] { lock.acquire().release(); }) / 1e3;
                    }),
  };
  for (const int seats : {8, 32}) {
    all.push_back(mariadb_contended(seats, "get_lock",
                                    "GET_LOCK, which has neither lease nor token", {},
                                    [where] { return with_get_lock(*where); }));
    all.push_back(mariadb_contended(seats, "mutex", "sallyport::mutex", at_most(handoff_bar_us),
                                    [where] { return with_mutex(*where); }));
  }
  return all;
}

}  // namespace sallyport::bench
