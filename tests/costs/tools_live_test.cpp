#include "tests/costs/cost.hpp"
#include "tests/costs/stores.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

// What is counted from outside of a process: by strace, by callgrind, and by a preloaded library.
namespace sallyport::costs {
namespace {

const std::string the_pairs = SALLYPORT_COSTS_PAIRS;
const std::string the_command = SALLYPORT_COMMAND;

std::string contents_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream{file}.rdbuf();
  return text.str();
}

/// A tool's run, with a folder for what it writes.
class tool_run {
 public:
  [[nodiscard]] std::filesystem::path file(const std::string& name) const {
    return folder_.path() / name;
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  /// Runs it to its end; the test fails unless that is a good one.
  void run(const std::string& program, std::vector<std::string> arguments,
           std::vector<std::string> environment = {}) const {
    kit::child_process child{{.program = program,
                              .called_as = {},
                              .arguments = std::move(arguments),
                              .environment = std::move(environment),
                              .folder = folder_.path(),
                              .log = file("log"),
                              .run_as = {}}};
    EXPECT_EQ(child.wait_for_end(std::chrono::seconds{60}), 0) << contents_of(file("log"));
  }

 private:
  const kit::temporary_folder folder_{"costs"};
};

// ---- system calls -------------------------------------------------------------------------------

/// The lines of strace's reports, one for each process and thread, up to a child's execve.
double system_calls_of(const std::vector<std::string>& words) {
  const tool_run traced;
  std::vector<std::string> arguments{"-ff",         "-qq", "-e",
                                     "signal=none", "-o",  traced.file("calls").string()};
  arguments.insert(arguments.end(), words.begin(), words.end());
  traced.run("strace", arguments);
  double sum = 0;
  for (const auto& each : std::filesystem::directory_iterator{traced.folder()}) {
    if (each.path().stem() != "calls") continue;
    std::ifstream lines{each.path()};
    bool first = true;
    for (std::string line; std::getline(lines, line); first = false) {
      if (line.starts_with("+++")) continue;
      ++sum;
      if (!first && line.starts_with("execve(")) break;
    }
  }
  return sum;
}

TEST(SystemCalls, OfAPairOnRedis) {
  constexpr int pairs = 200;
  const redis_store store;
  const auto of_pairs = [&](int count) {
    return least_of(6, [&] {
      return system_calls_of({the_pairs, store.address(), std::to_string(count)});
    });
  };
  const double once = of_pairs(0);
  EXPECT_TRUE(keeps_to(system_calls_redis, (of_pairs(pairs) - once) / pairs));
}

TEST(SystemCalls, OfARunOnLocal) {
  const local_store store;
  const std::vector<std::string> words{the_command, "run", "--store",  store.address(),
                                       "x",         "--",  "/bin/true"};
  static_cast<void>(system_calls_of(words));  // makes the store
  EXPECT_TRUE(keeps_to(system_calls_run, least_of(8, [&] { return system_calls_of(words); })));
}

// ---- gate passes --------------------------------------------------------------------------------

TEST(GatePasses, OfARunOnLocal) {
  const local_store store;
  const auto passes_of_run = [&] {
    const tool_run counted;
    counted.run(the_command, {"run", "--store", store.address(), "x", "--", "/bin/true"},
                {"LD_PRELOAD=" SALLYPORT_GATE_COUNTER,
                 "SALLYPORT_GATE_PASSES=" + counted.file("passes").string()});
    std::istringstream lines{contents_of(counted.file("passes"))};
    double sum = 0;
    for (double passes = 0; lines >> passes;) sum += passes;
    return sum;
  };
  static_cast<void>(passes_of_run());  // makes the store
  EXPECT_TRUE(keeps_to(gate_passes_run, least_of(3, passes_of_run)));
}

// ---- instructions -------------------------------------------------------------------------------

double instructions_of_pair(const std::string& address) {
  constexpr int pairs = 100;
  const tool_run counted;
  counted.run("valgrind", {"--tool=callgrind", "--toggle-collect=counted_pairs",
                           "--callgrind-out-file=" + counted.file("profile").string(), the_pairs,
                           address, std::to_string(pairs)});
  // "totals: N"
  const std::string profile = contents_of(counted.file("profile"));
  constexpr std::string_view label = "totals: ";
  const auto at = profile.find(label);
  if (at == std::string::npos) {
    ADD_FAILURE() << "callgrind counted nothing: " << contents_of(counted.file("log"));
    return 0;
  }
  return std::stod(profile.substr(at + label.size())) / pairs;
}

TEST(Instructions, OfAPairInMemory) {
  EXPECT_TRUE(keeps_to(instructions_memory, instructions_of_pair(memory_store())));
}

TEST(Instructions, OfAPairOnLocal) {
  const local_store store;
  EXPECT_TRUE(keeps_to(instructions_local, instructions_of_pair(store.address())));
}

TEST(Instructions, OfAPairOnRedis) {
  const redis_store store;
  EXPECT_TRUE(keeps_to(instructions_redis, instructions_of_pair(store.address())));
}

}  // namespace
}  // namespace sallyport::costs
