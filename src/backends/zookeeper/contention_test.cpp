#include "backends/zookeeper/test_contention_world.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

namespace sallyport::backends::zookeeper::testing {
namespace {

using backend_api::leave_answer;

class Contention : public ::testing::Test {
 protected:
  void run() { settle(store, {&one, &two, &three}); }
  [[nodiscard]] std::string node(std::size_t which = 0, const std::string& folder = "/locks/door") {
    return folder + "/" + store.children(folder).at(which);
  }

  model_store store;
  model_client one{store, 1};
  model_client two{store, 2};
  model_client three{store, 3};
};

TEST_F(Contention, AFreeLockIsGivenAfterOneRoundTrip) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  const std::size_t before = one.flights;

  one.acquire(2);
  const bool together = one.under_way().size() == 2;
  run();

  EXPECT_TRUE(together) << "creation and look";
  EXPECT_EQ(one.flights, before + 1);
  ASSERT_TRUE(one.grant());
  EXPECT_EQ(one.grant()->tokens.first.value(),
            static_cast<std::uint64_t>(store.stat("/locks/door").children_changed));
}

TEST_F(Contention, TheTrustedTimeIsTwoThirdsOfTheSessionLessATick) {
  one.acquire(1);
  run();

  ASSERT_TRUE(one.grant());
  EXPECT_EQ(one.grant()->remaining, 2s - 100ms);
}

TEST_F(Contention, ANodeLooksLikeCurators) {
  one.acquire(1);
  run();

  EXPECT_EQ(store.children("/locks/door").at(0),
            "_c_00000000-0000-0001-0000-000100000000-lock-0000000000");
}

TEST_F(Contention, TheSecondWaitsAndEntersWhenTheFirstLeaves) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  EXPECT_TRUE(two.told_to_wait());

  one.leave(1);
  run();

  ASSERT_EQ(two.entered.size(), 1U);
  two.renew(1);
  ASSERT_TRUE(two.renewal());
  EXPECT_GT(two.renewal()->tokens.first, one.grant()->tokens.first);
}

TEST_F(Contention, AServerThatForgetsARequestIsReminded) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  one.acquire(2);
  ASSERT_EQ(one.under_way().size(), 2U);

  one.pass(49ms);
  EXPECT_EQ(one.under_way().size(), 2U) << "it may just be slow";
  one.pass(1ms);
  ASSERT_EQ(one.under_way().size(), 3U);
  EXPECT_EQ(one.under_way().back().what.what, verb::sync);
  one.pass(99ms);
  EXPECT_EQ(one.under_way().size(), 3U) << "ever more seldom";
  one.pass(1ms);
  EXPECT_EQ(one.under_way().size(), 4U);
  run();

  EXPECT_TRUE(one.grant());
  const std::size_t sent = one.sent;
  for (int i = 0; i < 10; ++i) one.pass(20ms);
  EXPECT_EQ(one.sent, sent) << "all is answered";
}

TEST_F(Contention, TroubleOfOneSessionCastsNoDoubtOnTheGrantsOfAnother) {
  model_client asking{store, 4, {.root = "/locks"}, true};
  const auto one_line = asking.name_wanted(1);
  asking.lease_length = 2s;
  const auto other_line = asking.name_wanted(2);
  ASSERT_TRUE(one_line && other_line);
  ASSERT_NE(one_line->line, other_line->line);
  asking.machine().line_named(*one_line, "ours");
  asking.machine().line_named(*other_line, "ours");
  EXPECT_FALSE(asking.name_wanted(2));

  asking.machine().line_down(one_line->line);

  EXPECT_FALSE(asking.name_wanted(2));
  asking.acquire(2, lock_kind::mutex, lock_mode::exclusive, true, 1, "window");
  settle(store, {&asking});
  EXPECT_TRUE(asking.grant());
  asking.lease_length = 3s;
  ASSERT_TRUE(asking.name_wanted(1));
  EXPECT_EQ(asking.name_wanted(1)->line, one_line->line);
  asking.reconnect();
  asking.acquire(1);
  settle(store, {&asking});
  EXPECT_EQ(asking.error(), errc::outcome_unknown) << "it may be another store's";
}

TEST_F(Contention, ANameCountsFromWhenItWasAskedFor) {
  model_client asking{store, 4, {.root = "/locks"}, true};
  const auto asked = asking.name_wanted(1);
  ASSERT_TRUE(asked);

  asking.machine().line_down(asked->line);
  asking.machine().line_named(*asked, "ours");

  EXPECT_TRUE(asking.name_wanted(1)) << "the answer may be that of the connection before";
}

TEST_F(Contention, AnotherNameOnOneSessionHasTheOthersAskAgain) {
  model_client asking{store, 4, {.root = "/locks"}, true};
  const auto one_line = asking.name_wanted(1);
  asking.lease_length = 2s;
  const auto other_line = asking.name_wanted(2);
  ASSERT_TRUE(one_line && other_line);
  asking.machine().line_named(*other_line, "ours");
  ASSERT_FALSE(asking.name_wanted(2));

  asking.machine().line_named(*one_line, "another");

  EXPECT_TRUE(asking.name_wanted(2));
}

TEST_F(Contention, AReleaseWakesOneWaiterOnly) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  three.acquire(1);
  run();
  const std::size_t before = three.sent;

  one.leave(1);
  run();

  EXPECT_EQ(two.entered.size(), 1U);
  EXPECT_EQ(three.sent, before);
}

TEST_F(Contention, TokensOfLocalTurnsAreBelowTheNextHolders) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  auto last = one.grant()->tokens.first;
  for (int turn = 0; turn < 3; ++turn) {
    one.renew(1, 1);
    run();
    ASSERT_TRUE(one.renewal());
    EXPECT_GT(one.renewal()->tokens.first, last);
    last = one.renewal()->tokens.first;
  }

  one.leave(1);
  run();
  two.renew(1);

  ASSERT_TRUE(two.renewal());
  EXPECT_GT(two.renewal()->tokens.first, last);
}

TEST_F(Contention, ATryWritesNothingWhereSomebodyIs) {
  one.acquire(1);
  run();
  const zxid before = store.now();

  two.acquire(1, lock_kind::mutex, lock_mode::exclusive, false);
  run();

  EXPECT_TRUE(two.told_held());
  EXPECT_EQ(store.now(), before);
}

TEST_F(Contention, ReadersEnterTogetherAndWatchTheWriterAlone) {
  one.acquire(1, lock_kind::shared_mutex);
  run();
  two.acquire(1, lock_kind::shared_mutex, lock_mode::shared);
  run();
  two.acquire(2, lock_kind::shared_mutex, lock_mode::shared);
  run();
  three.acquire(1, lock_kind::shared_mutex);
  run();

  one.leave(1);
  run();

  EXPECT_EQ(two.entered.size(), 2U);
  EXPECT_TRUE(three.entered.empty());
  two.leave(1);
  two.leave(2);
  run();
  EXPECT_EQ(three.entered.size(), 1U);
}

TEST_F(Contention, ADowngradedWriterKeepsItsPlaceAndTokenAndLetsReadersIn) {
  one.acquire(1, lock_kind::shared_mutex);
  run();
  two.acquire(1, lock_kind::shared_mutex, lock_mode::shared);
  run();

  one.downgrade(1);
  run();

  ASSERT_EQ(one.downgraded.size(), 1U);
  const auto* const kept = std::get_if<backend_api::renewed>(&*one.downgraded.back().answer);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->tokens, one.grant()->tokens);
  EXPECT_EQ(two.entered.size(), 1U);
  EXPECT_NE(node().find("__READ__0000000000"), std::string::npos);
  three.acquire(1, lock_kind::shared_mutex);
  run();
  EXPECT_TRUE(three.told_to_wait());
}

TEST_F(Contention, ANameInUseAsAnotherKindIsRefusedAndNothingStays) {
  one.acquire(1);
  run();
  for (const lock_kind kind :
       {lock_kind::shared_mutex, lock_kind::semaphore, lock_kind::election}) {
    two.acquire(static_cast<std::uint64_t>(kind) + 10, kind);
    run();
    EXPECT_EQ(two.error(), errc::wrong_kind) << to_string(kind);
  }
  EXPECT_EQ(store.contenders(), 1U);
}

TEST_F(Contention, PermitsAreGivenInOrderAndCountedByTheFirstOnesNumber) {
  one.acquire(1, lock_kind::semaphore, lock_mode::exclusive, true, 2);
  run();
  two.acquire(1, lock_kind::semaphore, lock_mode::exclusive, true, 5);
  run();
  ASSERT_TRUE(one.grant() && two.grant());
  EXPECT_EQ(two.grant()->permits, 2U);
  EXPECT_NE(one.grant()->tokens, two.grant()->tokens);
  three.acquire(1, lock_kind::semaphore, lock_mode::exclusive, true, 2);
  run();
  three.acquire(2, lock_kind::semaphore, lock_mode::exclusive, true, 2);
  run();
  EXPECT_TRUE(three.entered.empty());

  one.leave(1);
  run();
  ASSERT_EQ(three.entered.size(), 1U);
  EXPECT_EQ(three.entered[0].holder, three.id(1));
  two.leave(1);
  run();

  EXPECT_EQ(three.entered.size(), 2U);
  three.leave(1);
  three.leave(2);
  run();
  EXPECT_EQ(store.contenders(), 0U);
}

// ---- lost answers, connections and sessions ------------------------------------------------------

TEST_F(Contention, ANodeWhoseCreationWasNotAnsweredIsFoundAgain) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  one.acquire(2);
  one.swallow_answers = true;
  one.cut();
  EXPECT_EQ(store.contenders(), 1U);

  one.reconnect();
  run();

  ASSERT_TRUE(one.grant());
  EXPECT_EQ(store.contenders(), 1U) << "and not created twice";
}

TEST_F(Contention, ACreationThatNeverArrivedIsDoneAgain) {
  one.acquire(1);
  one.cut();

  one.reconnect();
  run();

  ASSERT_TRUE(one.grant());
  EXPECT_EQ(store.contenders(), 1U);
}

TEST_F(Contention, WhatWasAbandonedIsRemovedWhenTheStoreIsBack) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  one.acquire(2);
  one.swallow_answers = true;
  one.cut();
  one.pass(3s);
  EXPECT_EQ(one.error(), errc::outcome_unknown);
  one.leave(2);
  one.pass(3s);
  ASSERT_EQ(one.left.size(), 2U);
  EXPECT_FALSE(one.left.back().answer) << "nobody knows";

  one.reconnect();
  run();

  EXPECT_EQ(store.contenders(), 0U);
}

TEST_F(Contention, WithoutAConnectionNothingHasHappened) {
  one.cut();
  one.acquire(1);
  one.pass(3s);

  EXPECT_EQ(one.error(), errc::unavailable);
  one.reconnect();
  run();
  EXPECT_EQ(store.contenders(), 0U);
}

TEST_F(Contention, ALostReleaseIsSaidAgainAndHasHappenedOnce) {
  one.acquire(1);
  run();
  one.leave(1);
  one.swallow_answers = true;
  one.cut();
  EXPECT_TRUE(one.left.empty());

  one.reconnect();
  run();

  ASSERT_EQ(one.left.size(), 1U);
  EXPECT_EQ(*one.left[0].answer, leave_answer::left);
}

TEST_F(Contention, WithItsSessionAHolderIsLost) {
  one.acquire(1);
  run();

  one.expire();

  ASSERT_EQ(one.lost.size(), 1U);
  one.renew(1);
  EXPECT_TRUE(std::holds_alternative<backend_api::gone>(*one.renewed.back().answer));
}

TEST_F(Contention, AWaiterWhoseSessionEndedQueuesAnewWithItsNextQuestion) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();

  two.expire();
  run();
  two.acquire(1);
  run();

  EXPECT_TRUE(two.told_to_wait());
  EXPECT_EQ(store.children("/locks/door").size(), 2U);
  one.leave(1);
  run();
  EXPECT_EQ(two.entered.size(), 1U);
}

TEST_F(Contention, AWaiterDoesNotTakeADyingSessionsNodeForItsOwn) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  one.acquire(2);
  const std::string dying = "/locks/door/" + layout({}).whose(one.id(2)) + "-lock-0000000099";
  one.cut();
  store.put(dying, 12345);  // of another session, under the same name

  one.reconnect();
  run();

  EXPECT_TRUE(one.grant() || one.told_to_wait());
  EXPECT_EQ(store.contenders(), 2U) << "it has a node of its own";
}

TEST_F(Contention, AWaiterEntersThoughTheNewsFellIntoALostConnection) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  two.cut();
  one.leave(1);
  settle(store, {&one});
  static_cast<void>(store.take_events());

  two.reconnect();
  run();

  EXPECT_EQ(two.entered.size(), 1U);
}

// ---- time ----------------------------------------------------------------------------------------

TEST_F(Contention, ARenewalIsProvenByASync) {
  one.acquire(1);
  run();
  one.pass(1s);
  one.renew(1);
  ASSERT_FALSE(one.under_way().empty());
  EXPECT_EQ(one.under_way().front().what.what, verb::sync);
  EXPECT_FALSE(one.renewal());
  one.now += 200ms;

  run();

  ASSERT_TRUE(one.renewal());
  EXPECT_EQ(one.renewal()->remaining, 2s - 100ms) << "counted from the sending";
}

TEST_F(Contention, AWaiterThatHeardNothingForLongProvesItsSessionBeforeItEnters) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  two.now += 1500ms;

  one.leave(1);
  while (one.deliver_one()) {
  }
  for (const auto& each : store.take_events()) two.hear(each);
  ASSERT_TRUE(two.deliver_one()) << "the look";
  EXPECT_TRUE(two.entered.empty());
  run();

  EXPECT_EQ(two.entered.size(), 1U);
}

TEST_F(Contention, AProofThatCameTooLateIsAskedForAgain) {
  one.acquire(1);
  run();
  two.acquire(1);
  run();
  two.now += 1500ms;
  one.leave(1);
  while (one.deliver_one()) {
  }
  for (const auto& each : store.take_events()) two.hear(each);
  ASSERT_TRUE(two.deliver_one()) << "the look";
  two.now += 1s;

  ASSERT_TRUE(two.deliver_one()) << "a sync of long ago";
  EXPECT_TRUE(two.entered.empty());
  run();

  EXPECT_EQ(two.entered.size(), 1U);
}

TEST_F(Contention, WhoeverLeavesWhileItEntersDoesNotStandInTheWay) {
  one.acquire(1);
  run();
  two.acquire(1);
  two.leave(1);
  run();

  ASSERT_EQ(two.left.size(), 1U);
  EXPECT_EQ(*two.left[0].answer, leave_answer::left);
  ASSERT_EQ(two.acquired.size(), 1U);
  EXPECT_EQ(store.contenders(), 1U);
}

TEST_F(Contention, AServerThatDoesNotAnswerASyncIsDoubted) {
  one.acquire(1);
  run();
  one.pass(1s);
  one.renew(1);

  one.pass(700ms);

  EXPECT_EQ(one.doubts, 1U);
}

TEST_F(Contention, ABrokenHolderHearsOfItAtItsRenewalAndThenAtOnce) {
  one.acquire(1);
  run();
  one.pass(1s);
  one.renew(1);
  run();
  ASSERT_TRUE(one.renewal());

  store.drop(node());
  run();

  EXPECT_EQ(one.lost.size(), 1U);
}

// ---- others --------------------------------------------------------------------------------------

TEST_F(Contention, ContendersOfOtherLibrariesAreRespected) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  for (const char* const name :
       {"_c_0123-lock-0000000000", "deadbeef__lock__0000000000", "lock-0000000000"}) {
    store.put(std::string("/locks/door/") + name, 777);
    one.acquire(2);
    run();
    EXPECT_TRUE(one.told_to_wait()) << name;
    store.drop(std::string("/locks/door/") + name);
    run();
    EXPECT_EQ(std::exchange(one.entered, {}).size(), 1U) << name;
    one.leave(2);
    run();
  }
}

TEST_F(Contention, AnEphemeralNodeOfUnknownFormIsRefusedAndAFolderIsNot) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  store.put("/locks/door/folder", 0);
  one.acquire(2);
  run();
  EXPECT_TRUE(one.grant());
  one.leave(2);
  run();

  store.put("/locks/door/stranger", 777);
  one.acquire(3);
  run();

  EXPECT_EQ(one.error(), errc::store_refused);
  EXPECT_EQ(store.contenders(), 1U) << "the stranger's";
}

TEST_F(Contention, WithPathsALockThatIsAlsoAFolderIsRefused) {
  model_client paths{store, 9, {.root = "/locks", .names_are_paths = true}};
  paths.acquire(1, lock_kind::mutex, lock_mode::exclusive, true, 1, "a/b");
  settle(store, {&paths});
  EXPECT_TRUE(paths.grant());

  paths.acquire(2, lock_kind::mutex, lock_mode::exclusive, true, 1, "a");
  settle(store, {&paths});

  EXPECT_EQ(paths.error(), errc::store_refused);
}

TEST_F(Contention, WhoeverMayNotLookIsRefusedAndItsNodeRemoved) {
  one.acquire(1);
  run();
  two.refused = verb::list;
  two.acquire(1);
  run();

  EXPECT_EQ(two.error(), errc::store_refused);
  EXPECT_EQ(store.contenders(), 1U) << "the other's";
}

TEST_F(Contention, ASequenceThatIsAboutToWrapIsRefused) {
  one.acquire(1);
  run();
  one.leave(1);
  run();
  for (const int next : {2'000'000'001, -2'147'483'647}) {
    store.set_sequence("/locks/door", next);
    two.acquire(static_cast<std::uint64_t>(next > 0 ? 1 : 2));
    run();

    EXPECT_EQ(two.error(), errc::store_refused);
    EXPECT_EQ(store.contenders(), 0U);
  }
}

TEST_F(Contention, TokensThatAreTooLargeAreRefused) {
  store.set_epoch(zxid{1} << 21U);
  one.acquire(1);
  run();

  EXPECT_EQ(one.error(), errc::store_refused);
  EXPECT_EQ(store.contenders(), 0U);
}

TEST_F(Contention, WhoeverWaitedSaysItsTokenUnlessItLeavesSoon) {
  one.acquire(1);
  two.acquire(1);
  three.acquire(1);
  run();
  const zxid before = store.now();
  one.leave(1);
  run();
  ASSERT_EQ(two.entered.size(), 1U);
  two.leave(1);
  run();
  EXPECT_EQ(store.now(), before + 2) << "two nodes have gone, and nothing else was written";

  ASSERT_EQ(three.entered.size(), 1U);
  three.pass(10ms);
  run();
  const auto card = from_json(store.execute(99, {.what = verb::read, .path = node()}).data);
  three.renew(1);
  run();

  ASSERT_TRUE(card);
  ASSERT_TRUE(three.renewal());
  EXPECT_EQ(card->token, three.renewal()->tokens.first.value());
}

TEST_F(Contention, CuratorsRevocationIsToldOnceForEveryTimeThatItIsWritten) {
  one.acquire(1);
  run();
  const auto renew = [&] {
    one.pass(500ms);
    one.renew(1);
    run();
  };
  for (std::size_t times = 1; times <= 2; ++times) {
    store.execute(99, {.what = verb::write, .path = node(), .data = "__REVOKE__"});
    renew();
    renew();

    ASSERT_EQ(one.wanted.size(), times);
    EXPECT_EQ(one.wanted.back().holder, one.id(1));
    EXPECT_NE(store.execute(99, {.what = verb::read, .path = node()}).data, "__REVOKE__")
        << "it says again whose it is";
  }
  EXPECT_TRUE(one.lost.empty());
  EXPECT_TRUE(one.renewal());
}

TEST_F(Contention, AWatchedNameTellsOfEveryChange) {
  const lock_name door{"door"};
  actions ignored;
  one.acquire(1);
  run();
  two.acquire(9, lock_kind::mutex, lock_mode::exclusive, false);  // a connection
  run();
  two.machine().watch(door, true, two.now, ignored);
  for (action& each : ignored) two.under_way().push_back(std::get<send_order>(each));
  run();

  one.leave(1);
  run();

  EXPECT_FALSE(two.changed.empty());
}

TEST_F(Contention, AFixedLeaseThatIsOverIsAskedForAnew) {
  one.renews = false;
  one.acquire(1);
  run();
  ASSERT_TRUE(one.grant());
  const fencing_token first = one.grant()->tokens.first;

  // Its session goes on, and so does its node: core has not heard of the grant in time, and asks again.
  one.pass(4s);
  one.acquire(1);
  run();

  ASSERT_TRUE(one.grant());
  EXPECT_GT(one.grant()->remaining, 1s);
  EXPECT_GT(one.grant()->tokens.first, first);
  EXPECT_EQ(store.contenders(), 1U);
}

TEST_F(Contention, ADowngradeWhoseAnswerWasLostLeavesNothingBehind) {
  one.acquire(1, lock_kind::shared_mutex);
  run();
  one.downgrade(1);
  one.swallow_answers = true;
  one.cut();
  one.pass(3s);  // nobody waits for its answer any more

  one.reconnect();
  one.leave(1);
  run();

  EXPECT_EQ(store.contenders(), 0U);
}

TEST_F(Contention, ADowngradeWhoseAnswerWasLostIsNoLoss) {
  one.acquire(1, lock_kind::shared_mutex);
  run();
  one.renew(1);
  run();
  one.downgrade(1);
  one.swallow_answers = true;
  one.cut();
  one.pass(3s);

  // The event of the old node's end comes as well.
  one.reconnect();
  run();
  one.renew(1);
  run();

  EXPECT_TRUE(one.lost.empty());
  EXPECT_TRUE(one.renewal());
  two.acquire(1, lock_kind::shared_mutex, lock_mode::shared);
  run();
  EXPECT_TRUE(two.grant());
}

}  // namespace
}  // namespace sallyport::backends::zookeeper::testing
