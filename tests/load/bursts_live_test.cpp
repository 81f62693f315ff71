#include "backends/local/local_store.hpp"
#include "backends/local/place.hpp"
#include "backends/local/steps.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/lease_clock.hpp>
#include <sallyport/sallyport.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Bursts of `sallyport run` on one lock, all started at once.
// SALLYPORT_LOAD_PROCESSES: how many; SALLYPORT_LOAD_BURSTS: how many bursts, one after the other.
namespace sallyport::load {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;
namespace local = backends::local;

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Bursts : public testing::Test {
 protected:
  Bursts() { reset_counter(); }

  [[nodiscard]] std::string in_folder(const std::string& name) const {
    return (root_.path() / name).string();
  }
  [[nodiscard]] static int processes() { return number_from("SALLYPORT_LOAD_PROCESSES", 400); }
  [[nodiscard]] static int bursts() { return number_from("SALLYPORT_LOAD_BURSTS", 1); }

  void reset_counter() const {
    std::ofstream(in_folder("counter"), std::ios::binary) << std::string(2 * sizeof(long), '\0');
    std::ofstream(in_folder("stderr"));
  }
  [[nodiscard]] long counted() const {
    long count = 0;
    std::ifstream(in_folder("counter"), std::ios::binary)
        .read(reinterpret_cast<char*>(&count), sizeof count);
    return count;
  }
  /// What the runs said, but for lines that contain `allowed`.
  [[nodiscard]] std::vector<std::string> messages(const std::string& allowed = {}) const {
    std::ifstream in(in_folder("stderr"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      if (allowed.empty() || line.find(allowed) == std::string::npos) lines.push_back(line);
    }
    return lines;
  }

  /// One run that counts; returns at once.
  [[nodiscard]] pid_t start(const std::string& store) const {
    std::vector<std::string> words{
        SALLYPORT_COMMAND,   "run", "--store", store, "crowd", "--", SALLYPORT_LOAD_COUNTER,
        in_folder("counter")};
    std::vector<char*> arguments;
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, in_folder("stderr").c_str(),
                                     O_WRONLY | O_APPEND, 0600);
    pid_t child = 0;
    const int failed =
        ::posix_spawn(&child, SALLYPORT_COMMAND, &actions, nullptr, arguments.data(), ::environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("a process could not be started");
    return child;
  }
  /// How they ended, and how many of them.
  static std::map<int, int> await(const std::vector<pid_t>& children) {
    std::map<int, int> ends;
    for (const pid_t each : children) {
      int status = -1;
      ::waitpid(each, &status, 0);
      ++ends[WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)];
    }
    return ends;
  }

  void burst(const std::string& store, const std::string& allowed = {}) {
    reset_counter();
    const auto began = lease_clock::now();
    std::vector<pid_t> children;
    for (int i = 0; i < processes(); ++i) children.push_back(start(store));
    const auto ends = await(children);
    const std::chrono::duration<double> took = lease_clock::now() - began;
    std::cout << processes() << " runs in " << took.count() << " s" << std::endl;

    EXPECT_THAT(ends, testing::ElementsAre(testing::Pair(0, processes())));
    EXPECT_EQ(counted(), processes());
    EXPECT_THAT(messages(allowed), IsEmpty());
  }

  /// Nobody has it open: then nothing but its counters may be in the store.
  static void expect_nothing_left(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("inbox-")) << entry.path();
    }
    const auto store =
        local::local_store::find_or_open(local::parse_address("local:" + folder).value());
    ASSERT_TRUE(store) << store.error().detail;
    std::vector<local::notice> nobody;
    const auto looked =
        (*store)->transact(lease_clock::now() + 10s, 0, nobody, [](local::lock_rules& rules) {
          EXPECT_TRUE(rules.some_clients(0, 1).empty()) << "a client's record was left behind";
          EXPECT_TRUE(rules.list("", "", 1).empty()) << "a lock or a ticket was left behind";
          return true;
        });
    EXPECT_TRUE(looked);
  }

  kit::temporary_folder root_;
};

TEST_F(Bursts, OnTheEmbeddedStoreAllGetTheirTurn) {
  for (int i = 0; i < bursts() && !HasFailure(); ++i) {
    const std::string folder = in_folder("store-" + std::to_string(i));
    burst("local:" + folder);
    expect_nothing_left(folder);
    std::filesystem::remove_all(folder);
  }
}

TEST_F(Bursts, OnRedisAllGetTheirTurn) {
  kit::redis_server server;
  const std::string store = "redis://127.0.0.1:" + std::to_string(server.port());
  for (int i = 0; i < bursts() && !HasFailure(); ++i) {
    // Where thousands of threads want two cores an answer may come after its time-out, and a run that
    // did its work says so and ends well. The embedded store has no such excuse.
    burst(store, "the store did not confirm the release");
    kit::redis_probe probe = server.probe();
    EXPECT_TRUE(kit::eventually([&] { return kit::leftovers(probe).empty(); }, 40s));
  }
}

TEST_F(Bursts, GoOnAfterAProcessWasStoppedInsideTheEmbeddedStore) {
  constexpr int a_few = 25;
  const std::string store = "local:" + in_folder("store");
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    const auto opened = client::open(store);
    mutex lock{opened, "elsewhere"};
    local::on_step = [](local::step where) {
      if (where != local::step::inside_the_gate) return;
      local::on_step = nullptr;
      ::raise(SIGSTOP);
    };
    ::_exit(lock.try_acquire() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(sleeper, &status, WUNTRACED), sleeper);
  ASSERT_TRUE(WIFSTOPPED(status));

  std::vector<pid_t> children;
  for (int i = 0; i < a_few; ++i) children.push_back(start(store));
  std::this_thread::sleep_for(3s);
  ::kill(sleeper, SIGCONT);

  EXPECT_THAT(await(children), testing::ElementsAre(testing::Pair(0, a_few)));
  EXPECT_EQ(counted(), a_few);
  EXPECT_THAT(messages(), IsEmpty());
  EXPECT_EQ(::waitpid(sleeper, &status, 0), sleeper);
}

}  // namespace
}  // namespace sallyport::load
