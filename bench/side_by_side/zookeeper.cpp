#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/crew.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/zookeeper_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <zookeeper/zookeeper.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

/// ZooKeeper beside its own C library, kazoo and Curator, all on one server.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;

constexpr double raw_bar = 1.25;
constexpr double kazoo_bar = 1 / 1.5;
constexpr double curator_bar = 1 / 1.2;
constexpr double handoff_bar = 1;
constexpr double watchers_bar = 1;
/// A contended row lasts so many rounds' time.
constexpr double contended_times = 4;
constexpr int crowd_size = 200;

/// ZooKeeper's own client, as simple as it can be used.
class raw_client {
 public:
  raw_client(const std::string& server, bool looks_up_names) {
    zoo_set_debug_level(static_cast<ZooLogLevel>(0));
    handle_ = zookeeper_init(server.c_str(), nullptr, 30'000, nullptr, nullptr, 0);
    if (handle_ == nullptr) throw std::runtime_error("no ZooKeeper client");
    if (!looks_up_names) zoo_set_servers_resolution_delay(handle_, -1);
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { zookeeper_close(handle_); }

  void make_folder(const char* path) {
    const int code = zoo_create(handle_, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, nullptr, 0);
    if (code != ZOK && code != ZNODEEXISTS) throw std::runtime_error(zerror(code));
  }
  void create_and_delete(const char* stem) {
    std::array<char, 256> made{};
    int code = zoo_create(handle_, stem, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE,
                          made.data(), made.size());
    if (code == ZOK) code = zoo_delete(handle_, made.data(), -1);
    if (code != ZOK) throw std::runtime_error(zerror(code));
  }

 private:
  zhandle_t* handle_ = nullptr;
};

/// The server of all these rows, and the one on which processes are told when to begin.
class servers {
 public:
  kit::zookeeper_ensemble& store() {
    start();
    return *store_;
  }
  const kit::redis_server& control() {
    start();
    return *control_;
  }
  std::string host() { return store().host(0) + ":" + std::to_string(store().port(0)); }
  std::string address() { return store().address() + "/sallyport?" + store().tick_option(); }
  double raw_pair(seconds time, bool looks_up_names = true) {
    raw_client raw(host(), looks_up_names);
    raw.make_folder("/raw");
    return nanoseconds_per_call(time, [&] { raw.create_and_delete("/raw/_c_-lock-"); }) / 1e3;
  }

 private:
  void start() {
    if (store_) return;
    store_ = std::make_unique<kit::zookeeper_ensemble>();
    control_ = bench_server(false);
    static_cast<void>(raw_pair(4s));  // its virtual machine compiles what it runs often
  }

  std::unique_ptr<kit::zookeeper_ensemble> store_;
  std::unique_ptr<kit::redis_server> control_;
};

/// The library, told where the server is.
library at(library which, servers& where) {
  which.environment.push_back(std::string(store_variable) + "=" + where.address());
  which.environment.push_back("BENCH_ZOOKEEPER=" + where.host());
  return which;
}

library kazoo() {
  return {.id = "kazoo",
          .title = "kazoo: Lock (Python)",
          .program = "/usr/bin/python3",
          .arguments = {"-B", SALLYPORT_PEERS "/kazoo_lock.py"},
          .trial = {"-c", "import kazoo, redis"},
          .remedy = "install python3-kazoo and python3-redis"};
}

library curator() {
  std::string jars;
  for (const char* const each :
       {"curator-recipes", "curator-framework", "curator-client", "guava", "zookeeper",
        "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all"}) {
    jars += "/usr/share/java/" + std::string(each) + ".jar:";
  }
  const std::string quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off";
  const std::string program = SALLYPORT_PEERS "/CuratorLock.java";
  return {.id = "curator",
          .title = "Curator: InterProcessMutex (Java)",
          .program = "java",
          .arguments = {quiet, "-cp", jars, program},
          .trial = {quiet, "-cp", jars, program, "--try"},
          .remedy = "install libcurator-recipes-java and openjdk-17-jdk-headless"};
}

/// Lets them contend; again and for longer when there was too little to measure, as may happen to a
/// virtual machine that others keep from the cores.
contest_outcome contend_for_long_enough(const library& which, const contest& how, servers& where,
                                        seconds time,
                                        const std::function<bool(const contest_outcome&)>& enough) {
  constexpr int most_tries = 5;
  constexpr double longer = 3;
  for (int tries = 1;; ++tries, time *= longer) {
    auto outcome = crew{at(which, where), how, where.control()}.run(time);
    if (tries == most_tries || enough(outcome)) return outcome;
  }
}

double alone(const library& which, servers& where, seconds time) {
  const auto enough = [](const contest_outcome& made) { return made.turns.size() > 1; };
  return microseconds_per_pair(contend_for_long_enough(which, {}, where, time, enough).turns);
}

std::vector<double> contended(const library& which, servers& where, seconds time) {
  constexpr int processes = 2;
  constexpr int seats = 4;
  const auto figures = [](const contest_outcome& made) {
    return figures_of(made.turns, made.counted, processes * seats);
  };
  const contest how{.processes = processes, .seats = seats, .lead = 200ms};
  const auto made = figures(contend_for_long_enough(
      which, how, where, time * contended_times,
      [&](const contest_outcome& each) { return !std::isnan(figures(each).handoff_p50_us); }));
  return {made.handoff_p50_us, made.handoff_p99_us, made.turns_per_second, made.most_to_fewest};
}

/// How many watches the server has fired because a node or a child of it has gone.
double fired_watches(const kit::zookeeper_ensemble& store) {
  const std::string all = store.say(0, "mntr");
  double sum = 0;
  for (const std::string_view name :
       {"zk_sum_node_deleted_watch_count\t", "zk_sum_node_children_watch_count\t"}) {
    const auto at = all.find(name);
    if (at == std::string::npos) throw std::runtime_error("mntr does not count watches");
    sum += std::stod(all.substr(at + name.size(), 20));
  }
  return sum;
}

/// Watches fired and packets sent by the server for each hand-off, while a line of waiters goes down.
std::vector<double> crowd(servers& where) {
  constexpr int clients = 8;
  std::vector<client> stores;
  stores.reserve(clients);
  for (int i = 0; i < clients; ++i) {
    stores.push_back(client::open(where.address(), {.heartbeat = 60s}));
  }
  mutex first{stores.front(), "crowd", {.local_turns = 1}};
  auto held = first.acquire();
  std::atomic<int> inside{0};
  std::atomic<bool> failed{false};
  std::vector<std::jthread> waiters;
  waiters.reserve(crowd_size);
  for (int i = 0; i < crowd_size; ++i) {
    waiters.emplace_back([&, store = stores[static_cast<std::size_t>(i % clients)]]() mutable {
      mutex lock{store, "crowd", {.local_turns = 1}};
      auto mine = lock.acquire();
      if (++inside != 1) failed = true;
      --inside;
      mine.release();
    });
  }
  const auto queued = [&] {
    const auto seen = stores.front().who("crowd");
    return seen ? seen->waiters.size() : 0;
  };
  for (int tries = 0; queued() < crowd_size && tries < 1000; ++tries) {
    std::this_thread::sleep_for(20ms);
  }
  const double before = fired_watches(where.store());
  const auto began = stopwatch::now();
  held.release();
  waiters.clear();
  const seconds took = stopwatch::now() - began;
  const double fired = fired_watches(where.store()) - before;
  if (failed) throw std::runtime_error("two were inside at once");
  return {fired / crowd_size, took.count() * 1e6 / crowd_size};
}

program alone_program(std::string id, std::string title, const library& which,
                      const std::string& limit, bar wanted, const std::shared_ptr<servers>& where) {
  return {.id = "zookeeper-1/" + std::move(id),
          .group = "zookeeper: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = limit.empty() ? limit : "zookeeper-1/" + limit,
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure =
              [which, where](const measure_settings& how) {
                return std::vector<double>{alone(which, *where, how.time)};
              },
          .why_missing = [which] { return why_missing(which); }};
}

program contended_program(const library& which, std::string limit, bar wanted,
                          const std::shared_ptr<servers>& where) {
  return {
      .id = "zookeeper-8/" + which.id,
      .group = "zookeeper: 8 waiters in 2 processes, empty critical section",
      .title = which.title,
      .limit = std::move(limit),
      .figures = {{.name = "hand-off p50", .unit = "us", .wanted = wanted},
                  {.name = "hand-off p99", .unit = "us"},
                  {.name = "turns", .unit = "per s", .compared = false},
                  {.name = "most/fewest turns", .unit = "", .compared = false}},
      .measure = [which, where](
                     const measure_settings& how) { return contended(which, *where, how.time); },
      .why_missing = [which] { return why_missing(which); }};
}

}  // namespace

std::vector<program> zookeeper_programs() {
  const auto where = std::make_shared<servers>();
  const library ours = sallyport_itself();
  program raw = alone_program("raw", "the C library: create, delete", ours, "", {}, where);
  raw.measure = [where](const measure_settings& how) {
    return std::vector<double>{where->raw_pair(how.time)};
  };
  program tuned = alone_program("raw-tuned", "the same, looking up no names while connected", ours,
                                "raw", {}, where);
  tuned.measure = [where](const measure_settings& how) {
    return std::vector<double>{where->raw_pair(how.time, false)};
  };
  program line{.id = "zookeeper-crowd/200",
               .group = "zookeeper: 200 waiters in 8 clients, one turn each",
               .title = ours.title,
               .limit = {},
               .figures = {{.name = "watches fired per release",
                            .unit = "",
                            .wanted = at_most(watchers_bar)},
                           {.name = "time per change of holder", .unit = "us"}},
               .repeat = repetition::once,
               .measure = [where](const measure_settings&) { return crowd(*where); }};
  return {
      std::move(raw),
      std::move(tuned),
      alone_program(kazoo().id, kazoo().title, kazoo(), "raw", {}, where),
      alone_program(curator().id, curator().title, curator(), "raw", {}, where),
      alone_program("mutex", ours.title + " acquire(), release()", ours, "raw",
                    times_limit(raw_bar), where),
      alone_program("mutex-to-kazoo", "the same, beside kazoo", ours, "kazoo",
                    times_limit(kazoo_bar), where),
      alone_program("mutex-to-curator", "the same, beside Curator", ours, "curator",
                    times_limit(curator_bar), where),
      contended_program(kazoo(), "", {}, where),
      contended_program(curator(), "", {}, where),
      contended_program(ours, "zookeeper-8/curator", times_limit(handoff_bar), where),
      std::move(line),
  };
}

}  // namespace sallyport::bench
