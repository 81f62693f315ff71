#include "backends/redlock/replacement.hpp"

#include "backends/redlock/test_marks.hpp"
#include "backends/redlock/test_membership_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sallyport::backends::redlock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using kind = replacement_step::kind;

// ---- the next step ---------------------------------------------------------------------------------

/// node0, node1, ... are the members, and "new" is a blank server beside them. node2 is to be replaced.
class Replacing : public ::testing::Test {
 protected:
  explicit Replacing(unsigned members = 3) {
    for (unsigned i = 0; i < members; ++i) {
      see("node" + std::to_string(i),
          test_mark("store", members, i, "run" + std::to_string(i)).text());
    }
    see("new", "");
  }

  void see(const std::string& name, const std::string& mark) {
    seen.push_back({name,
                    true,
                    {.run_id = "run" + std::to_string(seen.size()), .durable = true, .mark = mark},
                    node_mark::parse(mark)});
  }
  void set(std::size_t node, const node_mark& mark) {
    seen[node].facts.mark = mark.text();
    seen[node].mark = mark;
  }
  /// It is away.
  void lose(std::size_t node) { seen[node].reachable = false; }
  void lose_data(std::size_t node) {
    seen[node].facts.mark.clear();
    seen[node].mark.reset();
  }
  [[nodiscard]] replacement_step next(const std::string& old_member = "node2",
                                      const std::string& new_member = "new") const {
    return next_step({old_member, new_member}, seen);
  }
  /// Takes steps until there is none; who was taken, in this order.
  std::vector<node_number> take_all(unsigned most = 9) {
    std::vector<node_number> taken;
    while (taken.size() < most) {
      const replacement_step step = next();
      if (step.what != kind::take) break;
      set(step.node, step.mark);
      taken.push_back(step.node);
    }
    return taken;
  }

  std::vector<sighting> seen;
};

TEST_F(Replacing, TakesThoseThatStayOneAfterTheOther) {
  EXPECT_THAT(take_all(), ::testing::ElementsAre(0U, 1U));

  EXPECT_EQ(next().what, kind::done);
  for (const std::size_t node : {0, 1}) {
    const node_mark& mark = *seen[node].mark;
    EXPECT_EQ(mark.epoch, 2U);
    EXPECT_EQ(mark.is, node_mark::state::full);
    EXPECT_EQ(mark.own, "id" + std::to_string(node));
    EXPECT_EQ(mark.run_id, "run" + std::to_string(node));
    EXPECT_EQ(addresses_of(mark.members), "node0, node1, new");
    EXPECT_EQ(mark.members, seen[0].mark->members);
  }
  EXPECT_EQ(seen[2].mark->epoch, 1U) << "nothing is done to who leaves";
}

TEST_F(Replacing, GivesTheNewMemberAnIdThatNobodyHad) {
  const node_mark first = roster_after({"node2", "new"}, *seen[0].mark);
  node_mark later = first;
  later.members[2] = {"id2", "node2"};  // it came back, and is replaced again

  std::set<std::string> ids{"id0", "id1", "id2", first.members[2].id};
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_FALSE(ids.contains(roster_after({"node2", "new"}, later).members[2].id));
  EXPECT_EQ(first, roster_after({"node2", "new"}, *seen[0].mark)) << "two that want the same agree";
}

TEST_F(Replacing, NeedsNeitherTheOldMemberNorAllOthers) {
  lose(2);
  EXPECT_THAT(take_all(), ::testing::ElementsAre(0U, 1U));
  EXPECT_EQ(next().what, kind::done);
}

TEST_F(Replacing, GoesOnWhereAnotherEnded) {
  lose(2);  // so that no majority of any roster has its mark
  take_all(1);

  EXPECT_THAT(take_all(), ::testing::ElementsAre(1U));
  EXPECT_EQ(next().what, kind::done);
}

TEST_F(Replacing, GoesOnAlsoWhenTheNewServerIsGoneOrHasCome) {
  take_all(1);
  lose(3);
  EXPECT_EQ(next().what, kind::take);
  take_all();
  EXPECT_EQ(next().what, kind::done);

  seen[3].reachable = true;
  node_mark quiet = *seen[0].mark;
  quiet.own = quiet.members[2].id;
  quiet.run_id = seen[3].facts.run_id;
  quiet.is = node_mark::state::quiet;
  quiet.quiet_since_us = 5;
  set(3, quiet);
  EXPECT_EQ(next().what, kind::done);
}

TEST_F(Replacing, IsRefusedWhereTheNewServerIsNotBlank) {
  set(3, test_mark("elsewhere", 3, 0, "run3"));

  const replacement_step step = next();

  EXPECT_EQ(step.what, kind::refused);
  EXPECT_EQ(step.why.code, errc::store_refused);
  EXPECT_THAT(step.why.detail, HasSubstr("new has a mark already"));
}

TEST_F(Replacing, IsRefusedWhereTheNewServerIsAwayOrAMember) {
  seen[3].facts.run_id = "run1";
  EXPECT_THAT(next().why.detail, HasSubstr("new is the same server as node1"));
  seen[3].facts.run_id.clear();
  EXPECT_THAT(next().why.detail, HasSubstr("+info"));
  lose(3);
  EXPECT_THAT(next().why.detail, HasSubstr("new is not reachable"));
  EXPECT_THAT(next("node2", "node1").why.detail, HasSubstr("node1 is a member already"));
  EXPECT_THAT(next("node2", "node2").why.detail, HasSubstr("comes back by itself"));
  EXPECT_EQ(next("node2", "node1").why.code, errc::bad_uri);
}

TEST_F(Replacing, IsRefusedForWhoIsNoMember) {
  const replacement_step step = next("elsewhere");

  EXPECT_EQ(step.what, kind::refused);
  EXPECT_EQ(step.why.code, errc::bad_uri);
  EXPECT_THAT(step.why.detail,
              HasSubstr("elsewhere is no member. The members are node0, node1, node2"));
}

TEST_F(Replacing, IsRefusedBeforeAnythingIsDoneWhereTooFewStay) {
  lose(1);
  EXPECT_EQ(next().what, kind::refused);
  EXPECT_EQ(next().why.code, errc::unavailable);
  EXPECT_THAT(next().why.detail,
              HasSubstr("1 of the members that stay may vote, and 2 are needed"));

  seen[1].reachable = true;
  seen[1].facts.run_id = "restarted";
  EXPECT_EQ(next().what, kind::refused) << "what it has may be old";
  lose_data(1);
  EXPECT_EQ(next().what, kind::refused);
}

TEST_F(Replacing, StopsForAnotherReplacementAndNamesIt) {
  set(0, [&] {
    node_mark other = roster_after({"node2", "rival"}, *seen[0].mark);
    other.own = "id0";
    return other;
  }());

  const replacement_step step = next();

  EXPECT_EQ(step.what, kind::refused);
  EXPECT_EQ(step.why.code, errc::store_refused);
  EXPECT_THAT(step.why.detail, HasSubstr("by which the members are node0, node1, rival"));
}

TEST_F(Replacing, IsRefusedWhereTwoHaveMetHalfWay) {
  const node_mark before = *seen[0].mark;
  node_mark one = roster_after({"node2", "new"}, before);
  set(0, one);
  node_mark other = roster_after({"node0", "rival"}, before);
  other.own = "id1";
  other.run_id = "run1";
  set(1, other);

  EXPECT_EQ(next().what, kind::refused);
  EXPECT_THAT(next().why.detail, HasSubstr("init --force"));
}

TEST_F(Replacing, CountsAMemberOnceThatTheListNamesTwice) {
  lose(2);
  take_all(1);
  seen.push_back(seen[0]);
  seen.back().name = "alias of node0";
  lose(1);

  EXPECT_EQ(next().what, kind::refused) << "one of three has the new mark, not two";
  EXPECT_EQ(next().why.code, errc::unavailable);
}

class ReplacingOneOfFive : public Replacing {
 protected:
  ReplacingOneOfFive() : Replacing(5) {}
};

TEST_F(ReplacingOneOfFive, LeavesWhoIsAwayBehindAndTakesItLater) {
  lose(4);
  EXPECT_THAT(take_all(), ::testing::ElementsAre(0U, 1U, 3U));
  EXPECT_EQ(next().what, kind::done);

  seen[4].reachable = true;
  EXPECT_THAT(take_all(), ::testing::ElementsAre(4U));
}

TEST_F(ReplacingOneOfFive, NeedsTheOfflineWayWhereTwoReplacementsWereBegun) {
  const node_mark before = *seen[0].mark;
  set(0, roster_after({"node2", "new"}, before));
  node_mark other = roster_after({"node2", "rival"}, before);
  other.own = "id1";
  other.run_id = "run1";
  set(1, other);

  for (const std::string each : {"new", "rival"}) {
    const replacement_step step = next("node2", each);
    EXPECT_EQ(step.what, kind::refused);
    EXPECT_EQ(step.why.code, errc::store_refused);
    EXPECT_THAT(step.why.detail, HasSubstr("init --force"));
    EXPECT_THAT(step.why.detail, Not(HasSubstr("finish that")))
        << "whoever goes on with one of them meets the other";
  }
}

class ReplacingOneOfTwo : public Replacing {
 protected:
  ReplacingOneOfTwo() : Replacing(2) {}
};

TEST_F(ReplacingOneOfTwo, IsNotSupported) {
  EXPECT_EQ(next("node1").why.code, errc::not_supported);
  EXPECT_THAT(next("node1").why.detail, HasSubstr("Stop all clients"));
}

// ---- how clients see it ----------------------------------------------------------------------------

/// A client whose list has the three members, and behind them the server that takes node2's place.
class Replaced : public MembershipTest {
 protected:
  explicit Replaced(std::vector<std::string> names = {"node0", "node1", "node2", "new"}) {
    membership::settings how;
    how.names = std::move(names);
    members = std::make_unique<membership>(std::move(how));
    size = 3;
  }

  void meet() {
    up_all_but();
    std::ignore = up(3, "");
  }
  [[nodiscard]] std::string next_mark_of(node_number node) const {
    node_mark mark =
        roster_after({"node2", "new"}, *node_mark::parse(mark_of(node == 3 ? 0 : node)));
    mark.run_id = run_of(node);
    if (node == 3) mark.own = mark.members[2].id;
    return mark.text();
  }
  actions taken(node_number node) { return members->mark_differs(node, next_mark_of(node), now); }
  /// Of those that ask, as the nodes have them.
  void read_marks(node_set asked, const std::vector<std::string>& marks) {
    for_each(asked,
             [&](node_number node) { std::ignore = members->adopted(node, marks[node], now); });
  }
};

TEST_F(Replaced, IsNobodyAsLongAsAMajorityHasTheOldMarks) {
  meet();

  const actions out = taken(0);

  EXPECT_EQ(members->voters(), only(1) | only(2)) << "a majority of the old roster";
  EXPECT_EQ(members->epoch(), 1U);
  EXPECT_EQ(out.read_marks & 7U, 7U) << "others may have been taken as well";
  EXPECT_THAT(out.adopt, IsEmpty());
  EXPECT_THAT(members->missing(), IsEmpty());
  EXPECT_THAT(complaints(), HasSubstr("node0 has the mark of a replacement that was begun"));
}

TEST_F(Replaced, LeavesWithTheMajority) {
  meet();
  std::ignore = taken(0);
  std::ignore = taken(1);

  EXPECT_EQ(members->epoch(), 2U);
  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_EQ(members->mark_of(1), stamp_of(next_mark_of(1)));
  EXPECT_THAT(complaints(), HasSubstr("node2 was a member once"));
  EXPECT_THAT(complaints(), HasSubstr("new has lost its data, or may have"));
}

TEST_F(Replaced, IsLearntWithoutTheOldMemberByLookingAgain) {
  up_all_but(only(2));
  std::ignore = down(2);
  std::ignore = up(3, "");

  const actions out = taken(0);
  EXPECT_EQ(members->voters(), only(0)) << "no roster has a majority";
  EXPECT_TRUE(members->majority_may_return());
  EXPECT_EQ(members->trouble(now).code, errc::unavailable) << "it passes";
  EXPECT_THAT(members->trouble(now).detail, HasSubstr("init --replace"));
  read_marks(out.read_marks, {next_mark_of(0), mark_of(1), "", ""});
  EXPECT_EQ(members->voters(), only(0)) << "the other one had not been taken yet";
  const actions again = pass(members->wake_at() - now);
  EXPECT_EQ(again.read_marks & 3U, 3U);
  read_marks(again.read_marks, {next_mark_of(0), next_mark_of(1), "", ""});

  EXPECT_EQ(members->voters(), only(0) | only(1));
}

TEST_F(Replaced, LetsTheNewServerVoteAfterTheLongestLeaseWithTheCounterOfAMajority) {
  meet();
  std::ignore = taken(0);
  const actions asked = taken(1);
  ASSERT_EQ(asked.read_clocks, only(0) | only(1));
  note(asked);

  EXPECT_EQ(pass(12s - 1ms).read_counters, 0U) << "10 s, a tenth and a second";
  EXPECT_EQ(pass(1ms).read_counters, only(0) | only(1));
  std::ignore = read(0, 70);
  const actions last = read(1, 60);
  ASSERT_EQ(last.adopt.size(), 1U);
  EXPECT_EQ(last.adopt[0].floor, 70U);
  const node_mark mark = *node_mark::parse(last.adopt[0].mark);
  EXPECT_EQ(mark.own, mark.members[2].id);
  std::ignore = members->adopted(3, mark.text(), now);
  EXPECT_EQ(members->voters(), only(0) | only(1) | only(3));
  EXPECT_TRUE(members->votes("new"));
}

TEST_F(Replaced, MakesWhatWasReadOfOldMembersWorthless) {
  meet();
  std::ignore = down(0);
  make_quiet_and_wait(0);
  std::ignore = read(1, 5);

  // Both answers are not of one roster.
  std::ignore = members->mark_differs(1, next_mark_of(1), now);
  const actions out = read(2, 7);

  EXPECT_THAT(out.adopt, IsEmpty());
  EXPECT_EQ(count(members->voters()), 1U);
}

TEST_F(Replaced, MovesUpWhoWasLeftBehind) {
  up_all_but(only(1));
  std::ignore = up(3, "");
  std::ignore = taken(0);
  std::ignore = members->adopted(3, next_mark_of(3), now);
  ASSERT_EQ(members->voters(), only(0) | only(3));
  const actions out = up(1, mark_of(1));

  ASSERT_EQ(out.adopt.size(), 1U);
  EXPECT_EQ(out.adopt[0].expected, mark_of(1));
  EXPECT_EQ(out.adopt[0].mark, next_mark_of(1))
      << "it has all that it had, so nothing is waited for";
  EXPECT_EQ(out.adopt[0].floor, 0U);
}

TEST_F(Replaced, KeepsWhoWasLeftBehindAndRestartedQuiet) {
  up_all_but(only(1) | only(2));
  std::ignore = up(3, "");
  std::ignore = taken(0);
  std::ignore = members->adopted(3, next_mark_of(3), now);
  ASSERT_EQ(members->voters(), only(0) | only(3));

  const actions out = up(1, mark_of(1), false, "restarted");

  EXPECT_THAT(out.adopt, IsEmpty());
  EXPECT_EQ(out.read_clocks, only(0) | only(3));
}

TEST_F(Replaced, IsNotUndoneByAnOldMajorityThatComesBack) {
  meet();
  std::ignore = taken(0);
  std::ignore = taken(1);
  ASSERT_EQ(members->epoch(), 2U);

  std::ignore = down(0);
  std::ignore = down(1);
  std::ignore = up(0, mark_of(0), true, "restored0");
  std::ignore = up(1, mark_of(1), true, "restored1");

  EXPECT_EQ(members->epoch(), 2U);
  EXPECT_EQ(count(members->voters()), 0U);
}

class ReplacedBehindTwoNames : public Replaced {
 protected:
  ReplacedBehindTwoNames() : Replaced({"node0", "node1", "node2", "new", "alias of node0"}) {}
};

TEST_F(ReplacedBehindTwoNames, CountsAMemberOnceThatTheListNamesTwice) {
  meet();
  std::ignore = up(4, mark_of(0), true, run_of(0));
  std::ignore = taken(0);
  std::ignore = members->adopted(4, next_mark_of(0), now);

  EXPECT_EQ(members->epoch(), 1U) << "one of three has the new mark, not two";
  EXPECT_EQ(members->voters(), only(1) | only(2));
}

class ReplacedUnderAnotherName : public Replaced {
 protected:
  ReplacedUnderAnotherName() : Replaced({"alias of node0", "node1", "node2", "new"}) {}
};

TEST_F(ReplacedUnderAnotherName, IsReadAgainUntilItWasMovedByWhoMay) {
  std::ignore = up(1, next_mark_of(1));
  std::ignore = up(3, next_mark_of(3));
  std::ignore = down(2);
  const actions out = up(0, mark_of(0));
  ASSERT_EQ(members->voters(), only(1) | only(3));
  EXPECT_THAT(out.adopt, IsEmpty()) << "it is not at its member's address";
  EXPECT_THAT(members->missing(), IsEmpty());

  const actions again = pass(500ms);
  EXPECT_EQ(again.read_marks & only(0), only(0));
  std::ignore = members->adopted(0, next_mark_of(0), now);

  EXPECT_EQ(members->voters(), only(0) | only(1) | only(3));
}

/// What the command does whose user wants that.
class ReplacedByOperator : public Replaced {
 protected:
  ReplacedByOperator() {
    membership::settings how;
    how.names = {"node0", "node1", "node2", "new"};
    how.replace = replacement{"node2", "new"};
    members = std::make_unique<membership>(std::move(how));
    std::ignore = down(2);
    std::ignore = up(0, mark_of(0));
    std::ignore = up(1, mark_of(1));
  }
};

TEST_F(ReplacedByOperator, LooksAtAllThatStayBeforeTheFirstIsTaken) {
  const actions asked = up(3, "");
  EXPECT_THAT(asked.adopt, IsEmpty());
  ASSERT_EQ(asked.look_at, only(0) | only(1));

  EXPECT_THAT(members->looked_at(0, asked.looking, true, now).adopt, IsEmpty());
  const actions last = members->looked_at(1, asked.looking, true, now);

  ASSERT_EQ(last.adopt.size(), 1U);
  EXPECT_EQ(last.adopt[0].node, 0U);
  EXPECT_EQ(last.adopt[0].mark, next_mark_of(0));
  const actions next = members->adopted(0, next_mark_of(0), now);
  EXPECT_EQ(next.look_at, 0U) << "the second one follows at once";
  ASSERT_EQ(next.adopt.size(), 1U);
  EXPECT_EQ(next.adopt[0].node, 1U);
}

TEST_F(ReplacedByOperator, IsRefusedWithoutAnyStepWhereOneThatStaysDoesNotAnswer) {
  const actions asked = up(3, "");
  ASSERT_EQ(asked.look_at, only(0) | only(1));

  EXPECT_THAT(members->looked_at(1, asked.looking, false, now).adopt, IsEmpty());

  ASSERT_TRUE(members->replaced());
  ASSERT_FALSE(*members->replaced());
  EXPECT_EQ(members->replaced()->error().code, errc::unavailable);
  EXPECT_THAT(members->looked_at(0, asked.looking, true, now).adopt, IsEmpty());
}

TEST_F(ReplacedByOperator, LooksAgainWhenTheFirstStepFailed) {
  const actions asked = up(3, "");
  std::ignore = members->looked_at(0, asked.looking, true, now);
  ASSERT_EQ(members->looked_at(1, asked.looking, true, now).adopt.size(), 1U);
  std::ignore = members->adoption_failed(0, now);
  ASSERT_EQ(pass(500ms).read_marks & only(0), only(0));

  const actions again = members->adopted(0, mark_of(0), now);

  EXPECT_THAT(again.adopt, IsEmpty());
  EXPECT_EQ(again.look_at, only(0) | only(1));
}

TEST_F(ReplacedByOperator, GoesOnWithoutLookingWhereAnotherHasBegun) {
  const actions asked = up(3, "");
  ASSERT_EQ(asked.look_at, only(0) | only(1));

  const actions out = members->adopted(0, next_mark_of(0), now);

  ASSERT_EQ(out.adopt.size(), 1U);
  EXPECT_EQ(out.adopt[0].node, 1U);
}

class ReplacedUnknown : public Replaced {
 protected:
  ReplacedUnknown() : Replaced({"node0", "node1", "node2"}) {}
};

TEST_F(ReplacedUnknown, IsMissedByNameInAListThatLacksTheNewServer) {
  up_all_but();
  std::ignore = taken(0);
  EXPECT_THAT(members->missing(), IsEmpty());
  std::ignore = taken(1);

  EXPECT_THAT(members->missing(), ::testing::ElementsAre("new"));
  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_EQ(members->voters(), only(0) | only(1)) << "who holds something may keep it";
}

}  // namespace
}  // namespace sallyport::backends::redlock
