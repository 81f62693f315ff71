#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// Sallyport beside other libraries' locks. All are measured in one way: processes that take turns
/// and tell of them, in the words of bench/peers/README.md.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;

/// A contended row, which is measured once, lasts so many rounds: locks that poll are passed on
/// only now and then.
constexpr double contended_rounds = 10;
/// From the word to the beginning, so that it reaches everybody.
constexpr std::chrono::nanoseconds head_start = 100ms;

/// How to start a process that takes turns with one library's lock.
struct library {
  std::string id;
  std::string title;
  std::string program;
  std::vector<std::string> arguments = {};
  std::vector<std::string> environment = {};
  /// Arguments with which the program only tries whether the library is there; empty: it is.
  std::vector<std::string> trial = {};
  std::string remedy = {};
};

library sallyport_itself() {
  return {.id = "mutex",
          .title = "sallyport::mutex",
          .program = "/proc/self/exe",
          .arguments = {turns_child_flag}};
}

library redis_py() {
  return {.id = "redis-py",
          .title = "redis-py: Lock, polls every 100 ms",
          .program = "/usr/bin/python3",  // the one that sees Debian's packages
          .arguments = {"-B", SALLYPORT_PEERS "/redis_py.py"},
          .trial = {"-c", "import redis"},
          .remedy = "install python3-redis"};
}

library node_redlock() {
  return {.id = "node-redlock",
          .title = "node-redlock: polls every 200 +- 100 ms",
          .program = "node",
          .arguments = {SALLYPORT_PEERS "/node_redlock.js"},
          .environment = {"NODE_PATH=" SALLYPORT_NODE_MODULES},
          .trial = {"-e", "require('ioredis'); require('redlock')"},
          .remedy = "install nodejs and npm, build the target bench_peers"};
}

/// The line of a log that says what is wrong: interpreters wrap it in lines of where.
std::string complaint_in(const std::filesystem::path& log) {
  std::ifstream lines{log};
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Error: ") != std::string::npos) return line;
  }
  return "it failed without a word";
}

std::string why_missing(const library& which) {
  if (which.trial.empty()) return {};
  const kit::temporary_folder folder{"bench"};
  const auto log = folder.path() / "log";
  try {
    kit::child_process trial{{.program = which.program,
                              .called_as = {},
                              .arguments = which.trial,
                              .environment = which.environment,
                              .folder = folder.path(),
                              .log = log,
                              .run_as = {}}};
    if (trial.wait_for_end() == 0) return {};
    return complaint_in(log) + " (" + which.remedy + ")";
  } catch (const kit::kit_error& failure) {
    return std::string(failure.what()) + " (" + which.remedy + ")";
  }
}

/// The one server of all these rows; it is started when it is first asked for.
class shared_server {
 public:
  kit::redis_server& get() {
    if (!server_) server_ = bench_server(false);
    return *server_;
  }

 private:
  std::unique_ptr<kit::redis_server> server_;
};

/// Who contends, and how.
struct contest {
  int processes = 1;
  int seats = 1;  ///< contenders in each process
  std::chrono::microseconds hold{0};
};

struct contest_outcome {
  std::vector<turn> turns;
  turn_window counted;
};

/// Processes of one library on one server; they are gone with the object.
class crew {
 public:
  crew(const library& which, const contest& how, kit::redis_server& server)
      : size_(how.processes), probe_(server.probe()) {
    probe_.expect({"DEL", "bench/ready", "bench/go", "bench/turns"});
    for (int i = 0; i < how.processes; ++i) {
      auto arguments = which.arguments;
      for (const auto number :
           {static_cast<long>(server.port()), static_cast<long>(i), static_cast<long>(how.seats),
            static_cast<long>(how.hold.count())}) {
        arguments.push_back(std::to_string(number));
      }
      processes_.emplace_back(kit::child_options{.program = which.program,
                                                 .called_as = {},
                                                 .arguments = std::move(arguments),
                                                 .environment = which.environment,
                                                 .folder = folder_.path(),
                                                 .log = folder_.path() / "log",
                                                 .run_as = {}});
    }
  }

  contest_outcome run(seconds time) {
    wait_until_ready();
    const auto length = std::chrono::duration_cast<std::chrono::nanoseconds>(time);
    const auto begin = stopwatch::now().time_since_epoch() + head_start;
    contest_outcome made{.turns = {},
                         .counted = {.begin = begin.count(), .end = (begin + length).count()}};
    for (int i = 0; i < size_; ++i) {
      probe_.expect({"RPUSH", "bench/go",
                     std::to_string(made.counted.begin) + " " + std::to_string(made.counted.end)});
    }
    for (auto& each : processes_) {
      if (each.wait_for_end(head_start + length + kit::patience) != 0) fail(each);
    }
    for (const auto& told : probe_.expect({"LRANGE", "bench/turns", "0", "-1"}).texts()) {
      const auto some = parse_turns(told);
      made.turns.insert(made.turns.end(), some.begin(), some.end());
    }
    return made;
  }

 private:
  void wait_until_ready() {
    const std::string all = std::to_string(size_);
    const auto settled = [&] {
      return probe_.expect({"GET", "bench/ready"}).text == all ||
             std::any_of(processes_.begin(), processes_.end(),
                         [](kit::child_process& each) { return !each.running(); });
    };
    if (!kit::eventually(settled) || probe_.expect({"GET", "bench/ready"}).text != all) {
      fail(processes_.front());
    }
  }

  [[noreturn]] static void fail(const kit::child_process& which) {
    throw std::runtime_error("a process failed or took too long: " + which.log_tail());
  }

  const int size_;
  kit::temporary_folder folder_{"bench"};
  kit::redis_probe probe_;
  std::deque<kit::child_process> processes_;  // they can't be moved
};

std::vector<double> alone(const library& which, kit::redis_server& server, seconds time) {
  return {microseconds_per_pair(crew{which, {}, server}.run(time).turns)};
}

std::vector<double> contended(const library& which, const contest& how, kit::redis_server& server,
                              seconds time) {
  auto outcome = crew{which, how, server}.run(time * contended_rounds);
  const auto made =
      figures_of(std::move(outcome.turns), outcome.counted, how.processes * how.seats);
  return {made.handoff_p50_us, made.handoff_p99_us, made.changes_per_second, made.turns_per_second,
          made.most_to_fewest, made.without_a_turn, made.longest_wait_ms,    made.gave_up};
}

program alone_program(const library& which, const std::shared_ptr<shared_server>& server) {
  return {
      .id = "redis-peers-1/" + which.id,
      .group = "redis, other libraries: one process, nobody else wants the lock",
      .title = which.title,
      .limit = "redis-peers-1/set",
      .figures = {{.name = "pair", .unit = "us"}},
      .measure = [which, server](
                     const measure_settings& how) { return alone(which, server->get(), how.time); },
      .why_missing = [which] { return why_missing(which); }};
}

/// The same commands as redis-py's, without the library.
program plain_program(const std::shared_ptr<shared_server>& server) {
  auto made = alone_program(
      {.id = "set", .title = "hiredis: SET NX PX, compare-and-delete", .program = {}}, server);
  made.limit = {};
  made.measure = [server](const measure_settings& how) {
    return std::vector<double>{set_and_delete_pair(server->get(), how.time)};
  };
  return made;
}

program contended_program(std::string id, std::string group, const library& which,
                          const contest& how, const std::shared_ptr<shared_server>& server) {
  return {.id = std::move(id) + "/" + which.id,
          .group = std::move(group),
          .title = which.title,
          .limit = {},
          .figures = {{.name = "hand-off p50", .unit = "us"},
                      {.name = "hand-off p99", .unit = "us"},
                      {.name = "changes of holder", .unit = "per s"},
                      {.name = "turns", .unit = "per s"},
                      {.name = "most/fewest turns", .unit = ""},
                      {.name = "waiters without a turn", .unit = ""},
                      {.name = "longest wait", .unit = "ms"},
                      {.name = "gave up, tried again", .unit = ""}},
          .repeat = repetition::once,
          .measure =
              [which, how, server](const measure_settings& settings) {
                return contended(which, how, server->get(), settings.time);
              },
          .why_missing = [which] { return why_missing(which); }};
}

}  // namespace

std::vector<program> redis_peers_programs() {
  const auto server = std::make_shared<shared_server>();
  const std::vector<library> libraries{sallyport_itself(), redis_py(), node_redlock()};
  std::vector<program> all{plain_program(server)};
  for (const library& each : libraries) all.push_back(alone_program(each, server));
  for (const library& each : libraries) {
    all.push_back(contended_program("redis-peers-8",
                                    "redis, other libraries: 8 processes, empty critical section",
                                    each, {.processes = 8}, server));
  }
  for (const library& each : libraries) {
    all.push_back(contended_program(
        "redis-peers-32", "redis, other libraries: 32 waiters in 8 processes, held for 1 ms", each,
        {.processes = 8, .seats = 4, .hold = 1ms}, server));
  }
  return all;
}

}  // namespace sallyport::bench
