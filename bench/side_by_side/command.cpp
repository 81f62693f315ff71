#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/bench_folder.hpp"
#include "bench/side_by_side/programs.hpp"

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

/// Runs a command to its end; throws unless it ended with 0.
void run_to_end(std::vector<std::string>& words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& each : words) arguments.push_back(each.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  const int started =
      ::posix_spawnp(&child, arguments.front(), nullptr, nullptr, arguments.data(), ::environ);
  if (started != 0 || ::waitpid(child, &status, 0) != child || status != 0) {
    throw std::runtime_error("'" + words.front() + "' did not work");
  }
}

double microseconds_of(std::vector<std::string> words, seconds time) {
  run_to_end(words);  // the first one makes the store
  return nanoseconds_per_call(time, [&words] { run_to_end(words); }) / 1e3;
}

program command_program(std::string id, std::string title, std::string limit, bar wanted,
                        std::vector<std::string> (*words)(const bench_folder&)) {
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

}  // namespace

std::vector<program> command_programs() {
  return {
      command_program("command/true", "true", "", {},
                      [](const bench_folder&) { return std::vector<std::string>{"true"}; }),
      command_program("command/flock", "flock FILE true", "", {},
                      [](const bench_folder& folder) {
                        return std::vector<std::string>{"flock", folder.file(), "true"};
                      }),
      command_program(
          "command/run", "sallyport run NAME -- true", "command/flock", times_limit(command_bar),
          [](const bench_folder& folder) {
            return std::vector<std::string>{
                SALLYPORT_COMMAND, "run", "--store", folder.store(), "name", "--", "true"};
          }),
  };
}

}  // namespace sallyport::bench
