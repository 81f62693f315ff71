#include "backends/redis/test_live_store.hpp"
#include "tests/contract/kit/holder_process.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// Promises that an idle lock keeps easily, looked at while the lock is in use.
namespace sallyport::redis_live {
namespace {

using contract::holder_process;

/// Of a process with this lease: its heartbeat is a third of it, and its place in the queue lives
/// for four heartbeats and the usual time-out of a request.
constexpr auto lease_of_process = 300ms;
constexpr auto ticket_of_process = 4 * lease_of_process / 3 + 2s;

/// Contenders that take the lock, keep it for a moment and give it back, until the end of the test.
class busy_contenders {
 public:
  busy_contenders(const redis_server& server, int count, std::chrono::milliseconds hold) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, hold, store = open(server.port())](const std::stop_token& stop) {
        mutex lock{store, "door", lasting()};
        while (!stop.stop_requested()) {
          const auto held = lock.acquire(stop);
          if (held) contract::wait_until(lease_clock::now() + hold);
          ++turns_;
        }
      });
    }
  }

  [[nodiscard]] int turns() const { return turns_.load(); }

 private:
  std::atomic<int> turns_{0};
  std::vector<std::jthread> threads_;
};

/// Processes that stand in the queue, one after the other.
std::vector<std::unique_ptr<holder_process>> waiting_processes(const redis_server& server,
                                                               const std::string& address,
                                                               int count) {
  const auto before = server.command({"ZCARD", "door\1queue"}).integer;
  std::vector<std::unique_ptr<holder_process>> all;
  for (int i = 1; i <= count; ++i) {
    all.push_back(std::make_unique<holder_process>(
        address, "door",
        std::vector<std::string>{"--lease-ms", std::to_string(lease_of_process.count())}));
    EXPECT_TRUE(all.back()->send("acquire"));
    EXPECT_TRUE(waiters_become(server, "door", before + i));
  }
  return all;
}

/// Nothing but two fields of the queue itself and one for each of so many waiters that live.
testing::AssertionResult tickets_become_few(const redis_server& server, std::int64_t living) {
  std::int64_t seen = -1;
  const auto few = [&] {
    seen = server.command({"HLEN", "door\1waiters"}).integer;
    return seen <= 2 + living;
  };
  if (eventually(few, ticket_of_process * 5 / 4 + slack)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << seen << " fields are left of " << living << " waiters";
}

TEST(BusyLock, KeepsNothingOfKilledWaiters) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting()};
  auto held = lock.acquire();
  auto processes = waiting_processes(server, address_at(server.port()), 6);
  const busy_contenders busy{server, 2, 1ms};
  ASSERT_TRUE(waiters_become(server, "door", 6 + 2));

  for (auto& each : processes) each->kill();
  held.release();
  ASSERT_TRUE(eventually([&] { return busy.turns() > 20; }));

  EXPECT_TRUE(tickets_become_few(server, 2));
  const int turns = busy.turns();
  EXPECT_TRUE(eventually([&] { return busy.turns() > turns; })) << "the lock was not in use";
}

TEST(BusyLock, KeepsNothingOfWaitersThatDieWhileOneHolderStays) {
  const redis_server server;
  mutex lock{open(server.port()), "door", lasting()};
  const auto held = lock.acquire();
  mutex wanted{open(server.port()), "door", lasting()};
  waiter lives(wanted);
  ASSERT_TRUE(waiters_become(server, "door", 1));

  for (auto& each : waiting_processes(server, address_at(server.port()), 6)) each->kill();
  const auto killed = lease_clock::now();
  // Others come and go: it is they who find what the dead have left.
  mutex passing{open(server.port()), "door", lasting()};
  ASSERT_TRUE(eventually([&] {
    EXPECT_FALSE(passing.try_acquire_for(20ms));
    return lease_clock::now() - killed > ticket_of_process;
  }));

  EXPECT_TRUE(eventually(
      [&] {
        EXPECT_FALSE(passing.try_acquire_for(20ms));
        return server.command({"ZCARD", "door\1queue"}).integer == 1;
      },
      slack));
  EXPECT_TRUE(tickets_become_few(server, 1));
  EXPECT_FALSE(lives.done());
}

// ---- waiters that hear nothing ---------------------------------------------------------------------

/// A server with a user that may do everything but listen.
kit::redis_options with_deaf_user() {
  return {.users = {"user deaf on >secret ~* &* +@all -subscribe -psubscribe -ssubscribe"}};
}

std::string deaf_address(const redis_server& server) {
  return "redis://deaf:secret@127.0.0.1:" + std::to_string(server.port());
}

/// Three contenders keep the lock in use; one that hears nothing gets in, and again.
template <class Lock, class... Size>
void expect_that_a_deaf_waiter_enters(Size... size) {
  const redis_server server{with_deaf_user()};
  std::atomic<int> turns{0};
  std::vector<std::jthread> busy;
  busy.reserve(3);
  for (int i = 0; i < 3; ++i) {
    busy.emplace_back([&, store = open(server.port())](const std::stop_token& stop) {
      Lock lock{store, "door", size..., lasting()};
      while (!stop.stop_requested()) {
        const auto held = lock.acquire(stop);
        if (held) contract::wait_until(lease_clock::now() + 30ms);
        ++turns;
      }
    });
  }
  Lock deaf{client::open(deaf_address(server), quick()), "door", size..., lasting()};
  ASSERT_TRUE(eventually([&] { return turns.load() > 10; }));

  for (int i = 0; i < 3; ++i) {
    const int before = turns.load();
    const auto began = lease_clock::now();
    // It may lose one turn, comes back at its heartbeat, and gets the next one: 0.5 s, usually.
    const auto held = deaf.try_acquire_for(2 * quick().heartbeat + slack);
    EXPECT_TRUE(held) << "not in " << (lease_clock::now() - began) / 1ms << " ms, while others had "
                      << turns.load() - before << " turns";
  }
}

TEST(BusyLock, LetsInAWaiterThatHearsNothing) { expect_that_a_deaf_waiter_enters<mutex>(); }

TEST(BusyLock, LetsInAWriterThatHearsNothing) { expect_that_a_deaf_waiter_enters<shared_mutex>(); }

TEST(BusyLock, GivesAPermitToAWaiterThatHearsNothing) {
  expect_that_a_deaf_waiter_enters<semaphore>(1U);
}

TEST(BusyLock, IsHeldUpNoLongerThanATicketByWaitersThatHeardNothingAndWereKilled) {
  const redis_server server{with_deaf_user()};
  mutex first_lock{open(server.port()), "door", lasting()};
  mutex second_lock{open(server.port()), "door", lasting()};
  mutex third_lock{open(server.port()), "door", lasting()};
  auto first = first_lock.acquire();
  auto processes = waiting_processes(server, deaf_address(server), 8);
  waiter second(second_lock);
  ASSERT_TRUE(waiters_become(server, "door", 9));
  first.release();
  auto second_got = second.get();  // all eight were passed over
  ASSERT_TRUE(second_got);
  ASSERT_TRUE(waiters_become(server, "door", 8)) << "they live, and come back";
  waiter third(third_lock);
  ASSERT_TRUE(waiters_become(server, "door", 9));

  for (auto& each : processes) each->kill();
  const auto killed = lease_clock::now();
  second_got->release();

  // Each may hold things up for its claim window (its lease), until its ticket lapses.
  auto got = third.get();
  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - killed,
            ticket_of_process + lease_of_process + quick().heartbeat + slack);
  got->release();
  EXPECT_TRUE(nothing_is_left(server));
}

}  // namespace
}  // namespace sallyport::redis_live
