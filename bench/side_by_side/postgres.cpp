#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/postgres_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <libpq-fe.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// PostgreSQL beside libpq itself, which calls the same functions in a loop, and beside the server's own
/// advisory locks, whose waiters need a connection each. Data are in memory, where a commit's fsync
/// costs nothing, unless a row says otherwise.
namespace sallyport::bench {
namespace {

/// The bar is 0.8 times the speed of libpq alone.
constexpr double libpq_bar = 1 / 0.8;
/// Beside the hand-off of pg_advisory_lock.
constexpr double advisory_bar = 1.5;
constexpr double commits_bar = 1;
/// A hand-over is a call of the giver and the taker's claim.
constexpr double queries_bar = 2;
constexpr int waiters = 32;
/// Waiters to a client.
constexpr int few = 4;
/// A contended row lasts so many rounds' time.
constexpr double contended_times = 4;

using namespace std::chrono_literals;

/// One connection of libpq. Errors are thrown.
class libpq {
 public:
  explicit libpq(const std::string& address) : connection_(PQconnectdb(address.c_str())) {}
  libpq(const libpq&) = delete;
  libpq& operator=(const libpq&) = delete;
  ~libpq() { PQfinish(connection_); }

  void prepare(const char* name, const char* text) {
    expect(PQprepare(connection_, name, text, 0, nullptr), PGRES_COMMAND_OK);
  }
  template <std::size_t N>
  void call(const char* name, const std::array<const char*, N>& parameters) {
    expect(PQexecPrepared(connection_, name, static_cast<int>(N), parameters.data(), nullptr,
                          nullptr, 0),
           PGRES_TUPLES_OK);
  }

 private:
  void expect(PGresult* said, ExecStatusType wanted) {
    const bool right = PQresultStatus(said) == wanted;
    PQclear(said);
    if (!right) throw std::runtime_error(PQerrorMessage(connection_));
  }

  PGconn* connection_;
};

/// libpq as simple as it can be used: two prepared statements.
class libpq_loop {
 public:
  explicit libpq_loop(const std::string& address) : server_(address) {
    server_.prepare("a",
                    "SELECT sallyport.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, "
                    "$13, $14, $15, $16, $17)");
    server_.prepare("l", "SELECT sallyport.leave($1, $2, $3, $4)");
  }

  void pair() {
    constexpr std::array<const char*, 17> acquire{"raw",   "0123456789abcdef",
                                                  "1",     "0",
                                                  "30000", "3000",
                                                  "4000",  "t",
                                                  "1",     "1",
                                                  "0",     "t",
                                                  "7",     "7",
                                                  "host",  "label",
                                                  ""};
    constexpr std::array<const char*, 4> leave{"raw", "0123456789abcdef", "f", "t"};
    server_.call("a", acquire);
    server_.call("l", leave);
  }

 private:
  libpq server_;
};

/// A waiter of the server's own locks: it blocks in the server, on a connection that nobody else uses.
class advisory_lock {
 public:
  explicit advisory_lock(const std::string& address) : server_(address) {
    server_.prepare("a", "SELECT pg_advisory_lock(7)");
    server_.prepare("l", "SELECT pg_advisory_unlock(7)");
  }
  void acquire() { server_.call("a", std::array<const char*, 0>{}); }
  void release() { server_.call("l", std::array<const char*, 0>{}); }

 private:
  libpq server_;
};

/// Started when first asked for.
class server {
 public:
  explicit server(kit::postgres_options options) : options_(std::move(options)) {}

  std::string address() { return get().address(); }
  kit::postgres_server& get() {
    if (!running_) {
      running_ = std::make_unique<kit::postgres_server>(options_);
      static_cast<void>(client::open(running_->address()));  // makes the schema
    }
    return *running_;
  }

 private:
  const kit::postgres_options options_;
  std::unique_ptr<kit::postgres_server> running_;
};

std::int64_t moment() { return stopwatch::now().time_since_epoch().count(); }

/// What a contender does for a turn: takes the lock and calls `inside`, gives it back.
using turn_taker = std::function<void(const std::function<void()>& inside)>;

/// Contenders that take turns without a pause for so long; `make` gives each what it does.
turn_figures contend(seconds time, const std::function<turn_taker(int)>& make) {
  constexpr std::int64_t lead = 200'000'000;
  std::vector<turn_taker> all;
  all.reserve(waiters);
  for (int seat = 0; seat < waiters; ++seat) all.push_back(make(seat));
  turn_window counted;
  counted.begin = moment() + lead;
  counted.end = counted.begin + static_cast<std::int64_t>(time.count() * 1e9);
  std::vector<std::future<std::vector<turn>>> parts;
  parts.reserve(waiters);
  for (int seat = 0; seat < waiters; ++seat) {
    parts.push_back(std::async(std::launch::async, [&, seat] {
      std::vector<turn> turns;
      for (turn next{.seat = seat}; (next.wanted_at = moment()) < counted.end;) {
        all[static_cast<std::size_t>(seat)]([&] { next.entered_at = next.released_at = moment(); });
        turns.push_back(next);
      }
      return turns;
    }));
  }
  std::vector<turn> turns;
  for (auto& each : parts) {
    const auto more = each.get();
    turns.insert(turns.end(), more.begin(), more.end());
  }
  return figures_of(std::move(turns), counted, waiters);
}

turn_figures advisory_contention(server& where, seconds time) {
  return contend(time, [&](int) {
    return [lock = std::make_shared<advisory_lock>(where.address())](const auto& inside) {
      lock->acquire();
      inside();
      lock->release();
    };
  });
}

turn_figures mutex_contention(server& where, const std::string& options, int to_a_client,
                              seconds time) {
  std::vector<client> clients;
  for (int i = 0; i < waiters; i += to_a_client) {
    clients.push_back(client::open(where.address() + options));
  }
  return contend(time, [&](int seat) {
    const client& mine = clients[static_cast<std::size_t>(seat / to_a_client)];
    const auto lock = std::make_shared<mutex>(mine, "ours", lock_options{.local_turns = 1});
    return [lock](const auto& inside) {
      lease held = lock->acquire();
      inside();
      if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
    };
  });
}

/// The time of one statement that changes a row, and waits until that is on disk.
double commit_us(server& where, seconds time) {
  where.get().rows("CREATE TABLE IF NOT EXISTS public.commits (n bigint)");
  libpq raw(where.address());
  raw.prepare("c", "INSERT INTO public.commits VALUES (1) RETURNING n");
  return nanoseconds_per_call(time, [&] { raw.call("c", std::array<const char*, 0>{}); }) / 1e3;
}

/// How often the server was asked to take, renew or give back something, by everybody.
double statements(kit::postgres_server& where) {
  return std::stod(where.value(
      "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE toplevel AND query ~ "
      "'(acquire|renew|leave)\\('"));
}

/// Statements for each hand-over, while a line of waiters goes down.
double statements_per_turn(server& where, int crowd) {
  where.get().rows("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
  std::vector<client> clients;
  for (int i = 0; i < crowd; i += crowd / 8) {
    clients.push_back(client::open(where.address(), {.heartbeat = 60s}));
  }
  mutex first{clients.front(), "crowd", {.local_turns = 1}};
  auto held = first.acquire();
  std::atomic<int> inside{0};
  std::atomic<bool> failed{false};
  std::vector<std::jthread> all;
  all.reserve(static_cast<std::size_t>(crowd));
  for (int i = 0; i < crowd; ++i) {
    all.emplace_back([&, store = clients[static_cast<std::size_t>(i) % clients.size()]] {
      mutex lock{store, "crowd", {.local_turns = 1}};
      auto mine = lock.acquire();
      if (++inside != 1) failed = true;
      --inside;
      if (mine.release() != release_result::released) failed = true;
    });
  }
  const auto queued = [&] {
    const auto seen = clients.front().who("crowd");
    return seen ? static_cast<int>(seen->waiters.size()) : 0;
  };
  for (int tries = 0; queued() < crowd && tries < 1000; ++tries) std::this_thread::sleep_for(20ms);
  const double before = statements(where.get());
  held.release();
  all.clear();
  const double said = statements(where.get()) - before;
  if (failed) throw std::runtime_error("two were inside at once, or a lease was lost");
  return said / crowd;
}

program alone(std::string id, std::string title, std::string limit, bar wanted,
              std::function<double(seconds)> microseconds) {
  return {.id = "postgres-1/" + std::move(id),
          .group = "postgres: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure = [microseconds = std::move(microseconds)](const measure_settings& how) {
            return std::vector<double>{microseconds(how.time)};
          }};
}

program contended(std::string id, std::string title, std::string limit, bar wanted,
                  std::function<turn_figures(seconds)> measure) {
  return {
      .id = "postgres-32/" + std::move(id),
      .group = "postgres: 32 waiters, four to a client, empty critical section",
      .title = std::move(title),
      .limit = std::move(limit),
      .figures = {{.name = "hand-off p50", .unit = "us", .wanted = wanted},
                  {.name = "hand-off p99", .unit = "us"},
                  {.name = "turns", .unit = "per s", .compared = false}},
      .measure = [measure = std::move(measure)](const measure_settings& how) {
        const auto made = measure(how.time * contended_times);
        return std::vector<double>{made.handoff_p50_us, made.handoff_p99_us, made.turns_per_second};
      }};
}

/// What a hand-off costs beyond the server's own locks when it waits for the disk.
program on_disk(const std::shared_ptr<server>& where) {
  return {.id = "postgres-32/disk",
          .group = "postgres on disk: 32 waiters, four to a client, empty critical section",
          .title = "sallyport::mutex beside pg_advisory_lock",
          .limit = {},
          .figures = {{.name = "hand-off p50, sallyport", .unit = "us"},
                      {.name = "hand-off p50, advisory", .unit = "us"},
                      {.name = "a commit", .unit = "us"},
                      {.name = "sallyport's beyond the other, in commits",
                       .unit = "",
                       .wanted = at_most(commits_bar)}},
          .measure = [where](const measure_settings& how) {
            const double theirs =
                advisory_contention(*where, how.time * contended_times).handoff_p50_us;
            const double commit = commit_us(*where, how.time);
            const double ours =
                mutex_contention(*where, "", few, how.time * contended_times).handoff_p50_us;
            return std::vector<double>{ours, theirs, commit, (ours - theirs) / commit};
          }};
}

program crowd(int size, const std::shared_ptr<server>& where) {
  return {
      .id = "postgres-crowd/" + std::to_string(size),
      .group = "postgres: a line in 8 clients, one turn each",
      .title = std::to_string(size) + " waiters",
      .limit = {},
      .figures = {{.name = "statements per hand-over", .unit = "", .wanted = at_most(queries_bar)}},
      .repeat = repetition::once,
      .measure = [where, size](const measure_settings&) {
        return std::vector<double>{statements_per_turn(*where, size)};
      }};
}

}  // namespace

std::vector<program> postgres_programs() {
  const auto where = std::make_shared<server>(kit::postgres_options{});
  const auto disk = std::make_shared<server>(kit::postgres_options{.on_disk = true});
  const auto counting = std::make_shared<server>(
      kit::postgres_options{.settings = {"shared_preload_libraries=pg_stat_statements"}});
  return {
      alone("raw", "libpq: the same two calls, prepared", "", {},
            [where](seconds time) {
              libpq_loop raw(where->address());
              return nanoseconds_per_call(time, [&] { raw.pair(); }) / 1e3;
            }),
      alone("mutex", "sallyport::mutex acquire(), release()", "postgres-1/raw",
            times_limit(libpq_bar),
            [where](seconds time) {
              mutex lock{client::open(where->address()), "ours", {.local_turns = 1}};
              return nanoseconds_per_call(time, [&] { lock.acquire().release(); }) / 1e3;
            }),
      contended("advisory", "pg_advisory_lock, a connection for each waiter", "", {},
                [where](seconds time) { return advisory_contention(*where, time); }),
      contended(
          "mutex", "sallyport::mutex, durable=no", "postgres-32/advisory",
          times_limit(advisory_bar),
          [where](seconds time) { return mutex_contention(*where, "?durable=no", few, time); }),
      contended("mutex-durable", "sallyport::mutex", "postgres-32/advisory", {},
                [where](seconds time) { return mutex_contention(*where, "", few, time); }),
      contended("mutex-alone", "the same, durable=no, one to a client", "postgres-32/advisory", {},
                [where](seconds time) { return mutex_contention(*where, "?durable=no", 1, time); }),
      on_disk(disk),
      crowd(8, counting),
      crowd(32, counting),
      crowd(128, counting),
  };
}

}  // namespace sallyport::bench
