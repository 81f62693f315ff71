#include "backends/etcd/test_contention_fixture.hpp"

namespace sallyport::backends::etcd {
namespace {

constexpr holder_id alice{1, 1};
constexpr holder_id bob{2, 2};
constexpr holder_id carol{3, 3};

class EtcdContention : public testing::Test {
 protected:
  contention_world world;
  contention_world::client& one = world.add();
  contention_world::client& two = world.add();

  /// The answer to the next transaction is lost: it is executed, but nobody hears of it.
  void lose_next_answer(bool executed = true) {
    world.lose = [this, executed](int number, action& what) {
      auto* const order = std::get_if<txn_order>(&what);
      if (order == nullptr) return false;
      world.lose = nullptr;
      if (executed) world.store.apply(order->what);
      world.answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, {.why = trouble::unknown, .text = "lost"}, at, out);
      });
      return true;
    };
  }
  /// The next transaction is executed, its answer is lost, and it is sent again.
  void answer_twice() {
    world.lose = [this](int number, action& what) {
      auto* const order = std::get_if<txn_order>(&what);
      if (order == nullptr) return false;
      world.lose = nullptr;
      world.store.apply(order->what);
      auto said = world.store.apply(order->what);
      said.doubtful = true;
      world.answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, said, at, out);
      });
      return true;
    };
  }
};

// ---- in and out ----------------------------------------------------------------------------------

TEST_F(EtcdContention, AFreeLockCostsOneTransactionOnceThereIsALease) {
  one.acquire(alice, "door");
  ASSERT_TRUE(one.grant(alice));
  one.leave(alice);
  EXPECT_EQ(one.left(alice), leave_answer::left);
  EXPECT_EQ(one.sent.grants, 1);
  EXPECT_EQ(one.sent.txns, 2);

  one.acquire(bob, "door");
  one.leave(bob);

  EXPECT_EQ(one.sent.grants, 1) << "the lease is used again";
  EXPECT_EQ(one.sent.txns, 4);
  EXPECT_TRUE(world.store.keys.empty());
}

TEST_F(EtcdContention, OnlyWhoKnowsThatItIsInSaysSo) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  const auto says = [&](std::size_t which) {
    return from_json(std::next(world.store.keys.begin(), static_cast<long>(which))->second.value)
        .value()
        .held;
  };
  EXPECT_TRUE(says(0));
  EXPECT_FALSE(says(1));

  one.leave(alice);

  EXPECT_TRUE(says(0)) << "bob, now";
}

TEST_F(EtcdContention, AnEnteringThatWasExecutedTwiceIsOneEntering) {
  two.acquire(carol, "other");
  answer_twice();
  two.acquire(bob, "door");
  ASSERT_TRUE(two.grant(bob));
  answer_twice();
  one.acquire(alice, "door");  // its lease first
  EXPECT_TRUE(one.waits(alice));
  EXPECT_EQ(world.store.keys.size(), 3U);

  two.leave(bob);

  EXPECT_EQ(one.told.entered, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, TheTokenIsTheRevisionOfTheConfirmingAnswer) {
  one.acquire(alice, "door");

  ASSERT_TRUE(one.grant(alice));
  EXPECT_EQ(one.grant(alice)->tokens.first.value(), static_cast<std::uint64_t>(world.store.at));
  EXPECT_EQ(one.grant(alice)->remaining, one.length);
}

TEST_F(EtcdContention, AFailedTryWritesNothing) {
  one.acquire(alice, "door");
  two.acquire(bob, "other");  // so that it has a lease
  const revision before = world.store.at;

  two.acquire(carol, "door", false);

  EXPECT_TRUE(two.is_held(carol));
  EXPECT_EQ(world.store.at, before);
  EXPECT_EQ(two.machine.contenders(), 1U) << "nothing of it is remembered";
}

TEST_F(EtcdContention, AHandOffCostsTwoTransactionsHoweverManyWait) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  std::vector<holder_id> crowd;
  for (std::uint64_t i = 10; i < 40; ++i) {
    crowd.push_back({i, i});
    two.acquire(crowd.back(), "door");
    EXPECT_TRUE(two.waits(crowd.back()));
  }
  ASSERT_TRUE(two.waits(bob));
  const int before = one.sent.txns + two.sent.txns;

  one.leave(alice);
  ASSERT_EQ(two.told.entered, std::vector<holder_id>{bob});
  two.renew(bob);

  ASSERT_TRUE(two.renewal(bob)) << "its claim needs no request: the store has confirmed it";
  EXPECT_GT(two.renewal(bob)->tokens.first, one.grant(alice)->tokens.first);
  EXPECT_EQ(one.sent.txns + two.sent.txns - before, 2);
}

TEST_F(EtcdContention, AWaiterThatWentIsPassedOverByTheOneBehindIt) {
  contention_world::client& three = world.add();
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  three.acquire(carol, "door");

  two.leave(bob);
  EXPECT_TRUE(three.told.entered.empty()) << "alice is still in";
  one.leave(alice);

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, WhatHappensBeforeAWatchBeginsIsFoundByLooking) {
  one.acquire(alice, "door");
  world.lose = [this](int number, action& what) {
    if (number != 2 || !std::holds_alternative<watch_order>(what)) return false;
    world.lose = nullptr;
    world.store.revoke(1001);  // alice goes between the answer and the watch
    world.carry_out(number, what);
    return true;
  };

  two.acquire(bob, "door");

  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, WhoStandsFarBehindLooksLater) {
  for (std::uint64_t i = 10; i < 16; ++i) one.acquire({i, i}, "door");
  world.store.grant(99, 60s, world.now);
  world.lose = [this](int number, action& what) {
    if (number != 2 || !std::holds_alternative<watch_order>(what)) return false;
    world.lose = nullptr;
    world.store.apply({.then = {put{"elsewhere", "", 99}}});  // the store moves on
    world.carry_out(number, what);
    return true;
  };
  two.acquire(bob, "door");
  const int asked = two.sent.txns;

  world.pass(900ms);
  EXPECT_EQ(two.sent.txns, asked);
  world.pass(200ms);
  EXPECT_EQ(two.sent.txns, asked + 1);
}

TEST_F(EtcdContention, WhoIsNotNextLooksALittleLater) {
  contention_world::client& three = world.add();
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.lose = [this](int number, action& what) {
    if (number != 3 || !std::holds_alternative<watch_order>(what)) return false;
    world.lose = nullptr;
    world.store.revoke(2001);  // bob, who waits
    world.carry_out(number, what);
    return true;
  };
  three.acquire(carol, "door");
  world.pass(49ms);
  one.leave(alice);
  EXPECT_TRUE(three.waits(carol)) << "it watches the key of one who has gone";

  world.pass(1ms);

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, WhoIsNotNextLooksAtOnceIfEverybodyBeforeItMayHaveGone) {
  contention_world::client& three = world.add();
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.lose = [this](int number, action& what) {
    if (number != 3 || !std::holds_alternative<watch_order>(what)) return false;
    world.lose = nullptr;
    world.store.revoke(1001);
    world.store.revoke(2001);
    world.carry_out(number, what);
    return true;
  };

  three.acquire(carol, "door");

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, AKeyIsUsedAgainAfterAConfirmedRelease) {
  one.acquire(alice, "door");
  const std::string key = world.store.keys.begin()->first;
  one.leave(alice);
  one.acquire(carol, "door");
  EXPECT_EQ(world.store.keys.begin()->first, key);
  EXPECT_EQ(world.store.keys.size(), 1U);
}

TEST_F(EtcdContention, AKeyIsNotUsedAgainIfSomebodyPutATombstoneThere) {
  one.acquire(alice, "door");
  const std::string key = world.store.keys.begin()->first;
  world.store.grant(99, 60s, world.now);
  world.store.apply({.then = {put{key, "", 99}}});
  one.leave(alice);
  one.acquire(carol, "door");
  EXPECT_TRUE(one.waits(carol));
  EXPECT_EQ(world.store.keys.size(), 2U);
  EXPECT_EQ(world.store.keys.at(key).lease, 99);
}

TEST_F(EtcdContention, AKeyWhosePutMayStillComeIsNotUsedAgain) {
  answer_twice();
  one.acquire(alice, "door");
  const std::string key = world.store.keys.begin()->first;
  one.leave(alice);
  one.acquire(carol, "door");
  ASSERT_TRUE(one.grant(carol));
  const std::string mark = "#";
  EXPECT_NE(world.store.keys.begin()->first.substr(key.find(mark)), key.substr(key.find(mark)));
}

TEST_F(EtcdContention, AWaiterIsWokenByEitherOfItsWatches) {
  for (const int silent : {0, 1}) {
    one.acquire(alice, "door");
    int seen = 0;
    world.lose = [&](int number, action& what) {
      return number == 2 && std::holds_alternative<watch_order>(what) && seen++ == silent;
    };
    two.acquire(bob, "door");
    EXPECT_EQ(seen, 2);
    world.lose = nullptr;

    one.leave(alice);

    EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
    two.told.entered.clear();
    two.leave(bob);
  }
}

TEST_F(EtcdContention, AHeartbeatFindsWhatNoEventTold) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.deaf = true;
  one.leave(alice);
  ASSERT_TRUE(two.told.entered.empty());

  two.acquire(bob, "door");

  EXPECT_TRUE(two.grant(bob));
}

TEST_F(EtcdContention, WhoeverWentAndCameBackUnderTheSameKeyIsBehindIt) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.deaf = true;
  const auto [key, was] = *world.store.keys.begin();
  world.store.apply({.when = {}, .then = {erase{key}}, .otherwise = {}});
  world.store.apply({.when = {}, .then = {put{key, was.value, was.lease}}, .otherwise = {}});
  world.store.reports.clear();  // nobody hears of it
  world.deaf = false;

  two.acquire(bob, "door");

  EXPECT_TRUE(two.grant(bob));
}

TEST_F(EtcdContention, ALossThatIsToldBeforeTheAnswerOfAnEarlierLookStays) {
  one.acquire(alice, "door");
  world.pass(25ms);  // from then on its own key is watched
  world.lose = [this](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world.lose = nullptr;
    const auto seen = world.store.apply(order->what);  // its key is there
    const auto [key, was] = *world.store.keys.begin();
    const std::vector<key_event> gone{{.deleted = true, .now = was}};
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.watch_said(world.store.watchers.begin()->first.second, gone, at, out);
      machine.txn_answered(order->errand, seen, at, out);
    });
    return true;
  };

  one.acquire(alice, "door");  // asks again: it looks

  EXPECT_EQ(one.told.lost, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, AnAnswerWithPartsMissingIsNone) {
  one.acquire(alice, "door");
  world.lose = [this](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world.lose = nullptr;
    auto said = world.store.apply(order->what);
    said.value->answers.clear();
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, said, at, out);
    });
    return true;
  };

  two.acquire(bob, "door");

  EXPECT_EQ(two.acquire_error(bob), errc::outcome_unknown);
}

TEST_F(EtcdContention, AskingAgainKeepsOnePlace) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  const auto keys = world.store.keys;
  const revision at = world.store.at;

  two.acquire(bob, "door");
  one.acquire(alice, "door");

  EXPECT_TRUE(two.waits(bob));
  ASSERT_TRUE(one.grant(alice));
  EXPECT_EQ(world.store.at, at);
  EXPECT_EQ(world.store.keys.size(), keys.size());
}

TEST_F(EtcdContention, DeeperKeysBelongToOtherNames) {
  one.acquire(alice, "a/b");
  two.acquire(bob, "a");
  EXPECT_TRUE(two.grant(bob));
  two.acquire(carol, "a", false);
  EXPECT_TRUE(two.is_held(carol));
  two.leave(bob);
  two.acquire(carol, "a", false);
  EXPECT_TRUE(two.grant(carol)) << "also without waiting";
}

TEST_F(EtcdContention, ManyDeeperKeysAreReadPageByPage) {
  for (std::uint64_t i = 100; i < 150; ++i) one.acquire({i, i}, "a/" + std::to_string(i));

  two.acquire(bob, "a");
  EXPECT_TRUE(two.grant(bob));
  one.acquire(alice, "a");
  EXPECT_TRUE(one.waits(alice));
  two.leave(bob);

  EXPECT_EQ(one.told.entered, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, AFailedTryWritesNothingAlsoBehindManyDeeperKeys) {
  two.acquire(bob, "a");
  for (std::uint64_t i = 100; i < 150; ++i) one.acquire({i, i}, "a/" + std::to_string(i));
  const revision before = world.store.at;

  one.acquire(alice, "a", false);

  EXPECT_TRUE(one.is_held(alice));
  EXPECT_EQ(world.store.at, before);
  EXPECT_EQ(one.machine.contenders(), 50U) << "nothing of it is remembered";

  two.leave(bob);
  one.acquire(alice, "a", false);
  EXPECT_TRUE(one.grant(alice));
}

TEST_F(EtcdContention, ATryWhoseSurveyFailsIsForgotten) {
  two.acquire(bob, "a");
  for (std::uint64_t i = 100; i < 150; ++i) one.acquire({i, i}, "a/" + std::to_string(i));
  int txns = 0;
  world.lose = [&](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr || ++txns < 3) return false;
    world.lose = nullptr;
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, {.why = trouble::unavailable, .text = "away"}, at, out);
    });
    return true;
  };

  one.acquire(alice, "a", false);

  EXPECT_EQ(one.acquire_error(alice), errc::unavailable);
  EXPECT_EQ(one.machine.contenders(), 50U);
}

TEST_F(EtcdContention, AContenderOfAnotherLibraryIsWaitedFor) {
  world.store.grant(77, 60s, world.now);
  world.store.apply({.then = {put{"p/door/4d", "", 77}}});

  two.acquire(bob, "door", false);
  EXPECT_TRUE(two.is_held(bob));
  two.acquire(bob, "door");
  EXPECT_TRUE(two.waits(bob));
  world.store.revoke(77);
  world.settle();

  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
}

// ---- answers that never come ---------------------------------------------------------------------

TEST_F(EtcdContention, ALostAnswerToEnteringIsFoundByAskingAgain) {
  one.acquire(bob, "other");
  lose_next_answer();
  one.acquire(alice, "door");
  EXPECT_EQ(one.acquire_error(alice), errc::outcome_unknown);

  one.acquire(alice, "door");

  EXPECT_TRUE(one.grant(alice));
  EXPECT_EQ(world.store.keys.size(), 2U);
}

TEST_F(EtcdContention, ALostAnswerToEnteringIsWithdrawnAndTheLeaseRetired) {
  one.acquire(bob, "other");
  lose_next_answer();
  one.acquire(alice, "door");

  one.leave(alice);
  EXPECT_EQ(one.left(alice), leave_answer::left);
  one.acquire(carol, "third");
  EXPECT_EQ(one.sent.grants, 2) << "nobody new comes to a lease with a doubtful put";
  one.leave(bob);

  EXPECT_EQ(one.sent.revokes, 1) << "the last one has left it";
  EXPECT_EQ(world.store.leases.size(), 1U);
}

TEST_F(EtcdContention, APutThatIsExecutedLateFindsNoLeaseOrIsCleanedUp) {
  one.acquire(bob, "other");
  std::optional<txn> late;
  world.lose = [&](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world.lose = nullptr;
    late = order->what;
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, {.why = trouble::unknown}, at, out);
    });
    return true;
  };
  one.acquire(alice, "door");
  one.leave(alice);
  ASSERT_TRUE(late);

  // The lease lives on because of bob; its next round takes the late key away.
  world.store.apply(*late);
  EXPECT_EQ(world.store.keys.size(), 2U);
  one.renew(bob);
  EXPECT_EQ(world.store.keys.size(), 1U);

  // And when bob has gone, nothing can be put on it any more.
  one.leave(bob);
  EXPECT_EQ(world.store.apply(*late).why, trouble::no_such_lease);
  EXPECT_TRUE(world.store.keys.empty());
}

TEST_F(EtcdContention, ALeaveThatWasNotHeardIsSaidAgain) {
  one.acquire(alice, "door");
  lose_next_answer(false);
  one.leave(alice);
  EXPECT_FALSE(one.left(alice));

  one.leave(alice);

  EXPECT_EQ(one.left(alice), leave_answer::left);
  EXPECT_TRUE(world.store.keys.empty());
}

TEST_F(EtcdContention, ATryThatFindsItsOwnKeyOfAnEarlierTryHasGotIn) {
  one.acquire(bob, "other");
  answer_twice();

  one.acquire(alice, "door", false);

  EXPECT_TRUE(one.grant(alice));
  one.leave(alice);
  EXPECT_EQ(world.store.keys.size(), 1U);
}

TEST_F(EtcdContention, ALeaveThatWasExecutedTwiceIsNotTakenForALoss) {
  one.acquire(alice, "door");
  answer_twice();

  one.leave(alice);

  ASSERT_TRUE(one.told.leaves.contains(alice));
  EXPECT_FALSE(one.told.leaves.at(alice)) << "nobody knows which of the two did it";
  one.leave(alice);
  EXPECT_EQ(one.left(alice), leave_answer::not_there);
}

TEST_F(EtcdContention, ALeaseThatIsNotGrantedFailsWithoutATrace) {
  world.lose = [this](int number, action& what) {
    auto* const order = std::get_if<grant_order>(&what);
    if (order == nullptr) return false;
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.lease_granted(order->lease, {.why = trouble::unavailable, .text = "down"}, at, out);
    });
    return true;
  };

  one.acquire(alice, "door");

  EXPECT_EQ(one.acquire_error(alice), errc::unavailable);
  EXPECT_EQ(one.machine.contenders(), 0U);
  EXPECT_EQ(one.machine.leases(), 0U);
}

TEST_F(EtcdContention, EveryRequestIsAnsweredInTime) {
  one.acquire(bob, "other");
  world.lose = [](int, action& what) { return std::holds_alternative<txn_order>(what); };
  one.acquire(alice, "door");
  EXPECT_FALSE(one.told.acquired.contains(alice));

  world.pass(2s);

  EXPECT_EQ(one.acquire_error(alice), errc::outcome_unknown);
}

// ---- leases --------------------------------------------------------------------------------------

TEST_F(EtcdContention, ManyLocksShareOneLeaseAndOneKeepAlive) {
  for (std::uint64_t i = 0; i < 50; ++i) one.acquire({i, 7}, "lock " + std::to_string(i));
  world.pass(2s);
  const int before = one.sent.txns;

  const lock_name any{"any"};
  one.step([&](contention& machine, time_point at, actions& out) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      machine.renew(
          {.name = any, .holder = {i, 7}, .lease_length = one.length, .answer_by = at + 2s}, at,
          out);
    }
  });

  EXPECT_EQ(one.sent.grants, 1);
  EXPECT_EQ(one.sent.keep_alives, 1);
  EXPECT_EQ(one.sent.txns - before, 1);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(one.renewal({i, 7}));
    EXPECT_EQ(one.renewal({i, 7})->remaining, one.length);
  }
}

TEST_F(EtcdContention, AKeepAliveCountsOnlyWithAReadOfTheSameTerm) {
  one.acquire(alice, "door");
  world.pass(2s);
  // The member that answers keep-alives is no longer the leader.
  world.lose = [this](int number, action& what) {
    auto* const order = std::get_if<keep_alive_order>(&what);
    if (order == nullptr) return false;
    world.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.kept_alive(order->lease, 6, world.store.term - 1, at, out);
    });
    return true;
  };
  one.renew(alice);
  EXPECT_FALSE(one.told.renewals.contains(alice));
  world.pass(1500ms);
  EXPECT_FALSE(one.told.renewals.contains(alice));

  world.lose = nullptr;
  world.pass(400ms);

  ASSERT_TRUE(one.renewal(alice));
  EXPECT_GT(one.renewal(alice)->remaining, 5s);
}

TEST_F(EtcdContention, AKeepAlivesCountBeginsWithItsSending) {
  one.acquire(alice, "door");
  one.acquire(bob, "window");
  world.pass(2s);
  std::optional<lease_id> asked;
  world.lose = [&](int, action& what) {
    if (auto* const order = std::get_if<keep_alive_order>(&what)) asked = order->lease;
    return std::holds_alternative<keep_alive_order>(what);
  };
  one.renew(alice);
  ASSERT_TRUE(asked);
  world.lose = nullptr;
  world.pass(300ms);
  one.renew(bob);
  world.pass(200ms);

  world.answer(1, [&](contention& machine, time_point at, actions& out) {
    machine.kept_alive(*asked, 6, world.store.term, at, out);
  });

  ASSERT_TRUE(one.renewal(alice) && one.renewal(bob));
  EXPECT_EQ(one.renewal(alice)->remaining, 6s);
  EXPECT_EQ(one.renewal(bob)->remaining, 5700ms) << "its renewal came later than the sending";
}

TEST_F(EtcdContention, ALeaseThatHasEndedIsTheLossOfAllOnIt) {
  one.acquire(alice, "door");
  one.acquire(bob, "window");
  world.store.revoke(1001);
  world.pass(1s);

  EXPECT_EQ(one.told.lost.size(), 2U) << "their keys were watched";
  one.renew(alice);
  EXPECT_FALSE(one.renewal(alice));
  one.leave(alice);
  EXPECT_EQ(one.left(alice), leave_answer::not_there);
}

TEST_F(EtcdContention, AWaiterWhoseLeaseEndedStandsInLineAgainWithANewOne) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.store.revoke(2001);
  world.settle();

  two.acquire(bob, "door");
  EXPECT_TRUE(two.waits(bob));
  one.leave(alice);

  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, AFixedLeaseIsItsOwnAndGoesWithItsHolder) {
  one.renews = false;
  one.acquire(alice, "door");
  one.acquire(bob, "window");
  EXPECT_EQ(world.store.leases.size(), 2U);

  one.leave(alice);

  EXPECT_EQ(world.store.leases.size(), 1U);
  world.pass(7s);
  EXPECT_TRUE(world.store.keys.empty()) << "nobody keeps it alive";
}

TEST_F(EtcdContention, AnIdleLeaseIsRevoked) {
  one.acquire(alice, "door");
  one.leave(alice);
  EXPECT_EQ(world.store.leases.size(), 1U);

  world.pass(3s);

  EXPECT_TRUE(world.store.leases.empty());
  EXPECT_EQ(one.machine.leases(), 0U);
}

TEST_F(EtcdContention, ClosingRevokesWhatNobodyNeeds) {
  one.acquire(alice, "door");
  one.leave(alice);

  one.step([](contention& machine, time_point, actions& out) { machine.close(out); });

  EXPECT_TRUE(world.store.leases.empty());
}

// ---- broken --------------------------------------------------------------------------------------

TEST_F(EtcdContention, ATombstoneInItsPlaceIsALossAndIsNotTouched) {
  one.acquire(alice, "door");
  const std::string key = world.store.keys.begin()->first;
  world.pass(1s);
  world.store.grant(77, 6s, world.now);
  world.store.apply({.then = {put{key, to_json({.closed = true}), 77}}});
  world.settle();

  EXPECT_EQ(one.told.lost, std::vector<holder_id>{alice});
  one.leave(alice);
  EXPECT_EQ(one.left(alice), leave_answer::not_there);
  EXPECT_TRUE(world.store.keys.contains(key));
}

TEST_F(EtcdContention, ARenewalFindsATombstoneThatNoEventTold) {
  one.acquire(alice, "door");
  const std::string key = world.store.keys.begin()->first;
  world.deaf = true;
  world.store.grant(77, 6s, world.now);
  world.store.apply({.then = {put{key, to_json({.closed = true}), 77}}});

  one.renew(alice, 0);

  EXPECT_FALSE(one.renewal(alice));
  EXPECT_EQ(one.told.lost, std::vector<holder_id>{alice});
}

// ---- tokens, values, kinds -----------------------------------------------------------------------

TEST_F(EtcdContention, ANewTokenIsDrawnByAWriteOnTheOwnKey) {
  one.acquire(alice, "door");
  const auto first = one.grant(alice)->tokens.first;

  one.renew(alice, 16);

  ASSERT_TRUE(one.renewal(alice));
  EXPECT_GT(one.renewal(alice)->tokens.first, first);
  EXPECT_EQ(one.renewal(alice)->tokens.first, one.renewal(alice)->tokens.last);
}

TEST_F(EtcdContention, WhoHasGoneDrawsNothing) {
  one.acquire(alice, "door");
  world.deaf = true;
  world.store.revoke(1001);

  one.renew(alice, 16);

  EXPECT_FALSE(one.renewal(alice));
}

TEST_F(EtcdContention, ReadersBehindAWriterEnterTogetherWhenItIsDowngraded) {
  one.acquire(alice, "page", true, lock_kind::shared_mutex, lock_mode::exclusive);
  two.acquire(bob, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  two.acquire(carol, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  EXPECT_TRUE(two.waits(bob));

  one.downgrade(alice);

  ASSERT_TRUE(one.told.downgrades.contains(alice));
  EXPECT_EQ(two.told.entered.size(), 2U);
}

TEST_F(EtcdContention, AWriterWaitsForReadersAndReadersBehindItForTheWriter) {
  constexpr holder_id dora{4, 4};
  one.acquire(alice, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  two.acquire(bob, "page", true, lock_kind::shared_mutex, lock_mode::exclusive);
  one.acquire(carol, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  one.acquire(dora, "page", false, lock_kind::shared_mutex, lock_mode::shared);
  EXPECT_TRUE(two.waits(bob));
  EXPECT_TRUE(one.waits(carol));
  EXPECT_TRUE(one.is_held(dora));

  one.leave(alice);
  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
  two.leave(bob);

  EXPECT_EQ(one.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, PermitsGoToWaitersInOrder) {
  std::vector<holder_id> all;
  for (std::uint64_t i = 1; i <= 6; ++i) {
    all.push_back({i, 9});
    one.acquire(all.back(), "pool", true, lock_kind::semaphore, lock_mode::exclusive, 2);
  }
  EXPECT_TRUE(one.grant(all[1]));
  EXPECT_TRUE(one.waits(all[2]));

  one.leave(all[1]);
  one.leave(all[0]);
  one.leave(all[2]);

  EXPECT_EQ(one.told.entered, (std::vector<holder_id>{all[2], all[3], all[4]}));
}

TEST_F(EtcdContention, ANameInUseAsAnotherKindIsRefusedAndNothingIsLeft) {
  one.acquire(alice, "pool", true, lock_kind::semaphore, lock_mode::exclusive, 2);

  two.acquire(bob, "pool");
  two.acquire(carol, "pool", false);

  EXPECT_EQ(two.acquire_error(bob), errc::wrong_kind);
  EXPECT_EQ(two.acquire_error(carol), errc::wrong_kind);
  EXPECT_EQ(world.store.keys.size(), 1U);
  EXPECT_EQ(two.machine.contenders(), 0U);
}

TEST_F(EtcdContention, AnElectionsKeyHoldsWhatTheLeaderSays) {
  one.value = "http://one";
  one.acquire(alice, "leader", true, lock_kind::election);
  const lock_name any{"any"};

  one.step([&](contention& machine, time_point at, actions& out) {
    machine.set_value({.name = any, .holder = alice, .answer_by = at + 2s}, "ready", 5, at, out);
  });

  ASSERT_TRUE(one.told.values.contains(5));
  EXPECT_TRUE(one.told.values.at(5).value());
  EXPECT_EQ(world.store.keys.rbegin()->second.value, "ready");
  one.leave(alice);
  EXPECT_TRUE(world.store.keys.empty()) << "its card, too";
}

TEST_F(EtcdContention, AWatchThatTheStoreEndedIsSetAgainAtTheNextHeartbeat) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  std::vector<watch_number> ended;
  for (const auto& [whose, what] : world.store.watchers) ended.push_back(whose.second);
  ASSERT_EQ(ended.size(), 2U) << "it has a twin";
  world.store.watchers.clear();

  two.step([&](contention& machine, time_point at, actions& out) {
    for (const watch_number each : ended) machine.watch_ended(each, at, out);
  });
  EXPECT_EQ(two.sent.watches, 2) << "not at once: the store may end it again";
  two.acquire(bob, "door");
  EXPECT_EQ(two.sent.watches, 4);
  one.leave(alice);

  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
}

// ---- watches -------------------------------------------------------------------------------------

TEST_F(EtcdContention, AfterABreakOfTheStreamEverythingIsWatchedAgain) {
  one.acquire(alice, "door");
  two.acquire(bob, "door");
  world.store.watchers.clear();
  one.leave(alice);

  two.step(
      [](contention& machine, time_point at, actions& out) { machine.watches_broken(at, out); });

  EXPECT_EQ(two.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, ChangesOfAWatchedNameAreTold) {
  const lock_name door{"door"};
  two.step([&](contention& machine, time_point, actions& out) { machine.watch(door, true, out); });
  one.acquire(alice, "door");
  EXPECT_EQ(two.told.changed, std::vector<std::string>{"door"});
  one.acquire(bob, "door/deeper");
  EXPECT_EQ(two.told.changed.size(), 1U);

  two.step([&](contention& machine, time_point, actions& out) { machine.watch(door, false, out); });
  one.leave(alice);

  EXPECT_EQ(two.told.changed.size(), 1U);
}

TEST_F(EtcdContention, LeavesALeaseThatOthersKeepAliveAlsoWhenNobodyAsksAgain) {
  one.acquire(alice, "door");
  one.acquire(bob, "gate");
  lose_next_answer(false);
  one.leave(alice);
  ASSERT_FALSE(one.left(alice));

  // Core has given up: by its count the lease has lapsed. But it is bob's, too.
  for (int i = 0; i < 3; ++i) {
    world.pass(2s);
    one.renew(bob);
  }

  two.acquire(carol, "door");
  EXPECT_NE(two.grant(carol), nullptr) << "alice's key stands in the way";
  EXPECT_EQ(one.machine.contenders(), 1U);
}

}  // namespace
}  // namespace sallyport::backends::etcd
