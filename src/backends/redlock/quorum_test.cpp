// From "I want it" to a grant: bids, the line, claims.
#include "backends/redlock/replacement.hpp"
#include "backends/redlock/test_quorum_fixture.hpp"

#include <set>

namespace sallyport::backends::redlock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---- bids ----------------------------------------------------------------------------------------

TEST_F(QuorumTest, BidsAtAllNodesAtOnceUnderOneId) {
  make(5);
  acquire(me, true, 4);

  EXPECT_EQ(asked(kind::bid), 31U);
  std::set<std::string> ids;
  for (const delivery& each : under_way) {
    ids.insert(each.why.id);
    const auto said = arguments(each);
    EXPECT_EQ(said[0], stamp(each.why.node));
    EXPECT_EQ(each.mark, said[0]);
    EXPECT_EQ(said[3], each.why.id);
    EXPECT_EQ(said[4], "3000");
    EXPECT_EQ(said[5], "4");
    EXPECT_LE(each.answer_by, now + 500ms);
  }
  EXPECT_EQ(ids.size(), 1U);
  acquire(other);
  EXPECT_NE(take(kind::bid, 0).why.id, under_way.back().why.id);
}

TEST_F(QuorumTest, IsGrantedByAMajority) {
  make(3);
  acquire(me, true, 4);
  answer(kind::bid, 1, yes(40));
  EXPECT_EQ(told(), "");
  answer(kind::bid, 2, yes(40));

  EXPECT_EQ(told(), "acquire granted 37-40 3000ms");
  answer(kind::bid, 0, yes(40));
  EXPECT_EQ(told(), "");
  EXPECT_THAT(under_way, IsEmpty());
}

TEST_F(QuorumTest, RaisesTheLowerCountersBeforeTheEngineHears) {
  make(3);
  acquire(me);
  const std::string id = answer(kind::bid, 0, yes(40));
  answer(kind::bid, 1, yes(50));

  EXPECT_EQ(told(), "");
  const delivery raise = take(kind::raise, 0);
  EXPECT_THAT(arguments(raise), ElementsAre(stamp(0), id, "50"));
  answer(raise, said::numbers({1}));

  EXPECT_EQ(told(), "acquire granted 50-50 3000ms");
}

TEST_F(QuorumTest, RaisesALateVoterWithoutWaitingForIt) {
  make(3);
  acquire(me);
  answer(kind::bid, 0, yes(50));
  answer(kind::bid, 1, yes(50));
  ASSERT_EQ(told(), "acquire granted 50-50 3000ms");

  answer(kind::bid, 2, yes(5));
  answer(kind::raise, 2, said::numbers({0}));

  EXPECT_EQ(told(), "");
}

TEST_F(QuorumTest, CountsTheLeaseFromBeforeTheRoundBegan) {
  make(3);
  acquire(me);
  now += 200ms;
  answer(kind::bid, 0, yes(40));
  now += 200ms;
  acquire(me);
  answer(kind::bid, 1, yes(40));

  EXPECT_EQ(told(), "acquire granted 40-40 2600ms") << "from when it was asked the second time";
}

TEST_F(QuorumTest, CountsTheLeaseThatTheNodesWereAskedFor) {
  make(3);
  acquire(me);
  answer(kind::bid, 0, yes(40));
  acquire(me, true, 1, 9s);
  answer(kind::bid, 1, yes(40));

  EXPECT_EQ(told(), "acquire granted 40-40 3000ms");
}

TEST_F(QuorumTest, GivesAMinorityBackBeforeTheEngineHears) {
  make(5);
  acquire(me, false);
  const std::string id = answer(kind::bid, 0, yes(40));
  answer(kind::bid, 1, yes(41));
  answer_all(kind::bid, 28, no());

  EXPECT_EQ(log.back(), "acquire held");
  EXPECT_EQ(asked(kind::settle), 3U) << "exactly where it has votes";
  const farewell_said said = farewell_in(take(kind::settle, 1));
  EXPECT_EQ(said.id, id);
  EXPECT_EQ(said.how, "p");
  EXPECT_EQ(said.withdraw, "r");
  EXPECT_EQ(asked(kind::enqueue), 0U) << "it writes nothing";
}

TEST_F(QuorumTest, GivesBackWhereItIsNotKnownWhetherItHasAVote) {
  make(3);
  acquire(me, false);
  answer(kind::bid, 0, no());
  answer(kind::bid, 1, no());

  EXPECT_EQ(told(), "acquire held");
  EXPECT_EQ(asked(kind::settle), only(2)) << "behind the bid on the same connection";
  EXPECT_EQ(under_way.back().why.holder, me) << "and never before it";
}

TEST_F(QuorumTest, GivesBackWhereAnErrorMayHaveComeAfterTheVote) {
  make(3);
  for (const std::string error : {"ERR Error running script", "upstream failure"}) {
    acquire(me, false);
    answer(kind::bid, 0, said::error(error));
    answer_all(kind::bid, only(1) | only(2), no());
    EXPECT_EQ(told(), "acquire held");
    EXPECT_EQ(asked(kind::settle) & only(0), only(0)) << error;
    under_way.clear();
  }

  acquire(me, false);
  answer(kind::bid, 0, said::error("LOADING the dataset"));
  answer_all(kind::bid, only(1) | only(2), no());
  EXPECT_EQ(asked(kind::settle) & only(0), 0U) << "that is said before anything is done";
}

TEST_F(QuorumTest, TakesATicketWhenItMayWait) {
  make(3);
  acquire(me);
  answer(kind::bid, 0, yes(40));
  answer(kind::bid, 1, no(2000, 70));
  answer(kind::bid, 2, no(2000, 90));

  EXPECT_EQ(told(), "");
  EXPECT_EQ(asked(kind::settle), only(0));
  EXPECT_EQ(asked(kind::enqueue), 7U);
  EXPECT_TRUE(listens);
  const auto said = arguments(take(kind::enqueue, 0));
  EXPECT_EQ(said[2], hex(me));
  EXPECT_EQ(said[3], "90") << "its place in every line";
  answer(kind::enqueue, 1, in_line(false, false));
  EXPECT_EQ(told(), "");
  answer(kind::enqueue, 2, in_line(false, false));

  EXPECT_EQ(told(), "acquire waiting");
}

TEST_F(QuorumTest, KeepsItsPlaceInTheLineHoweverOftenItBids) {
  make(3);
  queue(me);

  renew(me);
  answer_all(kind::bid, 7, no(2000, 500));

  EXPECT_EQ(arguments(take(kind::enqueue, 0))[3], "77");
}

TEST_F(QuorumTest, PausesForALittleAfterVotesWereSplit) {
  make(3);
  acquire(me);
  answer(kind::bid, 0, yes(40));
  answer_all(kind::bid, 6, no());
  answer_all(kind::enqueue, 7, in_line(false, false));

  ASSERT_EQ(told(), "acquire waiting");
  EXPECT_GT(*ask_again, 0ms);
  EXPECT_LT(*ask_again, 50ms);
}

TEST_F(QuorumTest, IsUnavailableWhenTooFewAnswered) {
  for (const bool may_wait : {false, true}) {
    make(3);
    acquire(me, may_wait);
    answer(kind::bid, 0, no());
    answer(kind::bid, 1, unknown());
    EXPECT_EQ(told(), "") << "that somebody holds it is not known yet";
    answer(kind::bid, 2, unsent());
    if (may_wait) answer_all(kind::enqueue, 6, unsent());

    EXPECT_EQ(told(), may_wait ? "acquire unknown" : "acquire unavailable")
        << "where it has asked for tickets, the engine is to take them back";
    under_way.clear();
  }
}

TEST_F(QuorumTest, IsUnavailableWhenTooFewCouldBeRaised) {
  make(3);
  acquire(me, false);
  answer(kind::bid, 0, yes(40));
  answer(kind::bid, 1, yes(50));
  answer(kind::raise, 0, unknown());
  answer(kind::bid, 2, unknown());

  EXPECT_EQ(told(), "acquire unavailable") << "nobody is known to hold it";
}

TEST_F(QuorumTest, IsUnavailableWithoutAMajorityOfVoters) {
  make(3, false);
  up(0);
  acquire(me);
  EXPECT_EQ(told(), "") << "those that are away are tried once more";
  down(1);
  down(2);
  EXPECT_EQ(told(), "acquire unavailable");
  EXPECT_THAT(trouble, HasSubstr("1 of 3 nodes may vote"));
  EXPECT_EQ(asked(kind::bid), 0U);
}

TEST_F(QuorumTest, ForgetsAContenderThatNeverReachedAnybody) {
  make(3, false);
  for (const bool may_wait : {false, true}) {
    acquire(me, may_wait);
    down(0);
    down(1);
    ASSERT_EQ(told(), "acquire unavailable");
    EXPECT_TRUE(machine->idle()) << "the engine has nothing to take back, and will not say so";
  }
}

TEST_F(QuorumTest, LetsTheEngineAskAgainOnceAMajorityIsThereAndForEveryNodeThatComes) {
  make(3, false);
  up(0);
  EXPECT_EQ(told(), "");
  up(1);
  EXPECT_EQ(told(), "reconnected now");
  up(2);
  EXPECT_EQ(told(), "reconnected now") << "waiters stand in its line, too";
}

TEST_F(QuorumTest, RefusesALeaseThatIsLongerThanTheMarksAllow) {
  make(3);
  acquire(me, true, 1, 11s);
  EXPECT_THAT(told(), HasSubstr("acquire"));
  EXPECT_EQ(asked(kind::bid), 0U)
      << "a node that forgets is taken back after the longest lease of the marks";
  EXPECT_THAT(trouble, HasSubstr("10000 ms"));
}

// ---- the line ------------------------------------------------------------------------------------

TEST_F(QuorumTest, BidsAgainWhenAMajorityOfLinesIsFreeButNotForEver) {
  make(3);
  acquire(me);
  int bids = 0;
  while (asked(kind::bid) != 0) {
    ASSERT_LT(++bids, 10);
    answer_all(kind::bid, 7, no(-2));
    answer(kind::enqueue, 0, in_line(true, true, -2));
    answer(kind::enqueue, 1, in_line(true, true, -2));
    if (asked(kind::enqueue) != 0) answer(kind::enqueue, 2, in_line(false, false));
  }
  EXPECT_GT(bids, 1);
  EXPECT_EQ(told(), "acquire waiting");
}

TEST_F(QuorumTest, TheFirstInLineAsksAgainWhenTheHoldersTimeIsUp) {
  make(3);
  queue(me);
  acquire(me);
  answer(kind::enqueue, 0, in_line(false, true, 1500));
  answer(kind::enqueue, 1, in_line(false, true, 1000));

  EXPECT_EQ(told(), "acquire waiting");
  EXPECT_GE(*ask_again, 1500ms) << "when a majority may be free";
  EXPECT_LT(*ask_again, 1600ms);
}

TEST_F(QuorumTest, WhoIsNotFirstWaitsForItsHeartbeat) {
  make(3);
  queue(me);
  acquire(me);
  answer(kind::enqueue, 0, in_line(false, false, 1500));
  answer(kind::enqueue, 1, in_line(false, false, 1000));
  EXPECT_GT(*ask_again, 1h);
}

TEST_F(QuorumTest, AHeartbeatIsUnavailableWhenTooFewLinesAnswer) {
  make(3);
  queue(me);
  acquire(me);
  answer(kind::enqueue, 0, unknown());
  answer(kind::enqueue, 1, said::error("LOADING"));
  EXPECT_EQ(told(), "acquire unavailable");
  answer(kind::enqueue, 2, in_line(false, false));
  acquire(me);
  EXPECT_EQ(asked(kind::enqueue), 7U) << "it still waits";
}

TEST_F(QuorumTest, AWakeUpIsToldOnce) {
  make(3);
  queue(me);
  wake(0, me);
  wake(1, me);
  EXPECT_EQ(told(), "look now");

  renew(me);
  EXPECT_EQ(asked(kind::bid), 7U);
  answer_all(kind::bid, 3, yes(60));

  EXPECT_EQ(told(), "renew renewed 60-60 3000ms");
}

TEST_F(QuorumTest, AWakeUpInTheMiddleOfEnrollingIsNotLost) {
  make(3);
  queue(me);
  acquire(me);
  answer(kind::enqueue, 0, in_line(false, true));
  wake(0, me);
  answer(kind::enqueue, 1, in_line(false, true));

  EXPECT_EQ(told(), "acquire waiting, look now");
}

TEST_F(QuorumTest, IgnoresNoticesForNobody) {
  make(3);
  wake(0, other);
  hand_over(0, other, "n");
  notice(0, "l someid");
  notice(0, "rubbish");
  notice(0, "w rubbish");
  EXPECT_THAT(log, IsEmpty());
}

// ---- claims --------------------------------------------------------------------------------------

TEST_F(QuorumTest, ClaimsWhatWasHandedOver) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  EXPECT_EQ(told(), "look now");
  hand_over(1, me, "n1");
  EXPECT_EQ(told(), "");

  renew(me);
  EXPECT_EQ(asked(kind::extend), 3U);
  const delivery first = take(kind::extend, 0);
  EXPECT_THAT(arguments(first), ElementsAre(stamp(0), hex(me) + "|n1", "3000", "1", "0"));
  answer(first, yes(70));
  answer(kind::extend, 1, yes(70));

  EXPECT_EQ(told(), "renew renewed 70-70 3000ms");
}

TEST_F(QuorumTest, TakesTheLateNoticeOfAClaimThatWasWon) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  hand_over(1, me, "n1");
  renew(me);
  answer_all(kind::extend, 3, yes(70));
  ASSERT_THAT(told(), HasSubstr("renewed"));

  hand_over(2, me, "n1");

  EXPECT_EQ(take(kind::extend, 2).why.id, hex(me) + "|n1");
}

TEST_F(QuorumTest, ClaimsNodeByNodeAsNoticesCome) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  EXPECT_EQ(asked(kind::extend), only(0));

  hand_over(2, me, "n1");
  EXPECT_EQ(asked(kind::extend), only(0) | only(2));
  answer_all(kind::extend, 5, yes(70));

  EXPECT_EQ(told(), "look now, renew renewed 70-70 3000ms");
}

TEST_F(QuorumTest, AsksTheOtherNodesWhenTheirNoticesDoNotCome) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  pass(9ms);
  EXPECT_EQ(asked(kind::extend), only(0));
  pass(1ms);
  EXPECT_EQ(asked(kind::extend), 7U);
  hand_over(1, me, "n1");
  answer_all(kind::extend, 7, yes(70));
  EXPECT_THAT(under_way, IsEmpty()) << "each was asked once";
}

TEST_F(QuorumTest, AClaimEndsWhenTheOtherNodesAreLostBeforeTheyAreAsked) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  answer(kind::extend, 0, yes(70));
  log.clear();
  down(1);
  down(2);
  pass(10ms);

  EXPECT_EQ(told(), "renew unavailable");
  EXPECT_EQ(asked(kind::settle), only(0));
}

TEST_F(QuorumTest, AClaimEndsWhenOneOfTheOtherNodesIsLostBeforeItIsAsked) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  answer(kind::extend, 0, yes(70));
  down(1);
  pass(10ms);
  log.clear();
  answer(kind::extend, 2, no());

  EXPECT_EQ(asked(kind::settle), only(0));
  EXPECT_EQ(asked(kind::enqueue), only(0) | only(2)) << "it goes on waiting";
}

TEST_F(QuorumTest, AClaimDoesNotCountVotesOfTwoRosters) {
  make(3);
  queue(me);
  hand_over(2, me, "n1");
  renew(me);
  answer(kind::extend, 2, yes(70));
  log.clear();
  for (const node_number node : {0U, 1U}) {
    node_mark later = roster_after({"node2", "new"}, *node_mark::parse(mark(node)));
    up(node, later.text());
  }
  ASSERT_EQ(machine->nodes().epoch(), 2U);

  pass(10ms);

  EXPECT_EQ(asked(kind::extend), 0U) << "node2 voted as a member that it is not any more";
  EXPECT_THAT(told(), Not(HasSubstr("renewed")));
  EXPECT_EQ(asked(kind::settle), only(2));
}

TEST_F(QuorumTest, GivesUpAClaimWithoutAMajority) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  pass(10ms);
  answer(kind::extend, 0, yes(70));
  answer(kind::extend, 1, no());
  answer(kind::extend, 2, no());

  const delivery back = take(kind::settle, 0);
  EXPECT_EQ(farewell_in(back).id, hex(me) + "|n1");
  EXPECT_EQ(farewell_in(back).how, "p");
  answer_all(kind::enqueue, 7, in_line(false, true));
  EXPECT_EQ(told(), "look now, renew waiting");
  hand_over(1, me, "n1");
  EXPECT_EQ(farewell_in(take(kind::settle, 1)).id, hex(me) + "|n1") << "its nonce is spent";
  EXPECT_EQ(told(), "");
}

TEST_F(QuorumTest, GivesBackWhatWasHandedOverUnderOtherNonces) {
  make(5);
  queue(me);
  hand_over(0, me, "n0");
  for (const node_number node : {1U, 2U, 3U}) hand_over(node, me, "n1");
  renew(me);
  EXPECT_EQ(asked(kind::extend), 14U) << "the nonce of most nodes";
  answer_all(kind::extend, 14, yes(70));

  EXPECT_THAT(told(), HasSubstr("renewed 70-70"));
  EXPECT_EQ(farewell_in(take(kind::settle, 0)).id, hex(me) + "|n0");
  hand_over(4, me, "n0");
  EXPECT_EQ(farewell_in(take(kind::settle, 4)).id, hex(me) + "|n0");
}

TEST_F(QuorumTest, FindsALostNoticeByItsHeartbeat) {
  make(3);
  queue(me);
  acquire(me);
  answer(kind::enqueue, 0, handed("n1"));
  EXPECT_EQ(told(), "");
  answer(kind::enqueue, 1, handed("n1"));
  EXPECT_EQ(asked(kind::extend), 3U);
  answer(kind::enqueue, 2, handed("n1"));
  EXPECT_EQ(asked(kind::extend), 7U) << "also what comes late";
  answer_all(kind::extend, 3, yes(70));

  EXPECT_EQ(told(), "acquire granted 70-70 3000ms");
}

TEST_F(QuorumTest, FindsALostNoticeByABid) {
  make(3);
  queue(me);
  wake(0, me);
  renew(me);
  answer_all(kind::bid, 7, handed("n1"));
  answer_all(kind::enqueue, 3, handed("n1"));
  answer_all(kind::extend, 3, yes(70));
  EXPECT_THAT(told(), HasSubstr("renew renewed 70-70"));
}

TEST_F(QuorumTest, NeverClaimsWhatItIsGivingBack) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  hand_over(1, me, "n1");
  renew(me);
  answer(kind::extend, 0, unknown());
  answer(kind::extend, 1, unknown());
  EXPECT_THAT(told(), HasSubstr("renew unavailable"));
  answer_all(kind::settle, 3, unknown());

  renew(me);
  answer_all(kind::bid, 7, handed("n1"));
  answer_all(kind::enqueue, asked(kind::enqueue), handed("n1"));

  EXPECT_EQ(asked(kind::extend), 0U) << "debts would give back what it then holds";
  EXPECT_EQ(asked(kind::settle), 7U);
}

TEST_F(QuorumTest, GivesBackASpentNonceThatALineStillShows) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  hand_over(1, me, "n1");
  renew(me);
  answer_all(kind::extend, 3, no());
  EXPECT_EQ(asked(kind::settle), 0U);

  answer(kind::enqueue, 2, handed("n1"));

  EXPECT_EQ(farewell_in(take(kind::settle, 2)).id, hex(me) + "|n1");
}

TEST_F(QuorumTest, AnswersBothQuestionsOfAContender) {
  make(3);
  queue(me);
  acquire(me);
  renew(me);
  answer(kind::enqueue, 0, in_line(false, false));
  answer(kind::enqueue, 1, in_line(false, false));
  EXPECT_EQ(told(), "acquire waiting, renew waiting");
}

// ---- counters that are far behind ------------------------------------------------------------------

TEST_F(QuorumTest, BringsACounterUpThatIsFarBehindAndBidsAgain) {
  make(3);
  down(2);
  under_way.clear();
  acquire(me, false);
  answer(kind::bid, 0, yes(1'800'000'000'000'000));
  answer(kind::bid, 1, yes(7));
  answer(kind::raise, 1, said::numbers({-2}));

  const auto brought_up = arguments(take(kind::adopt, 1));
  EXPECT_EQ(brought_up, (std::vector<std::string>{mark(1), mark(1), "1800000000000000"}));
  EXPECT_EQ(told(), "") << "a free lock is not held, and nobody is troubled";
  answer(kind::bid, 0, yes(1'800'000'000'000'001));
  answer(kind::bid, 1, yes(1'800'000'000'000'001));
  EXPECT_EQ(told(), "acquire granted 1800000000000001-1800000000000001 3000ms");
}

TEST_F(QuorumTest, NamesTheNodeWhoseCounterCannotBeBroughtUp) {
  for (const bool may_wait : {false, true}) {
    make(3);
    under_way.clear();
    acquire(me, may_wait);
    for (int bids = 0; bids < 3; ++bids) {
      answer(kind::bid, 0, yes(std::uint64_t{1} << 53U));
      answer(kind::bid, 1, yes(7));
      answer(kind::bid, 2, yes(7));
      answer_all(kind::raise, asked(kind::raise), said::numbers({-2}));
      EXPECT_EQ(asked(kind::adopt), 0U) << "that was not counted up";
    }

    EXPECT_EQ(told(), "acquire unavailable") << "not held, and not waiting for ever";
    EXPECT_THAT(trouble, AnyOf(HasSubstr("node1's counter"), HasSubstr("node2's counter")));
    under_way.clear();
  }
}

TEST_F(QuorumTest, BidsAgainWhenANodeFailsBetweenItsVoteAndItsRaise) {
  make(3);
  acquire(me, false);
  answer(kind::bid, 0, yes(20));
  answer(kind::bid, 1, yes(10));
  answer(kind::raise, 1, unknown());

  EXPECT_EQ(told(), "") << "nobody has it, so nobody is told so";
  answer(kind::bid, 2, yes(15));
  EXPECT_EQ(asked(kind::bid), 7U);
  answer(kind::bid, 0, yes(21));
  answer(kind::bid, 2, yes(21));
  EXPECT_EQ(told(), "acquire granted 21-21 3000ms");
}

TEST_F(QuorumTest, SaysHeldWhenAnotherTookTheVoteBeforeTheRaise) {
  make(3);
  acquire(me, false);
  answer(kind::bid, 0, yes(20));
  answer(kind::bid, 1, yes(10));
  answer(kind::raise, 1, said::numbers({0}));

  EXPECT_EQ(told(), "acquire held");
}

}  // namespace
}  // namespace sallyport::backends::redlock
