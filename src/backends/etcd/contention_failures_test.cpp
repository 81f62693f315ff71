#include "backends/etcd/test_contention_fixture.hpp"

#include <optional>
#include <string>
#include <tuple>

// What core is told when a step fails. After `unavailable` and `store_refused` it withdraws nothing, so
// these may be said only where nothing of the contender is in the store, now or later.
namespace sallyport::backends::etcd {
namespace {

constexpr holder_id alice{1, 1};
constexpr holder_id bob{2, 2};
constexpr holder_id carol{3, 3};

class EtcdFailures : public testing::Test {
 protected:
  /// The transaction of this number, counted from now, fails so. `executions`: of tries before it whose
  /// answers were lost.
  void fail_txn(int number, reply<txn_answer> said, int executions = 0) {
    world_.lose = [this, left = number, said = std::move(said), executions](int client,
                                                                            action& what) mutable {
      auto* const order = std::get_if<txn_order>(&what);
      if (order == nullptr || --left > 0) return false;
      for (int i = 0; i < executions; ++i) world_.store.apply(order->what);
      contention_world& world = world_;
      const reply<txn_answer> heard = said;
      world.lose = nullptr;  // and with it all that was captured
      world.answer(client, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, heard, at, out);
      });
      return true;
    };
  }
  /// What core does with the answer to its first question, which was a failure; and then another
  /// client wants the lock, for ten minutes in which the shared lease is kept alive by a third lock.
  void expect_free_after_failure(const std::string& name) {
    if (one_.acquire_error(alice) == errc::outcome_unknown) one_.leave(alice);
    one_.acquire(carol, "kept");
    two_.acquire(bob, name);
    for (int i = 0; i < 200 && two_.told.entered.empty() && two_.grant(bob) == nullptr; ++i) {
      world_.pass(3s);
      one_.renew(carol);
      two_.acquire(bob, name);
    }
    EXPECT_TRUE(two_.grant(bob) != nullptr || !two_.told.entered.empty())
        << "ten minutes later the key of one who gave up is still in the way";
  }

  contention_world world_;
  contention_world::client& one_ = world_.add();
  contention_world::client& two_ = world_.add();
};

/// A failure of a step by which the key is there already.
class EtcdFailuresAfterAPut : public EtcdFailures, public testing::WithParamInterface<trouble> {
 protected:
  [[nodiscard]] static reply<txn_answer> failure() {
    return {.value = {}, .why = GetParam(), .text = "etcdserver: no leader"};
  }
};

INSTANTIATE_TEST_SUITE_P(All, EtcdFailuresAfterAPut,
                         testing::Values(trouble::unavailable, trouble::refused, trouble::unknown),
                         [](const auto& shown) {
                           return shown.param == trouble::unavailable ? "Unavailable"
                                  : shown.param == trouble::refused   ? "Refused"
                                                                      : "Unknown";
                         });

TEST_P(EtcdFailuresAfterAPut, OfTheTokensDrawing) {
  two_.acquire(bob, "jobs/1");  // a deeper name: entering takes a second transaction
  one_.acquire(carol, "kept");
  fail_txn(2, failure());

  one_.acquire(alice, "jobs");

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
  expect_free_after_failure("jobs");
}

TEST_P(EtcdFailuresAfterAPut, OfTheNextPage) {
  for (std::uint64_t i = 100; i < 150; ++i) two_.acquire({i, i}, "jobs/" + std::to_string(i));
  one_.acquire(carol, "kept");
  fail_txn(2, failure());

  one_.acquire(alice, "jobs");

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
  expect_free_after_failure("jobs");
}

TEST_P(EtcdFailuresAfterAPut, OfItsUndoing) {
  two_.acquire(bob, "jobs");
  one_.acquire(carol, "kept");
  fail_txn(2, failure());

  one_.acquire(alice, "jobs", true, lock_kind::semaphore);  // another kind: its key goes again

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
  two_.leave(bob);
  expect_free_after_failure("jobs");
}

TEST_P(EtcdFailuresAfterAPut, OfALookOfOneWhoWaits) {
  two_.acquire(bob, "jobs");
  one_.acquire(carol, "kept");
  one_.acquire(alice, "jobs");
  ASSERT_TRUE(one_.waits(alice));
  fail_txn(1, failure());

  one_.acquire(alice, "jobs");

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
}

/// The last try of a request that was sent before failed for certain; the one before it was executed,
/// or not.
class EtcdFailuresAfterALostTry : public EtcdFailures,
                                  public testing::WithParamInterface<std::tuple<trouble, int>> {};

INSTANTIATE_TEST_SUITE_P(All, EtcdFailuresAfterALostTry,
                         testing::Combine(testing::Values(trouble::unavailable, trouble::refused),
                                          testing::Values(0, 1)),
                         [](const auto& shown) {
                           return std::string(std::get<0>(shown.param) == trouble::refused
                                                  ? "Refused"
                                                  : "Unavailable") +
                                  (std::get<1>(shown.param) == 0 ? "NotExecuted" : "Executed");
                         });

TEST_P(EtcdFailuresAfterALostTry, OfTheEntering) {
  for (const bool may_wait : {true, false}) {
    one_.acquire(carol, "kept");
    fail_txn(1,
             {.value = {},
              .why = std::get<0>(GetParam()),
              .text = "mvcc: database space exceeded",
              .doubtful = true},
             std::get<1>(GetParam()));

    one_.acquire(alice, "jobs", may_wait);

    EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
    expect_free_after_failure("jobs");
    two_.leave(bob);
    two_.told = {};
  }
}

TEST_P(EtcdFailuresAfterALostTry, OfALeaving) {
  one_.acquire(alice, "jobs");
  fail_txn(1, {.value = {}, .why = std::get<0>(GetParam()), .text = "no leader", .doubtful = true},
           std::get<1>(GetParam()));

  one_.leave(alice);

  ASSERT_TRUE(one_.told.leaves.contains(alice));
  ASSERT_FALSE(one_.told.leaves.at(alice));
  EXPECT_EQ(one_.told.leaves.at(alice).error().code, errc::outcome_unknown);
}

TEST_F(EtcdFailures, WithoutAKeyAreToldAsTheyAre) {
  one_.acquire(carol, "kept");
  fail_txn(1, {.value = {}, .why = trouble::unavailable, .text = "etcdserver: no leader"});
  one_.acquire(alice, "jobs");
  EXPECT_EQ(one_.acquire_error(alice), errc::unavailable);
  fail_txn(1, {.value = {}, .why = trouble::refused, .text = "etcdserver: permission denied"});
  one_.acquire(alice, "jobs");
  EXPECT_EQ(one_.acquire_error(alice), errc::store_refused);

  EXPECT_EQ(one_.machine.contenders(), 1U) << "nothing of it is remembered";
}

TEST_F(EtcdFailures, OnceInDoubtAlwaysInDoubt) {
  one_.acquire(carol, "kept");
  fail_txn(1, {.value = {}, .why = trouble::unknown, .text = "lost"}, 1);
  one_.acquire(alice, "jobs");
  fail_txn(1, {.value = {}, .why = trouble::unavailable, .text = "etcdserver: no leader"});

  one_.acquire(alice, "jobs");

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
  expect_free_after_failure("jobs");
}

TEST_F(EtcdFailures, OfALeaseThatAKeepAliveHasToldOfBeforeGoOnWithAnotherOne) {
  one_.acquire(carol, "kept");
  std::optional<errand_number> entering;
  world_.lose = [&](int, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr || entering) return false;
    entering = order->errand;
    return true;
  };
  one_.acquire(alice, "jobs");
  ASSERT_TRUE(entering);
  world_.store.revoke(world_.store.leases.begin()->first);
  world_.pass(1500ms);
  one_.renew(carol);  // and the keep-alive finds nothing
  ASSERT_EQ(one_.told.lost, std::vector<holder_id>{carol});

  one_.step([&](contention& machine, time_point at, actions& out) {
    machine.txn_answered(*entering,
                         {.value = {}, .why = trouble::no_such_lease, .text = "lease not found"},
                         at, out);
  });

  EXPECT_TRUE(one_.grant(alice)) << "it is asked for, and nobody does anything";
}

// ---- requests that were sent twice ---------------------------------------------------------------

/// The next lease is granted so much later, and the answer is what etcd says to the second try.
class EtcdLeaseGrants : public EtcdFailures {
 protected:
  void answer_grant(duration later, const reply<std::int64_t>& said) {
    world_.lose = [this, later, said](int client, action& what) {
      auto* const order = std::get_if<grant_order>(&what);
      if (order == nullptr) return false;
      world_.store.grant(order->lease, std::chrono::seconds{order->seconds}, world_.now);
      world_.now += later;
      const reply<std::int64_t> heard = said;
      contention_world& world = world_;
      world.lose = nullptr;  // and with it all that was captured
      world.answer(client, [&](contention& machine, time_point at, actions& out) {
        machine.lease_granted(order->lease, heard, at, out);
      });
      return true;
    };
  }
};

TEST_F(EtcdLeaseGrants, ByALostTryAreGoodAndCountFromTheFirstSending) {
  answer_grant(1s, {.value = {},
                    .why = trouble::lease_exists,
                    .text = "etcdserver: lease already exists",
                    .doubtful = true});

  one_.acquire(alice, "door");
  one_.acquire(bob, "window");

  ASSERT_TRUE(one_.grant(alice)) << one_.acquire_error(alice).message();
  ASSERT_TRUE(one_.grant(bob));
  EXPECT_EQ(one_.grant(bob)->remaining, one_.length - 1s) << "asked for a second after the lease";
  EXPECT_EQ(world_.store.leases.size(), 1U);
}

TEST_F(EtcdLeaseGrants, OfAFixedLeaseToo) {
  one_.renews = false;
  answer_grant(1s, {.value = {}, .why = trouble::lease_exists, .text = "", .doubtful = true});

  one_.acquire(alice, "door");

  EXPECT_TRUE(one_.grant(alice)) << one_.acquire_error(alice).message();
}

TEST_F(EtcdLeaseGrants, OfWhomeverElseAreARefusal) {
  answer_grant(0s, {.value = {}, .why = trouble::lease_exists, .text = "exists"});

  one_.acquire(alice, "door");

  EXPECT_EQ(one_.acquire_error(alice), errc::store_refused);
  EXPECT_EQ(one_.machine.contenders(), 0U);
}

// ---- tombstones ----------------------------------------------------------------------------------

class EtcdTombstones : public EtcdFailures, public testing::WithParamInterface<lock_kind> {
 protected:
  static constexpr lease_id stone = 77;

  /// What `break` does to whoever has the only key of the lock that is on this lease or above.
  void put_tombstone(lease_id from) {
    world_.store.grant(stone, 20s, world_.now);
    txn order;
    for (const auto& [key, each] : world_.store.keys) {
      if (key.find("door") == std::string::npos || each.lease < from) continue;
      auto said = from_json(each.value);
      if (said) said->closed = true;
      order.then.emplace_back(put{key, said ? to_json(*said) : each.value, stone});
    }
    ASSERT_FALSE(order.then.empty());
    world_.store.apply(order);
    world_.settle();
  }
  [[nodiscard]] std::size_t keys_of_stone() { return world_.store.leases.at(stone).keys.size(); }
  /// It is told to wait, and enters when the tombstone has gone and not before.
  void expect_to_wait_for_the_stone(contention_world::client& whose, const holder_id& who) {
    const int txns = whose.sent.txns;
    whose.acquire(who, "door", true, GetParam());
    EXPECT_TRUE(whose.waits(who)) << "the break is undone";
    EXPECT_LT(whose.sent.txns - txns, 10);
    EXPECT_EQ(keys_of_stone(), GetParam() == lock_kind::election ? 2U : 1U)
        << "the tombstone was overwritten";
    EXPECT_TRUE(whose.told.entered.empty());
    for (int i = 0; i < 10 && whose.told.entered.empty(); ++i) {
      EXPECT_TRUE(world_.store.leases.contains(stone));
      world_.pass(2s);
      whose.acquire(who, "door", true, GetParam());
    }
    whose.acquire(who, "door", true, GetParam());
    EXPECT_TRUE(whose.grant(who));
    EXPECT_FALSE(world_.store.leases.contains(stone));
  }
};

INSTANTIATE_TEST_SUITE_P(All, EtcdTombstones,
                         testing::Values(lock_kind::mutex, lock_kind::election),
                         [](const auto& shown) {
                           return shown.param == lock_kind::mutex ? "Mutex" : "Election";
                         });

TEST_P(EtcdTombstones, AreNotOverwrittenByWhoIsPutOutBeforeItsClaim) {
  one_.acquire(alice, "door", true, GetParam());
  two_.acquire(bob, "door", true, GetParam());
  one_.leave(alice);
  ASSERT_EQ(two_.told.entered, std::vector<holder_id>{bob});
  world_.pass(100ms);  // from then on it watches its key
  put_tombstone(2000);
  ASSERT_EQ(two_.told.lost, std::vector<holder_id>{bob});
  two_.told = {};

  expect_to_wait_for_the_stone(two_, bob);
}

TEST_P(EtcdTombstones, AreNotOverwrittenByWhoAsksAgainAfterALostAnswer) {
  two_.acquire(carol, "kept");
  fail_txn(1, {.value = {}, .why = trouble::unknown, .text = "lost"}, 1);
  two_.acquire(bob, "door", true, GetParam());
  put_tombstone(2000);

  expect_to_wait_for_the_stone(two_, bob);
}

TEST_P(EtcdTombstones, AreNotOverwrittenByAnotherTryOfTheSameRequest) {
  two_.acquire(carol, "kept");
  contention_world& world = world_;
  world_.lose = [&](int, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world.lose = nullptr;
    world.store.apply(order->what);
    put_tombstone(2000);
    return false;  // and now what is heard
  };

  expect_to_wait_for_the_stone(two_, bob);
}

// ---- streams -------------------------------------------------------------------------------------

TEST_F(EtcdFailures, AStreamThatIsReplacedIsNoTroubleButAllIsWatchedAgain) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.pass(100ms);
  for (auto* const each : {&one_, &two_}) {
    const int before = each->sent.watches;
    world_.store.watchers.clear();
    each->step([](contention& machine, time_point at, actions& out) {
      machine.watches_broken(at, out, false);
      machine.keep_alives_broken(at, out, false);
      machine.on_timer(at, out);
    });
    EXPECT_EQ(each->told.disconnected, 0);
    EXPECT_GT(each->sent.watches, before);
  }

  one_.step(
      [](contention& machine, time_point at, actions& out) { machine.watches_broken(at, out); });
  EXPECT_EQ(one_.told.disconnected, 1);
}

}  // namespace
}  // namespace sallyport::backends::etcd
