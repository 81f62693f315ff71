#include "tests/contract/kit/contract_test.hpp"
#include "tests/contract/kit/holder_process.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

// Promises that an idle lock keeps easily, looked at on one that others use all the time. No two of
// those who use it have the same options.
namespace sallyport::contract {
namespace {

constexpr const char* busy_name = "door";

/// Threads with a client each that take the lock, keep it for a moment, give it back and come again,
/// until they are stopped. Exclusion is checked at every turn.
/// Thread safety: all members.
class busy_contenders {
 public:
  /// One call that was served: the number of its contender, and the number of turns that others had begun when
  /// it asked.
  struct turn {
    std::size_t contender = 0;
    std::size_t asked_after = 0;
  };

  void add(client store, const lock_options& how, std::chrono::microseconds hold) {
    threads_.emplace_back([this, store = std::move(store), how, hold,
                           self = threads_.size()](const std::stop_token& stop) {
      mutex lock{store, busy_name, how};
      try {
        while (!stop.stop_requested()) {
          const std::size_t before = turns();
          const auto held = lock.acquire(stop);
          if (held) take_a_turn(self, before, *held, hold);
        }
      } catch (const lock_error& error) {
        ADD_FAILURE() << "contender " << self << ": " << error.what();
      }
    });
  }
  void stop() { threads_.clear(); }

  [[nodiscard]] std::size_t turns() const {
    const std::lock_guard guard{mutex_};
    return served_.size();
  }
  [[nodiscard]] std::vector<turn> served() const {
    const std::lock_guard guard{mutex_};
    return served_;
  }
  /// Of the contender that had the fewest.
  [[nodiscard]] std::size_t fewest_turns() const {
    const std::lock_guard guard{mutex_};
    std::vector<std::size_t> count(threads_.size());
    for (const turn& each : served_) ++count[each.contender];
    return *std::ranges::min_element(count);
  }
  [[nodiscard]] bool have_turns(std::size_t more) const {
    const std::size_t before = turns();
    return eventually([&] { return turns() >= before + more; });
  }
  /// Between the end of one turn and the beginning of the next.
  [[nodiscard]] lease_clock::duration longest_gap() const {
    const std::lock_guard guard{mutex_};
    return longest_gap_;
  }

 private:
  void take_a_turn(std::size_t self, std::size_t before, const lease& held,
                   std::chrono::microseconds hold) {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two are in";
    {
      const std::lock_guard guard{mutex_};
      if (!served_.empty()) {
        longest_gap_ = std::max(longest_gap_, lease_clock::now() - last_end_);
      }
      if (held.fenced()) {
        EXPECT_GT(held.token(), last_token_) << "tokens must grow";
        last_token_ = held.token();
      }
      served_.push_back({self, before});
    }
    wait_until(lease_clock::now() + hold);
    // A machine may keep a thread waiting for longer than its lease; then it knows.
    const bool sure = held.valid();
    const std::lock_guard guard{mutex_};
    last_end_ = lease_clock::now();
    EXPECT_TRUE(inside_.fetch_sub(1) == 1 || !sure);
  }

  std::atomic<int> inside_{0};
  mutable std::mutex mutex_;
  std::vector<turn> served_;
  lease_clock::time_point last_end_;
  lease_clock::duration longest_gap_{};
  fencing_token last_token_;
  std::vector<std::jthread> threads_;
};

class Busy : public contract_test {
 protected:
  /// As different as they may be.
  [[nodiscard]] static lock_options options_of(std::size_t which) {
    const std::array<std::uint32_t, 4> turns{1, 16, 1, 3};
    return {.lease_length = std::chrono::seconds{10} * (1 + which % 3),
            .local_turns = turns[which % turns.size()]};
  }
  [[nodiscard]] client client_of(std::size_t which) const {
    return open("contender " + std::to_string(which),
                {.clock_drift = which % 2 == 0 ? 0.01 : 0.1,
                 .heartbeat = std::chrono::milliseconds{which % 2 == 0 ? 200 : 1000}});
  }
  void add_contenders(busy_contenders& all, std::size_t count,
                      std::chrono::microseconds hold = 500us) const {
    for (std::size_t i = 0; i < count; ++i) all.add(client_of(i), options_of(i), hold);
  }

  [[nodiscard]] std::unique_ptr<holder_process> process() const {
    return std::make_unique<holder_process>(
        address(), busy_name,
        std::vector<std::string>{"--lease-ms", std::to_string(short_lease().count()),
                                 "--heartbeat-ms", std::to_string(heartbeat_of_process.count()),
                                 "--request-ms", std::to_string(request_of_process.count())});
  }
  /// How long the place of a process that was killed may live: some heartbeats, and a request's time; or
  /// its lease, where a session keeps it. ZooKeeper's sessions are not shorter than two ticks.
  [[nodiscard]] static std::chrono::milliseconds place_of_process() {
    return 4 * heartbeat_of_process + request_of_process + 2 * short_lease() + 2s;
  }

  /// With a deadline, or with somebody who cancels; the moment is another one in each round.
  static std::optional<lease> try_for_a_moment(mutex& lock, std::size_t round) {
    if (round % 2 == 0) {
      return lock.try_acquire_for(std::chrono::microseconds{500 * (round % 16)});
    }
    std::stop_source enough;
    const std::jthread cancels([&] {
      wait_until(lease_clock::now() + std::chrono::microseconds{400 * (round % 16)});
      enough.request_stop();
    });
    return lock.acquire(enough.get_token());
  }

  static constexpr std::chrono::milliseconds heartbeat_of_process{150};
  static constexpr std::chrono::milliseconds request_of_process{1000};
};

/// Promises 2 and 8.
TEST_F(Busy, OutlivesAKilledHolderAndKeepsNothingOfKilledWaiters) {
  if (!store().processes_share) return;
  busy_contenders busy;
  add_contenders(busy, 2);
  const client watching = open("watching");
  static_cast<void>(watching.who(busy_name));
  ASSERT_TRUE(busy.have_turns(20));
  std::size_t usual = 0;
  for (int i = 0; i < 10; ++i) usual = std::max(usual, remains().value_or(0));
  const auto holder = process();
  ASSERT_EQ(holder->ask("acquire").substr(0, 8), "acquired");
  std::vector<std::unique_ptr<holder_process>> waiters;
  for (std::size_t i = 1; i <= 4; ++i) {
    waiters.push_back(process());
    ASSERT_TRUE(waiters.back()->send("acquire"));
    ASSERT_TRUE(waiters_become(watching, busy_name, 2 + i));
  }

  for (const auto& each : waiters) each->kill();
  const std::size_t before = busy.turns();
  holder->kill();
  const auto killed = lease_clock::now();

  ASSERT_TRUE(eventually([&] { return busy.turns() > before; }, place_of_process() + slack))
      << "a dead holder keeps the lock";
  const auto few = [&] {
    // On a store without a server newcomers bury the dead whom nobody has waited for.
    static_cast<void>(open("newcomer").who(busy_name));
    return remains().value_or(0) <= usual;
  };
  EXPECT_TRUE(eventually(few, killed + place_of_process() + slack - lease_clock::now()))
      << "beside " << usual << " things of those who live there are "
      << remains().value_or(0) - usual << " of the dead";
  EXPECT_TRUE(busy.have_turns(20)) << "the lock was not in use";
}

/// Promise 6. Without it: nobody starves all the same.
TEST_F(Busy, ServesThoseWhoComeAgainAndAgainInTurn) {
  constexpr std::size_t contenders = 4;
  constexpr std::size_t turns_each = 20;
  busy_contenders busy;
  add_contenders(busy, contenders, 0us);
  EXPECT_TRUE(eventually([&] { return busy.fewest_turns() >= turns_each; })) << "one starves";
  busy.stop();

  if (!claims().fifo) return;
  // Those who were there come first, once each; and whoever asks at the same moment may. A thread that
  // the machine keeps from asking is overtaken by more, which is nobody's fault, and seldom.
  constexpr std::ptrdiff_t most_times = 2;
  const auto served = busy.served();
  std::size_t overtaken = 0;
  for (std::size_t i = 0; i < served.size(); ++i) {
    std::array<std::ptrdiff_t, contenders> first{};
    for (std::size_t j = served[i].asked_after; j < i; ++j) ++first[served[j].contender];
    if (*std::ranges::max_element(first) > most_times) ++overtaken;
  }
  EXPECT_LE(overtaken, served.size() / 5) << "of " << served.size() << " turns";
}

/// Promises 7, 8 and 12: a place in the middle of a queue that moves is left at any moment, also in the
/// very one in which it becomes a grant.
TEST_F(Busy, LosesNoTurnToThoseWhoGiveUp) {
  busy_contenders busy;
  add_contenders(busy, 2, 300us);
  ASSERT_TRUE(busy.have_turns(20));
  std::atomic<int> gave_up{0};
  std::vector<std::jthread> fickle;
  for (std::size_t i = 0; i < 3; ++i) {
    // What they leave behind lives for a minute at least, so that whoever has to wait for its end shows.
    const client store = open("fickle " + std::to_string(i), {.heartbeat = 30s});
    fickle.emplace_back([&, i, store](const std::stop_token& stop) {
      mutex lock{store, busy_name, lasting()};
      try {
        for (std::size_t round = i; !stop.stop_requested(); ++round) {
          if (!try_for_a_moment(lock, round)) ++gave_up;
        }
      } catch (const lock_error& error) {
        ADD_FAILURE() << "fickle " << i << ": " << error.what();
      }
    });
  }

  EXPECT_TRUE(eventually([&] { return gave_up.load() >= 200; }));
  EXPECT_TRUE(busy.have_turns(20));
  fickle.clear();
  EXPECT_TRUE(busy.have_turns(20));
  busy.stop();

  // Every grant that nobody wanted any more was handed on, and none had to lapse.
  EXPECT_LT(busy.longest_gap(), 2 * slack);
  EXPECT_TRUE(becomes_free(open("watching"), busy_name));
}

}  // namespace
}  // namespace sallyport::contract
