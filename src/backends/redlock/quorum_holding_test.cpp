// From a grant to its end: renewals, farewells, votes that are owed, nodes that come and go.
#include "backends/redlock/test_quorum_fixture.hpp"

#include <set>

namespace sallyport::backends::redlock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- renewals ------------------------------------------------------------------------------------

TEST_F(QuorumTest, RenewsWhereItHasVotes) {
  make(3);
  hold(me, 3);
  now += 1s;
  renew(me);

  EXPECT_EQ(asked(kind::extend), 3U);
  EXPECT_EQ(arguments(take(kind::extend, 0))[3], "0") << "no tokens";
  now += 100ms;
  answer(kind::extend, 1, yes(0));
  EXPECT_EQ(told(), "");
}

TEST_F(QuorumTest, ARenewalCountsFromItsOwnBeginning) {
  make(3);
  hold(me, 3);
  now += 1s;
  renew(me);
  now += 100ms;
  answer_all(kind::extend, 3, yes(0));
  EXPECT_EQ(told(), "renew renewed 10-10 3000ms");

  acquire(me);
  EXPECT_EQ(told(), "acquire granted 10-10 2900ms");
}

TEST_F(QuorumTest, TakesTheVoteOfANodeThatComesLater) {
  make(3);
  down(2);
  acquire(me);
  answer_all(kind::bid, 3, yes(10));
  ASSERT_THAT(told(), HasSubstr("acquire granted"));

  up(2);

  EXPECT_EQ(asked(kind::heal), only(2));
  EXPECT_EQ(told(), "reconnected now");
}

TEST_F(QuorumTest, HealsTheOtherNodesUnderIdsOfTheirOwnWithoutCountingThem) {
  make(5);
  hold(me, 7);
  renew(me);
  EXPECT_EQ(asked(kind::heal), 0U) << "not before the renewal is sure";
  answer_all(kind::extend, 7, yes(0));
  EXPECT_THAT(told(), HasSubstr("renewed"));

  ASSERT_EQ(asked(kind::heal), 24U);
  const std::string id3 = answer(kind::heal, 3, said::numbers({1}));
  const std::string id4 = answer(kind::heal, 4, said::numbers({0}));
  EXPECT_NE(id3, id4);
  renew(me);
  EXPECT_EQ(asked(kind::extend), 15U) << "the one that had nobody else is ours now";
  EXPECT_EQ(take(kind::extend, 3).why.id, id3);
}

TEST_F(QuorumTest, AHealingOfWhichNothingIsKnownIsGivenBack) {
  make(3);
  hold(me, 3);
  renew(me);
  answer_all(kind::extend, 3, yes(0));
  const std::string id = answer(kind::heal, 2, unknown());

  EXPECT_EQ(farewell_in(take(kind::settle, 2)).id, id);
  renew(me);
  EXPECT_EQ(asked(kind::extend), 3U);
  answer_all(kind::extend, 3, yes(0));
  EXPECT_NE(take(kind::heal, 2).why.id, id);
}

TEST_F(QuorumTest, ANodeThatLostTheVoteDoesNotCountAndIsHealed) {
  make(3);
  hold(me, 7);
  renew(me);
  const std::string old = answer(kind::extend, 0, said::numbers({0, 0}));
  answer(kind::extend, 1, yes(0));
  EXPECT_EQ(told(), "");
  answer(kind::extend, 2, yes(0));

  EXPECT_THAT(told(), HasSubstr("renew renewed"));
  EXPECT_EQ(asked(kind::heal), only(0));
  EXPECT_NE(take(kind::heal, 0).why.id, old);
}

TEST_F(QuorumTest, IsGoneWhenTooManySayThatItIsNotTheirs) {
  make(3);
  hold(me, 7);
  renew(me);
  answer(kind::extend, 0, said::numbers({0, 1}));
  EXPECT_EQ(told(), "");
  answer(kind::extend, 1, said::numbers({0, 1}));

  EXPECT_EQ(told(), "renew gone");
  acquire(me);
  EXPECT_EQ(told(), "") << "what it once had is no grant any more";
  EXPECT_EQ(asked(kind::bid), 7U);
}

TEST_F(QuorumTest, ARenewalWithoutEnoughAnswersIsUnavailable) {
  make(3);
  hold(me, 7);
  renew(me);
  answer(kind::extend, 0, said::numbers({0, 1}));
  answer(kind::extend, 1, unknown());
  EXPECT_EQ(told(), "") << "it may yet turn out to be gone";
  answer(kind::extend, 2, yes(0));
  EXPECT_EQ(told(), "renew unavailable");

  EXPECT_EQ(asked(kind::heal), only(0)) << "it may give its vote again";
  answer(kind::heal, 0, no());
  renew(me);
  EXPECT_EQ(asked(kind::extend), only(1) | only(2)) << "it still has those";
}

TEST_F(QuorumTest, ARenewalIsUnavailableAtOnceWhenTooFewNodesAreThere) {
  make(3);
  hold(me, 7);
  down(0);
  down(1);
  renew(me);
  EXPECT_EQ(told(), "renew unavailable");
  EXPECT_THAT(trouble, HasSubstr("node0 is not reachable"));
}

TEST_F(QuorumTest, DrawsNewTokensWithARenewal) {
  make(3);
  hold(me, 7);
  renew(me, 4);
  EXPECT_EQ(arguments(take(kind::extend, 2))[3], "4");
  answer(kind::extend, 0, yes(20));
  answer(kind::extend, 1, yes(30));
  EXPECT_EQ(told(), "");
  answer(kind::raise, 0, said::numbers({1}));
  EXPECT_EQ(told(), "renew renewed 27-30 3000ms");
}

TEST_F(QuorumTest, ARenewalCountsTheLeaseThatTheNodesWereAskedFor) {
  make(3);
  hold(me, 7);
  renew(me, 0, 1s);
  acquire(me, true, 1, 9s);
  told();
  answer_all(kind::extend, 3, yes(0));
  told();
  acquire(me);
  EXPECT_EQ(told(), "acquire granted 10-10 1000ms");
}

TEST_F(QuorumTest, WhoIsUnknownIsGone) {
  make(3);
  renew(me);
  EXPECT_EQ(told(), "renew gone");
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, AGrantThatIsOverByItsOwnCountIsGivenBackAndBidForAnew) {
  make(3);
  hold(me, 7);
  now += lease;
  acquire(me);
  EXPECT_EQ(asked(kind::settle), 7U);
  EXPECT_EQ(asked(kind::bid), 7U);
  EXPECT_NE(take(kind::bid, 0).why.id, take(kind::settle, 0).why.id);
}

TEST_F(QuorumTest, TellsOfALossThatANodeSpeaksOf) {
  make(3);
  acquire(me);
  const std::string id = answer(kind::bid, 0, yes(10));
  answer_all(kind::bid, 6, yes(10));
  told();
  notice(1, "l " + id);
  EXPECT_EQ(told(), "lost it");
  notice(1, "l somebodyelse");
  EXPECT_EQ(told(), "");
}

TEST_F(QuorumTest, ALateNoticeDoesNotMakeItForgetAVoteThatItHas) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  hand_over(1, me, "n1");
  renew(me);
  answer_all(kind::extend, 3, yes(70));
  renew(me);
  answer_all(kind::extend, 3, yes(0));
  const std::string healed = answer(kind::heal, 2, said::numbers({1}));
  told();

  hand_over(2, me, "n1");
  answer_all(kind::extend, asked(kind::extend), said::numbers({0, 1}));
  answer_all(kind::settle, asked(kind::settle), left(false));
  release(me);

  EXPECT_EQ(farewell_in(take(kind::leave, 2)).id, healed);
}

// ---- farewells -----------------------------------------------------------------------------------

TEST_F(QuorumTest, HandsOverEverywhereUnderOneNonce) {
  make(3);
  hold(me, 7);
  release(me);

  ASSERT_EQ(asked(kind::leave), 7U);
  std::set<std::string> nonces;
  for (const delivery& each : under_way) {
    const farewell_said said = farewell_in(each);
    EXPECT_EQ(said.how, "h");
    EXPECT_FALSE(said.id.empty());
    nonces.insert(said.nonce);
  }
  EXPECT_EQ(nonces.size(), 1U);
  EXPECT_FALSE(nonces.begin()->empty());
  answer(kind::leave, 0, left());
  EXPECT_EQ(told(), "");
  answer(kind::leave, 1, left());
  EXPECT_EQ(told(), "leave left");
  EXPECT_FALSE(machine->idle());
  answer(kind::leave, 2, left());
  EXPECT_EQ(told(), "");
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, ReleasesOnlyWhereItMayHaveAVote) {
  make(3);
  hold(me, 3);
  release(me);
  EXPECT_EQ(asked(kind::leave), 3U);
}

TEST_F(QuorumTest, WasNotThereWhenTooManySaySo) {
  make(3);
  hold(me, 7);
  release(me);
  answer(kind::leave, 0, left(false));
  answer(kind::leave, 1, left(false));
  EXPECT_EQ(told(), "leave not_there");
  answer(kind::leave, 2, left());
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, AReleaseThatTooFewHeardIsUnknownAndRepeatedPlainly) {
  make(3);
  hold(me, 7);
  release(me);
  const std::string id = answer(kind::leave, 0, left());
  answer(kind::leave, 1, unknown());
  answer(kind::leave, 2, unknown());
  EXPECT_EQ(told(), "leave unknown");

  pass(200ms);
  const farewell_said said = farewell_in(take(kind::settle, 1));
  EXPECT_EQ(said.id, id);
  EXPECT_EQ(said.how, "p") << "handing over twice could hand over somebody else's turn";
  EXPECT_FALSE(machine->idle()) << "it is still to be given back";
  pass(10s);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, OwesAFarewellToANodeThatIsAway) {
  make(3);
  hold(me, 7);
  down(2);
  release(me);
  EXPECT_EQ(asked(kind::leave), 3U);
  answer_all(kind::leave, 3, left());
  EXPECT_EQ(told(), "leave left");

  EXPECT_FALSE(machine->idle());
  up(2);
  EXPECT_EQ(farewell_in(take(kind::settle, 2)).how, "p");
}

TEST_F(QuorumTest, WithdrawsAWaiterFromEveryLine) {
  make(3);
  queue(me);
  withdraw(me);
  ASSERT_EQ(asked(kind::leave), 7U);
  EXPECT_EQ(farewell_in(take(kind::leave, 0)).withdraw, "w");
  answer(kind::leave, 1, left());
  answer(kind::leave, 2, left());
  EXPECT_EQ(told(), "leave left");
}

TEST_F(QuorumTest, WithdrawsSomebodyOfWhomNothingIsKnown) {
  make(3);
  withdraw(other);
  EXPECT_EQ(asked(kind::leave), 7U);
  answer_all(kind::leave, 7, left(false));
  EXPECT_EQ(told(), "leave not_there (other)");
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, WithdrawsWithoutAnyNode) {
  make(3, false);
  withdraw(me);
  EXPECT_EQ(told(), "leave unknown");
  pass(10s);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, WithdrawsInTheMiddleOfABid) {
  make(3);
  acquire(me);
  const std::string id = answer(kind::bid, 0, yes(10));
  withdraw(me);

  EXPECT_EQ(told(), "acquire unavailable");
  EXPECT_EQ(asked(kind::leave), 7U);
  EXPECT_EQ(farewell_in(take(kind::leave, 1)).id, id);
  answer(kind::bid, 1, yes(10));
  answer(kind::bid, 2, yes(10));
  EXPECT_EQ(told(), "") << "too late";
  EXPECT_EQ(asked(kind::raise), 0U);
}

TEST_F(QuorumTest, RepeatsItsFarewellWhereABidMayYetArrive) {
  make(3);
  acquire(me);
  const std::string id = answer(kind::bid, 1, unknown());
  withdraw(me);
  answer_all(kind::leave, 7, left(false));
  answer_all(kind::bid, 5, no());
  ASSERT_THAT(told(), HasSubstr("leave not_there"));

  pass(lease / 2);

  EXPECT_EQ(farewell_in(take(kind::settle, 1)).id, id);
  pass(lease);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, OwesAFarewellToANodeThatWasAwayUntilTheEnd) {
  make(3);
  acquire(me);
  down(1);
  const std::string id = answer(kind::bid, 1, unknown());
  withdraw(me);
  answer_all(kind::leave, 5, left(false));
  answer_all(kind::bid, 5, no());
  pass(ticket + lease);
  ASSERT_EQ(asked(kind::settle), 0U);
  EXPECT_FALSE(machine->idle()) << "the bid may have been executed a moment ago";

  up(1);

  EXPECT_EQ(farewell_in(take(kind::settle, 1)).id, id);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, ForgetsWhatItOwesToANodeThatStaysAway) {
  make(3);
  acquire(me);
  down(1);
  answer(kind::bid, 1, unknown());
  withdraw(me);
  answer_all(kind::leave, 5, left(false));
  answer_all(kind::bid, 5, no());

  pass(2 * ticket + lease);

  EXPECT_TRUE(machine->idle()) << "it has lapsed by itself";
}

TEST_F(QuorumTest, GivesEveryFarewellOnceMoreAtItsEnd) {
  make(3);
  std::string id;
  for (const holder_id& who : {me, other}) {
    acquire(who, true, 1, who == me ? lease : lease * 2 / 3);
    const std::string last = answer(kind::bid, 1, unknown());
    if (who == me) id = last;
    withdraw(who);
    answer_all(kind::leave, 7, left(false));
    answer_all(kind::bid, 5, no());
    pass(who == me ? 1200ms : 100ms);
  }
  // From now on they are not due together.
  down(1);
  up(1);
  pass(lease);
  EXPECT_TRUE(machine->idle());

  const delivery last = under_way.back();

  EXPECT_EQ(farewell_in(last).id, id);
  EXPECT_GE(last.answer_by - 2s, time_point{1000h} + lease) << "after all that it may be about";
}

TEST_F(QuorumTest, RepeatsItsFarewellWhereABidWasLostAfterIt) {
  make(3);
  acquire(me);
  withdraw(me);
  down(1);
  const std::string id = answer(kind::bid, 1, unknown());
  up(1);
  answer_all(kind::leave, 7, left(false));
  answer_all(kind::bid, 5, no());

  pass(lease / 2);

  EXPECT_EQ(farewell_in(take(kind::settle, 1)).id, id);
  pass(lease);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, RepeatsItsWithdrawalWhereATicketMayYetBeTaken) {
  make(3);
  acquire(me);
  answer_all(kind::bid, 7, no());
  down(1);
  answer(kind::enqueue, 1, unknown());
  up(1);
  answer_all(kind::enqueue, 5, in_line(false, false));
  answer_all(kind::settle, asked(kind::settle), left(false));
  ASSERT_THAT(told(), HasSubstr("acquire waiting"));
  withdraw(me);
  answer_all(kind::leave, 7, left(false));
  ASSERT_THAT(told(), HasSubstr("leave"));

  pass(lease);

  EXPECT_EQ(asked(kind::settle), only(1));
  EXPECT_EQ(farewell_in(take(kind::settle, 1)).withdraw, "w");
  EXPECT_FALSE(machine->idle());
  pass(ticket);
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, RepeatsItsWithdrawalWhereTheConnectionBrokeAfterItsQuestion) {
  make(3);
  acquire(me);
  answer_all(kind::bid, 7, no());
  answer(kind::enqueue, 1, unknown());
  answer_all(kind::enqueue, 5, in_line(false, false));
  answer_all(kind::settle, asked(kind::settle), left(false));
  down(1);
  up(1);
  withdraw(me);
  answer_all(kind::leave, 7, left(false));

  pass(lease);

  EXPECT_EQ(farewell_in(take(kind::settle, 1)).withdraw, "w");
}

TEST_F(QuorumTest, RepeatsAWithdrawalThatWaitedForTheNextConnection) {
  make(3);
  acquire(me);
  answer_all(kind::bid, 7, no());
  withdraw(me);
  answer(kind::enqueue, 1, unknown());
  down(1);
  up(1);
  answer_all(kind::leave, 7, left(false));
  answer_all(kind::settle, asked(kind::settle), left(false));

  pass(lease);

  EXPECT_EQ(farewell_in(take(kind::settle, 1)).withdraw, "w");
}

TEST_F(QuorumTest, WithdrawsOnceBehindAQuestionThatIsSlow) {
  make(3);
  acquire(me);
  answer_all(kind::bid, 7, no());
  answer(kind::enqueue, 1, unknown());
  answer_all(kind::enqueue, 5, in_line(false, false));
  answer_all(kind::settle, asked(kind::settle), left(false));
  withdraw(me);

  answer_all(kind::leave, 7, left());

  EXPECT_TRUE(machine->idle()) << "over the same connection nothing comes after it";
}

TEST_F(QuorumTest, WithdrawsInTheMiddleOfAClaim) {
  make(3);
  queue(me);
  hand_over(0, me, "n1");
  renew(me);
  withdraw(me);
  EXPECT_EQ(told(), "look now, renew unavailable");
  EXPECT_EQ(farewell_in(take(kind::leave, 0)).id, hex(me) + "|n1");
  answer(kind::extend, 0, yes(70));
  pass(20ms);
  EXPECT_EQ(asked(kind::extend), 0U);
  hand_over(1, me, "n1");
  EXPECT_EQ(farewell_in(take(kind::settle, 1)).id, hex(me) + "|n1");
}

TEST_F(QuorumTest, WithdrawsInTheMiddleOfEnrolling) {
  make(3);
  acquire(me);
  answer_all(kind::bid, 7, no());
  ASSERT_EQ(asked(kind::enqueue), 7U);
  withdraw(me);
  EXPECT_EQ(told(), "acquire unavailable");
  EXPECT_EQ(asked(kind::leave), 7U) << "behind the tickets";
  answer_all(kind::enqueue, 7, in_line(true, true));
  answer_all(kind::settle, asked(kind::settle), left(false));
  answer_all(kind::leave, 7, left());
  EXPECT_EQ(told(), "leave left");
  EXPECT_TRUE(machine->idle());
}

TEST_F(QuorumTest, AnAcquireThatComesWhileItLeavesIsRefused) {
  make(3);
  hold(me, 7);
  release(me);
  acquire(me);
  EXPECT_EQ(told(), "acquire unavailable");
  renew(me);
  EXPECT_EQ(told(), "renew gone");
  answer_all(kind::leave, 7, left());
  EXPECT_EQ(told(), "leave left");
  EXPECT_TRUE(machine->idle());
}

// ---- votes that are owed -------------------------------------------------------------------------

TEST_F(QuorumTest, GivesAnUnknownBidBackAgainAndAgainUntilItsLeaseHasPassed) {
  make(3);
  acquire(me, false);
  const std::string id = answer(kind::bid, 0, unknown());
  answer_all(kind::bid, 6, no());
  EXPECT_EQ(told(), "acquire held");
  answer(kind::settle, 0, left(false));

  EXPECT_FALSE(machine->idle());
  for (int i = 0; i < 3; ++i) {
    pass(lease / 4);
    EXPECT_EQ(farewell_in(take(kind::settle, 0)).id, id) << i;
  }
  pass(lease);
  under_way.clear();
  EXPECT_TRUE(machine->idle());
  pass(lease);
  EXPECT_THAT(under_way, IsEmpty());
  EXPECT_EQ(machine->wake_at(), time_point::max());
}

TEST_F(QuorumTest, GivesBackWhenTheNodeIsBack) {
  make(3);
  acquire(me, false);
  const std::string id = answer(kind::bid, 0, unknown());
  down(0);
  answer_all(kind::bid, 6, no());
  EXPECT_EQ(told(), "acquire held");
  EXPECT_EQ(asked(kind::settle), 0U);

  up(0);
  EXPECT_EQ(farewell_in(take(kind::settle, 0)).id, id);
}

TEST_F(QuorumTest, GivesBackAgainWhatWasNotHeard) {
  make(3);
  acquire(me, false);
  answer(kind::bid, 0, yes(10));
  answer_all(kind::bid, 6, no());
  answer(kind::settle, 0, unknown());
  EXPECT_FALSE(machine->idle());

  pass(200ms);
  EXPECT_EQ(asked(kind::settle), only(0));
}

// ---- nodes that come and go ----------------------------------------------------------------------

TEST_F(QuorumTest, ANodeThatIsNoMemberAnyMoreIsJudgedAnewAndDoesNotVote) {
  make(3);
  acquire(me);
  answer(kind::bid, 0, stranger(""));
  EXPECT_EQ(machine->nodes().voters(), 6U);
  answer(kind::bid, 1, yes(10));
  answer(kind::bid, 2, yes(10));
  EXPECT_THAT(told(), HasSubstr("granted"));

  release(me);
  EXPECT_EQ(asked(kind::leave), 6U);
}

TEST_F(QuorumTest, HearsOfALostMarkFromEveryQuestion) {
  for (const kind what : {kind::extend, kind::raise, kind::heal, kind::enqueue}) {
    under_way.clear();
    make(3);
    if (what == kind::extend) {
      hold(me, 7);
      renew(me);
    } else if (what == kind::raise) {
      acquire(me);
      answer(kind::bid, 0, yes(10));
      answer(kind::bid, 1, yes(11));
    } else if (what == kind::heal) {
      hold(me, 6);
      renew(me);
      answer_all(kind::extend, 6, yes(0));
    } else {
      acquire(me);
      answer_all(kind::bid, 7, no());
    }
    answer(what, 0, stranger(""));
    EXPECT_EQ(machine->nodes().voters(), 6U) << name_of(what);
  }
}

TEST_F(QuorumTest, DoesNotSayAgainWhatWasMeantForANodesEarlierLife) {
  make(3);
  acquire(me);
  const delivery bid = take(kind::bid, 0);
  EXPECT_TRUE(machine->still_meant(bid.why, bid.mark));
  down(0);
  EXPECT_FALSE(machine->still_meant(bid.why, bid.mark));
  up(0, "");
  EXPECT_FALSE(machine->still_meant(bid.why, bid.mark));
}

TEST_F(QuorumTest, SaysAgainWhatIsGoodForEveryLifeOfANode) {
  make(3);
  hold(me, 7);
  release(me);
  const delivery leave = take(kind::leave, 0);
  down(0);
  EXPECT_TRUE(machine->still_meant(leave.why, leave.mark));
  EXPECT_FALSE(machine->still_meant({kind::adopt, 0, {}, 0, {}}, {})) << "it is judged anew";
}

TEST_F(QuorumTest, TakesANodeInThatForgot) {
  make(3);
  down(2);
  up(2, "");
  const reply clock = said::list({said::number(1), said::text("1700000000000005"), reply{}});
  answer(kind::read_clock, 0, clock);
  answer(kind::read_clock, 1, clock);
  const std::string quiet = arguments(under_way.front()).at(1);
  EXPECT_THAT(quiet, ::testing::HasSubstr(" q store 1 10000 run2 d 1700000000000005 id2 "));
  answer(kind::adopt, 2, said::list({said::number(1), said::text(quiet)}));
  pass(20s);
  answer(kind::read_counter, 0,
         said::list({said::number(1), said::text("1700000020000005"), said::text("500")}));
  answer(kind::read_counter, 1, clock);
  EXPECT_THAT(arguments(under_way.front()), ElementsAre(quiet, mark(2), "500"));
  answer(kind::adopt, 2, said::list({said::number(1), said::text(mark(2))}));
  EXPECT_EQ(machine->nodes().voters(), 7U);
}

TEST_F(QuorumTest, TakesNobodyInByTheWordOfAMemberThatHasAnotherMarkByNow) {
  make(3);
  down(2);
  up(2, "");
  const reply clock = said::list({said::number(1), said::text("1700000000000005"), reply{}});
  answer(kind::read_clock, 0, clock);
  answer(kind::read_clock, 1, clock);
  const std::string quiet = arguments(under_way.front()).at(1);
  answer(kind::adopt, 2, said::list({said::number(1), said::text(quiet)}));
  pass(20s);
  answer(kind::read_counter, 0,
         said::list({said::number(1), said::text("1700000020000005"), said::text("500")}));

  node_mark later = *node_mark::parse(mark(1));
  ++later.epoch;
  answer(kind::read_counter, 1, said::list({said::number(-1), said::text(later.text())}));

  EXPECT_EQ(count(machine->nodes().voters()), 1U) << "no roster has a majority";
  for (const delivery& each : under_way) EXPECT_NE(each.why.what, kind::adopt);
}

TEST_F(QuorumTest, KeepsItsVotesWhenAMemberIsReplaced) {
  make(3);
  hold(me, 7U);
  const auto later = [&](node_number node) {
    return roster_after({"node2", "new"}, *node_mark::parse(mark(node))).text();
  };
  renew(me);
  for (const node_number node : {0U, 1U}) {
    answer(kind::extend, node, said::list({said::number(-1), said::text(later(node))}));
  }
  EXPECT_EQ(told(), "renew unavailable") << "it may be asked again";
  ASSERT_EQ(machine->nodes().epoch(), 2U);

  renew(me);
  for (const node_number node : {0U, 1U}) {
    const delivery sent = take(kind::extend, node);
    EXPECT_EQ(sent.mark, stamp_of(later(node)));
    answer(sent, yes(0));
  }

  EXPECT_THAT(told(), ::testing::HasSubstr("renew renewed"));
}

TEST_F(QuorumTest, AsksTheMembersOfTheNewRosterForTheirVotesWhenTheyDidNotGiveThem) {
  make(3);
  hold(me, only(1) | only(2));
  move_to_the_next_roster(0, kind::heal);
  ASSERT_EQ(machine->nodes().voters(), only(1) | only(2)) << "a majority of the old roster";
  log.clear();
  move_to_the_next_roster(1, kind::extend);
  ASSERT_EQ(told(), "renew unavailable");
  ASSERT_EQ(machine->nodes().voters(), only(0) | only(1));

  const delivery healing = take(kind::heal, 0);
  EXPECT_EQ(healing.mark, stamp_of(next_mark(0)));
  answer(healing, yes(0));
  renew(me);
  answer(kind::extend, 0, yes(0));
  answer(kind::extend, 1, yes(0));

  EXPECT_THAT(told(), ::testing::HasSubstr("renew renewed"));
}

TEST_F(QuorumTest, AReleaseIsNotHeardByAMemberThatWasReplaced) {
  make(3);
  hold(me, 7U);
  move_to_the_next_roster(0, kind::extend);
  move_to_the_next_roster(1, kind::extend);
  log.clear();

  release(me);
  answer(kind::leave, 0, left());
  answer(kind::leave, 2, left());
  EXPECT_EQ(told(), "") << "one of the two is no member any more";
  answer(kind::leave, 1, unknown());

  EXPECT_EQ(told(), "leave unknown");
}

TEST_F(QuorumTest, AReleaseIsHeardWhenEverybodyHasWhoHadAVote) {
  make(3);
  hold(me, only(1) | only(2));
  move_to_the_next_roster(0, kind::heal);
  move_to_the_next_roster(1, kind::extend);
  answer(kind::heal, 0, no());
  log.clear();

  release(me);
  answer(kind::leave, 1, left());
  answer(kind::leave, 2, left());

  EXPECT_EQ(told(), "leave left")
      << "nothing is left, though a majority of the new roster was not asked";
}

TEST_F(QuorumTest, AnswersThatNobodyWaitsForDoNothing) {
  make(3);
  acquire(me, false);
  const std::deque<delivery> bids = under_way;
  answer_all(kind::bid, 7, no());
  ASSERT_EQ(told(), "acquire held");
  answer(kind::settle, 2, left(false));
  for (const delivery& each : bids) answer(each, yes(10));
  EXPECT_EQ(told(), "");
  EXPECT_TRUE(machine->idle());
}

}  // namespace
}  // namespace sallyport::backends::redlock
