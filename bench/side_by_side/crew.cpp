#include "bench/side_by_side/crew.hpp"

#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

/// From the word to the beginning, so that it reaches everybody.
constexpr nanoseconds head_start = 100ms;
/// What contest::at_begin may take without making the counted time shorter.
constexpr nanoseconds longest_event = 200ms;

/// The line of a log that says what is wrong: interpreters wrap it in lines of where.
std::string complaint_in(const std::filesystem::path& log) {
  std::ifstream lines{log};
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Error: ") != std::string::npos) return line;
  }
  return "it failed without a word";
}

[[noreturn]] void fail(const kit::child_process& which) {
  throw std::runtime_error("a process failed or took too long: " + which.log_tail());
}

nanoseconds now() { return stopwatch::now().time_since_epoch(); }

}  // namespace

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

crew::crew(const library& which, contest how, const kit::redis_server& control)
    : how_(std::move(how)), probe_(control.probe()) {
  probe_.expect({"DEL", "bench/ready", "bench/go", "bench/turns"});
  for (int i = 0; i < how_.processes; ++i) {
    auto arguments = which.arguments;
    for (const auto number :
         {static_cast<long>(control.port()), static_cast<long>(i), static_cast<long>(how_.seats),
          static_cast<long>(how_.hold.count())}) {
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

contest_outcome crew::run(seconds time) {
  wait_until_ready();
  const auto length = std::chrono::duration_cast<nanoseconds>(time);
  const nanoseconds begin = now() + head_start;
  const nanoseconds end =
      begin + (how_.at_begin ? longest_event : nanoseconds{0}) + how_.lead + length;
  for (int i = 0; i < how_.processes; ++i) {
    probe_.expect(
        {"RPUSH", "bench/go", std::to_string(begin.count()) + " " + std::to_string(end.count())});
  }
  nanoseconds counted_from = begin + how_.lead;
  if (how_.at_begin) {
    std::this_thread::sleep_until(stopwatch::time_point{begin});
    how_.at_begin();
    counted_from = now() + how_.lead;
  }
  for (auto& each : processes_) {
    if (each.wait_for_end(end - begin + head_start + kit::patience) != 0) fail(each);
  }
  contest_outcome made{.turns = {},
                       .counted = {.begin = counted_from.count(),
                                   .end = std::min(end, counted_from + length).count()}};
  for (const auto& told : probe_.expect({"LRANGE", "bench/turns", "0", "-1"}).texts()) {
    const auto some = parse_turns(told);
    made.turns.insert(made.turns.end(), some.begin(), some.end());
  }
  return made;
}

void crew::wait_until_ready() {
  const std::string all = std::to_string(how_.processes);
  const auto settled = [&] {
    return probe_.expect({"GET", "bench/ready"}).text == all ||
           std::any_of(processes_.begin(), processes_.end(),
                       [](kit::child_process& each) { return !each.running(); });
  };
  if (!kit::eventually(settled) || probe_.expect({"GET", "bench/ready"}).text != all) {
    fail(processes_.front());
  }
}

}  // namespace sallyport::bench
