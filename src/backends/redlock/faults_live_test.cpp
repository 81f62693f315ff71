#include "backends/redlock/test_live_quorum.hpp"
#include "base/random.hpp"

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

// What a network may do between a client and some of its nodes, in the middle of everything. Whatever
// happens: never two valid leases, tokens grow, and nothing is left behind for a lease's length. A
// minority changes nothing else; without a majority the store is `unavailable`, never "held".
namespace sallyport::redlock_live {
namespace {

/// How the way to one node fails.
struct trouble {
  std::string name;
  std::function<void(fault_proxy&)> begin;
};

std::vector<trouble> all_troubles() {
  std::vector<trouble> all{
      {"answer-lost-and-reset",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply()); }},
      {"answer-lost-and-closed",
       [](fault_proxy& proxy) {
         proxy.set(flow::to_client, fault::drop_reply(kit::ending::finish));
       }},
      {"answer-lost-in-silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::silence()); }},
      {"request-lost-in-silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_server, fault::silence()); }},
      {"both-held",
       [](fault_proxy& proxy) {
         proxy.set(flow::to_server, fault::hold());
         proxy.set(flow::to_client, fault::hold());
       }},
      {"request-late", [](fault_proxy& proxy) { proxy.set(flow::to_server, fault::delay(700ms)); }},
      {"answer-late", [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::delay(700ms)); }},
      {"refused", [](fault_proxy& proxy) {
         proxy.refuse_connections();
         proxy.close_all();
       }}};
  for (const std::uint64_t bytes : {0U, 1U, 40U, 200U}) {
    all.push_back({"request-cut-after-" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_server, fault::cut_after(bytes));
                   }});
  }
  for (const std::uint64_t bytes : {1U, 4U}) {
    all.push_back({"answer-cut-after-" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_client, fault::cut_after(bytes));
                   }});
  }
  return all;
}

/// One client with a network of its own, to be hurt, beside a healthy one, in a store of their own.
struct scene {
  scene(const redis_quorum& nodes, std::string store, trouble how)
      : prefix(std::move(store)), what(std::move(how)), wires(nodes) {
    nodes.initialise(prefix);
    const std::string options = "?prefix=" + prefix;
    auto watched = quick();
    watched.watcher = watcher;
    hurt.emplace(open_to_all(wires.address(options), watched));
    healthy.emplace(open_to_all(nodes.address() + options));
  }

  void begin_trouble(std::size_t nodes) {
    for (std::size_t i = 0; i < nodes; ++i) what.begin(wires[i]);
  }

  const std::string prefix;
  const trouble what;
  network wires;
  const std::shared_ptr<metrics> watcher = std::make_shared<metrics>();
  std::optional<client> hurt;
  std::optional<client> healthy;
};

/// How many of three nodes are hurt.
class Fault : public testing::TestWithParam<std::size_t> {
 protected:
  static void SetUpTestSuite() { nodes_ = std::make_unique<redis_quorum>(3); }
  static void TearDownTestSuite() { nodes_.reset(); }

  [[nodiscard]] static bool minority() { return GetParam() == 1; }
  /// All troubles at the same time, each in a scene of its own: most of each is waiting.
  void with_all_troubles(const std::function<void(scene&)>& play) {
    static std::atomic<int> number{0};
    std::vector<background<bool>> all;
    for (const trouble& each : all_troubles()) {
      all.emplace_back([&, each] {
        const testing::ScopedTrace where(__FILE__, __LINE__, each.name);
        scene here(*nodes_, each.name + std::to_string(++number) + ':', each);
        play(here);
        EXPECT_TRUE(nothing_is_left(*nodes_, here.prefix));
        return true;
      });
    }
    for (auto& each : all) each.get();
  }

  inline static std::unique_ptr<redis_quorum> nodes_;
};

TEST_P(Fault, InMidAcquire) {
  with_all_troubles([](scene& here) {
    mutex lock{*here.hurt, "door", lasting(60s)};
    mutex other{*here.healthy, "door", lasting(60s)};
    auto before = lock.acquire();
    const auto token = before.token();
    before.release();

    here.begin_trouble(GetParam());
    const auto began = lease_clock::now();
    std::optional<lease> got;
    const told error = error_of([&] { got = lock.try_acquire(); });
    const auto took = lease_clock::now() - began;
    // A try that failed may have left votes that are yet to be given back; they are nobody's.
    auto theirs = other.try_acquire();
    EXPECT_FALSE(got && got->valid() && theirs);
    if (minority()) {
      EXPECT_TRUE(got) << error.text;
      EXPECT_LT(took, slack);
    }
    if (!got) {
      EXPECT_EQ(error.code, errc::unavailable) << error.text;
    }
    if (got) {
      EXPECT_GT(got->token(), token);
    }
    got.reset();
    here.wires.heal();

    theirs.reset();
    auto next = other.try_acquire_for(patience);
    EXPECT_TRUE(next);
    if (next) {
      EXPECT_GT(next->token(), token);
    }
  });
}

TEST_P(Fault, InMidAcquireIsWaitedOut) {
  with_all_troubles([](scene& here) {
    mutex lock{*here.hurt, "door", lasting(60s)};
    EXPECT_TRUE(lock.try_acquire());

    here.begin_trouble(GetParam());
    waiter next(lock);
    // Long enough for the request to be overdue; a cut connection may be made again before.
    static_cast<void>(eventually([&] { return next.done(); }, 700ms));
    here.wires.heal();

    auto got = next.get();
    EXPECT_TRUE(got && got->valid());
    mutex other{*here.healthy, "door", lasting(60s)};
    EXPECT_FALSE(other.try_acquire());
  });
}

TEST_P(Fault, InMidRelease) {
  with_all_troubles([](scene& here) {
    mutex lock{*here.hurt, "door", lasting(60s)};
    mutex other{*here.healthy, "door", lasting(60s)};
    auto held = lock.acquire();

    here.begin_trouble(GetParam());
    const auto result = held.release();
    if (minority()) {
      EXPECT_EQ(result, release_result::released);
    } else {
      EXPECT_NE(result, release_result::already_lost);
      here.wires.heal();
    }

    // Long before the lease of 60 s ends; with a minority also before it is healed.
    auto got = other.try_acquire_for(patience);
    EXPECT_TRUE(got);
    if (got) {
      EXPECT_GT(got->token(), held.token());
    }
    here.wires.heal();
  });
}

TEST_P(Fault, InMidRenewal) {
  with_all_troubles([](scene& here) {
    mutex lock{*here.hurt, "door", lasting(4500ms)};
    mutex other{*here.healthy, "door", lasting(4500ms)};
    auto held = lock.acquire();
    EXPECT_TRUE(eventually([&] { return here.watcher->read().renewed >= 1; }));
    const auto token = held.token();

    // Over the next renewal, which is due after a third of the lease.
    here.begin_trouble(GetParam());
    auto renewed = here.watcher->read().renewed;
    const auto until = lease_clock::now() + 2s;
    EXPECT_TRUE(eventually([&] {
      return minority() ? here.watcher->read().renewed > renewed : lease_clock::now() >= until;
    }));
    EXPECT_TRUE(held.valid());
    EXPECT_FALSE(error_of([&] { EXPECT_FALSE(other.try_acquire()); }).code);
    renewed = here.watcher->read().renewed;
    here.wires.heal();

    EXPECT_TRUE(eventually([&] { return here.watcher->read().renewed > renewed; }));
    EXPECT_TRUE(held.valid());
    EXPECT_EQ(here.watcher->read().lost, 0U);
    EXPECT_EQ(held.token(), token);
    EXPECT_EQ(held.release(), release_result::released);
  });
}

/// The holder's or the waiter's network is hurt when the lock is handed over.
void hand_over(redis_quorum& nodes, scene& here, bool to_the_hurt_one) {
  client& from = to_the_hurt_one ? *here.healthy : *here.hurt;
  client& to = to_the_hurt_one ? *here.hurt : *here.healthy;
  mutex held_lock{from, "door", lasting(60s)};
  mutex wanted_lock{to, "door", lasting(60s)};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  EXPECT_TRUE(waiters_become(nodes, here.prefix + "door", 1));

  here.begin_trouble(Fault::GetParam());
  EXPECT_NE(held.release(), release_result::already_lost);
  // A minority does not matter; for more the network has to come back.
  static_cast<void>(eventually([&] { return next.done(); }, 700ms));
  if (Fault::GetParam() > 1) here.wires.heal();

  auto got = next.get();
  EXPECT_TRUE(got && got->valid());
  if (got) {
    EXPECT_GT(got->token(), held.token());
    got->release();
  }
  here.wires.heal();
}

TEST_P(Fault, InMidHandOverOfTheHolder) {
  with_all_troubles([](scene& here) { hand_over(*nodes_, here, false); });
}

TEST_P(Fault, InMidHandOverToTheWaiter) {
  with_all_troubles([](scene& here) { hand_over(*nodes_, here, true); });
}

INSTANTIATE_TEST_SUITE_P(Nodes, Fault, testing::Values(1U, 2U), [](const auto& nodes) {
  return nodes.param == 1 ? "minority" : "majority";
});

// ---- nodes that stand still or are gone ------------------------------------------------------------

/// Two of five nodes, hurt in one of several ways, are neither noticed nor waited for.
void expect_a_minority_not_to_matter(redis_quorum& nodes) {
  mutex lock{open(nodes.address()), "door", lasting(60s)};
  mutex other{open(nodes.address()), "door", lasting(60s)};
  std::uint64_t last = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const auto began = lease_clock::now();
    auto held = lock.try_acquire();
    ASSERT_TRUE(held);
    EXPECT_LT(lease_clock::now() - began, slack);
    EXPECT_GT(held->token().value(), last);
    last = held->token().value();
    EXPECT_FALSE(other.try_acquire());
    waiter next(other);
    ASSERT_TRUE(waiters_become(nodes, "door", 1));
    EXPECT_EQ(held->release(), release_result::released);
    auto got = next.get();
    ASSERT_TRUE(got);
    EXPECT_GT(got->token().value(), last);
    last = got->token().value();
    EXPECT_EQ(got->release(), release_result::released);
  }
}

TEST(Minority, ThatStandsStillIsNotWaitedFor) {
  redis_quorum nodes(5);
  nodes.initialise();
  for (const std::size_t node : {0U, 3U}) nodes[node].pause();

  expect_a_minority_not_to_matter(nodes);

  for (const std::size_t node : {0U, 3U}) nodes[node].resume();
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(Minority, ThatBeginsToStandStillIsNotWaitedFor) {
  redis_quorum nodes(5);
  nodes.initialise();
  mutex lock{open_to_all(nodes.address()), "door", lasting(60s)};
  mutex other{open_to_all(nodes.address()), "door", lasting(60s)};
  auto held = lock.acquire();
  waiter next(other);
  ASSERT_TRUE(waiters_become(nodes, "door", 1));

  for (const std::size_t node : {1U, 2U}) nodes[node].pause();
  const auto began = lease_clock::now();
  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();

  ASSERT_TRUE(got);
  EXPECT_LT(lease_clock::now() - began, slack);
  EXPECT_GT(got->token(), held.token());
  EXPECT_EQ(got->release(), release_result::released);
  for (const std::size_t node : {1U, 2U}) nodes[node].resume();
  EXPECT_TRUE(nothing_is_left(nodes));
  EXPECT_TRUE(lock.try_acquire());
}

TEST(Minority, ThatIsBehindHearsOfAllReleasesBeforeTheClientIsGone) {
  redis_quorum nodes(3);
  nodes.initialise();
  auto options = quick();
  options.request_timeout = 5s;
  std::optional<client> store = open_to_all(nodes.address(), options);
  std::vector<lease> all;

  nodes[1].pause();
  // More than a server reads at once: it answers the first bids before it has seen a release.
  all.reserve(100);
  for (int i = 0; i < 100; ++i) {
    all.push_back(mutex{*store, "door-" + std::to_string(i), lasting(60s)}.acquire());
  }
  for (lease& each : all) EXPECT_EQ(each.release(), release_result::released);
  background<bool> closing([&] {
    all.clear();
    store.reset();
    return true;
  });
  std::this_thread::sleep_for(20ms);
  nodes[1].resume();

  EXPECT_TRUE(closing.get());
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(Minority, ThatIsGoneIsNotWaitedFor) {
  redis_quorum nodes(5);
  nodes.initialise();
  for (const std::size_t node : {2U, 4U}) nodes[node].kill();

  expect_a_minority_not_to_matter(nodes);

  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(Majority, ThatStandsStillIsUnavailableAndNotHeld) {
  redis_quorum nodes(3);
  nodes.initialise();
  mutex lock{open(nodes.address()), "door", lasting(60s)};
  ASSERT_TRUE(lock.try_acquire());
  for (const std::size_t node : {0U, 1U}) nodes[node].pause();

  for (int turn = 0; turn < 3; ++turn) {
    const told error = error_of([&] { EXPECT_FALSE(lock.try_acquire()); });
    EXPECT_EQ(error.code, errc::unavailable) << error.text;
  }
  EXPECT_EQ(error_of([&] { static_cast<void>(open(nodes.address()).who("door")); }).code,
            errc::unavailable);

  for (const std::size_t node : {0U, 1U}) nodes[node].resume();
  EXPECT_TRUE(nothing_is_left(nodes));
  EXPECT_TRUE(lock.try_acquire_for(patience));
}

TEST(Majority, ThatIsGoneEndsTheLeaseAtItsDeadline) {
  redis_quorum nodes(3);
  nodes.initialise();
  mutex lock{open(nodes.address()), "door", lasting(1500ms)};
  auto held = lock.acquire();

  for (const std::size_t node : {0U, 1U}) nodes[node].pause();
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_GE(lease_clock::now(), held.deadline() - 1ms);
  for (const std::size_t node : {0U, 1U}) nodes[node].resume();

  auto again = lock.try_acquire_for(patience);
  ASSERT_TRUE(again);
  EXPECT_GT(again->token(), held.token());
  again->release();
  EXPECT_TRUE(nothing_is_left(nodes));
}

// ---- nodes whose memory is used up -----------------------------------------------------------------

void fill(redis_quorum& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].command({"CONFIG", "SET", "maxmemory", "1"});
  }
}

/// Waits until it was renewed for a whole lease beyond the present one.
bool stays_alive(const lease& held) {
  const auto deadline = held.deadline();
  return eventually([&] { return held.deadline() > deadline + 2s || !held.valid(); }) &&
         held.valid();
}

TEST(FullNodes, KeepALeaseWhoseLocalWaitersBecomeMore) {
  redis_quorum nodes(3);
  nodes.initialise();
  const auto store = open_to_all(nodes.address());
  mutex lock{store, "door", {.lease_length = 2s, .local_turns = 8, .local_turn_time = 60s}};
  mutex elsewhere{open_to_all(nodes.address()), "door", lasting(2s)};
  mutex other{store, "gate", lasting(2s)};
  auto held = lock.acquire();
  fill(nodes);

  waiter next(lock);
  EXPECT_TRUE(stays_alive(held));
  EXPECT_FALSE(elsewhere.try_acquire()) << "held, whatever the memory";
  EXPECT_EQ(error_of([&] { static_cast<void>(other.try_acquire()); }).code, errc::unavailable);

  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(FullNodes, HandALockOverForGood) {
  redis_quorum nodes(3);
  nodes.initialise();
  mutex held_lock{open_to_all(nodes.address()), "door", lasting(2s)};
  mutex wanted_lock{open_to_all(nodes.address()), "door", lasting(2s)};
  auto held = held_lock.acquire();
  waiter next(wanted_lock);
  ASSERT_TRUE(waiters_become(nodes, "door", 1));
  // Its token comes from one node, and the others' counters have to follow.
  nodes[0].command({"INCRBY", "\1quorum-fence", "1000"});
  fill(nodes);

  EXPECT_EQ(held.release(), release_result::released);

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(stays_alive(*got));
  EXPECT_GT(got->token(), held.token());
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(FullNodes, LetALockBeBroken) {
  redis_quorum nodes(3);
  nodes.initialise();
  const auto store = open_to_all(nodes.address());
  mutex lock{store, "door", lasting(2s)};
  auto held = lock.acquire();
  fill(nodes);

  store.break_lock("door", held.token());

  EXPECT_TRUE(becomes_lost(held));
}

// ---- everything at once ----------------------------------------------------------------------------

/// Takes turns with others, through a network that somebody hurts all the time.
struct player {
  explicit player(const redis_quorum& nodes) : wires(nodes), store(open(wires.address())) {}
  network wires;
  const client store;
};

TEST(RandomFaults, BreakNoLockAndNoOrder) {
  redis_quorum nodes(5);
  nodes.initialise();
  std::vector<std::unique_ptr<player>> players;
  players.reserve(3);
  for (int i = 0; i < 3; ++i) players.push_back(std::make_unique<player>(nodes));
  std::atomic<bool> enough{false};
  std::atomic<int> inside{0};
  std::atomic<int> turns{0};
  std::atomic<std::uint64_t> last{0};
  std::vector<background<bool>> workers;
  workers.reserve(players.size());
  for (const auto& each : players) {
    workers.emplace_back([&] {
      mutex lock{each->store, "door", lasting(60s)};
      while (!enough.load()) {
        std::optional<lease> held;
        const told error = error_of([&] { held = lock.try_acquire_for(2s); });
        EXPECT_TRUE(!error.code || error.code == errc::unavailable ||
                    error.code == errc::outcome_unknown)
            << error.text;
        if (!held || !held->valid()) continue;
        EXPECT_EQ(inside.fetch_add(1), 0);
        EXPECT_LT(last.exchange(held->token().value()), held->token().value());
        ++turns;
        inside.fetch_sub(1);
        held->release();
      }
      return true;
    });
  }

  base::random dice(20);
  const auto troubles = all_troubles();
  const auto until = lease_clock::now() + 6s;
  while (lease_clock::now() < until) {
    network& wires = players[dice.below(players.size())]->wires;
    const auto& what = troubles[dice.below(troubles.size())];
    const auto first = dice.below(nodes.size());
    const auto count = 1 + dice.below(3);
    for (std::uint64_t i = 0; i < count; ++i) what.begin(wires[(first + i) % nodes.size()]);
    const auto next = lease_clock::now() + std::chrono::milliseconds{dice.below(150)};
    static_cast<void>(eventually([&] { return lease_clock::now() >= next; }));
    if (dice.below(3) == 0) wires.heal();
  }
  enough.store(true);
  for (const auto& each : players) each->wires.heal();
  for (auto& each : workers) each.get();

  EXPECT_GT(turns.load(), 20);
  EXPECT_TRUE(nothing_is_left(nodes)) << "long before the lease of 60 s has ended";
}

}  // namespace
}  // namespace sallyport::redlock_live
