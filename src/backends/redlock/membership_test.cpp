#include "backends/redlock/membership.hpp"

#include "backends/redlock/test_membership_fixture.hpp"
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// ---- marks ---------------------------------------------------------------------------------------

TEST(NodeMark, PrintsWhatItReads) {
  const node_mark mark{.store = "abc",
                       .epoch = 7,
                       .max_lease = 30'000ms,
                       .members = {{"1f", "redis1:6379"}, {"2f", "unix:/run/my redis"}},
                       .own = "2f",
                       .run_id = "run1",
                       .durable = true};

  EXPECT_THAT(mark.text(), StartsWith("sp3 "));
  EXPECT_THAT(mark.text(),
              EndsWith(" f abc 7 30000 run1 d 0 2f 1f redis1:6379 2f unix:/run/my%20redis"));
  EXPECT_EQ(node_mark::parse(mark.text()), mark);
}

TEST(NodeMark, SaysSinceWhenANodeIsQuiet) {
  node_mark mark = test_mark("abc", 3, 1, "run1");
  mark.is = node_mark::state::quiet;
  mark.quiet_since_us = 1'700'000'000'000'000;
  mark.durable = false;

  EXPECT_THAT(mark.text(), HasSubstr(" q abc 1 10000 run1 - 1700000000000000 id1 "));
  EXPECT_EQ(node_mark::parse(mark.text()), mark);
}

TEST(NodeMark, HasAStampThatTellsItFromEveryOther) {
  const node_mark one = test_mark("abc", 3, 1, "run1");
  std::vector<node_mark> all(10, one);
  all[1].epoch = 2;
  all[2].store = "abd";
  all[3].max_lease = 11s;
  all[4].members[2].id = "id9";
  all[5].members[2].address = "node9";
  all[6].own = "id2";
  all[7].run_id = "run2";
  all[8].durable = false;
  all[9].is = node_mark::state::candidate;

  std::set<std::string> stamps;
  for (const node_mark& each : all) {
    const std::string text = each.text();
    EXPECT_EQ(stamp_of(text).size(), 20U) << "as the scripts have it";
    stamps.emplace(stamp_of(text));
  }
  EXPECT_EQ(stamps.size(), all.size());
}

TEST(NodeMark, RefusesWhatIsNone) {
  const std::string head = "sp3 0123456789abcdef ";
  for (const std::string& each : {std::string(""),
                                  std::string("sp3"),
                                  std::string("hello, world"),
                                  std::string("sp2 abc 5 30000 run1"),
                                  std::string("sp3 0123 f abc 1 30000 run1 d 0 a a x"),
                                  head + "f abc 1 30000 run1 d 0 a",
                                  head + "f abc 1 30000 run1 d 0 a a",
                                  head + "f abc 1 30000 run1 d 0 a a x more",
                                  head + "f  1 30000 run1 d 0 a a x",
                                  head + "f abc x 30000 run1 d 0 a a x",
                                  head + "f abc 0 30000 run1 d 0 a a x",
                                  head + "f abc 1 0 run1 d 0 a a x",
                                  head + "f abc 1 -1 run1 d 0 a a x",
                                  head + "f abc 1 99999999999999999999 run1 d 0 a a x",
                                  head + "f abc 1 30000 run1 x 0 a a x",
                                  head + "f abc 1 30000 run1 d 5 a a x",
                                  head + "q abc 1 30000 run1 d 0 a a x",
                                  head + "c abc 1 30000 run1 d 5 a a x",
                                  head + "z abc 1 30000 run1 d 0 a a x",
                                  head + "f abc 1 30000 run1 d 0 b a x"}) {
    EXPECT_FALSE(node_mark::parse(each)) << each;
  }
  EXPECT_TRUE(node_mark::parse(head + "f abc 1 30000 run1 d 0 a a x"));
}

// ---- who may vote --------------------------------------------------------------------------------

TEST_F(MembershipTest, LetsNobodyVoteBeforeItIsReached) {
  make(3);
  EXPECT_EQ(members->voters(), 0U);
  EXPECT_EQ(members->reachable(), 0U);
  EXPECT_EQ(members->wake_at(), time_point::max());
  EXPECT_EQ(members->trouble(now).code, errc::unavailable);
}

TEST_F(MembershipTest, LetsMarkedNodesVote) {
  make(3);
  EXPECT_TRUE(up(0, mark_of(0)).changed);
  EXPECT_EQ(members->voters(), only(0));
  EXPECT_TRUE(up(2, mark_of(2)).changed);

  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_EQ(members->reachable(), only(0) | only(2));
  EXPECT_EQ(members->mark_of(2), stamp_of(mark_of(2)));
  EXPECT_EQ(members->max_lease(), 10s) << "the marks' word, not the address's";
  EXPECT_THAT(complaints(), AllOf(HasSubstr("node1 is not reachable"), Not(HasSubstr("node0"))));
}

TEST_F(MembershipTest, DropsANodeThatIsLostAndTakesItBack) {
  make(3);
  up_all_but();

  EXPECT_TRUE(down(1).changed);
  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_THAT(complaints(), HasSubstr("node1 is not reachable (refused)"));
  EXPECT_TRUE(up(1, mark_of(1)).changed);

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_THAT(members->complaints(now), IsEmpty());
}

TEST_F(MembershipTest, LetsAMemberOfAnotherStoreNotVote) {
  make(3);
  up_all_but(only(1));
  EXPECT_THAT(up(1, mark_of(1, "run1", "other")).adopt, IsEmpty());

  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_THAT(complaints(), HasSubstr("node1 belongs to another set of nodes"));
}

TEST_F(MembershipTest, GoesWithTheStoreOfMostNodesWhoeverComesFirst) {
  make(3);
  EXPECT_THAT(up(1, mark_of(1, "run1", "other")).adopt, IsEmpty());
  up_all_but(only(1));

  EXPECT_EQ(members->voters(), only(0) | only(2));
}

TEST_F(MembershipTest, LetsAMemberOfALargerStoreNotVote) {
  make(3);
  up_all_but(only(1));
  EXPECT_THAT(up(1, test_mark("old", 5, 1, "run1").text()).adopt, IsEmpty());

  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_THAT(complaints(), HasSubstr("node1 belongs to another set of nodes"));
}

TEST_F(MembershipTest, LetsWhatIsNoMarkNotVote) {
  make(3);
  up_all_but(only(1));
  EXPECT_THAT(up(1, "hello").adopt, IsEmpty());
  EXPECT_EQ(members->voters(), only(0) | only(2));
}

TEST_F(MembershipTest, CountsOneServerOnce) {
  make(3);
  up_all_but(only(2));
  EXPECT_THAT(up(2, mark_of(0), true, run_of(0)).adopt, IsEmpty());

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_THAT(complaints(), HasSubstr("node2 is the same server as another node of the list"));
}

TEST_F(MembershipTest, LetsAServerWithoutARunIdNotVote) {
  make(3);
  up_all_but(only(2));
  EXPECT_THAT(up(2, mark_of(2), true, "").adopt, IsEmpty());

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_THAT(complaints(), HasSubstr("node2 does not tell its run id"));
}

TEST_F(MembershipTest, SaysThatTheListIsWrongWhenTooManyAreStrangers) {
  make(3);
  up_all_but(only(1) | only(2));
  std::ignore = up(1, test_mark("old", 5, 1, "run1").text());
  std::ignore = up(2, "hello");

  const base::failure why = members->trouble(now);
  EXPECT_EQ(why.code, errc::store_refused);
  EXPECT_THAT(why.detail, AllOf(HasSubstr("1 of 3 nodes may vote, and 2 are needed"),
                                HasSubstr("not the one that they were initialised with")));
}

TEST_F(MembershipTest, NamesTheCommandWhenAMajorityHasNoMark) {
  make(3);
  for (node_number node = 0; node < 3; ++node) EXPECT_THAT(up(node, "").adopt, IsEmpty());

  const base::failure why = members->trouble(now);
  EXPECT_EQ(why.code, errc::store_refused);
  EXPECT_THAT(why.detail, AllOf(HasSubstr("0 of 3 nodes may vote"), HasSubstr("sallyport init"),
                                HasSubstr("node1 was never initialised, or has lost its data")));
}

TEST_F(MembershipTest, NamesTheCommandWhenAMajorityLostItsData) {
  make(3);
  up_all_but();
  for (const node_number node : {1U, 2U}) {
    std::ignore = down(node);
    EXPECT_THAT(up(node, "").adopt, IsEmpty());
  }

  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail, HasSubstr("sallyport init"));
  const actions later = pass(1h);
  EXPECT_THAT(later.adopt, IsEmpty()) << "one node can't vouch for the others";
  EXPECT_EQ(later.read_counters, 0U);
}

TEST_F(MembershipTest, SaysThatItMayPassWhileNodesAreOnlyAway) {
  make(3);
  up_all_but(only(1) | only(2));
  EXPECT_EQ(members->trouble(now).code, errc::unavailable);
}

TEST_F(MembershipTest, IsDurableWhenAllThatAreReachableAre) {
  make(3);
  std::ignore = up(0, mark_of(0), true);
  EXPECT_TRUE(members->durable());
  std::ignore = up(1, mark_of(1), false);
  EXPECT_FALSE(members->durable());
}

// ---- restarts ------------------------------------------------------------------------------------

TEST_F(MembershipTest, GivesADurableNodeThatRestartedANewMark) {
  make(3);
  up_all_but();
  std::ignore = down(1);

  const actions asked = up(1, mark_of(1), true, "again");

  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].node, 1U);
  EXPECT_EQ(asked.adopt[0].expected, mark_of(1));
  EXPECT_EQ(asked.adopt[0].mark, mark_of(1, "again"));
  EXPECT_EQ(asked.adopt[0].floor, 0U);
  EXPECT_EQ(members->voters(), only(0) | only(2)) << "not before that is done";
  EXPECT_THAT(complaints(), HasSubstr("node1 is being taken in"));
  EXPECT_TRUE(members->adopted(1, mark_of(1, "again"), now).changed);
  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(members->mark_of(1), stamp_of(mark_of(1, "again")));
}

TEST_F(MembershipTest, LetsAnotherClientsMarkBeAsGood) {
  make(3);
  up_all_but();
  std::ignore = down(1);
  std::ignore = up(1, mark_of(1), true, "again");

  EXPECT_TRUE(members->adopted(1, mark_of(1, "again"), now).changed) << "found, not written";

  EXPECT_EQ(members->voters(), 7U);
}

TEST_F(MembershipTest, NotesOnANodeThatItMayHaveForgotten) {
  make(3);
  up_all_but();
  std::ignore = down(1);

  const actions asked = up(1, mark_of(1), false, "again");
  EXPECT_THAT(asked.adopt, IsEmpty()) << "the others say what time it is";
  EXPECT_EQ(asked.read_clocks, only(0) | only(2));
  now += 100ms;
  EXPECT_THAT(members->clock_read(0, asked.clock_reading, server_us() - 2'000'000, now).adopt,
              IsEmpty());
  const actions noted = members->clock_read(2, asked.clock_reading, server_us(), now);

  ASSERT_EQ(noted.adopt.size(), 1U);
  EXPECT_EQ(noted.adopt[0].expected, mark_of(1));
  EXPECT_EQ(noted.adopt[0].mark, quiet_mark_of(1, "again", server_us() + 100'000, false))
      << "the latest clock, read when it was asked";
  EXPECT_EQ(noted.adopt[0].floor, 0U);
  EXPECT_THAT(members->adopted(1, noted.adopt[0].mark, now).adopt, IsEmpty());
  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_THAT(complaints(),
              HasSubstr("node1 has lost its data, or may have, and votes again in 15 s"))
      << "12 s, and as much as the clocks differ";
}

TEST_F(MembershipTest, GoesOnWithAWaitThatAnotherClientHasNoted) {
  make(3);
  up_all_but(only(1));

  note(up(1, quiet_mark_of(1, "run1", server_us() - 8'000'000)));

  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_EQ(members->wake_at(), now + 4s);
  const actions asked = pass(4s);
  EXPECT_EQ(asked.read_counters, only(0) | only(2));
  std::ignore = read(0, 5);
  const actions last = read(2, 7);
  ASSERT_EQ(last.adopt.size(), 1U);
  EXPECT_EQ(last.adopt[0].expected, quiet_mark_of(1, "run1", server_us() - 12'000'000));
  EXPECT_EQ(last.adopt[0].mark, mark_of(1));
  EXPECT_EQ(last.adopt[0].floor, 7U);
}

TEST_F(MembershipTest, TakesANodeInAtOnceThatWasQuietForLongEnough) {
  make(3);
  up_all_but(only(1));

  note(up(1, quiet_mark_of(1, "run1", server_us() - 60'000'000)));

  EXPECT_LE(members->wake_at(), now);
  EXPECT_EQ(pass(0s).read_counters, only(0) | only(2));
}

TEST_F(MembershipTest, CountsTheWaitByTheEarliestClock) {
  make(3);
  up_all_but(only(1));

  const actions asked = up(1, quiet_mark_of(1, "run1", server_us() - 8'000'000));
  std::ignore = members->clock_read(0, asked.clock_reading, server_us() + 3'600'000'000, now);
  std::ignore = members->clock_read(2, asked.clock_reading, server_us(), now);

  EXPECT_EQ(members->wake_at(), now + 4s) << "one clock that was set forward makes it no shorter";
}

TEST_F(MembershipTest, DoesNotBelieveWhatWasNotedInAnEarlierLife) {
  make(3);
  up_all_but(only(1));

  note(up(1, quiet_mark_of(1, "before", server_us() - 60'000'000), true, "again"));

  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, NotesItAnewWhenTheClocksWereSetBack) {
  make(3);
  up_all_but(only(1));

  note(up(1, quiet_mark_of(1, "run1", server_us() + 3'600'000'000)));

  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, NotesItOnceAlsoWhenTheClocksAreFarApart) {
  make(3);
  up_all_but(only(1));
  const actions asked = up(1, "");
  std::ignore = members->clock_read(0, asked.clock_reading, server_us() + 3'600'000'000, now);
  const actions noted = members->clock_read(2, asked.clock_reading, server_us(), now);
  ASSERT_EQ(noted.adopt.size(), 1U);

  const actions after = members->adopted(1, noted.adopt[0].mark, now);

  EXPECT_THAT(after.adopt, IsEmpty());
  EXPECT_EQ(members->wake_at(), now + 1h + 12s) << "by the latest clock to the earliest";
}

TEST_F(MembershipTest, AsksForTheClocksAgainWhenItWasFrozenMeanwhile) {
  make(3);
  up_all_but(only(1));
  const actions asked = up(1, "");
  now += 60s;

  for (const node_number node : {0U, 2U}) {
    EXPECT_THAT(members->clock_read(node, asked.clock_reading, server_us(), now).adopt, IsEmpty())
        << "that may have been the time a minute ago";
  }
  note(pass(0s));

  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, AsksForTheClocksAgainWhenOneDidNotAnswer) {
  make(3);
  up_all_but(only(1));
  const actions asked = up(1, "");
  EXPECT_EQ(asked.read_clocks, only(0) | only(2));
  std::ignore = members->clock_read(0, asked.clock_reading, server_us(), now);
  std::ignore = members->clock_read(2, asked.clock_reading, std::nullopt, now);

  ASSERT_LE(members->wake_at(), now + 1s);
  const actions again = pass(members->wake_at() - now);
  EXPECT_EQ(again.read_clocks, only(0) | only(2));
  EXPECT_THAT(members->clock_read(0, asked.clock_reading, server_us(), now).adopt, IsEmpty());
  EXPECT_THAT(members->clock_read(2, asked.clock_reading, server_us(), now).adopt, IsEmpty())
      << "an answer to the first question, which was read before";
  note(again);

  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, ReadsTheClocksAnewAfterAWhile) {
  make(3);
  up_all_but(only(1));
  comes_without_data(1);
  now += 2min;
  std::ignore = down(1);

  const actions asked = up(1, "");

  EXPECT_THAT(asked.adopt, IsEmpty()) << "what was read is too old";
  EXPECT_EQ(asked.read_clocks, only(0) | only(2));
  note(asked);
  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, ReadsNoClocksWithoutAMajority) {
  make(3);
  up_all_but(only(1) | only(2));

  EXPECT_EQ(up(1, "").read_clocks, 0U);
  EXPECT_THAT(complaints(), HasSubstr("votes again when the others are there"));
  EXPECT_EQ(up(2, mark_of(2)).read_clocks, only(0) | only(2));
}

TEST_F(MembershipTest, StartsTheWaitAnewWhenTheNodeForgotAgainMeanwhile) {
  make(3);
  up_all_but(only(2));
  make_quiet_and_wait(2);
  std::ignore = read(0, 5);
  ASSERT_EQ(read(1, 5).adopt.size(), 1U);

  note(members->adopted(2, "", now));

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_EQ(members->wake_at(), now + 12s);
}

TEST_F(MembershipTest, KeepsANodeQuietForLongerThanTheLongestLease) {
  make(3);
  up_all_but(only(1));
  comes_without_data(1);
  const time_point began = now;

  EXPECT_GT(members->wake_at(), began + 11s) << "a tenth for clocks that differ";
  EXPECT_EQ(pass(members->wake_at() - now - 1ms).read_counters, 0U);
  EXPECT_EQ(pass(1ms).read_counters, only(0) | only(2));
  EXPECT_EQ(members->voters(), only(0) | only(2));
}

TEST_F(MembershipTest, AdoptsAQuietNodeWithTheLargestCounterOfAMajority) {
  make(5);
  up_all_but(only(4));
  make_quiet_and_wait(4);

  EXPECT_THAT(read(0, 70).adopt, IsEmpty());
  EXPECT_THAT(read(1, 90).adopt, IsEmpty());
  const actions asked = read(3, 80);

  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].node, 4U);
  EXPECT_EQ(asked.adopt[0].expected, quiet_mark_of(4, "run4", server_us() - 12'000'000));
  EXPECT_EQ(asked.adopt[0].mark, mark_of(4));
  EXPECT_EQ(asked.adopt[0].floor, 90U);
  EXPECT_THAT(read(2, 99).adopt, IsEmpty()) << "once";
  EXPECT_TRUE(members->adopted(4, mark_of(4), now).changed);
  EXPECT_EQ(members->voters(), 31U);
}

TEST_F(MembershipTest, CountsEachNodesCounterOnce) {
  make(3);
  up_all_but(only(2));
  make_quiet_and_wait(2);

  EXPECT_THAT(read(0, 70).adopt, IsEmpty());
  EXPECT_THAT(read(0, 71).adopt, IsEmpty());
  EXPECT_EQ(read(1, 5).adopt.size(), 1U);
}

TEST_F(MembershipTest, DoesNotCountWhatWasReadBeforeTheNodeWasQuietForLongEnough) {
  make(3);
  up_all_but(only(2));
  comes_without_data(2);
  EXPECT_THAT(read(0, 70).adopt, IsEmpty());
  EXPECT_THAT(read(1, 70).adopt, IsEmpty());

  EXPECT_EQ(pass(members->wake_at() - now).read_counters, only(0) | only(1));
}

TEST_F(MembershipTest, AsksAgainForACounterThatDidNotCome) {
  make(3);
  up_all_but(only(2));
  make_quiet_and_wait(2);
  EXPECT_THAT(read(0, 70).adopt, IsEmpty());

  EXPECT_THAT(read(1, std::nullopt).adopt, IsEmpty());
  ASSERT_LE(members->wake_at(), now + 1s);
  EXPECT_EQ(pass(members->wake_at() - now).read_counters, only(1));
  EXPECT_EQ(read(1, 60).adopt.size(), 1U);
}

TEST_F(MembershipTest, DoesNotCountTheCounterOfANodeThatWasLostMeanwhile) {
  make(5);
  up_all_but(only(4));
  make_quiet_and_wait(4);
  std::ignore = read(0, 70);
  std::ignore = read(1, 70);
  std::ignore = down(1);

  EXPECT_THAT(read(2, 70).adopt, IsEmpty());
  EXPECT_EQ(read(3, 70).adopt.size(), 1U);
}

TEST_F(MembershipTest, WaitsForAMajorityBeforeItReadsCounters) {
  make(3);
  up_all_but(only(2));
  comes_without_data(2);
  std::ignore = down(1);

  EXPECT_EQ(pass(20s).read_counters, 0U);
  ASSERT_LE(members->wake_at(), now + 1s);
  std::ignore = up(1, mark_of(1));

  EXPECT_EQ(pass(members->wake_at() - now).read_counters, only(0) | only(1));
}

TEST_F(MembershipTest, FindsOutThatAnotherClientHasTakenTheQuietNodeIn) {
  make(3);
  up_all_but(only(2));
  comes_without_data(2);
  now += 1s;

  // With one node less it matters, and is looked at once and again and again.
  EXPECT_EQ(down(1).read_marks, only(2));
  const std::string same = quiet_mark_of(2, "run2", server_us() - 1'000'000);
  EXPECT_THAT(members->adopted(2, same, now).adopt, IsEmpty());
  EXPECT_EQ(members->voters(), only(0));
  ASSERT_LE(members->wake_at(), now + 1s);
  EXPECT_EQ(pass(members->wake_at() - now).read_marks, only(2));
  EXPECT_TRUE(members->adopted(2, mark_of(2), now).changed);

  EXPECT_EQ(members->voters(), only(0) | only(2));
}

TEST_F(MembershipTest, DoesNotSendForTheOperatorBeforeItHasLookedAgain) {
  make(3);
  up_all_but(only(2));
  comes_without_data(2);
  now += 1s;

  EXPECT_EQ(down(1).read_marks, only(2));
  comes_without_data(1);
  EXPECT_EQ(members->trouble(now).code, errc::unavailable);
  std::ignore = members->adopted(2, quiet_mark_of(2, "run2", server_us() - 1'000'000), now);

  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
}

TEST_F(MembershipTest, BeginsTheWaitAnewWhenTheQuietNodeWasLost) {
  make(3);
  up_all_but(only(2));
  comes_without_data(2);
  const time_point first = members->wake_at();
  now += 8s;
  std::ignore = down(2);
  EXPECT_EQ(members->wake_at(), time_point::max());

  comes_without_data(2);

  EXPECT_EQ(members->wake_at(), first + 8s);
}

TEST_F(MembershipTest, TakesTwoNodesInAtOnce) {
  make(5);
  up_all_but(only(3) | only(4));
  comes_without_data(3);
  comes_without_data(4);
  EXPECT_EQ(pass(members->wake_at() - now).read_counters, 7U);

  std::ignore = read(0, 5);
  std::ignore = read(1, 6);
  const actions asked = read(2, 7);

  ASSERT_EQ(asked.adopt.size(), 2U);
  EXPECT_EQ(asked.adopt[0].floor, 7U);
  EXPECT_EQ(asked.adopt[1].floor, 7U);
}

TEST_F(MembershipTest, ReadsTheCountersAnewForTheLaterOfTwoNodes) {
  make(5);
  up_all_but(only(3) | only(4));
  comes_without_data(3);
  now += 1s;
  comes_without_data(4);
  EXPECT_EQ(pass(members->wake_at() - now).read_counters, 7U);
  std::ignore = read(0, 5);
  std::ignore = read(1, 6);
  std::ignore = read(2, std::nullopt);

  EXPECT_EQ(pass(1s).read_counters, 7U) << "node 4's time is up";
}

TEST_F(MembershipTest, DoesNotCountForTheLaterNodeWhatWasJustBeingRead) {
  make(5);
  up_all_but(only(3) | only(4));
  comes_without_data(3);
  now += 1s;
  comes_without_data(4);
  EXPECT_EQ(pass(members->wake_at() - now).read_counters, 7U);
  const std::uint64_t early = reading;
  EXPECT_EQ(pass(1s).read_counters, 7U);

  for (node_number node = 0; node < 3; ++node) {
    EXPECT_THAT(members->counter_read(node, early, 5, now).adopt, IsEmpty());
  }
  std::ignore = read(0, 6);
  std::ignore = read(1, 6);
  EXPECT_EQ(read(2, 6).adopt.size(), 2U);
}

TEST_F(MembershipTest, JudgesANodeAnewThatLostItsMarkWhileConnected) {
  make(3);
  up_all_but();

  const actions asked = members->mark_differs(1, "", now);

  EXPECT_TRUE(asked.changed);
  EXPECT_THAT(asked.adopt, IsEmpty());
  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_LT(members->wake_at(), now + 13s);
  EXPECT_FALSE(members->mark_differs(1, "", now).changed) << "known already";
}

TEST_F(MembershipTest, DropsANodeThatBecameAMemberOfAnotherStore) {
  make(3);
  up_all_but();
  std::ignore = members->mark_differs(1, mark_of(1, "run1", "other"), now);
  EXPECT_EQ(members->voters(), only(0) | only(2));
  EXPECT_THAT(complaints(), HasSubstr("node1 belongs to another set of nodes"));
}

TEST_F(MembershipTest, IgnoresAWordAboutTheMarkThatIsExpectedByNow) {
  make(3);
  up_all_but();
  EXPECT_FALSE(members->mark_differs(1, mark_of(1), now).changed);
  EXPECT_EQ(members->voters(), 7U);
}

TEST_F(MembershipTest, ReadsAMarkAgainWhenItIsUnknownWhetherItWasChanged) {
  make(3);
  up_all_but();
  std::ignore = down(1);
  ASSERT_EQ(up(1, mark_of(1), true, "again").adopt.size(), 1U);

  std::ignore = members->adoption_failed(1, now);
  ASSERT_LE(members->wake_at(), now + 1s);
  EXPECT_EQ(pass(members->wake_at() - now).read_marks, only(1));
  EXPECT_THAT(members->adopted(1, mark_of(1, "again"), now).adopt, IsEmpty());

  EXPECT_EQ(members->voters(), 7U);
}

// ---- what was on disk before the restart -------------------------------------------------------------

TEST_F(MembershipTest, KeepsANodeQuietThatBecameDurableOnlyAfterItsCrash) {
  make(3);
  up_all_but(only(1));
  node_mark careless = test_mark("old", 3, 1, "before");
  careless.durable = false;

  const actions asked = up(1, careless.text(), true, "again");

  EXPECT_THAT(asked.adopt, IsEmpty());
  EXPECT_EQ(asked.read_clocks, only(0) | only(2)) << "it may have forgotten the last second";
}

TEST_F(MembershipTest, KeepsANodeQuietThatReadNoAppendedFileWhenItCameBack) {
  make(3);
  up_all_but(only(1));
  EXPECT_EQ(up(1, mark_of(1), false, "again").read_clocks, only(0) | only(2));
}

TEST_F(MembershipTest, NotesOnANodeThatItsSettingsHaveChanged) {
  make(3);
  up_all_but(only(1));

  const actions asked = up(1, mark_of(1), false);

  ASSERT_EQ(asked.adopt.size(), 1U);
  node_mark careless = test_mark("old", 3, 1, "run1");
  careless.durable = false;
  EXPECT_EQ(asked.adopt[0].mark, careless.text());
  std::ignore = members->adopted(1, careless.text(), now);
  EXPECT_EQ(members->voters(), 7U);
  // Another client, which asked it later, knows better: no quarrel about it.
  EXPECT_THAT(members->mark_differs(1, mark_of(1), now).adopt, IsEmpty());
  EXPECT_EQ(members->voters(), 7U);
}

// ---- counters ------------------------------------------------------------------------------------

TEST_F(MembershipTest, BringsACounterUpThatIsFarBehind) {
  make(3);
  up_all_but();

  const actions asked = members->far_behind(1, 1'800'000'000'000'000);

  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].expected, mark_of(1));
  EXPECT_EQ(asked.adopt[0].mark, mark_of(1));
  EXPECT_EQ(asked.adopt[0].floor, 1'800'000'000'000'000U);
  EXPECT_EQ(members->voters(), 7U) << "it votes meanwhile";
  EXPECT_FALSE(members->adopted(1, mark_of(1), now).changed);
  EXPECT_THAT(members->far_behind(1, std::uint64_t{1} << 53U).adopt, IsEmpty())
      << "that was not counted up, and would be the end of all counters";
}

// ---- attempts --------------------------------------------------------------------------------------

TEST_F(MembershipTest, PausesBeforeItTriesToMarkANodeAgain) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) std::ignore = up(node, "");

  for (int attempt = 0; attempt < 3; ++attempt) {
    const actions failed = members->adoption_failed(0, now);
    EXPECT_EQ(failed.read_marks, 0U)
        << "not at once: a server that refuses would be asked for ever";
    EXPECT_THAT(failed.adopt, IsEmpty());
    ASSERT_LE(members->wake_at(), now + 1s);
    ASSERT_EQ(pass(members->wake_at() - now).read_marks, only(0));
    EXPECT_EQ(members->adopted(0, "", now).adopt.size(), 1U);
  }
}

TEST_F(MembershipTest, ReadsAMarkUntilItIsKnown) {
  make(3);
  up_all_but();
  std::ignore = down(1);
  ASSERT_EQ(up(1, mark_of(1), true, "again").adopt.size(), 1U);
  std::ignore = members->adoption_failed(1, now);
  ASSERT_EQ(pass(members->wake_at() - now).read_marks, only(1));

  // No answer came to that.
  ASSERT_LE(members->wake_at(), now + 1s);
  EXPECT_EQ(pass(members->wake_at() - now).read_marks, only(1));
  EXPECT_THAT(members->adopted(1, mark_of(1, "again"), now).adopt, IsEmpty());
  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(pass(1s).read_marks, 0U);
  EXPECT_EQ(members->wake_at(), time_point::max());
}

}  // namespace
}  // namespace sallyport::backends::redlock
