#include "backends/redis/protocol.hpp"
#include "backends/redis/redis_backend.hpp"
#include "backends/redis/wire.hpp"
#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <atomic>
#include <barrier>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Locks that nobody else wants, beside raw hiredis loops.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;
namespace redis = backends::redis;

constexpr double same_scripts_bar = 1 / 0.9;
constexpr double plain_lock_bar = 1 / 0.75;
constexpr double eight_threads_bar = 1 / 1.1;
constexpr double many_threads_bar = 1 / 1.7;
constexpr double chains_bar = 1 / 3.0;

constexpr const char* compare_and_delete =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// The two commands of one lock, as the backend sends them.
class script_pair {
 public:
  explicit script_pair(const std::string& name) {
    const redis::protocol speech{
        {.prefix = {}, .client = "0123456789abcdef", .owner = {.host = "bench", .label = "bench"}}};
    const lock_name lock(name);
    const backend_api::holder_id holder{1, std::hash<std::string>{}(name)};
    const backend_api::acquire_request take{.name = lock,
                                            .holder = holder,
                                            .lease_length = 30s,
                                            .claim_window = 3s,
                                            .ticket_length = 6s,
                                            .may_wait = true,
                                            .token_count = 16,
                                            .value = {},
                                            .answer_by = {},
                                            .asked_before = false};
    const backend_api::leave_request give{.name = lock, .holder = holder, .answer_by = {}};
    redis::append_command(first_, speech.acquire(take, false), redis::script_form::by_name);
    redis::append_command(second_, speech.leave(give, false), redis::script_form::by_name);
  }
  static void load(raw_connection& to) {
    for (const auto* each : {&redis::scripts::acquire, &redis::scripts::leave}) {
      to.command("SCRIPT LOAD %b", each->text.data(), each->text.size());
    }
  }
  void run(raw_connection& over) const {
    over.formatted(first_);
    over.formatted(second_);
  }

 private:
  std::string first_;
  std::string second_;
};

double ping_pair(seconds time, bool durable) {
  const auto server = bench_server(durable);
  raw_connection raw(server->port());
  return nanoseconds_per_call(time,
                              [&raw] {
                                raw.command("PING");
                                raw.command("PING");
                              }) /
         1e3;
}

double plain_pair(seconds time, bool durable) {
  return set_and_delete_pair(*bench_server(durable), time);
}

double scripts_pair(seconds time, bool durable) {
  const auto server = bench_server(durable);
  raw_connection raw(server->port());
  script_pair::load(raw);
  const script_pair both("bench");
  return nanoseconds_per_call(time, [&] { both.run(raw); }) / 1e3;
}

void take_and_give_back(mutex& lock) {
  lease held = lock.acquire();
  if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
}

double mutex_pair(seconds time, bool durable) {
  const auto server = bench_server(durable);
  mutex lock{client::open(address_of(*server)), "bench"};
  take_and_give_back(lock);
  return nanoseconds_per_call(time, [&] { take_and_give_back(lock); }) / 1e3;
}

/// Runs body(i) in a loop on `many` threads; the time per call of all together, in microseconds.
template <class Body>
double together(int many, seconds time, Body&& body) {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};
  std::barrier<> start{many + 1};
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(many));
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
  return passed.count() * 1e6 / static_cast<double>(calls.load());
}

std::string name_of(std::size_t number) { return "bench/" + std::to_string(number); }

double raw_threads(int many, seconds time) {
  const auto server = bench_server(false);
  const std::string hash = server->command({"SCRIPT", "LOAD", compare_and_delete}).text;
  std::vector<std::unique_ptr<raw_connection>> raw;
  std::vector<std::string> names;
  for (int i = 0; i < many; ++i) {
    raw.push_back(std::make_unique<raw_connection>(server->port()));
    names.push_back(name_of(static_cast<std::size_t>(i)));
  }
  return together(many, time, [&](std::size_t me) {
    raw[me]->command("SET %s value NX PX 30000", names[me].c_str());
    raw[me]->command("EVALSHA %s 1 %s value", hash.c_str(), names[me].c_str());
  });
}

double script_threads(int many, seconds time) {
  const auto server = bench_server(false);
  std::vector<std::unique_ptr<raw_connection>> raw;
  std::vector<script_pair> pairs;
  for (int i = 0; i < many; ++i) {
    raw.push_back(std::make_unique<raw_connection>(server->port()));
    pairs.emplace_back(name_of(static_cast<std::size_t>(i)));
  }
  script_pair::load(*raw.front());
  return together(many, time, [&](std::size_t me) { pairs[me].run(*raw[me]); });
}

double mutex_threads(int many, seconds time) {
  const auto server = bench_server(false);
  const auto store = client::open(address_of(*server));
  std::vector<std::unique_ptr<mutex>> locks;
  locks.reserve(static_cast<std::size_t>(many));
  for (int i = 0; i < many; ++i) {
    locks.push_back(std::make_unique<mutex>(store, name_of(static_cast<std::size_t>(i))));
  }
  return together(many, time, [&](std::size_t me) { take_and_give_back(*locks[me]); });
}

/// Each contender's answer is followed by its next request: what the backend can do when nobody has
/// to be woken.
class chains final : public backend_api::events {
 public:
  explicit chains(int many) {
    for (int i = 0; i < many; ++i) {
      names_.emplace_back(name_of(static_cast<std::size_t>(i)));
    }
  }
  void attach(backend_api::backend& store) { store_ = &store; }
  void start() {
    for (std::size_t i = 0; i < names_.size(); ++i) ask({1, i});
  }
  void finish() { stopping_ = true; }
  [[nodiscard]] std::uint64_t pairs() const { return pairs_; }
  [[nodiscard]] bool failed() const { return failed_; }

  void acquire_answered(const backend_api::holder_id& who,
                        base::result<backend_api::acquire_answer> answer) override {
    if (!answer || !std::holds_alternative<backend_api::granted>(*answer)) {
      failed_ = true;
      return;
    }
    store_->release({.name = names_[who.low],
                     .holder = who,
                     .answer_by = lease_clock::now() + 2s,
                     .driven = true});
  }
  void leave_answered(const backend_api::holder_id& who,
                      base::result<backend_api::leave_answer> answer) override {
    if (!answer) failed_ = true;
    ++pairs_;
    if (!stopping_ && !failed_) ask({who.high + 1, who.low});
  }
  void renewals_answered(std::span<backend_api::renew_outcome> /*outcomes*/) override {}
  void downgrade_answered(const backend_api::holder_id& /*who*/,
                          base::result<backend_api::renew_answer> /*answer*/) override {}
  void granted_notice(const backend_api::holder_id& /*who*/,
                      std::optional<backend_api::granted> /*grant*/) override {}
  void lost_notice(const backend_api::holder_id& /*who*/) override {}
  void changed_notice(const lock_name& /*name*/) override {}
  void reconnected() override {}

 private:
  void ask(const backend_api::holder_id& who) {
    store_->acquire({.name = names_[who.low],
                     .holder = who,
                     .lease_length = 30s,
                     .claim_window = 3s,
                     .ticket_length = 6s,
                     .token_count = 16,
                     .value = {},
                     .answer_by = lease_clock::now() + 2s,
                     .asked_before = false,
                     .driven = true});
  }

  backend_api::backend* store_ = nullptr;
  std::vector<lock_name> names_;
  std::uint64_t pairs_ = 0;
  bool stopping_ = false;
  bool failed_ = false;
};

double chained_pairs(int many, seconds time) {
  const auto server = bench_server(false);
  chains all(many);
  auto store = backends::redis_backend().open(
      {.uri = address_of(*server), .owner = {.host = "bench", .label = "bench"}, .listener = all});
  if (!store) throw std::runtime_error(store.error().detail);
  all.attach(**store);
  all.start();
  const auto began = stopwatch::now();
  backend_api::drive_ticket never;
  (*store)->drive(never,
                  lease_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(time));
  all.finish();
  const seconds passed = stopwatch::now() - began;
  const bool broke = all.failed();
  const auto pairs = static_cast<double>(all.pairs());
  (*store)->close();  // what is under way is answered "unknown"
  if (broke || pairs < 1) throw std::runtime_error("a chain broke");
  return passed.count() * 1e6 / pairs;
}

program make(std::string id, std::string group, std::string title, std::string limit, bar wanted,
             std::function<double(seconds)> measure) {
  return {.id = std::move(id),
          .group = std::move(group),
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure = [measure = std::move(measure)](const measure_settings& how) {
            return std::vector<double>{measure(how.time)};
          }};
}

}  // namespace

double set_and_delete_pair(kit::redis_server& server, seconds time) {
  raw_connection raw(server.port());
  const std::string hash = server.command({"SCRIPT", "LOAD", compare_and_delete}).text;
  return nanoseconds_per_call(time,
                              [&] {
                                raw.command("SET bench value NX PX 30000");
                                raw.command("EVALSHA %s 1 bench value", hash.c_str());
                              }) /
         1e3;
}

std::vector<program> redis_alone_programs() {
  const std::string alone = "redis: one thread, nobody else wants the lock";
  const std::string durable = "redis, appendfsync always: one thread, nobody else wants the lock";
  const std::string eight = "redis: 8 threads, 8 names, one client";
  const std::string many = "redis: 64 names, one client";
  const auto with = [](double (*measure)(seconds, bool), bool on_disk) {
    return [measure, on_disk](seconds time) { return measure(time, on_disk); };
  };
  const auto threads = [](double (*measure)(int, seconds), int count) {
    return [measure, count](seconds time) { return measure(count, time); };
  };
  return {
      make("redis-1/ping", alone, "hiredis: PING, PING", "", {}, with(&ping_pair, false)),
      make("redis-1/set", alone, "hiredis: SET NX PX, compare-and-delete", "", {},
           with(&plain_pair, false)),
      make("redis-1/scripts", alone, "hiredis: the two scripts of sallyport::mutex", "", {},
           with(&scripts_pair, false)),
      make("redis-1/mutex", alone, "sallyport::mutex acquire(), release()", "redis-1/scripts",
           times_limit(same_scripts_bar), with(&mutex_pair, false)),
      make("redis-1/mutex-to-set", alone, "the same, beside SET NX PX", "redis-1/set",
           times_limit(plain_lock_bar), with(&mutex_pair, false)),
      make("redis-1-disk/set", durable, "hiredis: SET NX PX, compare-and-delete", "", {},
           with(&plain_pair, true)),
      make("redis-1-disk/mutex", durable, "sallyport::mutex acquire(), release()",
           "redis-1-disk/set", {}, with(&mutex_pair, true)),
      make("redis-threads-8/set", eight, "8 hiredis connections: SET NX PX, compare-and-delete", "",
           {}, threads(&raw_threads, 8)),
      make("redis-threads-8/scripts", eight, "8 hiredis connections: the scripts of the mutex", "",
           {}, threads(&script_threads, 8)),
      make("redis-threads-8/mutex", eight, "sallyport::mutex, one connection",
           "redis-threads-8/scripts", times_limit(eight_threads_bar), threads(&mutex_threads, 8)),
      make("redis-threads-64/set", many, "64 hiredis connections: SET NX PX, compare-and-delete",
           "", {}, threads(&raw_threads, 64)),
      make("redis-threads-64/scripts", many, "64 hiredis connections: the scripts of the mutex", "",
           {}, threads(&script_threads, 64)),
      make("redis-threads-64/mutex", many, "64 threads, sallyport::mutex, one connection",
           "redis-threads-64/scripts", times_limit(many_threads_bar), threads(&mutex_threads, 64)),
      make("redis-threads-64/chains", many, "64 chains of completions on the backend",
           "redis-threads-64/scripts", times_limit(chains_bar), threads(&chained_pairs, 64)),
  };
}

}  // namespace sallyport::bench
