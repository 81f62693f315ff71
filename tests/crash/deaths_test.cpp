#include "backends/local/local_store.hpp"
#include "backends/local/place.hpp"
#include "backends/local/process.hpp"
#include "tests/crash/crash_kit.hpp"

#include <atomic>
#include <csignal>
#include <optional>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

// Who counts as dead: processes that forked, executed, have a companion, or whose pid was given
// again.
namespace sallyport::crash {
namespace {

namespace local = backends::local;

/// Ends a process that a worker of ours has left to init.
class orphan {
 public:
  explicit orphan(const std::string& pid) : pid_(std::stoi(pid)) {}
  orphan(const orphan&) = delete;
  orphan& operator=(const orphan&) = delete;
  ~orphan() {
    if (pid_ > 1) ::kill(pid_, SIGKILL);
  }
  [[nodiscard]] bool alive() const { return pid_ > 1 && !ended(pid_); }

 private:
  pid_t pid_;
};

class Deaths : public crash_test {
 protected:
  [[nodiscard]] holder_process start(std::vector<std::string> options = {}) const {
    return holder_process{address(), "door", std::move(options)};
  }
  /// The next waits already when `die` ends the last process; how long it took to enter.
  template <class Die>
  std::optional<std::chrono::nanoseconds> time_to_enter(Die die) {
    mutex mine{open(), "door", {.lease_length = 20s}};
    const auto store = open();
    background next([&] {
      const auto held = mine.try_acquire_for(5s);
      return held ? lease_clock::now() : lease_clock::time_point::max();
    });
    EXPECT_TRUE(eventually([&] {
      const auto seen = store.who("door");
      return seen && !seen->waiters.empty();
    }));
    const auto died = lease_clock::now();
    die();
    const auto entered = next.get();
    if (entered == lease_clock::time_point::max()) return std::nullopt;
    return entered - died;
  }
};

TEST_F(Deaths, OfAParentFreeItsLocksThoughAForkedChildLivesOn) {
  holder_process parent = start();
  ASSERT_TRUE(parent.ask("acquire").starts_with("acquired"));
  const orphan child(parent.ask("fork"));

  EXPECT_TRUE(time_to_enter([&] { parent.kill(); })) << "the child keeps the lock";

  EXPECT_TRUE(child.alive());
  expect_nothing_left();
}

TEST_F(Deaths, OfAParentFreeItsLocksThoughAnExecutedChildLivesOn) {
  holder_process parent = start();
  ASSERT_TRUE(parent.ask("acquire").starts_with("acquired"));
  const orphan child(parent.ask("spawn"));

  EXPECT_TRUE(time_to_enter([&] { parent.kill(); })) << "the child keeps the lock";

  EXPECT_TRUE(child.alive());
}

TEST_F(Deaths, AForkedChildIsAContenderOfItsOwn) {
  holder_process parent = start();
  ASSERT_TRUE(parent.ask("acquire").starts_with("acquired"));

  EXPECT_EQ(parent.ask("fork_acquire door"), "busy");
  EXPECT_EQ(parent.ask("fork_acquire another"), "acquired");

  EXPECT_EQ(parent.ask("valid"), "true");
  mutex another{open(), "another"};
  EXPECT_TRUE(another.try_acquire()) << "the child is gone";
  EXPECT_EQ(parent.ask("release"), "released");
}

TEST_F(Deaths, AForkedChildOpensWhileThreadsOfItsParentDoToo) {
  std::atomic<bool> enough{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!enough) static_cast<void>(open());
    });
  }
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    pause_for(std::chrono::microseconds{200 * (round % 10)});
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        mutex lock{open(), "round"};
        code = lock.try_acquire_for(5s) ? 0 : 2;
      } catch (const std::exception&) {
        code = 3;
      }
      ::_exit(code);
    }
    int status = 0;
    const bool over = eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }, 10s);
    EXPECT_TRUE(over) << "the child stands still";
    if (!over) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
    }
    EXPECT_EQ(status, 0);
  }
  enough = true;
}

TEST_F(Deaths, AForkedChildsEndDoesNotTakeItsParentsPresenceAway) {
  holder_process parent = start();
  ASSERT_TRUE(parent.ask("acquire").starts_with("acquired"));
  ASSERT_EQ(parent.ask("fork_acquire another"), "acquired");

  // Were nobody present, a newcomer would begin this store anew.
  const auto here = local::this_machine();
  ASSERT_TRUE(here);
  ASSERT_EQ(::unlink((folder() + "/store/gate-" + here->boot_id).c_str()), 0);
  EXPECT_THROW(static_cast<void>(open()), lock_error);
}

TEST_F(Deaths, WithACompanionCountWhenBothAreDead) {
  holder_process companion = start();
  holder_process wrapper = start({"--companion", std::to_string(companion.pid())});
  ASSERT_TRUE(wrapper.ask("acquire").starts_with("acquired"));
  const auto store = open();
  mutex mine{store, "door"};

  wrapper.kill();
  EXPECT_FALSE(mine.try_acquire_for(300ms)) << "the companion lives";
  const auto took = time_to_enter([&] { companion.kill(); });

  ASSERT_TRUE(took);
  EXPECT_LT(*took, 2s);
}

TEST_F(Deaths, OfACompanionAloneChangeNothing) {
  holder_process companion = start();
  holder_process wrapper = start({"--companion", std::to_string(companion.pid())});
  ASSERT_TRUE(wrapper.ask("acquire").starts_with("acquired"));
  mutex mine{open(), "door"};

  companion.kill();

  EXPECT_FALSE(mine.try_acquire_for(300ms));
  EXPECT_EQ(wrapper.ask("valid"), "true");
  EXPECT_TRUE(time_to_enter([&] { wrapper.kill(); }));
}

TEST_F(Deaths, OfACompanionBeforeTheClientOpensAreToldAtOnce) {
  holder_process companion = start();
  const auto pid = companion.pid();
  companion.kill();
  try {
    static_cast<void>(open({.companion_pid = pid}));
    ADD_FAILURE() << "nobody runs under that pid";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::bad_option);
  }
}

/// Puts a holder into the store whose client has this process behind it.
void plant_holder(local::local_store& store, const local::process_identity& who) {
  std::vector<local::notice> own;
  const lock_name name("door");
  backend_api::acquire_request request{
      name, lock_kind::mutex, lock_mode::exclusive, {}, {}, {}, {}, false, 1, 1, 0, {}, {}};
  request.holder = {.high = 1, .low = 1};
  request.lease_length = 20s;
  const auto planted =
      store.transact(lease_clock::now() + 5s, 0, own, [&](local::lock_rules& rules) {
        const auto client = rules.add_client({.process = who, .companion = {}}, "ghost");
        const auto answer = rules.acquire(request, client, 0);
        return answer && std::holds_alternative<backend_api::granted>(answer->answer);
      });
  ASSERT_TRUE(planted && *planted);
}

TEST_F(Deaths, TakeTheWatchesOfTheDeadAway) {
  {
    auto store = local::local_store::find_or_open(*local::parse_address(address()));
    ASSERT_TRUE(store);
    holder_process stranger{address(), "elsewhere"};
    const auto identity = local::identify(stranger.pid());
    ASSERT_TRUE(identity);
    std::vector<local::notice> own;
    const auto planted =
        (*store)->transact(lease_clock::now() + 5s, 0, own, [&](local::lock_rules& rules) {
          const auto client = rules.add_client({.process = *identity, .companion = {}}, "ghost");
          for (const char* name : {"door", "gate", "port"}) rules.watch(client, name, true);
          return true;
        });
    ASSERT_TRUE(planted);
    stranger.kill();
  }
  expect_nothing_left();
}

TEST_F(Deaths, APidThatWasGivenAgainBelongsToNobodyInTheStore) {
  auto store = local::local_store::find_or_open(*local::parse_address(address()));
  ASSERT_TRUE(store);
  holder_process stranger{address(), "elsewhere"};
  auto identity = local::identify(stranger.pid());
  ASSERT_TRUE(identity);
  identity->started -= 1;
  plant_holder(**store, *identity);

  mutex mine{open(), "door"};
  EXPECT_TRUE(mine.try_acquire()) << "the living process has another start time";
}

TEST_F(Deaths, APidWhoseStartTimeNobodyCouldReadIsAliveAsLongAsThePid) {
  auto store = local::local_store::find_or_open(*local::parse_address(address()));
  ASSERT_TRUE(store);
  holder_process stranger{address(), "elsewhere"};
  plant_holder(**store, {.pid = stranger.pid(), .started = 0});

  mutex mine{open(), "door"};
  EXPECT_FALSE(mine.try_acquire());
  stranger.kill();
  EXPECT_TRUE(mine.try_acquire());
}

TEST_F(Deaths, APidWithItsOwnStartTimeIsAlive) {
  auto store = local::local_store::find_or_open(*local::parse_address(address()));
  ASSERT_TRUE(store);
  holder_process stranger{address(), "elsewhere"};
  const auto identity = local::identify(stranger.pid());
  ASSERT_TRUE(identity);
  plant_holder(**store, *identity);

  mutex mine{open(), "door"};
  EXPECT_FALSE(mine.try_acquire());
  stranger.kill();
  EXPECT_TRUE(mine.try_acquire());
}

}  // namespace
}  // namespace sallyport::crash
