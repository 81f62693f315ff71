#include "backends/memory/lock_table.hpp"

#include "backends/memory/lock_table_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::memory {
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
using backend_api::waiting;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr wish reader{.kind = lock_kind::shared_mutex, .mode = lock_mode::shared};
constexpr wish writer{.kind = lock_kind::shared_mutex, .mode = lock_mode::exclusive};
constexpr wish permit_of_two{.kind = lock_kind::semaphore, .permits = 2};
constexpr wish no_wait{.may_wait = false};

token_block tokens(std::uint64_t first, std::uint64_t last) {
  return {fencing_token(first), fencing_token(last)};
}
token_block token(std::uint64_t only) { return tokens(only, only); }

class LockTable : public ::testing::Test, protected hand_driven_table {
 protected:
  static notice grant_notice(std::uint64_t who, token_block block, duration window = 3s,
                             std::uint32_t permits = 1) {
    return {who, notice_kind::granted, id(who), granted{block, window, true, permits}, "a"};
  }
  static notice lost_notice(std::uint64_t who) {
    return {who, notice_kind::lost, id(who), std::nullopt, "a"};
  }
  static notice changed_notice(std::uint64_t client, const lock_name& name = "a") {
    return {client, notice_kind::changed, {}, std::nullopt, name};
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
};

// Acquire.

TEST_F(LockTable, GrantsAFreeNameForTheWholeLease) {
  EXPECT_EQ(must_get(1, "a"), (granted{token(1), 30s, false, 1}));
  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(LockTable, AnswersHeldAndWritesNothingWhenTheAskerDoesNotWait) {
  must_get(1, "a");

  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));

  EXPECT_THAT(who("a")->waiters, IsEmpty());
}

TEST_F(LockTable, TellsTheHolderThatAsksAgainItsStoredTokensAndTheRest) {
  must_get(1, "a");
  pass(10s);

  EXPECT_EQ(must_get(1, "a"), (granted{token(1), 20s, false, 1}));
}

TEST_F(LockTable, GrantsALapsedNameToTheNextWhoAsks) {
  must_get(1, "a");
  pass(30s);

  EXPECT_EQ(must_get(2, "a", no_wait).tokens, token(2));
}

TEST_F(LockTable, KeepsALeaseUntilTheVeryEndOfItsLength) {
  must_get(1, "a");
  pass(30s - 1ns);

  EXPECT_EQ(*acquire(2, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockTable, KeepsNamesApart) {
  must_get(1, "a");
  must_get(2, "a/b");
  must_get(3, "A");

  EXPECT_EQ(table.entry_count(), 3U);
}

TEST_F(LockTable, RefusesAnotherKindWhileANameIsInUse) {
  must_get(1, "a");

  const auto answer = acquire(2, "a", permit_of_two);

  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, errc::wrong_kind);
}

TEST_F(LockTable, RefusesAnotherKindWhileATombstoneStands) {
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  EXPECT_EQ(acquire(2, "a", permit_of_two).error().code, errc::wrong_kind);
}

TEST_F(LockTable, AcceptsAnotherKindWhenTheNameIsFreeAgain) {
  must_get(1, "a");
  pass(30s);

  must_get(2, "a", permit_of_two);
}

TEST_F(LockTable, LeavesLessTimeToALeaseOfAClockSetForwardAndMoreToOneSetBack) {
  must_get(1, "a");

  pass(-5s);
  EXPECT_EQ(must_get(1, "a").remaining, 35s);
  pass(25s);
  EXPECT_EQ(must_get(1, "a").remaining, 10s);
}

// The queue.

TEST_F(LockTable, HandsOverToWaitersInTheOrderOfTheirComing) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");

  EXPECT_EQ(release(1, "a"), leave_answer::left);
  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
  EXPECT_EQ(release(2, "a"), leave_answer::left);
  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockTable, KeepsThePlaceOfAWaiterThatAsksAgain) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  must_wait(2, "a");

  release(1, "a");

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
}

TEST_F(LockTable, DoesNotLetANewcomerOvertakeAWaiter) {
  must_get(1, "a");
  must_wait(2, "a");
  release(1, "a");

  EXPECT_EQ(*acquire(3, "a", no_wait), acquire_answer(held{}));
}

TEST_F(LockTable, TellsAWaiterThatAsksAfterItsHandOverThatTheGrantIsProvisional) {
  must_get(1, "a");
  must_wait(2, "a");
  release(1, "a");
  pass(1s);

  EXPECT_EQ(must_get(2, "a"), (granted{token(2), 2s, true, 1}));
}

TEST_F(LockTable, HandsOverWhenAHolderLapsesAndTheWaiterAsks) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  pass(30s);

  EXPECT_EQ(must_get(2, "a"), (granted{token(2), 3s, true, 1}));
}

TEST_F(LockTable, PassesOnAGrantThatWasNotClaimedInItsWindow) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  release(1, "a");
  pass(3s);

  EXPECT_EQ(must_get(3, "a"), (granted{token(3), 3s, true, 1}));
  EXPECT_EQ(renew(2, "a"), renew_answer(gone{}));
}

TEST_F(LockTable, SkipsWaitersThatStoppedAsking) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  must_wait(4, "a", {.ticket_length = 13s});
  pass(12s);

  release(1, "a");

  EXPECT_THAT(notices, ElementsAre(grant_notice(4, token(2))));
}

TEST_F(LockTable, SendsAWaiterThatAsksTooLateToTheBackOfTheQueue) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  must_wait(3, "a");
  must_wait(4, "a", {.ticket_length = 60s});
  pass(12s);
  must_wait(3, "a");

  withdraw(2, "a");
  release(1, "a");

  EXPECT_THAT(notices, ElementsAre(grant_notice(4, token(2))));
}

TEST_F(LockTable, ForgetsANameWhoseWaitersAreAllDead) {
  must_get(1, "a");
  must_wait(2, "a");
  pass(30s);

  EXPECT_EQ(who("a"), std::nullopt);
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, TellsTheHeadOfTheQueueToAskWhenTheHolderLapses) {
  must_get(1, "a");
  pass(28s);

  EXPECT_EQ(must_wait(2, "a").ask_again_after, 2s);
}

TEST_F(LockTable, TellsOtherWaitersToAskOftenEnoughToStayAlive) {
  must_get(1, "a");
  pass(28s);
  must_wait(2, "a");

  EXPECT_EQ(must_wait(3, "a").ask_again_after, 4s);
}

TEST_F(LockTable, NeverTellsAWaiterToAskLaterThanItsTicketAllows) {
  must_get(1, "a");

  EXPECT_EQ(must_wait(2, "a").ask_again_after, 4s);
}

TEST_F(LockTable, NeverTellsAWaiterToAskInLessThanAMillisecond) {
  must_get(1, "a");
  pass(30s - 1us);

  EXPECT_EQ(must_wait(2, "a").ask_again_after, 1ms);
  EXPECT_EQ(must_wait(3, "a", {.ticket_length = 1ms}).ask_again_after, 1ms);
}

TEST_F(LockTable, TellsAWaiterTheNewestTokenSoThatItKnowsAnOldNotice) {
  must_get(1, "a", {.token_count = 4});

  EXPECT_EQ(must_wait(2, "a").newest_token, fencing_token(4));
  release(1, "a");
  EXPECT_GT(notices.at(0).grant->tokens.first, fencing_token(4));
}

TEST_F(LockTable, TellsAWriterToAskWhenTheLastReaderLapses) {
  must_get(1, "a", reader);
  pass(27s);
  must_get(2, "a",
           {.kind = lock_kind::shared_mutex, .mode = lock_mode::shared, .lease_length = 1s});

  EXPECT_EQ(must_wait(3, "a", writer).ask_again_after, 3s);
}

// Tokens.

TEST_F(LockTable, DrawsTokensFromOneCounterForAllNames) {
  EXPECT_EQ(must_get(1, "a").tokens, token(1));
  EXPECT_EQ(must_get(2, "b", reader).tokens, token(2));
  EXPECT_EQ(must_get(3, "c", permit_of_two).tokens, token(3));
  EXPECT_EQ(table.last_token(), fencing_token(3));
}

TEST_F(LockTable, ReservesABlockOfTokensForEachGrant) {
  EXPECT_EQ(must_get(1, "a", {.token_count = 16}).tokens, tokens(1, 16));
  must_wait(2, "a", {.token_count = 4});

  release(1, "a");

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, tokens(17, 20))));
}

TEST_F(LockTable, NeverReusesATokenAfterANameWasForgotten) {
  must_get(1, "a");
  release(1, "a");
  ASSERT_EQ(table.entry_count(), 0U);

  EXPECT_EQ(must_get(2, "a").tokens, token(2));
}

TEST(LockTableFloor, StartsAboveTheFloorItWasGiven) {
  hand_driven_table driven(fencing_token(1000));

  const auto answer = driven.acquire(1, "a");

  EXPECT_EQ(std::get<granted>(*answer).tokens, token(1001));
}

// Renew.

TEST_F(LockTable, RenewsFromNowAndKeepsTheTokens) {
  must_get(1, "a");
  pass(10s);

  EXPECT_EQ(renew(1, "a"), renew_answer(renewed{token(1), 30s}));

  EXPECT_EQ(table.next_expiry("a"), now + 30s);
}

TEST_F(LockTable, DrawsNewTokensWhenARenewalAsksForThem) {
  must_get(1, "a", {.token_count = 2});

  EXPECT_EQ(renew(1, "a", {}, 3), renew_answer(renewed{tokens(3, 5), 30s}));
  EXPECT_EQ(must_get(1, "a").tokens, tokens(3, 5));
}

TEST_F(LockTable, NeverRecreatesALapsedGrantByRenewal) {
  must_get(1, "a");
  pass(30s);

  EXPECT_EQ(renew(1, "a"), renew_answer(gone{}));
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, NeverRenewsForAnotherContender) {
  must_get(1, "a");
  pass(10s);

  EXPECT_EQ(renew(2, "a"), renew_answer(gone{}));
  EXPECT_EQ(table.next_expiry("a"), now + 20s);
}

TEST_F(LockTable, ClaimsAProvisionalGrantByRenewal) {
  must_get(1, "a");
  must_wait(2, "a");
  release(1, "a");

  EXPECT_EQ(renew(2, "a"), renew_answer(renewed{token(2), 30s}));

  EXPECT_EQ(must_get(2, "a"), (granted{token(2), 30s, false, 1}));
}

TEST_F(LockTable, AnswersARenewalOfAWaiterWithWaiting) {
  must_get(1, "a");
  must_wait(2, "a");

  EXPECT_TRUE(std::holds_alternative<waiting>(renew(2, "a")));
}

// Release and withdraw.

TEST_F(LockTable, ReleasesForTheHolderOnly) {
  must_get(1, "a");

  EXPECT_EQ(release(2, "a"), leave_answer::not_there);
  EXPECT_EQ(release(1, "a"), leave_answer::left);
  EXPECT_EQ(release(1, "a"), leave_answer::not_there);
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, DoesNotLeaveTheQueueByRelease) {
  must_get(1, "a");
  must_wait(2, "a");

  EXPECT_EQ(release(2, "a"), leave_answer::not_there);

  EXPECT_EQ(who("a")->waiters.size(), 1U);
}

TEST_F(LockTable, WithdrawsFromTheQueueWithoutTouchingTheHolder) {
  must_get(1, "a");
  must_wait(2, "a");

  EXPECT_EQ(withdraw(2, "a"), leave_answer::left);

  EXPECT_EQ(who("a")->holders.size(), 1U);
  EXPECT_THAT(who("a")->waiters, IsEmpty());
}

TEST_F(LockTable, WithdrawsAGrantThatCameMeanwhileWithHandOver) {
  must_get(1, "a");
  must_wait(2, "a");
  must_wait(3, "a");
  release(1, "a");

  EXPECT_EQ(withdraw(2, "a"), leave_answer::left);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockTable, DrawsNoTokenForAWaiterThatWithdrawsWhenItsTurnComes) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  pass(30s);

  EXPECT_EQ(withdraw(2, "a"), leave_answer::left);

  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(table.last_token(), fencing_token(1));
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, AnswersNotThereWhenNothingIsToBeWithdrawn) {
  EXPECT_EQ(withdraw(1, "a"), leave_answer::not_there);
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, LetsReadersInWhenTheWriterBeforeThemWithdraws) {
  must_get(1, "a", reader);
  must_wait(2, "a", writer);
  must_wait(3, "a", reader);

  withdraw(2, "a", writer);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(2))));
}

// Shared mutex.

TEST_F(LockTable, LetsReadersShare) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  must_get(3, "a", reader);

  EXPECT_EQ(who("a")->holders.size(), 3U);
}

TEST_F(LockTable, KeepsAWriterOutUntilTheLastReaderLeaves) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  must_wait(3, "a", writer);

  release(1, "a", reader);
  EXPECT_THAT(notices, IsEmpty());
  release(2, "a", reader);
  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3))));
}

TEST_F(LockTable, DoesNotLetAReaderOvertakeAWaitingWriter) {
  must_get(1, "a", reader);
  must_wait(2, "a", writer);

  must_wait(3, "a", reader);
}

TEST_F(LockTable, LetsAdjacentReadersInTogetherUpToTheNextWriter) {
  must_get(1, "a", writer);
  must_wait(2, "a", reader);
  must_wait(3, "a", reader);
  must_wait(4, "a", writer);
  must_wait(5, "a", reader);

  release(1, "a", writer);

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2)), grant_notice(3, token(3))));
}

TEST_F(LockTable, RemovesEachReaderWhenItsOwnLeaseEnds) {
  must_get(1, "a", reader);
  pass(10s);
  must_get(2, "a", reader);
  pass(20s);

  EXPECT_EQ(renew(1, "a", reader), renew_answer(gone{}));
  EXPECT_EQ(renew(2, "a", reader), renew_answer(renewed{token(2), 30s}));
}

TEST_F(LockTable, DowngradesAWriterWithItsTokenAndLetsReadersIn) {
  must_get(1, "a", writer);
  must_wait(2, "a", reader);
  pass(10s);

  EXPECT_EQ(*downgrade(1, "a", writer), renew_answer(renewed{token(1), 30s}));

  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2))));
  EXPECT_EQ(who("a")->holders.at(0).mode, lock_mode::shared);
}

TEST_F(LockTable, AnswersARepeatedDowngradeAlike) {
  must_get(1, "a", writer);
  ASSERT_TRUE(downgrade(1, "a", writer));

  EXPECT_EQ(*downgrade(1, "a", writer), renew_answer(renewed{token(1), 30s}));
}

TEST_F(LockTable, AnswersGoneToADowngradeByOneWhoHoldsNothing) {
  must_get(1, "a", writer);
  must_wait(2, "a", writer);

  EXPECT_EQ(*downgrade(2, "a", writer), renew_answer(gone{}));
  EXPECT_EQ(*downgrade(3, "a", writer), renew_answer(gone{}));
}

TEST_F(LockTable, RefusesToDowngradeAMutex) {
  must_get(1, "a");

  EXPECT_EQ(downgrade(1, "a", {}).error().code, errc::not_supported);
}

// Semaphore.

TEST_F(LockTable, GivesOutAsManyPermitsAsTheFirstContenderSaid) {
  must_get(1, "a", permit_of_two);
  must_get(2, "a", permit_of_two);

  EXPECT_EQ(must_wait(3, "a", permit_of_two).permits, 2U);
}

TEST_F(LockTable, TellsAContenderWithAnotherNumberOfPermitsTheStoredOne) {
  must_get(1, "a", permit_of_two);

  const granted second = must_get(2, "a", {.kind = lock_kind::semaphore, .permits = 9});

  EXPECT_EQ(second.permits, 2U);
  must_wait(3, "a", {.kind = lock_kind::semaphore, .permits = 9});
}

TEST_F(LockTable, ForgetsTheNumberOfPermitsWithTheLastContender) {
  must_get(1, "a", permit_of_two);
  release(1, "a", permit_of_two);

  EXPECT_EQ(must_get(2, "a", {.kind = lock_kind::semaphore, .permits = 9}).permits, 9U);
}

TEST_F(LockTable, HandsAReleasedPermitToTheFirstWaiter) {
  must_get(1, "a", permit_of_two);
  must_get(2, "a", permit_of_two);
  must_wait(3, "a", permit_of_two);
  must_wait(4, "a", permit_of_two);

  release(2, "a", permit_of_two);

  EXPECT_THAT(notices, ElementsAre(grant_notice(3, token(3), 3s, 2)));
}

TEST_F(LockTable, TellsTheFirstWaiterForAPermitToAskWhenTheFirstPermitLapses) {
  must_get(1, "a", permit_of_two);
  pass(28s);
  must_get(2, "a", permit_of_two);

  EXPECT_EQ(must_wait(3, "a", permit_of_two).ask_again_after, 2s);
}

// Break.

TEST_F(LockTable, BreaksSafelyBehindATombstone) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  pass(10s);

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  EXPECT_THAT(notices, ElementsAre(lost_notice(1)));
  EXPECT_EQ(renew(1, "a"), renew_answer(gone{}));
  EXPECT_EQ(release(1, "a"), leave_answer::not_there);
  EXPECT_EQ(who("a")->closed_for, 20s);
  EXPECT_THAT(who("a")->holders, IsEmpty());
  pass(20s - 1ns);
  must_wait(2, "a");
  pass(1ns);
  EXPECT_EQ(must_get(2, "a").tokens, token(2));
}

TEST_F(LockTable, BreaksAtOnceWithHandOver) {
  must_get(1, "a");
  must_wait(2, "a");

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::at_once));

  EXPECT_THAT(notices, ElementsAre(lost_notice(1), grant_notice(2, token(2))));
}

TEST_F(LockTable, BreaksATombstoneAtOnce) {
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::at_once));

  EXPECT_THAT(notices, IsEmpty());
  EXPECT_EQ(table.entry_count(), 0U);
}

TEST_F(LockTable, BreaksByAnyTokenOfTheBlock) {
  must_get(1, "a", {.token_count = 16});

  EXPECT_EQ(break_lock("a", fencing_token(17), break_mode::safe).error().code,
            errc::token_mismatch);
  EXPECT_TRUE(break_lock("a", fencing_token(16), break_mode::safe));
}

TEST_F(LockTable, RefusesToBreakWhatNobodyHolds) {
  EXPECT_EQ(break_lock("a", fencing_token(1), break_mode::safe).error().code, errc::no_such_lock);
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));
  EXPECT_EQ(break_lock("a", fencing_token(1), break_mode::safe).error().code, errc::no_such_lock);
}

TEST_F(LockTable, LetsABrokenHolderQueueBehindItsOwnTombstone) {
  must_get(1, "a");
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  must_wait(1, "a", {.ticket_length = 60s});
  pass(30s);

  EXPECT_EQ(must_get(1, "a"), (granted{token(2), 3s, true, 1}));
}

TEST_F(LockTable, CountsATombstoneAsATakenPermit) {
  must_get(1, "a", permit_of_two);
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  must_get(1, "a", permit_of_two);

  must_wait(2, "a", permit_of_two);
}

TEST_F(LockTable, KeepsNewReadersOutWhileABrokenReadersTombstoneStands) {
  must_get(1, "a", reader);
  must_get(2, "a", reader);
  ASSERT_TRUE(break_lock("a", fencing_token(1), break_mode::safe));

  must_wait(3, "a", reader);
  EXPECT_EQ(renew(2, "a", reader), renew_answer(renewed{token(2), 30s}));
}

// Values, watches, inspection.

TEST_F(LockTable, KeepsTheValueOfAnElection) {
  must_get(1, "a", {.kind = lock_kind::election, .value = "first"});
  EXPECT_EQ(who("a")->holders.at(0).value, "first");

  EXPECT_TRUE(set_value(1, "a", "second"));
  EXPECT_FALSE(set_value(2, "a", "thief"));

  EXPECT_EQ(who("a")->holders.at(0).value, "second");
}

TEST_F(LockTable, ShowsTheValueOfALeaderThatWaitedForItsTurn) {
  must_get(1, "a", {.kind = lock_kind::election, .value = "first"});
  must_wait(2, "a", {.kind = lock_kind::election, .value = "a value too long for a short string"});

  release(1, "a", {.kind = lock_kind::election});

  EXPECT_EQ(who("a")->holders.at(0).value, "a value too long for a short string");
}

TEST_F(LockTable, TellsWatchersOnceWhenHoldersOrValueChange) {
  table.watch(7, "a", true);
  table.watch(7, "a", true);

  must_get(1, "a", {.kind = lock_kind::election});
  EXPECT_THAT(notices, ElementsAre(changed_notice(7)));
  must_wait(2, "a", {.kind = lock_kind::election});
  EXPECT_THAT(notices, IsEmpty());
  set_value(1, "a", "new");
  EXPECT_THAT(notices, ElementsAre(changed_notice(7)));
  set_value(1, "a", "new");
  EXPECT_THAT(notices, IsEmpty());
  renew(1, "a");
  EXPECT_THAT(notices, IsEmpty());
  release(1, "a");
  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(2)), changed_notice(7)));
}

TEST_F(LockTable, TellsWatchersOfOtherNamesNothing) {
  table.watch(7, "b", true);

  must_get(1, "a");

  EXPECT_THAT(notices, IsEmpty());
}

TEST_F(LockTable, TellsNothingAfterAWatchEnded) {
  table.watch(7, "a", true);
  table.watch(8, "a", true);
  table.watch(9, "a", true);
  table.watch(8, "a", false);
  table.forget(7);

  must_get(1, "a");

  EXPECT_THAT(notices, ElementsAre(changed_notice(9)));
}

TEST_F(LockTable, ShowsWhoHoldsAndWhoWaits) {
  must_get(1, "a", {.token_count = 8, .local_waiters = 5});
  pass(2s);
  must_wait(2, "a", {.local_waiters = 3});
  pass(1s);

  const auto info = who("a");

  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->name, "a");
  EXPECT_EQ(info->kind, lock_kind::mutex);
  ASSERT_EQ(info->holders.size(), 1U);
  EXPECT_EQ(info->holders[0].token, fencing_token(1));
  EXPECT_EQ(info->holders[0].host, "host1");
  EXPECT_EQ(info->holders[0].pid, 1);
  EXPECT_EQ(info->holders[0].label, "job");
  EXPECT_EQ(info->holders[0].held_for, 3s);
  EXPECT_EQ(info->holders[0].remaining, 27s);
  EXPECT_EQ(info->holders[0].local_waiters, 5U);
  EXPECT_TRUE(info->holders[0].claimed);
  ASSERT_EQ(info->waiters.size(), 1U);
  EXPECT_EQ(info->waiters[0].host, "host2");
  EXPECT_EQ(info->waiters[0].waited, 1s);
  EXPECT_EQ(info->waiters[0].local_waiters, 3U);
}

TEST_F(LockTable, ShowsAHandedOverGrantAsNotClaimed) {
  must_get(1, "a");
  must_wait(2, "a");
  release(1, "a");

  EXPECT_FALSE(who("a")->holders.at(0).claimed);
}

TEST_F(LockTable, DoesNotShowDeadWaiters) {
  must_get(1, "a");
  must_wait(2, "a", {.ticket_length = 60s});
  must_wait(3, "a");
  pass(12s);

  EXPECT_EQ(who("a")->waiters.size(), 1U);
}

TEST_F(LockTable, ListsNamesInByteOrderInPages) {
  for (const char* name : {"b/2", "b/10", "a", "b/1", "c", "b/\xc3\xa9"}) must_get(1, name);

  EXPECT_THAT(list("", "", 100), ElementsAre("a", "b/1", "b/10", "b/2", "b/\xc3\xa9", "c"));
  EXPECT_THAT(list("b/", "", 2), ElementsAre("b/1", "b/10"));
  EXPECT_THAT(list("b/", "b/10", 2), ElementsAre("b/2", "b/\xc3\xa9"));
  EXPECT_THAT(list("b/", "b/\xc3\xa9", 2), IsEmpty());
}

TEST_F(LockTable, FillsAPageWithLiveNamesOnly) {
  must_get(1, "a", {.lease_length = 1s});
  must_get(1, "b");
  must_get(1, "c", {.lease_length = 1s});
  must_get(1, "d");
  pass(1s);

  EXPECT_THAT(list("", "", 2), ElementsAre("b", "d"));
}

// Nothing stays behind.

TEST_F(LockTable, SweepsEverythingThatLapsedAndServesTheQueues) {
  must_get(1, "a");
  must_get(1, "b");
  must_wait(2, "a", {.ticket_length = 60s});
  pass(30s);
  notices.clear();

  table.sweep(now, notices);

  table.audit();
  EXPECT_THAT(notices, ElementsAre(grant_notice(2, token(3))));
  EXPECT_EQ(table.entry_count(), 1U);
}

TEST_F(LockTable, DropsLapsedNamesThatNobodyAsksForAgain) {
  for (int i = 0; i < 5'000; ++i) {
    must_get(1, "fixed/" + std::to_string(i), {.lease_length = 100ms});
    pass(1ms);
  }

  EXPECT_LE(table.entry_count(), 1024U);
}

TEST_F(LockTable, DropsDeadWaitersFromBehindAPatientOne) {
  must_get(1, "a", {.lease_length = 24h});
  must_wait(2, "a", {.ticket_length = 24h});

  for (std::uint64_t who = 3; who < 10'000; ++who) {
    must_wait(who, "a", {.ticket_length = 1s});
    pass(100ms);
  }

  EXPECT_LE(table.ticket_count("a"), 64U);
}

TEST_F(LockTable, SaysWhenTheFirstOfSeveralHoldersLapses) {
  EXPECT_EQ(table.next_expiry("a"), std::nullopt);
  must_get(1, "a", reader);
  pass(5s);
  must_get(2, "a", reader);

  EXPECT_EQ(table.next_expiry("a"), now + 25s);
}

}  // namespace
}  // namespace sallyport::backends::memory
