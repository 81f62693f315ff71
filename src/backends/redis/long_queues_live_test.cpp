#include "backends/redis/protocol.hpp"
#include "backends/redis/test_live_store.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

// Clients of a lock that many wait for: what no script does at once goes on by itself.
namespace sallyport::redis_live {
namespace {

using backends::redis::protocol;

/// More than two scripts may pass.
constexpr std::uint64_t many = 300;

/// Nobody asks again by itself as long as a test waits.
client_options silent() {
  auto options = quick();
  options.heartbeat = 60s;
  return options;
}

class LongQueues : public testing::Test {
 protected:
  /// Tickets of a client that is gone.
  void dead_waiters(const lock_name& name, lock_kind kind, lock_mode mode = lock_mode::exclusive,
                    std::uint64_t count = many) {
    const protocol gone{{.prefix = "", .cluster = false, .client = "00000000000000bb"}};
    auto probe = server_.probe();
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto call = gone.acquire({.name = name,
                                      .kind = kind,
                                      .mode = mode,
                                      .holder = {++waiters_, 7},
                                      .lease_length = 60s,
                                      .claim_window = 3s,
                                      .ticket_length = 60s,
                                      .may_wait = true,
                                      .value = {},
                                      .answer_by = {}},
                                     false);
      auto words = arguments_of(call);
      words.insert(words.begin(), {"EVAL", std::string(call.script->text)});
      ASSERT_EQ(probe.expect(words).items.at(0).integer, 2);
    }
  }
  [[nodiscard]] std::uint64_t scripts() const {
    return calls_of(server_, "evalsha") + calls_of(server_, "eval");
  }

  redis_server server_;
  std::uint64_t waiters_ = 0;
};

TEST_F(LongQueues, OfDeadWaitersDoNotHoldUpAHandOver) {
  mutex held_lock{open(server_.port()), "door", lasting()};
  auto held = held_lock.acquire();
  dead_waiters(lock_name("door"), lock_kind::mutex);
  mutex wanted{open(server_.port(), silent()), "door", lasting()};
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server_, "door", many + 1));

  EXPECT_EQ(held.release(), release_result::released);

  EXPECT_TRUE(next.get());
}

TEST_F(LongQueues, AreServedToTheEndAlsoWhenTheClientIsClosedAtOnce) {
  auto store = std::make_unique<client>(open(server_.port()));
  auto held_lock = std::make_unique<mutex>(*store, "door", lasting());
  auto held = held_lock->acquire();
  dead_waiters(lock_name("door"), lock_kind::mutex);
  mutex wanted{open(server_.port(), silent()), "door", lasting()};
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server_, "door", many + 1));

  held.release();
  held_lock.reset();
  store.reset();

  EXPECT_TRUE(next.get());
}

TEST_F(LongQueues, OfDeadWaitersDoNotMakeAFreeLockHeld) {
  mutex held_lock{open(server_.port()), "door", lasting()};
  auto held = held_lock.acquire();
  dead_waiters(lock_name("door"), lock_kind::mutex);
  server_.command({"DEL", "door"});

  mutex lock{open(server_.port()), "door", lasting()};
  const auto before = scripts();
  EXPECT_TRUE(lock.try_acquire());
  EXPECT_EQ(scripts() - before, 3U + 1U) << "three to take it, one to give it back";
}

TEST_F(LongQueues, AreServedWhenAWriterBecomesAReader) {
  shared_mutex held_lock{open(server_.port()), "door", lasting()};
  auto held = held_lock.acquire();
  dead_waiters(lock_name("door"), lock_kind::shared_mutex, lock_mode::shared);
  shared_mutex wanted{open(server_.port(), silent()), "door", lasting()};
  std::stop_source stop;
  background<std::optional<lease>> reader([&] { return wanted.acquire_shared(stop.get_token()); });
  ASSERT_TRUE(waiters_become(server_, "door", many + 1));

  held.downgrade();

  EXPECT_TRUE(eventually([&] { return reader.done(); }));
  stop.request_stop();
  EXPECT_TRUE(reader.get());
}

TEST_F(LongQueues, AreServedWhenALockIsBroken) {
  const auto store = open(server_.port());
  mutex held_lock{store, "door", lasting()};
  auto held = held_lock.acquire();
  dead_waiters(lock_name("door"), lock_kind::mutex);
  mutex wanted{open(server_.port(), silent()), "door", lasting()};
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server_, "door", many + 1));

  store.break_lock("door", held.token(), break_style::at_once);

  EXPECT_TRUE(next.get());
}

TEST_F(LongQueues, AreShownInFull) {
  const auto store = open(server_.port());
  mutex held_lock{store, "door", lasting()};
  auto held = held_lock.acquire();
  dead_waiters(lock_name("door"), lock_kind::mutex);
  mutex other_lock{store, "gate", lasting()};
  auto other = other_lock.acquire();
  dead_waiters(lock_name("gate"), lock_kind::mutex, lock_mode::exclusive, 5);

  EXPECT_EQ(store.who("door").value().waiters.size(), many);
  const auto all = store.list();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].waiters.size(), many);
  EXPECT_EQ(all[1].waiters.size(), 5U);
  EXPECT_EQ(all[0].holders.size(), 1U);
  EXPECT_EQ(all[1].holders.size(), 1U);
}

TEST_F(LongQueues, OfKeysAreListedInPages) {
  const auto store = open(server_.port());
  std::deque<mutex> locks;
  std::vector<lease> leases;
  for (int i = 0; i < 100; ++i) {
    leases.push_back(locks.emplace_back(store, "lock-" + std::to_string(i), lasting()).acquire());
  }
  auto probe = server_.probe();
  for (int i = 0; i < 900; ++i) {
    probe.expect({"SET", "others-" + std::to_string(i), "value"});
  }
  const auto before = kit::count_commands(probe).of_clients;

  EXPECT_EQ(store.list().size(), leases.size());

  // Pages of 500 keys, of which a call takes 128.
  EXPECT_LE(kit::count_commands(probe).of_clients - before, 15U);
}

}  // namespace
}  // namespace sallyport::redis_live
