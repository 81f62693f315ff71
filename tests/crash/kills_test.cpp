#include "base/random.hpp"
#include "tests/crash/crash_kit.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

// Workers are killed at random moments, again and again, and started anew.
namespace sallyport::crash {
namespace {

/// SALLYPORT_CRASH_SEED repeats the draws of a run (not its timing).
std::uint64_t the_seed() {
  static const std::uint64_t seed = [] {
    const char* const given = std::getenv("SALLYPORT_CRASH_SEED");
    const std::uint64_t drawn =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::kernel_seed() % 1'000'000;
    std::cout << "SALLYPORT_CRASH_SEED=" << drawn << std::endl;
    return drawn;
  }();
  return seed;
}

class Kills : public crash_test {
 protected:
  static constexpr std::size_t crew = 4;

  void start(std::size_t slot) {
    std::vector<std::string> words{address(),      "door",
                                   "--mode",       mode_,
                                   "--loop",       "1000000",
                                   "--board",      board_file(),
                                   "--slot",       std::to_string(slot),
                                   "--seed",       std::to_string(draw_()),
                                   "--timeout-ms", "10000"};
    // Some die by themselves, at a step that a kill from outside would seldom meet.
    if (draw_.chance(0.3)) {
      words.emplace_back("--die");
      words.push_back(std::to_string(draw_.below(6)) + ":" + std::to_string(1 + draw_.below(40)));
    }
    workers_.at(slot).start(std::move(words));
  }

  void kill(std::size_t slot) {
    const pid_t victim = workers_.at(slot).running();
    if (victim == 0) return;
    killed_at_[victim] = lease_clock::now().time_since_epoch().count();
    workers_.at(slot).kill();
  }

  /// The slot of somebody who is inside, or any.
  std::size_t choose() {
    const std::size_t first = draw_.below(crew);
    if (draw_.chance(0.6)) {
      for (std::size_t i = 0; i < crew; ++i) {
        const std::size_t slot = (first + i) % crew;
        const auto inside = static_cast<pid_t>(pid_of(board_->inside.at(slot).load()));
        if (inside != 0 && inside == workers_.at(slot).running()) return slot;
      }
    }
    return first;
  }

  void revive() {
    for (std::size_t slot = 0; slot < crew; ++slot) {
      if (workers_.at(slot).running() != 0) continue;
      if (started_.at(slot)) ++kills_;
      start(slot);
      started_.at(slot) = true;
    }
  }

  void kill_one_after_the_other(std::size_t how_many) {
    revive();
    const auto give_up = lease_clock::now() + 100s;
    while (kills_ < how_many && lease_clock::now() < give_up) {
      pause_for(std::chrono::microseconds{500 + draw_.below(9000)});
      const std::size_t slot = choose();
      kill(slot);
      revive();
    }
    EXPECT_GE(kills_, how_many);
    kill_all();
  }

  void kill_all() {
    // Not noted: nobody is left who could take over at once.
    for (const looping_worker& one : workers_) one.kill();
    for (std::size_t slot = 0; slot < crew; ++slot) {
      if (started_.at(slot)) ++kills_;
      started_.at(slot) = false;
      workers_.at(slot).reap();
    }
  }

  /// A client that was not there before gets in, with a larger token than all before.
  template <class Lock>
  void expect_newcomer_enters(Lock&& lock) {
    const auto before = lease_clock::now();
    auto held = lock.try_acquire_for(5s);
    const auto took = lease_clock::now() - before;
    ASSERT_TRUE(held) << "the lock is stuck";
    newcomers_.push_back(took.count());
    if (!held->fenced()) return;
    EXPECT_GT(held->token().value(), board_->newest_any.load());
    board_->newest_any = held->token().value();
    board_->newest_exclusive = held->token().value();
  }

  void report(const char* what, lease_clock::time_point began) {
    std::vector<std::int64_t> waits;
    const std::uint64_t count = std::min<std::uint64_t>(board_->takeovers, board::most_takeovers);
    for (std::size_t i = 0; i < count; ++i) {
      const auto& one = board_->taken_over.at(i);
      const auto killed = killed_at_.find(static_cast<pid_t>(one.dead_pid.load()));
      if (killed != killed_at_.end()) waits.push_back(one.when.load() - killed->second);
    }
    const auto spent = std::chrono::duration<double>(lease_clock::now() - began).count();
    std::cout << what << ": " << kills_ << " kills in " << spent << " s, " << board_->entries
              << " entries; from the kill of a holder to the next entry (" << waits.size()
              << "): p50 " << percentile(waits, 50) / 1000 << " us, p99 "
              << percentile(waits, 99) / 1000 << " us, max " << percentile(waits, 100) / 1000
              << " us; newcomers (" << newcomers_.size() << "): p50 "
              << percentile(newcomers_, 50) / 1000 << " us, max "
              << percentile(newcomers_, 100) / 1000 << " us" << std::endl;
    EXPECT_EQ(board_->two_inside.load(), 0U) << board_->first_trouble.data();
    EXPECT_EQ(board_->tokens_sunk.load(), 0U) << board_->first_trouble.data();
    EXPECT_EQ(board_->troubles.load(), 0U) << board_->first_trouble.data();
    EXPECT_GT(board_->entries.load(), kills_) << "they hardly ever got in";
    if (!waits.empty()) {
      EXPECT_LT(percentile(waits, 50), std::chrono::nanoseconds(50ms).count());
      EXPECT_LT(percentile(waits, 100), std::chrono::nanoseconds(5s).count());
    }
    EXPECT_LT(percentile(newcomers_, 50), std::chrono::nanoseconds(50ms).count());
  }

  base::random draw_{the_seed() + 1};
  std::string mode_;
  shared_board board_{board_file()};
  std::array<looping_worker, crew> workers_;
  std::array<bool, crew> started_{};
  std::map<pid_t, std::int64_t> killed_at_;
  std::vector<std::int64_t> newcomers_;
  std::size_t kills_ = 0;
};

TEST_F(Kills, LeaveAMutexWholeAndFree) {
  const auto began = lease_clock::now();
  mode_ = "mutex";

  kill_one_after_the_other(800);
  expect_newcomer_enters(mutex{open(), "door"});

  report("mutex", began);
  expect_nothing_left();
}

TEST_F(Kills, LeaveAMutexWholeAndFreeWithoutASharedMap) {
  const auto began = lease_clock::now();
  mode_ = "mutex";
  map_ = "no";

  kill_one_after_the_other(300);
  expect_newcomer_enters(mutex{open(), "door"});

  report("mutex, map=no", began);
  expect_nothing_left();
}

TEST_F(Kills, LeaveASharedMutexWholeAndFree) {
  const auto began = lease_clock::now();
  mode_ = "mixed";

  kill_one_after_the_other(500);
  expect_newcomer_enters(shared_mutex{open(), "door"});

  report("shared_mutex", began);
  expect_nothing_left();
}

TEST_F(Kills, LeaveASemaphoreWholeAndFree) {
  const auto began = lease_clock::now();
  mode_ = "semaphore=2";

  kill_one_after_the_other(300);
  {
    const auto client = open();
    semaphore lock{client, "door", 2};
    const auto one = lock.try_acquire_for(5s);
    EXPECT_TRUE(one);
    expect_newcomer_enters(semaphore{open(), "door", 2});
  }

  report("semaphore", began);
  expect_nothing_left();
}

TEST_F(Kills, OfEverybodyAtOnceLetANewcomerIn) {
  const auto began = lease_clock::now();
  mode_ = "mutex";
  for (int round = 0; round < 60; ++round) {
    revive();
    const auto some = board_->entries.load() + 1 + draw_.below(40);
    ASSERT_TRUE(eventually([&] {
      revive();
      return board_->entries.load() >= some;
    }));

    kill_all();

    expect_newcomer_enters(mutex{open(), "door"});
  }

  report("everybody", began);
  expect_nothing_left();
}

TEST_F(Kills, InTheMakingOfAStoreLeaveTheNextToMakeIt) {
  mode_ = "mutex";
  for (int round = 0; round < 60; ++round) {
    std::filesystem::remove_all(folder() + "/store");
    for (std::size_t slot = 0; slot < 2; ++slot) start(slot);
    started_.at(0) = started_.at(1) = true;

    pause_for(std::chrono::microseconds{draw_.below(8000)});
    kill_all();

    // Tokens of a new folder begin anew.
    board_->newest_any = board_->newest_exclusive = 0;
    expect_newcomer_enters(mutex{open(), "door"});
    expect_nothing_left();
    if (HasFailure()) break;
    board_->newest_any = board_->newest_exclusive = 0;
  }
  EXPECT_EQ(board_->troubles.load(), 0U) << board_->first_trouble.data();
}

}  // namespace
}  // namespace sallyport::crash
