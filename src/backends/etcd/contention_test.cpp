#include "backends/etcd/test_contention_fixture.hpp"

namespace sallyport::backends::etcd {
namespace {

constexpr holder_id alice{1, 1};
constexpr holder_id bob{2, 2};
constexpr holder_id carol{3, 3};

class EtcdContention : public testing::Test {
 protected:
  contention_world world_;
  contention_world::client& one_ = world_.add();
  contention_world::client& two_ = world_.add();

  /// The answer to the next transaction is lost: it is executed, but nobody hears of it.
  void lose_next_answer(bool executed = true) {
    world_.lose = [this, executed](int number, action& what) {
      auto* const order = std::get_if<txn_order>(&what);
      if (order == nullptr) return false;
      world_.lose = nullptr;
      if (executed) world_.store.apply(order->what);
      world_.answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, {.why = trouble::unknown, .text = "lost"}, at, out);
      });
      return true;
    };
  }
  /// The next transaction is executed, its answer is lost, and it is sent again.
  void answer_twice() {
    world_.lose = [this](int number, action& what) {
      auto* const order = std::get_if<txn_order>(&what);
      if (order == nullptr) return false;
      world_.lose = nullptr;
      world_.store.apply(order->what);
      auto said = world_.store.apply(order->what);
      said.doubtful = true;
      world_.answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, said, at, out);
      });
      return true;
    };
  }
};

// ---- in and out ----------------------------------------------------------------------------------

TEST_F(EtcdContention, AFreeLockCostsOneTransactionOnceThereIsALease) {
  one_.acquire(alice, "door");
  ASSERT_TRUE(one_.grant(alice));
  one_.leave(alice);
  EXPECT_EQ(one_.left(alice), leave_answer::left);
  EXPECT_EQ(one_.sent.grants, 1);
  EXPECT_EQ(one_.sent.txns, 2);

  one_.acquire(bob, "door");
  one_.leave(bob);

  EXPECT_EQ(one_.sent.grants, 1) << "the lease is used again";
  EXPECT_EQ(one_.sent.txns, 4);
  EXPECT_TRUE(world_.store.keys.empty());
}

TEST_F(EtcdContention, OnlyWhoKnowsThatItIsInSaysSo) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  const auto says = [&](std::size_t which) {
    return from_json(std::next(world_.store.keys.begin(), static_cast<long>(which))->second.value)
        .value()
        .held;
  };
  EXPECT_TRUE(says(0));
  EXPECT_FALSE(says(1));

  one_.leave(alice);

  EXPECT_TRUE(says(0)) << "bob, now";
}

TEST_F(EtcdContention, AnEnteringThatWasExecutedTwiceIsOneEntering) {
  two_.acquire(carol, "other");
  answer_twice();
  two_.acquire(bob, "door");
  ASSERT_TRUE(two_.grant(bob));
  answer_twice();
  one_.acquire(alice, "door");  // its lease first
  EXPECT_TRUE(one_.waits(alice));
  EXPECT_EQ(world_.store.keys.size(), 3U);

  two_.leave(bob);

  EXPECT_EQ(one_.told.entered, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, TheTokenIsTheRevisionOfTheConfirmingAnswer) {
  one_.acquire(alice, "door");

  ASSERT_TRUE(one_.grant(alice));
  EXPECT_EQ(one_.grant(alice)->tokens.first.value(), static_cast<std::uint64_t>(world_.store.at));
  EXPECT_EQ(one_.grant(alice)->remaining, one_.length);
}

TEST_F(EtcdContention, AFailedTryWritesNothing) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "other");  // so that it has a lease
  const revision before = world_.store.at;

  two_.acquire(carol, "door", false);

  EXPECT_TRUE(two_.is_held(carol));
  EXPECT_EQ(world_.store.at, before);
  EXPECT_EQ(two_.machine.contenders(), 1U) << "nothing of it is remembered";
}

TEST_F(EtcdContention, AHandOffCostsTwoTransactionsHoweverManyWait) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  std::vector<holder_id> crowd;
  for (std::uint64_t i = 10; i < 40; ++i) {
    crowd.push_back({i, i});
    two_.acquire(crowd.back(), "door");
    EXPECT_TRUE(two_.waits(crowd.back()));
  }
  ASSERT_TRUE(two_.waits(bob));
  const int before = one_.sent.txns + two_.sent.txns;

  one_.leave(alice);
  ASSERT_EQ(two_.told.entered, std::vector<holder_id>{bob});
  two_.renew(bob);

  ASSERT_TRUE(two_.renewal(bob)) << "its claim needs no request: the store has confirmed it";
  EXPECT_GT(two_.renewal(bob)->tokens.first, one_.grant(alice)->tokens.first);
  EXPECT_EQ(one_.sent.txns + two_.sent.txns - before, 2);
}

TEST_F(EtcdContention, AWaiterThatWentIsPassedOverByTheOneBehindIt) {
  contention_world::client& three = world_.add();
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  three.acquire(carol, "door");

  two_.leave(bob);
  EXPECT_TRUE(three.told.entered.empty()) << "alice is still in";
  one_.leave(alice);

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, WhatHappensBeforeAWatchBeginsIsFoundByLooking) {
  one_.acquire(alice, "door");
  world_.lose = [this](int number, action& what) {
    if (number != 2 || !std::holds_alternative<watch_order>(what)) return false;
    world_.lose = nullptr;
    world_.store.revoke(1001);  // alice goes between the answer and the watch
    world_.carry_out(number, what);
    return true;
  };

  two_.acquire(bob, "door");

  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, WhoStandsFarBehindLooksLater) {
  for (std::uint64_t i = 10; i < 16; ++i) one_.acquire({i, i}, "door");
  world_.store.grant(99, 60s, world_.now);
  world_.lose = [this](int number, action& what) {
    if (number != 2 || !std::holds_alternative<watch_order>(what)) return false;
    world_.lose = nullptr;
    world_.store.apply({.then = {put{"elsewhere", "", 99}}});  // the store moves on
    world_.carry_out(number, what);
    return true;
  };
  two_.acquire(bob, "door");
  const int asked = two_.sent.txns;

  world_.pass(900ms);
  EXPECT_EQ(two_.sent.txns, asked);
  world_.pass(200ms);
  EXPECT_EQ(two_.sent.txns, asked + 1);
}

TEST_F(EtcdContention, WhoIsNotNextLooksALittleLater) {
  contention_world::client& three = world_.add();
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.lose = [this](int number, action& what) {
    if (number != 3 || !std::holds_alternative<watch_order>(what)) return false;
    world_.lose = nullptr;
    world_.store.revoke(2001);  // bob, who waits
    world_.carry_out(number, what);
    return true;
  };
  three.acquire(carol, "door");
  world_.pass(49ms);
  one_.leave(alice);
  EXPECT_TRUE(three.waits(carol)) << "it watches the key of one who has gone";

  world_.pass(1ms);

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, WhoIsNotNextLooksAtOnceIfEverybodyBeforeItMayHaveGone) {
  contention_world::client& three = world_.add();
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.lose = [this](int number, action& what) {
    if (number != 3 || !std::holds_alternative<watch_order>(what)) return false;
    world_.lose = nullptr;
    world_.store.revoke(1001);
    world_.store.revoke(2001);
    world_.carry_out(number, what);
    return true;
  };

  three.acquire(carol, "door");

  EXPECT_EQ(three.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, AKeyIsUsedAgainAfterAConfirmedRelease) {
  one_.acquire(alice, "door");
  const std::string key = world_.store.keys.begin()->first;
  one_.leave(alice);
  one_.acquire(carol, "door");
  EXPECT_EQ(world_.store.keys.begin()->first, key);
  EXPECT_EQ(world_.store.keys.size(), 1U);
}

TEST_F(EtcdContention, AKeyIsNotUsedAgainIfSomebodyPutATombstoneThere) {
  one_.acquire(alice, "door");
  const std::string key = world_.store.keys.begin()->first;
  world_.store.grant(99, 60s, world_.now);
  world_.store.apply({.then = {put{key, "", 99}}});
  one_.leave(alice);
  one_.acquire(carol, "door");
  EXPECT_TRUE(one_.waits(carol));
  EXPECT_EQ(world_.store.keys.size(), 2U);
  EXPECT_EQ(world_.store.keys.at(key).lease, 99);
}

TEST_F(EtcdContention, AKeyWhosePutMayStillComeIsNotUsedAgain) {
  answer_twice();
  one_.acquire(alice, "door");
  const std::string key = world_.store.keys.begin()->first;
  one_.leave(alice);
  one_.acquire(carol, "door");
  ASSERT_TRUE(one_.grant(carol));
  const std::string mark = "#";
  EXPECT_NE(world_.store.keys.begin()->first.substr(key.find(mark)), key.substr(key.find(mark)));
}

TEST_F(EtcdContention, AWaiterIsWokenByEitherOfItsWatches) {
  for (const int silent : {0, 1}) {
    one_.acquire(alice, "door");
    int seen = 0;
    world_.lose = [&](int number, action& what) {
      return number == 2 && std::holds_alternative<watch_order>(what) && seen++ == silent;
    };
    two_.acquire(bob, "door");
    EXPECT_EQ(seen, 2);
    world_.lose = nullptr;

    one_.leave(alice);

    EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
    two_.told.entered.clear();
    two_.leave(bob);
  }
}

TEST_F(EtcdContention, AHeartbeatFindsWhatNoEventTold) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.deaf = true;
  one_.leave(alice);
  ASSERT_TRUE(two_.told.entered.empty());

  two_.acquire(bob, "door");

  EXPECT_TRUE(two_.grant(bob));
}

TEST_F(EtcdContention, WhoeverWentAndCameBackUnderTheSameKeyIsBehindIt) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.deaf = true;
  const auto [key, was] = *world_.store.keys.begin();
  world_.store.apply({.when = {}, .then = {erase{key}}, .otherwise = {}});
  world_.store.apply({.when = {}, .then = {put{key, was.value, was.lease}}, .otherwise = {}});
  world_.store.reports.clear();  // nobody hears of it
  world_.deaf = false;

  two_.acquire(bob, "door");

  EXPECT_TRUE(two_.grant(bob));
}

TEST_F(EtcdContention, ALossThatIsToldBeforeTheAnswerOfAnEarlierLookStays) {
  one_.acquire(alice, "door");
  world_.pass(25ms);  // from then on its own key is watched
  world_.lose = [this](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world_.lose = nullptr;
    const auto seen = world_.store.apply(order->what);  // its key is there
    const auto [key, was] = *world_.store.keys.begin();
    const std::vector<key_event> gone{{.deleted = true, .now = was}};
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.watch_said(world_.store.watchers.begin()->first.second, gone, at, out);
      machine.txn_answered(order->errand, seen, at, out);
    });
    return true;
  };

  one_.acquire(alice, "door");  // asks again: it looks

  EXPECT_EQ(one_.told.lost, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, AnAnswerWithPartsMissingIsNone) {
  one_.acquire(alice, "door");
  world_.lose = [this](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world_.lose = nullptr;
    auto said = world_.store.apply(order->what);
    said.value->answers.clear();
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, said, at, out);
    });
    return true;
  };

  two_.acquire(bob, "door");

  EXPECT_EQ(two_.acquire_error(bob), errc::outcome_unknown);
}

TEST_F(EtcdContention, AskingAgainKeepsOnePlace) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  const auto keys = world_.store.keys;
  const revision at = world_.store.at;

  two_.acquire(bob, "door");
  one_.acquire(alice, "door");

  EXPECT_TRUE(two_.waits(bob));
  ASSERT_TRUE(one_.grant(alice));
  EXPECT_EQ(world_.store.at, at);
  EXPECT_EQ(world_.store.keys.size(), keys.size());
}

TEST_F(EtcdContention, DeeperKeysBelongToOtherNames) {
  one_.acquire(alice, "a/b");
  two_.acquire(bob, "a");
  EXPECT_TRUE(two_.grant(bob));
  two_.acquire(carol, "a", false);
  EXPECT_TRUE(two_.is_held(carol));
  two_.leave(bob);
  two_.acquire(carol, "a", false);
  EXPECT_TRUE(two_.grant(carol)) << "also without waiting";
}

TEST_F(EtcdContention, ManyDeeperKeysAreReadPageByPage) {
  for (std::uint64_t i = 100; i < 150; ++i) one_.acquire({i, i}, "a/" + std::to_string(i));

  two_.acquire(bob, "a");
  EXPECT_TRUE(two_.grant(bob));
  one_.acquire(alice, "a");
  EXPECT_TRUE(one_.waits(alice));
  two_.leave(bob);

  EXPECT_EQ(one_.told.entered, std::vector<holder_id>{alice});
}

TEST_F(EtcdContention, AFailedTryWritesNothingAlsoBehindManyDeeperKeys) {
  two_.acquire(bob, "a");
  for (std::uint64_t i = 100; i < 150; ++i) one_.acquire({i, i}, "a/" + std::to_string(i));
  const revision before = world_.store.at;

  one_.acquire(alice, "a", false);

  EXPECT_TRUE(one_.is_held(alice));
  EXPECT_EQ(world_.store.at, before);
  EXPECT_EQ(one_.machine.contenders(), 50U) << "nothing of it is remembered";

  two_.leave(bob);
  one_.acquire(alice, "a", false);
  EXPECT_TRUE(one_.grant(alice));
}

TEST_F(EtcdContention, ATryWhoseSurveyFailsIsForgotten) {
  two_.acquire(bob, "a");
  for (std::uint64_t i = 100; i < 150; ++i) one_.acquire({i, i}, "a/" + std::to_string(i));
  int txns = 0;
  world_.lose = [&](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr || ++txns < 3) return false;
    world_.lose = nullptr;
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, {.why = trouble::unavailable, .text = "away"}, at, out);
    });
    return true;
  };

  one_.acquire(alice, "a", false);

  EXPECT_EQ(one_.acquire_error(alice), errc::unavailable);
  EXPECT_EQ(one_.machine.contenders(), 50U);
}

TEST_F(EtcdContention, AContenderOfAnotherLibraryIsWaitedFor) {
  world_.store.grant(77, 60s, world_.now);
  world_.store.apply({.then = {put{"p/door/4d", "", 77}}});

  two_.acquire(bob, "door", false);
  EXPECT_TRUE(two_.is_held(bob));
  two_.acquire(bob, "door");
  EXPECT_TRUE(two_.waits(bob));
  world_.store.revoke(77);
  world_.settle();

  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
}

// ---- answers that never come ---------------------------------------------------------------------

TEST_F(EtcdContention, ALostAnswerToEnteringIsFoundByAskingAgain) {
  one_.acquire(bob, "other");
  lose_next_answer();
  one_.acquire(alice, "door");
  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);

  one_.acquire(alice, "door");

  EXPECT_TRUE(one_.grant(alice));
  EXPECT_EQ(world_.store.keys.size(), 2U);
}

TEST_F(EtcdContention, ALostAnswerToEnteringIsWithdrawnAndTheLeaseRetired) {
  one_.acquire(bob, "other");
  lose_next_answer();
  one_.acquire(alice, "door");

  one_.leave(alice);
  EXPECT_EQ(one_.left(alice), leave_answer::left);
  one_.acquire(carol, "third");
  EXPECT_EQ(one_.sent.grants, 2) << "nobody new comes to a lease with a doubtful put";
  one_.leave(bob);

  EXPECT_EQ(one_.sent.revokes, 1) << "the last one has left it";
  EXPECT_EQ(world_.store.leases.size(), 1U);
}

TEST_F(EtcdContention, APutThatIsExecutedLateFindsNoLeaseOrIsCleanedUp) {
  one_.acquire(bob, "other");
  std::optional<txn> late;
  world_.lose = [&](int number, action& what) {
    auto* const order = std::get_if<txn_order>(&what);
    if (order == nullptr) return false;
    world_.lose = nullptr;
    late = order->what;
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.txn_answered(order->errand, {.why = trouble::unknown}, at, out);
    });
    return true;
  };
  one_.acquire(alice, "door");
  one_.leave(alice);
  ASSERT_TRUE(late);

  // The lease lives on because of bob; its next round takes the late key away.
  world_.store.apply(*late);
  EXPECT_EQ(world_.store.keys.size(), 2U);
  one_.renew(bob);
  EXPECT_EQ(world_.store.keys.size(), 1U);

  // And when bob has gone, nothing can be put on it any more.
  one_.leave(bob);
  EXPECT_EQ(world_.store.apply(*late).why, trouble::no_such_lease);
  EXPECT_TRUE(world_.store.keys.empty());
}

TEST_F(EtcdContention, ALeaveThatWasNotHeardIsSaidAgain) {
  one_.acquire(alice, "door");
  lose_next_answer(false);
  one_.leave(alice);
  EXPECT_FALSE(one_.left(alice));

  one_.leave(alice);

  EXPECT_EQ(one_.left(alice), leave_answer::left);
  EXPECT_TRUE(world_.store.keys.empty());
}

TEST_F(EtcdContention, ATryThatFindsItsOwnKeyOfAnEarlierTryHasGotIn) {
  one_.acquire(bob, "other");
  answer_twice();

  one_.acquire(alice, "door", false);

  EXPECT_TRUE(one_.grant(alice));
  one_.leave(alice);
  EXPECT_EQ(world_.store.keys.size(), 1U);
}

TEST_F(EtcdContention, ALeaveThatWasExecutedTwiceIsNotTakenForALoss) {
  one_.acquire(alice, "door");
  answer_twice();

  one_.leave(alice);

  ASSERT_TRUE(one_.told.leaves.contains(alice));
  EXPECT_FALSE(one_.told.leaves.at(alice)) << "nobody knows which of the two did it";
  one_.leave(alice);
  EXPECT_EQ(one_.left(alice), leave_answer::not_there);
}

TEST_F(EtcdContention, ALeaseThatIsNotGrantedFailsWithoutATrace) {
  world_.lose = [this](int number, action& what) {
    auto* const order = std::get_if<grant_order>(&what);
    if (order == nullptr) return false;
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.lease_granted(order->lease, {.why = trouble::unavailable, .text = "down"}, at, out);
    });
    return true;
  };

  one_.acquire(alice, "door");

  EXPECT_EQ(one_.acquire_error(alice), errc::unavailable);
  EXPECT_EQ(one_.machine.contenders(), 0U);
  EXPECT_EQ(one_.machine.leases(), 0U);
}

TEST_F(EtcdContention, EveryRequestIsAnsweredInTime) {
  one_.acquire(bob, "other");
  world_.lose = [](int, action& what) { return std::holds_alternative<txn_order>(what); };
  one_.acquire(alice, "door");
  EXPECT_FALSE(one_.told.acquired.contains(alice));

  world_.pass(2s);

  EXPECT_EQ(one_.acquire_error(alice), errc::outcome_unknown);
}

// ---- leases --------------------------------------------------------------------------------------

TEST_F(EtcdContention, ManyLocksShareOneLeaseAndOneKeepAlive) {
  for (std::uint64_t i = 0; i < 50; ++i) one_.acquire({i, 7}, "lock " + std::to_string(i));
  world_.pass(2s);
  const int before = one_.sent.txns;

  const lock_name any{"any"};
  one_.step([&](contention& machine, time_point at, actions& out) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      machine.renew(
          {.name = any, .holder = {i, 7}, .lease_length = one_.length, .answer_by = at + 2s}, at,
          out);
    }
  });

  EXPECT_EQ(one_.sent.grants, 1);
  EXPECT_EQ(one_.sent.keep_alives, 1);
  EXPECT_EQ(one_.sent.txns - before, 1);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(one_.renewal({i, 7}));
    EXPECT_EQ(one_.renewal({i, 7})->remaining, one_.length);
  }
}

TEST_F(EtcdContention, AKeepAliveCountsOnlyWithAReadOfTheSameTerm) {
  one_.acquire(alice, "door");
  world_.pass(2s);
  // The member that answers keep-alives is no longer the leader.
  world_.lose = [this](int number, action& what) {
    auto* const order = std::get_if<keep_alive_order>(&what);
    if (order == nullptr) return false;
    world_.answer(number, [&](contention& machine, time_point at, actions& out) {
      machine.kept_alive(order->lease, 6, world_.store.term - 1, at, out);
    });
    return true;
  };
  one_.renew(alice);
  EXPECT_FALSE(one_.told.renewals.contains(alice));
  world_.pass(1500ms);
  EXPECT_FALSE(one_.told.renewals.contains(alice));

  world_.lose = nullptr;
  world_.pass(400ms);

  ASSERT_TRUE(one_.renewal(alice));
  EXPECT_GT(one_.renewal(alice)->remaining, 5s);
}

TEST_F(EtcdContention, AKeepAlivesCountBeginsWithItsSending) {
  one_.acquire(alice, "door");
  one_.acquire(bob, "window");
  world_.pass(2s);
  std::optional<lease_id> asked;
  world_.lose = [&](int, action& what) {
    if (auto* const order = std::get_if<keep_alive_order>(&what)) asked = order->lease;
    return std::holds_alternative<keep_alive_order>(what);
  };
  one_.renew(alice);
  ASSERT_TRUE(asked);
  world_.lose = nullptr;
  world_.pass(300ms);
  one_.renew(bob);
  world_.pass(200ms);

  world_.answer(1, [&](contention& machine, time_point at, actions& out) {
    machine.kept_alive(*asked, 6, world_.store.term, at, out);
  });

  ASSERT_TRUE(one_.renewal(alice) && one_.renewal(bob));
  EXPECT_EQ(one_.renewal(alice)->remaining, 6s);
  EXPECT_EQ(one_.renewal(bob)->remaining, 5700ms) << "its renewal came later than the sending";
}

TEST_F(EtcdContention, ALeaseThatHasEndedIsTheLossOfAllOnIt) {
  one_.acquire(alice, "door");
  one_.acquire(bob, "window");
  world_.store.revoke(1001);
  world_.pass(1s);

  EXPECT_EQ(one_.told.lost.size(), 2U) << "their keys were watched";
  one_.renew(alice);
  EXPECT_FALSE(one_.renewal(alice));
  one_.leave(alice);
  EXPECT_EQ(one_.left(alice), leave_answer::not_there);
}

TEST_F(EtcdContention, AWaiterWhoseLeaseEndedStandsInLineAgainWithANewOne) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.store.revoke(2001);
  world_.settle();

  two_.acquire(bob, "door");
  EXPECT_TRUE(two_.waits(bob));
  one_.leave(alice);

  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, AFixedLeaseIsItsOwnAndGoesWithItsHolder) {
  one_.renews = false;
  one_.acquire(alice, "door");
  one_.acquire(bob, "window");
  EXPECT_EQ(world_.store.leases.size(), 2U);

  one_.leave(alice);

  EXPECT_EQ(world_.store.leases.size(), 1U);
  world_.pass(7s);
  EXPECT_TRUE(world_.store.keys.empty()) << "nobody keeps it alive";
}

TEST_F(EtcdContention, AnIdleLeaseIsRevoked) {
  one_.acquire(alice, "door");
  one_.leave(alice);
  EXPECT_EQ(world_.store.leases.size(), 1U);

  world_.pass(3s);

  EXPECT_TRUE(world_.store.leases.empty());
  EXPECT_EQ(one_.machine.leases(), 0U);
}

TEST_F(EtcdContention, ClosingRevokesWhatNobodyNeeds) {
  one_.acquire(alice, "door");
  one_.leave(alice);

  one_.step([](contention& machine, time_point, actions& out) { machine.close(out); });

  EXPECT_TRUE(world_.store.leases.empty());
}

// ---- broken --------------------------------------------------------------------------------------

TEST_F(EtcdContention, ATombstoneInItsPlaceIsALossAndIsNotTouched) {
  one_.acquire(alice, "door");
  const std::string key = world_.store.keys.begin()->first;
  world_.pass(1s);
  world_.store.grant(77, 6s, world_.now);
  world_.store.apply({.then = {put{key, to_json({.closed = true}), 77}}});
  world_.settle();

  EXPECT_EQ(one_.told.lost, std::vector<holder_id>{alice});
  one_.leave(alice);
  EXPECT_EQ(one_.left(alice), leave_answer::not_there);
  EXPECT_TRUE(world_.store.keys.contains(key));
}

TEST_F(EtcdContention, ARenewalFindsATombstoneThatNoEventTold) {
  one_.acquire(alice, "door");
  const std::string key = world_.store.keys.begin()->first;
  world_.deaf = true;
  world_.store.grant(77, 6s, world_.now);
  world_.store.apply({.then = {put{key, to_json({.closed = true}), 77}}});

  one_.renew(alice, 0);

  EXPECT_FALSE(one_.renewal(alice));
  EXPECT_EQ(one_.told.lost, std::vector<holder_id>{alice});
}

// ---- tokens, values, kinds -----------------------------------------------------------------------

TEST_F(EtcdContention, ANewTokenIsDrawnByAWriteOnTheOwnKey) {
  one_.acquire(alice, "door");
  const auto first = one_.grant(alice)->tokens.first;

  one_.renew(alice, 16);

  ASSERT_TRUE(one_.renewal(alice));
  EXPECT_GT(one_.renewal(alice)->tokens.first, first);
  EXPECT_EQ(one_.renewal(alice)->tokens.first, one_.renewal(alice)->tokens.last);
}

TEST_F(EtcdContention, WhoHasGoneDrawsNothing) {
  one_.acquire(alice, "door");
  world_.deaf = true;
  world_.store.revoke(1001);

  one_.renew(alice, 16);

  EXPECT_FALSE(one_.renewal(alice));
}

TEST_F(EtcdContention, ReadersBehindAWriterEnterTogetherWhenItIsDowngraded) {
  one_.acquire(alice, "page", true, lock_kind::shared_mutex, lock_mode::exclusive);
  two_.acquire(bob, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  two_.acquire(carol, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  EXPECT_TRUE(two_.waits(bob));

  one_.downgrade(alice);

  ASSERT_TRUE(one_.told.downgrades.contains(alice));
  EXPECT_EQ(two_.told.entered.size(), 2U);
}

TEST_F(EtcdContention, AWriterWaitsForReadersAndReadersBehindItForTheWriter) {
  constexpr holder_id dora{4, 4};
  one_.acquire(alice, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  two_.acquire(bob, "page", true, lock_kind::shared_mutex, lock_mode::exclusive);
  one_.acquire(carol, "page", true, lock_kind::shared_mutex, lock_mode::shared);
  one_.acquire(dora, "page", false, lock_kind::shared_mutex, lock_mode::shared);
  EXPECT_TRUE(two_.waits(bob));
  EXPECT_TRUE(one_.waits(carol));
  EXPECT_TRUE(one_.is_held(dora));

  one_.leave(alice);
  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
  two_.leave(bob);

  EXPECT_EQ(one_.told.entered, std::vector<holder_id>{carol});
}

TEST_F(EtcdContention, PermitsGoToWaitersInOrder) {
  std::vector<holder_id> all;
  for (std::uint64_t i = 1; i <= 6; ++i) {
    all.push_back({i, 9});
    one_.acquire(all.back(), "pool", true, lock_kind::semaphore, lock_mode::exclusive, 2);
  }
  EXPECT_TRUE(one_.grant(all[1]));
  EXPECT_TRUE(one_.waits(all[2]));

  one_.leave(all[1]);
  one_.leave(all[0]);
  one_.leave(all[2]);

  EXPECT_EQ(one_.told.entered, (std::vector<holder_id>{all[2], all[3], all[4]}));
}

TEST_F(EtcdContention, ANameInUseAsAnotherKindIsRefusedAndNothingIsLeft) {
  one_.acquire(alice, "pool", true, lock_kind::semaphore, lock_mode::exclusive, 2);

  two_.acquire(bob, "pool");
  two_.acquire(carol, "pool", false);

  EXPECT_EQ(two_.acquire_error(bob), errc::wrong_kind);
  EXPECT_EQ(two_.acquire_error(carol), errc::wrong_kind);
  EXPECT_EQ(world_.store.keys.size(), 1U);
  EXPECT_EQ(two_.machine.contenders(), 0U);
}

TEST_F(EtcdContention, AnElectionsKeyHoldsWhatTheLeaderSays) {
  one_.value = "http://one";
  one_.acquire(alice, "leader", true, lock_kind::election);
  const lock_name any{"any"};

  one_.step([&](contention& machine, time_point at, actions& out) {
    machine.set_value({.name = any, .holder = alice, .answer_by = at + 2s}, "ready", 5, at, out);
  });

  ASSERT_TRUE(one_.told.values.contains(5));
  EXPECT_TRUE(one_.told.values.at(5).value());
  EXPECT_EQ(world_.store.keys.rbegin()->second.value, "ready");
  one_.leave(alice);
  EXPECT_TRUE(world_.store.keys.empty()) << "its card, too";
}

TEST_F(EtcdContention, AWatchThatTheStoreEndedIsSetAgainAtTheNextHeartbeat) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  std::vector<watch_number> ended;
  for (const auto& [whose, what] : world_.store.watchers) ended.push_back(whose.second);
  ASSERT_EQ(ended.size(), 2U) << "it has a twin";
  world_.store.watchers.clear();

  two_.step([&](contention& machine, time_point at, actions& out) {
    for (const watch_number each : ended) machine.watch_ended(each, at, out);
  });
  EXPECT_EQ(two_.sent.watches, 2) << "not at once: the store may end it again";
  two_.acquire(bob, "door");
  EXPECT_EQ(two_.sent.watches, 4);
  one_.leave(alice);

  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
}

// ---- watches -------------------------------------------------------------------------------------

TEST_F(EtcdContention, AfterABreakOfTheStreamEverythingIsWatchedAgain) {
  one_.acquire(alice, "door");
  two_.acquire(bob, "door");
  world_.store.watchers.clear();
  one_.leave(alice);

  two_.step(
      [](contention& machine, time_point at, actions& out) { machine.watches_broken(at, out); });

  EXPECT_EQ(two_.told.entered, std::vector<holder_id>{bob});
}

TEST_F(EtcdContention, ChangesOfAWatchedNameAreTold) {
  const lock_name door{"door"};
  two_.step([&](contention& machine, time_point, actions& out) { machine.watch(door, true, out); });
  one_.acquire(alice, "door");
  EXPECT_EQ(two_.told.changed, std::vector<std::string>{"door"});
  one_.acquire(bob, "door/deeper");
  EXPECT_EQ(two_.told.changed.size(), 1U);

  two_.step(
      [&](contention& machine, time_point, actions& out) { machine.watch(door, false, out); });
  one_.leave(alice);

  EXPECT_EQ(two_.told.changed.size(), 1U);
}

TEST_F(EtcdContention, LeavesALeaseThatOthersKeepAliveAlsoWhenNobodyAsksAgain) {
  one_.acquire(alice, "door");
  one_.acquire(bob, "gate");
  lose_next_answer(false);
  one_.leave(alice);
  ASSERT_FALSE(one_.left(alice));

  // Core has given up: by its count the lease has lapsed. But it is bob's, too.
  for (int i = 0; i < 3; ++i) {
    world_.pass(2s);
    one_.renew(bob);
  }

  two_.acquire(carol, "door");
  EXPECT_NE(two_.grant(carol), nullptr) << "alice's key stands in the way";
  EXPECT_EQ(one_.machine.contenders(), 1U);
}

}  // namespace
}  // namespace sallyport::backends::etcd
