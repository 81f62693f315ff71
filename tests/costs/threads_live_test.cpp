#include "tests/costs/cost.hpp"
#include "tests/costs/stores.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/own_process.hpp"
#include <sallyport/sallyport.hpp>

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>

namespace sallyport::costs {
namespace {

struct thread_bounds {
  bound idle;
  bound holding;
  bound waiting;
  bound after_loss;
};

/// One client on its way through everything that may start a thread of its own.
void count_threads(const std::string& address, const thread_bounds& most) {
  const std::size_t others = kit::read_threads().size();
  const auto own = [&](std::size_t callers = 0) {
    return static_cast<double>(kit::read_threads().size() - callers - others);
  };
  const auto store = client::open(address);
  EXPECT_TRUE(keeps_to(most.idle, own()));

  mutex lock{store, "door"};
  auto held = lock.acquire();
  EXPECT_TRUE(keeps_to(most.holding, own()));

  // A contender of its own, so that it stands in the store's queue.
  mutex wanted{store, "door", {.local_turns = 1}};
  live::waiter next{wanted};
  ASSERT_TRUE(contract::eventually([&] {
    const auto seen = store.who("door");
    return seen && !seen->waiters.empty();
  }));
  EXPECT_TRUE(keeps_to(most.waiting, own(1)));
  next.cancel();
  ASSERT_FALSE(next.get());

  contract::signal_flag told;
  const std::stop_callback on_loss{held.lost(), [&told] { told.raise(); }};
  store.break_lock("door", held.token(), break_style::at_once);
  ASSERT_TRUE(told.wait());
  EXPECT_TRUE(keeps_to(most.after_loss, own()));
}

TEST(Threads, OfAClientInMemory) {
  count_threads(memory_store(), {threads_idle_memory, threads_holding_memory,
                                 threads_waiting_memory, threads_after_loss_memory});
}

TEST(Threads, OfAnObservedClient) {
  const std::size_t others = kit::read_threads().size();
  const auto watcher = std::make_shared<metrics>();
  const auto store = client::open(memory_store(), {.watcher = watcher});
  mutex lock{store, "door"};
  auto held = lock.acquire();
  contract::signal_flag told;
  const std::stop_callback on_loss{held.lost(), [&told] { told.raise(); }};
  store.break_lock("door", held.token(), break_style::at_once);
  ASSERT_TRUE(told.wait());
  ASSERT_TRUE(contract::eventually([&] { return watcher->read().lost == 1; }));
  EXPECT_TRUE(
      keeps_to(threads_observed_memory, static_cast<double>(kit::read_threads().size() - others)));
}

TEST(Threads, OfAClientOnLocal) {
  const local_store store;
  count_threads(store.address(), {threads_idle_local, threads_holding_local, threads_waiting_local,
                                  threads_after_loss_local});
}

TEST(Threads, OfAClientOnRedis) {
  const redis_store store;
  count_threads(store.address(), {threads_idle_redis, threads_holding_redis, threads_waiting_redis,
                                  threads_after_loss_redis});
}

}  // namespace
}  // namespace sallyport::costs
