#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/bench_folder.hpp"
#include "bench/side_by_side/programs.hpp"

#include <chrono>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::bench {
namespace {

constexpr double command_bar = 2.5;
constexpr double burst_bar = 2.5;
constexpr double twice_the_burst_bar = 2.3;
constexpr int burst_size = 800;

using command_words = std::vector<std::string>;

pid_t start(command_words& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments.front(), nullptr, nullptr, arguments.data(), ::environ);
  if (failed != 0) throw std::runtime_error("'" + words.front() + "' could not be started");
  return child;
}

/// Runs a command to its end; throws unless it ended with 0.
void run_to_end(command_words& words) {
  const pid_t child = start(words);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("'" + words.front() + "' did not work");
  }
}

/// Starts so many at once and waits for all; throws unless all ended with 0.
double seconds_of_burst(command_words words, int count) {
  const auto began = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  children.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) children.push_back(start(words));
  int failed = 0;
  for (const pid_t each : children) {
    int status = -1;
    if (::waitpid(each, &status, 0) != each || status != 0) ++failed;
  }
  if (failed > 0) {
    throw std::runtime_error(std::to_string(failed) + " of a burst of '" + words.front() +
                             "' did not work");
  }
  return seconds(std::chrono::steady_clock::now() - began).count();
}

double microseconds_of(command_words words, seconds time) {
  run_to_end(words);  // the first one makes the store
  return nanoseconds_per_call(time, [&words] { run_to_end(words); }) / 1e3;
}

program command_program(std::string id, std::string title, std::string limit, bar wanted,
                        command_words (*words)(const bench_folder&)) {
  return {.id = std::move(id),
          .group = "the command: one whole run of `true`, nobody else wants the lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "wall time", .unit = "us", .wanted = wanted}},
          .measure = [words](const measure_settings& how) {
            const bench_folder folder;
            return std::vector<double>{microseconds_of(words(folder), how.time)};
          }};
}

program burst_program(std::string id, std::string title, std::string limit, bar wanted, int count,
                      command_words (*words)(const bench_folder&)) {
  return {.id = std::move(id),
          .group = "the command: a burst of runs of `true`, all started at once, on one lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "until all have ended", .unit = "s", .wanted = wanted}},
          .measure = [words, count](const measure_settings& how) {
            const bench_folder folder;
            how.tick();
            return std::vector<double>{seconds_of_burst(words(folder), count)};
          }};
}

command_words flock_words(const bench_folder& folder) { return {"flock", folder.file(), "true"}; }
command_words run_words(const bench_folder& folder) {
  return {SALLYPORT_COMMAND, "run", "--store", folder.store(), "name", "--", "true"};
}

}  // namespace

std::vector<program> command_programs() {
  return {
      command_program("command/true", "true", "", {},
                      [](const bench_folder&) { return command_words{"true"}; }),
      command_program("command/flock", "flock FILE true", "", {}, &flock_words),
      command_program("command/run", "sallyport run NAME -- true", "command/flock",
                      times_limit(command_bar), &run_words),
      burst_program("burst/flock", "flock FILE true, 800 times", "", {}, burst_size, &flock_words),
      burst_program("burst/run", "sallyport run NAME -- true, 800 times", "burst/flock",
                    times_limit(burst_bar), burst_size, &run_words),
      burst_program("burst/run-twice", "the same, 1,600 times (limit: 800)", "burst/run",
                    times_limit(twice_the_burst_bar), 2 * burst_size, &run_words),
  };
}

}  // namespace sallyport::bench
