#include "backends/local/lock_rules.hpp"

#include "backends/local/lock_rules_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::break_mode;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr wish reader{.kind = lock_kind::shared_mutex, .mode = lock_mode::shared};
constexpr wish writer{.kind = lock_kind::shared_mutex, .mode = lock_mode::exclusive};
constexpr wish permit_of_two{.kind = lock_kind::semaphore, .permits = 2};
constexpr wish no_wait{.may_wait = false};
constexpr wish candidate{.kind = lock_kind::election, .value = "me"};

token_block tokens(std::uint64_t first, std::uint64_t last) {
  return {fencing_token(first), fencing_token(last)};
}
token_block token(std::uint64_t only) { return tokens(only, only); }

class LockRules : public ::testing::Test, protected hand_driven_rules {
 protected:
  notice grant_notice(std::uint64_t who, token_block block, duration window = 3s,
                      std::uint32_t permits = 1) {
    return {
        client_of(who), notice_kind::granted, id(who), granted{block, window, true, permits}, {}};
  }
  notice look_notice(std::uint64_t who) {
    return {client_of(who), notice_kind::look, id(who), std::nullopt, {}};
  }
  notice lost_notice(std::uint64_t who) {
    return {client_of(who), notice_kind::lost, id(who), std::nullopt, {}};
  }
  notice changed_notice(std::uint64_t who, const std::string& name = "a") {
    return {client_of(who), notice_kind::changed, {}, std::nullopt, name};
  }

  granted must_get(std::uint64_t who, const lock_name& name, const wish& w = {}) {
    const auto answer = acquire(who, name, w);
    EXPECT_TRUE(answer.has_value() && std::holds_alternative<granted>(*answer));
    return std::get<granted>(*answer);
  }
  waiting must_wait(std::uint64_t who, const lock_name& name, const wish& w = {}) {
    const auto answer = acquire(who, name, w);
    EXPECT_TRUE(answer.has_value() && std::holds_alternative<waiting>(*answer));
    return std::get<waiting>(*answer);
  }
  /// The last thing that this contender was told stands in its way.
  std::vector<client_number> in_the_way(std::uint64_t who) { return of(who).in_the_way; }
  void nothing_left() { EXPECT_EQ(count('L') + count('H') + count('Q') + count('W'), 0U); }
};

// Acquire and release.

TEST_F(LockRules, GrantsAFreeNameForTheWholeLease) {
  EXPECT_EQ(must_get(1, "a"), (granted{token(1), 30s, false, 1}));
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(LockRules, AnswersHeldAndWritesNothingWhenTheAskerDoesNotWait) {
  must_get(1, "a");
  of(2);
  const map_records before = records;

  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));

  EXPECT_EQ(records, before);
  EXPECT_EQ(of(2).number, 0U);
}

TEST_F(LockRules, TellsTheHolderThatAsksAgainItsStoredTokensAndTheRest) {
  must_get(1, "a");
  pass(10s);

  EXPECT_EQ(must_get(1, "a"), (granted{token(1), 20s, false, 1}));
}

TEST_F(LockRules, WritesNothingWhenAHolderAsksAgain) {
  must_get(1, "a");
  const map_records before = records;

  must_get(1, "a");

  EXPECT_EQ(records, before);
}

TEST_F(LockRules, KeepsALeaseUntilTheVeryEndOfItsLength) {
  must_get(1, "a");
  pass(30s - 1ns);
  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));

  pass(1ns);

  EXPECT_EQ(must_get(2, "a", no_wait).tokens, token(2));
}

TEST_F(LockRules, LeavesNothingBehindAfterARelease) {
  must_get(1, "a");

  EXPECT_EQ(*release(1, "a"), leave_answer::left);

  nothing_left();
}

TEST_F(LockRules, ReleasesForTheHolderOnly) {
  must_get(1, "a");
  of(2).number = of(1).number;  // the right place under another id
  EXPECT_EQ(*release(2, "a"), leave_answer::not_there);
  EXPECT_EQ(*release(3, "a"), leave_answer::not_there);

  EXPECT_EQ(*acquire(4, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockRules, RefusesAnotherKindWhileANameIsInUse) {
  must_get(1, "a");

  const auto answer = acquire(2, "a", reader);

  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, errc::wrong_kind);
}

TEST_F(LockRules, AcceptsAnotherKindWhenEverybodyOfTheOldOneIsDead) {
  must_get(1, "a");
  must_wait(2, "a");
  kill(1);
  kill(2);

  must_get(3, "a", reader);
}

TEST_F(LockRules, NeverTakesAStaleNumberForAPlace) {
  must_get(1, "a");
  const contender_number old = of(1).number;
  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  must_get(2, "a");
  of(1).number = old;

  EXPECT_EQ(*renew(1, "a"), renew_answer(gone{}));
  EXPECT_EQ(*release(1, "a"), leave_answer::not_there);
  EXPECT_EQ(*withdraw(1, "a"), leave_answer::not_there);
}

// The queue.

TEST_F(LockRules, HandsOverToWaitersInTheOrderOfTheirComing) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");

  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
  ASSERT_EQ(*release(2, "a"), leave_answer::left);
  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockRules, AsksTheKernelNothingDuringAHandOff) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  kernel.asked = 0;

  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_EQ(kernel.asked, 0U);
}

TEST_F(LockRules, KeepsThePlaceOfAWaiterThatAsksAgain) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  const contender_number place = of(2).number;

  must_wait(2, "a");

  EXPECT_EQ(of(2).number, place);
  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
}

TEST_F(LockRules, KeepsTheClaimWindowThatTheLatestRequestNamed) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(2, "a", {.claim_window = 7s, .token_count = 4});

  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, tokens(2, 5), 7s)));
}

TEST_F(LockRules, DoesNotLetANewcomerOvertakeAWaiter) {
  must_get(1, "a", {.lease_length = 5s});
  must_wait(2, "a");
  pass(5s);

  EXPECT_EQ(*acquire(3, "a", no_wait), acquire_answer(held{}));

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
}

TEST_F(LockRules, PassesOnAGrantThatWasNotClaimedInItsWindow) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  pass(3s);

  EXPECT_EQ(must_get(3, "a"), (granted{token(3), 3s, true, 1}));
  EXPECT_EQ(*renew(2, "a"), renew_answer(gone{}));
}

TEST_F(LockRules, ClaimsAProvisionalGrantByRenewal) {
  must_get(1, "a");
  must_wait(2, "a");
  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_EQ(*renew(2, "a"), renew_answer(renewed{token(2), 30s}));

  pass(29s);
  EXPECT_EQ(must_get(2, "a"), (granted{token(2), 1s, false, 1}));
}

TEST_F(LockRules, SkipsWaitersThatStoppedAskingAndTellsTheNextToLook) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 1s});
  must_wait(3, "a");
  must_wait(4, "a");
  pass(2s);

  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(2)), look_notice(4)));
}

TEST_F(LockRules, SendsAWaiterThatAsksTooLateToTheBackOfTheQueue) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 1s});
  must_wait(3, "a");
  pass(2s);

  must_wait(2, "a");

  EXPECT_THAT(notices, ElementsAre(look_notice(3)));
  EXPECT_THAT(in_the_way(2), ElementsAre(client_of(3)));
}

TEST_F(LockRules, TellsTheHeadOfTheQueueToAskWhenTheHolderLapses) {
  must_get(1, "a");
  pass(28s);

  EXPECT_EQ(must_wait(2, "a").ask_again_after, 2s);
  EXPECT_EQ(must_wait(3, "a").ask_again_after, 4s);
}

TEST_F(LockRules, TellsAWaiterTheNewestTokenSoThatItKnowsAnOldNotice) {
  must_get(1, "a", {.token_count = 5});

  EXPECT_EQ(must_wait(2, "a").newest_token, fencing_token(5));
}

TEST_F(LockRules, WithdrawsFromTheQueueAndTellsTheNextToLook) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");

  EXPECT_EQ(*withdraw(2, "a"), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(look_notice(3)));
  EXPECT_EQ(*acquire(9, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockRules, WithdrawsAGrantThatCameMeanwhileWithHandOver) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_EQ(*withdraw(2, "a"), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockRules, DrawsNoTokenForAWaiterThatWithdrawsWhenItsTurnComes) {
  must_get(1, "a", {.lease_length = 5s});
  must_wait(2, "a");
  pass(5s);

  EXPECT_EQ(*withdraw(2, "a"), leave_answer::left);

  EXPECT_EQ(meta().last_token, 1U);
  nothing_left();
}

TEST_F(LockRules, DoesNotLeaveTheQueueByRelease) {
  must_get(1, "a");
  must_wait(2, "a");
  const contender_number place = of(2).number;

  EXPECT_EQ(*release(2, "a"), leave_answer::not_there);

  EXPECT_EQ(count('Q'), 1U);
  of(2).number = place;
  must_wait(2, "a");
  EXPECT_EQ(of(2).number, place);
}

TEST_F(LockRules, AnswersARenewalOfAWaiterWithWaitingAndWhoIsInTheWay) {
  must_get(1, "a");
  must_wait(2, "a");
  pass(1s);

  const auto answer = renew(2, "a");

  EXPECT_TRUE(std::holds_alternative<waiting>(*answer));
  EXPECT_THAT(in_the_way(2), ElementsAre(client_of(1)));
}

// Renewal.

TEST_F(LockRules, RenewsFromNowAndKeepsTheTokens) {
  must_get(1, "a", {.token_count = 3});
  pass(20s);

  EXPECT_EQ(*renew(1, "a"), renew_answer(renewed{tokens(1, 3), 30s}));

  pass(29s);
  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockRules, DrawsNewTokensWhenARenewalAsksForThem) {
  must_get(1, "a");

  EXPECT_EQ(*renew(1, "a", {}, 2), renew_answer(renewed{tokens(2, 3), 30s}));

  EXPECT_EQ(must_get(1, "a").tokens, tokens(2, 3));
}

TEST_F(LockRules, NeverRecreatesALapsedGrantByRenewal) {
  must_get(1, "a");
  pass(30s);

  EXPECT_EQ(*renew(1, "a"), renew_answer(gone{}));

  nothing_left();
}

TEST_F(LockRules, NeverRenewsForAnotherContender) {
  must_get(1, "a");
  of(2).number = of(1).number;

  EXPECT_EQ(*renew(2, "a"), renew_answer(gone{}));
}

// Readers and writers.

TEST_F(LockRules, LetsReadersShareAndKeepsAWriterOutUntilTheLastLeaves) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  must_wait(3, "a", writer);
  EXPECT_THAT(in_the_way(3), UnorderedElementsAre(client_of(1), client_of(2)));

  ASSERT_EQ(*release(1, "a", reader), leave_answer::left);
  EXPECT_THAT(notices, IsEmpty());
  ASSERT_EQ(*release(2, "a", reader), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockRules, DoesNotLetAReaderOvertakeAWaitingWriter) {
  must_get(1, "a", reader);
  must_wait(2, "a", writer);

  must_wait(3, "a", reader);

  EXPECT_THAT(in_the_way(3), ElementsAre(client_of(2)));
}

TEST_F(LockRules, LetsAdjacentReadersInTogetherAndTellsTheNextWriterToLook) {
  must_get(1, "a", writer);
  must_wait(2, "a", reader);
  must_wait(3, "a", reader);
  must_wait(4, "a", writer);

  ASSERT_EQ(*release(1, "a", writer), leave_answer::left);

  EXPECT_THAT(notices,
              ElementsAre(grant_notice(2, token(2)), grant_notice(3, token(3)), look_notice(4)));
  must_wait(4, "a", writer);
  EXPECT_THAT(in_the_way(4), UnorderedElementsAre(client_of(2), client_of(3)));
}

TEST_F(LockRules, LetsReadersInWhenTheWriterBeforeThemWithdraws) {
  must_get(1, "a", reader);
  must_wait(2, "a", writer);
  must_wait(3, "a", reader);

  ASSERT_EQ(*withdraw(2, "a", writer), leave_answer::left);

  EXPECT_EQ(notices.front(), grant_notice(3, token(2)));
  EXPECT_EQ(must_get(3, "a", reader).provisional, true);
}

TEST_F(LockRules, RemovesEachReaderWhenItsOwnLeaseEnds) {
  must_get(1, "a",
           {.kind = lock_kind::shared_mutex, .mode = lock_mode::shared, .lease_length = 5s});
  must_get(2, "a", reader);
  pass(5s);

  EXPECT_EQ(who("a")->holders.size(), 1U);
  EXPECT_EQ(*renew(1, "a", reader), renew_answer(gone{}));
}

TEST_F(LockRules, DowngradesAWriterWithItsTokenAndLetsReadersIn) {
  must_get(1, "a", writer);
  must_wait(2, "a", reader);
  must_wait(3, "a", writer);

  EXPECT_EQ(*downgrade(1, "a", writer), renew_answer(renewed{token(1), 30s}));

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2)), look_notice(3)));
  EXPECT_EQ(*downgrade(1, "a", writer), renew_answer(renewed{token(1), 30s}));
}

TEST_F(LockRules, AnswersGoneToADowngradeByOneWhoHoldsNothing) {
  must_get(1, "a", writer);
  must_wait(2, "a", writer);

  EXPECT_EQ(*downgrade(2, "a", writer), renew_answer(gone{}));
  EXPECT_EQ(*downgrade(3, "b", writer), renew_answer(gone{}));
}

TEST_F(LockRules, RefusesToDowngradeAMutex) {
  must_get(1, "a");

  EXPECT_EQ(downgrade(1, "a", {}).error().code, errc::not_supported);
}

// Semaphores.

TEST_F(LockRules, GivesOutAsManyPermitsAsTheFirstContenderSaid) {
  EXPECT_EQ(must_get(1, "a", permit_of_two).permits, 2U);
  EXPECT_EQ(must_get(2, "a", {.kind = lock_kind::semaphore, .permits = 9}).permits, 2U);

  EXPECT_EQ(must_wait(3, "a", permit_of_two).permits, 2U);
  EXPECT_THAT(in_the_way(3), UnorderedElementsAre(client_of(1), client_of(2)));
}

TEST_F(LockRules, HandsAReleasedPermitToTheFirstWaiterAndTellsTheSecondToLook) {
  must_get(1, "a", permit_of_two);
  must_get(2, "a", permit_of_two);
  must_wait(3, "a", permit_of_two);
  must_wait(4, "a", permit_of_two);

  ASSERT_EQ(*release(2, "a", permit_of_two), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3), 3s, 2), look_notice(4)));
}

TEST_F(LockRules, ForgetsTheNumberOfPermitsWithTheLastContender) {
  must_get(1, "a", permit_of_two);
  ASSERT_EQ(*release(1, "a", permit_of_two), leave_answer::left);

  EXPECT_EQ(must_get(2, "a", {.kind = lock_kind::semaphore, .permits = 5}).permits, 5U);
}

TEST_F(LockRules, ForgetsTheNumberOfPermitsWhenAllContendersAreDead) {
  must_get(1, "a", permit_of_two);
  kill(1);

  EXPECT_EQ(must_get(2, "a", {.kind = lock_kind::semaphore, .permits = 5}).permits, 5U);
}

// Elections.

TEST_F(LockRules, KeepsTheValueOfAnElectionAlsoOfALeaderThatWaited) {
  must_get(1, "a", {.kind = lock_kind::election, .value = "first"});
  must_wait(2, "a", {.kind = lock_kind::election, .value = "second"});
  EXPECT_EQ(who("a")->holders[0].value, "first");

  ASSERT_EQ(*release(1, "a", candidate), leave_answer::left);

  EXPECT_EQ(who("a")->holders[0].value, "second");
}

TEST_F(LockRules, KeepsTheValueOfAWaiterThatAsksAgain) {
  must_get(1, "a", candidate);
  must_wait(2, "a", {.kind = lock_kind::election, .value = "second"});
  must_wait(2, "a", {.kind = lock_kind::election, .value = "second"});
  must_wait(3, "a", candidate);
  ASSERT_EQ(*release(1, "a", candidate), leave_answer::left);

  EXPECT_EQ(who("a")->holders[0].value, "second");
}

TEST_F(LockRules, SetsTheValueForTheLeaderOnly) {
  must_get(1, "a", candidate);

  EXPECT_TRUE(*set_value(1, "a", "other"));
  EXPECT_FALSE(*set_value(2, "a", "wrong"));

  EXPECT_EQ(who("a")->holders[0].value, "other");
}

// Breaking.

TEST_F(LockRules, BreaksSafelyBehindATombstone) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  pass(10s);

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  EXPECT_THAT(notices, ElementsAre(lost_notice(1)));
  EXPECT_EQ(*renew(1, "a"), renew_answer(gone{}));
  EXPECT_EQ(who("a")->closed_for, 20s);
  must_wait(2, "a", {.ticket_length = 60s});
  pass(20s);
  EXPECT_EQ(must_get(2, "a").tokens, token(2));
}

TEST_F(LockRules, KeepsATombstoneWhoseOwnerDied) {
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));
  kill(1);
  bury(client_of(1));

  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));
  pass(30s);
  must_get(2, "a", no_wait);
}

TEST_F(LockRules, BreaksAtOnceWithHandOver) {
  must_get(1, "a");
  must_wait(2, "a");

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::at_once));

  EXPECT_THAT(notices, ElementsAre(lost_notice(1), grant_notice(2, token(2))));
}

TEST_F(LockRules, BreaksATombstoneAtOnce) {
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));
  EXPECT_EQ(break_lock("a", fencing_token(1), break_mode::safe).error().code, errc::no_such_lock);

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::at_once));

  must_get(2, "a", no_wait);
}

TEST_F(LockRules, RefusesToBreakWhatNobodyHolds) {
  EXPECT_EQ(break_lock("a", fencing_token(1), break_mode::safe).error().code, errc::no_such_lock);
  must_get(1, "a");
  EXPECT_EQ(break_lock("a", fencing_token(9), break_mode::safe).error().code, errc::token_mismatch);
  kill(1);
  EXPECT_EQ(break_lock("a", fencing_token(1), break_mode::safe).error().code, errc::no_such_lock);
  nothing_left();
}

TEST_F(LockRules, KeepsNewReadersOutWhileABrokenReadersTombstoneStands) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  must_wait(3, "a", reader);

  EXPECT_EQ(*release(2, "a", reader), leave_answer::left);
  pass(30s);
  must_get(3, "a", reader);
}

TEST_F(LockRules, CountsATombstoneAsATakenPermit) {
  must_get(1, "a", permit_of_two);
  must_get(2, "a", permit_of_two);
  ASSERT_TRUE(break_lock("a", fencing_token(2), break_mode::safe));

  must_wait(3, "a", permit_of_two);

  EXPECT_THAT(in_the_way(3), ElementsAre(client_of(1)));
}

// Tokens and numbers.

TEST_F(LockRules, DrawsTokensFromOneCounterForAllNames) {
  EXPECT_EQ(must_get(1, "a", {.token_count = 3}).tokens, tokens(1, 3));
  EXPECT_EQ(must_get(2, "b").tokens, token(4));
}

TEST_F(LockRules, NeverReusesATokenOrANumberAfterANameWasForgotten) {
  must_get(1, "a");
  const contender_number first = of(1).number;
  ASSERT_EQ(*release(1, "a"), leave_answer::left);

  EXPECT_EQ(must_get(1, "a").tokens, token(2));

  EXPECT_GT(of(1).number, first);
}

TEST_F(LockRules, ReservesTokensBeforeItUsesThem) {
  reserve.block = 10;

  must_get(1, "a", {.token_count = 8});
  EXPECT_EQ(reserve.durable, 18U);
  must_get(2, "b", {.token_count = 11});

  EXPECT_GE(reserve.durable, 19U);
}

TEST_F(LockRules, ChangesNothingWhenTokensCannotBeReserved) {
  reserve.failing = true;
  of(1);
  const map_records before = records;

  const auto answer = acquire(1, "a");

  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, errc::store_refused);
  EXPECT_EQ(records, before);
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(LockRules, ReleasesNothingWhenTheNextHoldersTokensCannotBeReserved) {
  must_get(1, "a", {.token_count = 101});  // all that one reservation gives, and one more
  reserve.block = 0;
  must_get(9, "b", {.token_count = 100});
  must_wait(2, "a");
  reserve.failing = true;
  const map_records before = records;

  EXPECT_FALSE(release(1, "a").has_value());

  EXPECT_EQ(records, before);
  EXPECT_EQ(must_get(1, "a").tokens, tokens(1, 101));
}

TEST(LockRulesFloor, BeginsAboveTheFloorItWasGiven) {
  hand_driven_rules fresh(700);

  const auto answer = fresh.acquire(1, "a");

  EXPECT_EQ(std::get<granted>(*answer).tokens, token(701));
}

// Who watches whom, and the dead.

TEST_F(LockRules, LetsTheHeadWatchTheHolderAndEverybodyElseTheOneBefore) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  must_wait(4, "a");

  EXPECT_THAT(in_the_way(2), ElementsAre(client_of(1)));
  EXPECT_THAT(in_the_way(3), ElementsAre(client_of(2)));
  EXPECT_THAT(in_the_way(4), ElementsAre(client_of(3)));
}

TEST_F(LockRules, WatchesNothingOfItsOwnClient) {
  must_get(1, "a");
  enrol(2, 1);
  must_wait(2, "a");
  must_wait(3, "a");

  EXPECT_THAT(in_the_way(2), IsEmpty());
  EXPECT_THAT(in_the_way(3), ElementsAre(client_of(1)));
}

TEST_F(LockRules, GivesADeadHoldersLockToWhoeverAsks) {
  must_get(1, "a");
  kill(1);

  EXPECT_EQ(must_get(2, "a", no_wait), (granted{token(2), 30s, false, 1}));
}

TEST_F(LockRules, GivesADeadHoldersLockToItsFirstWaiterNotToTheOneWhoAsked) {
  must_get(1, "a");
  must_wait(2, "a");
  kill(1);

  EXPECT_EQ(*acquire(3, "a", no_wait), acquire_answer(held{}));

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
}

TEST_F(LockRules, GivesTheLockToTheWaiterThatHeardOfTheHoldersDeath) {
  must_get(1, "a");
  must_wait(2, "a");
  kill(1);

  EXPECT_EQ(must_get(2, "a"), (granted{token(2), 3s, true, 1}));
}

TEST_F(LockRules, ClosesTheGapThatADeadWaiterLeaves) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  must_wait(4, "a");
  kill(2);
  kill(3);

  must_wait(4, "a");

  EXPECT_EQ(count('Q'), 1U);
  EXPECT_THAT(in_the_way(4), ElementsAre(client_of(1)));
}

TEST_F(LockRules, SkipsDeadWaitersWhenTheirTurnComesAndSomebodyLooks) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  kill(1);
  kill(2);

  EXPECT_EQ(must_get(3, "a"), (granted{token(2), 3s, true, 1}));
}

TEST_F(LockRules, PassesOnAGrantThatWasHandedToADeadWaiter) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  kill(2);
  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  ASSERT_THAT(notices, ElementsAre(grant_notice(2, token(2))));

  EXPECT_EQ(must_get(3, "a").tokens, token(3));
}

TEST_F(LockRules, LetsATryInWhenAllWereKilledAtOnce) {
  must_get(1, "a");
  for (std::uint64_t who = 2; who <= 9; ++who) must_wait(who, "a");
  must_get(10, "b", reader);
  must_get(11, "b", reader);
  must_wait(12, "b", writer);
  must_get(13, "c", permit_of_two);
  must_get(14, "c", permit_of_two);
  must_wait(15, "c", permit_of_two);
  for (std::uint64_t who = 1; who <= 15; ++who) kill(who);

  must_get(16, "a", no_wait);
  must_get(16, "b", {.kind = lock_kind::shared_mutex, .may_wait = false});
  must_get(16, "c", {.kind = lock_kind::semaphore, .may_wait = false, .permits = 2});
}

TEST_F(LockRules, LetsAReaderPastADeadWriterInTheQueue) {
  must_get(1, "a", reader);
  must_wait(2, "a", writer);
  kill(2);

  must_get(3, "a", {.kind = lock_kind::shared_mutex, .mode = lock_mode::shared, .may_wait = false});
}

TEST_F(LockRules, NeverTakesAHolderForDeadThatNobodyCanTellAbout) {
  must_get(1, "a");

  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockRules, TakesAClosedClientForDead) {
  must_get(1, "a");
  must_wait(2, "a");

  EXPECT_TRUE(bury(client_of(1)));

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
  EXPECT_FALSE(bury(client_of(1)));
}

TEST_F(LockRules, FindsTheDeadClients) {
  for (std::uint64_t who = 1; who <= 6; ++who) of(who);
  kill(2);
  kill(5);

  for (std::uint64_t random = 0; random < 20; ++random) {
    EXPECT_THAT(dead_clients(random, 6), ElementsAre(client_of(2), client_of(5)));
  }
  EXPECT_THAT(dead_clients(0, 1), IsEmpty());
}

TEST_F(LockRules, SweepsWhatTheDeadLeftAndServesTheQueues) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  must_wait(4, "a");
  must_get(1, "b", reader);
  kill(1);
  kill(3);

  EXPECT_EQ(sweep(), std::nullopt);

  EXPECT_THAT(notices, UnorderedElementsAre(look_notice(4), grant_notice(2, token(3))));
  EXPECT_EQ(count('L'), 1U);
}

TEST_F(LockRules, RemindsInASweepThoseWhomADeadHolderHadNoTimeToTell) {
  must_get(1, "a", writer);
  must_wait(2, "a", reader);
  must_wait(3, "a", reader);
  must_wait(4, "a", writer);
  ASSERT_EQ(*release(1, "a", writer), leave_answer::left);
  kill(1);  // committed, and nobody was told; only contender 2 watches it
  pass(1ms);

  bury(client_of(1));

  EXPECT_THAT(notices, UnorderedElementsAre(look_notice(2), look_notice(3), look_notice(4)));
}

TEST_F(LockRules, RemindsNobodyWhoHasClaimed) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  ASSERT_TRUE(renew(2, "a"));
  pass(1ms);

  sweep();

  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(LockRules, LetsInSoManyAtATime) {
  most_waiters = 2;
  must_get(1, "a", writer);
  for (std::uint64_t who = 2; who <= 6; ++who) must_wait(who, "a", reader);

  ASSERT_EQ(*release(1, "a", writer), leave_answer::left);
  EXPECT_THAT(notices, UnorderedElementsAre(grant_notice(2, token(2)), grant_notice(3, token(3)),
                                            look_notice(4)))
      << "should it die now, somebody else goes on";
  EXPECT_THAT(unserved, ElementsAre("a"));

  serve_on("a");
  EXPECT_THAT(notices, UnorderedElementsAre(grant_notice(4, token(4)), grant_notice(5, token(5)),
                                            look_notice(6)));
  EXPECT_THAT(unserved, ElementsAre("a"));

  serve_on("a");
  EXPECT_THAT(notices, UnorderedElementsAre(grant_notice(6, token(6))));
  EXPECT_THAT(unserved, IsEmpty());
}

TEST_F(LockRules, GoesOnWithoutWhoDied) {
  most_waiters = 2;
  must_get(1, "a");
  for (std::uint64_t who = 2; who <= 6; ++who) must_wait(who, "a");
  for (std::uint64_t who = 2; who <= 5; ++who) kill(who);

  ASSERT_EQ(*release(1, "a"), leave_answer::left);
  ASSERT_THAT(notices, ElementsAre(grant_notice(2, token(2)))) << "nobody looked yet";
  pass(1h);
  must_wait(7, "a");
  for (int more = 0; more < 3 && !unserved.empty(); ++more) serve_on("a");

  EXPECT_THAT(notices, ElementsAre(grant_notice(7, token(3))));
}

TEST_F(LockRules, CallsNothingHeldBeforeWhichOnlyLapsedWaitersStand) {
  most_waiters = 2;
  must_get(1, "a");
  for (std::uint64_t who = 2; who <= 6; ++who) must_wait(who, "a");
  pass(1h);

  ASSERT_TRUE(acquire(7, "a", {.may_wait = false}));
  EXPECT_TRUE(ask_again);
  EXPECT_THAT(unserved, ElementsAre("a"));
  ASSERT_FALSE(acquire(8, "a", writer)) << "another kind";
  EXPECT_TRUE(ask_again);

  serve_on("a");
  must_get(7, "a", {.may_wait = false});
  EXPECT_FALSE(ask_again);
}

TEST_F(LockRules, RemovesSoManyInFrontOfAWaiterAtATime) {
  most_waiters = 2;
  must_get(1, "a");
  for (std::uint64_t who = 2; who <= 6; ++who) must_wait(who, "a");
  for (std::uint64_t who = 2; who <= 5; ++who) kill(who);

  must_wait(6, "a");
  EXPECT_EQ(count('Q'), 3U);
  must_wait(6, "a");
  EXPECT_EQ(count('Q'), 1U);
}

TEST_F(LockRules, SweepsSoManyWaitersAtATime) {
  most_waiters = 2;
  must_get(1, "a");
  for (std::uint64_t who = 2; who <= 6; ++who) must_wait(who, "a");
  for (std::uint64_t who = 2; who <= 6; ++who) kill(who);

  EXPECT_EQ(sweep(), "");
  EXPECT_EQ(sweep(""), "");
  EXPECT_EQ(sweep(""), std::nullopt);
  EXPECT_EQ(who("a")->waiters.size(), 0U);
}

TEST_F(LockRules, SweepsInPages) {
  for (const char* name : {"a", "b", "c", "d"}) must_get(1, name);
  kill(1);

  EXPECT_EQ(sweep("", 2), "b");
  EXPECT_EQ(count('L'), 2U);
  EXPECT_EQ(sweep("b", 2), "d");
  EXPECT_EQ(sweep("d", 2), std::nullopt);

  nothing_left();
}

TEST_F(LockRules, SweepsAllDeadHoldersOfACrowdedSemaphore) {
  const wish crowded{.kind = lock_kind::semaphore, .permits = 200};
  of(1);
  for (std::uint64_t who = 2; who <= 150; ++who) {
    enrol(who, 1);
    must_get(who, "a", crowded);
  }
  must_get(200, "a", crowded);
  kill(1);

  bury(client_of(1));

  EXPECT_EQ(count('H'), 1U);
}

// Looking, and watching names.

TEST_F(LockRules, ShowsWhoHoldsAndWhoWaits) {
  must_get(1, "a", {.local_waiters = 2});
  must_wait(2, "a", {.local_waiters = 1});
  pass(4s);

  const auto info = who("a");

  ASSERT_TRUE(info);
  EXPECT_EQ(info->holders[0].pid, 1);
  EXPECT_EQ(info->holders[0].label, "job");
  EXPECT_EQ(info->holders[0].host, "here");
  EXPECT_EQ(info->holders[0].held_for, 4s);
  EXPECT_EQ(info->holders[0].remaining, 26s);
  EXPECT_EQ(info->holders[0].local_waiters, 2U);
  EXPECT_EQ(info->waiters[0].pid, 2);
  EXPECT_EQ(info->waiters[0].waited, 4s);
  EXPECT_EQ(info->waiters[0].local_waiters, 1U);
}

TEST_F(LockRules, DoesNotShowTheDead) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  kill(2);
  EXPECT_EQ(who("a")->waiters.size(), 1U);
  kill(1);
  EXPECT_EQ(who("a")->holders.size(), 0U);
  kill(3);

  EXPECT_FALSE(who("a"));
  EXPECT_THAT(list("", "", 10), IsEmpty());
}

TEST_F(LockRules, ListsNamesInByteOrderInPages) {
  for (const char* name : {"b", "a/b", "a", "a/c", "\xc3\xa4"}) must_get(1, name);

  EXPECT_THAT(list("", "", 10), ElementsAre("a", "a/b", "a/c", "b", "\xc3\xa4"));
  EXPECT_THAT(list("", "a/b", 2), ElementsAre("a/c", "b"));
  EXPECT_THAT(list("a/", "", 10), ElementsAre("a/b", "a/c"));
  EXPECT_THAT(list("a", "a", 10), ElementsAre("a/b", "a/c"));
  EXPECT_THAT(list("a/", "b", 10), IsEmpty());
}

TEST_F(LockRules, TellsWatchersOnceWhenHoldersOrValueChange) {
  watch(7, "a", true);
  must_get(1, "a", candidate);
  EXPECT_THAT(notices, ElementsAre(changed_notice(7)));
  must_wait(2, "a", candidate);
  EXPECT_THAT(notices, IsEmpty());
  ASSERT_TRUE(set_value(1, "a", "other"));
  EXPECT_THAT(notices, ElementsAre(changed_notice(7)));
  ASSERT_EQ(*release(1, "a", candidate), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2)), changed_notice(7)));
}

TEST_F(LockRules, TellsWatchersOfOtherNamesNothing) {
  watch(7, "a", true);
  watch(7, "a/b", true);
  watch(7, "a/b", false);

  must_get(1, "a/b");

  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(count('W'), 1U);
}

TEST_F(LockRules, TakesTheWatchesAlongWithTheirClient) {
  watch(7, "a", true);
  watch(8, "a", true);
  watch(7, "b", true);

  bury(client_of(7));

  EXPECT_EQ(count('W'), 1U);
  EXPECT_EQ(meta().watches, 1U);
}

// Damage.

TEST_F(LockRules, FailsAndChangesNothingWhereARecordIsTooShort) {
  must_get(1, "a");
  must_wait(2, "a");
  must_get(3, "b", reader);
  must_wait(4, "b", writer);
  must_get(5, "c", permit_of_two);
  const map_records good = records;

  for (const auto& [key, value] : good) {
    if (key.starts_with('C')) continue;  // a client whose record cannot be read counts as dead
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, value.size() / 2}) {
      records = good;
      records[key].resize(size);
      const map_records spoiled = records;
      const std::string name = key.size() > 1 ? key.substr(1, 1) : "a";
      const wish w{.kind = name == "a"   ? lock_kind::mutex
                           : name == "b" ? lock_kind::shared_mutex
                                         : lock_kind::semaphore};

      const auto answer = transact([&](lock_rules& rules) { return rules.sweep({}, 100); });
      const auto asked = transact([&](lock_rules& rules) {
        return rules.acquire({name, w.kind, w.mode, id(9), 1s, 1s, 1s, true, 1, 1, 0, {}, now}, 1,
                             0);
      });

      EXPECT_TRUE(!answer || !asked) << key;
      if (!answer) {
        EXPECT_EQ(answer.error().code, errc::store_refused);
      }
      if (!asked) {
        EXPECT_EQ(asked.error().code, errc::store_refused);
      }
      if (!answer && !asked) {
        EXPECT_EQ(records, spoiled);
      }
    }
  }
}

TEST_F(LockRules, FailsWhereCountsContradictTheRecords) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  const std::string key(record_key::lock("a"));
  lock_record lock = *read_record<lock_record>(records[key]);
  lock.holders = 1;
  records[key] = std::string(bytes_of(lock));
  pass(60s);

  const auto answer = transact([&](lock_rules& rules) { return rules.sweep({}, 100); });

  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, errc::store_refused);

  lock.holders = 3;
  records[key] = std::string(bytes_of(lock));
  EXPECT_FALSE(transact([&](lock_rules& rules) { return rules.sweep({}, 100); }));
}

}  // namespace
}  // namespace sallyport::backends::local
