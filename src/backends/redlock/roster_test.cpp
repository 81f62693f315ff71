// Who belongs to a store: how nodes are initialised, and what a list of nodes has to do with it.
#include "backends/redlock/test_membership_fixture.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace sallyport::backends::redlock {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- initialising --------------------------------------------------------------------------------

class Initialising : public MembershipTest {
 protected:
  /// What the nodes say to each question, until nobody asks any more; `clock_ahead` is one node's.
  void carry_out(const actions& asked) {
    follow(asked);
    for (int guard = 0; !todo.empty() || clocks != 0 || counters != 0 || guard == 0; ++guard) {
      ASSERT_LT(guard, 100);
      if (!todo.empty()) {
        const membership::adoption next = todo.front();
        todo.erase(todo.begin());
        std::string& mark = marks[next.node];
        if (mark == next.expected) {
          mark = next.mark;
          floors[next.node] = std::max(floors[next.node], next.floor);
        }
        follow(members->adopted(next.node, mark, now));
      } else if (clocks != 0) {
        const auto node = static_cast<node_number>(__builtin_ctz(clocks));
        clocks &= ~only(node);
        follow(members->clock_read(node, clock_reading, server_us() + ahead_us[node], now));
      } else if (counters != 0) {
        const auto node = static_cast<node_number>(__builtin_ctz(counters));
        counters &= ~only(node);
        follow(members->counter_read(node, counter_reading, floors[node], now));
      }
    }
  }
  /// All nodes come with the marks that they have.
  void meet() {
    for (node_number node = 0; node < size; ++node) carry_out(up(node, marks[node]));
  }
  [[nodiscard]] node_mark found(node_number node) const {
    return node_mark::parse(marks.at(node)).value_or(node_mark{});
  }

  std::map<node_number, std::string> marks;
  std::map<node_number, std::uint64_t> floors;
  std::map<node_number, std::uint64_t> ahead_us;

 private:
  void note_questions(const actions& asked) {
    if (asked.read_clocks != 0) clocks = asked.read_clocks, clock_reading = asked.clock_reading;
    if (asked.read_counters != 0) counters = asked.read_counters, counter_reading = asked.reading;
  }
  void follow(const actions& asked) {
    for (const auto& each : asked.adopt) todo.push_back(each);
    note_questions(asked);
    for (node_number node = 0; node < size; ++node) {
      if ((asked.read_marks & only(node)) != 0) follow(members->adopted(node, marks[node], now));
    }
  }
  std::vector<membership::adoption> todo;
  node_set clocks = 0;
  std::uint64_t clock_reading = 0;
  node_set counters = 0;
  std::uint64_t counter_reading = 0;
};

TEST_F(Initialising, MakesAllNodesMembersOfOneStore) {
  make(3, true);
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_TRUE(members->is_as_listed());
  EXPECT_FALSE(members->initialising());
  std::set<std::string> ids;
  for (node_number node = 0; node < 3; ++node) {
    const node_mark mark = found(node);
    EXPECT_EQ(mark.store, "fresh");
    EXPECT_EQ(mark.epoch, 1U);
    EXPECT_EQ(mark.is, node_mark::state::full);
    EXPECT_EQ(mark.run_id, run_of(node));
    EXPECT_EQ(mark.members, found(0).members);
    EXPECT_EQ(mark.members[node].address, "node" + std::to_string(node));
    EXPECT_EQ(mark.members[node].id, mark.own);
    ids.insert(mark.own);
  }
  EXPECT_EQ(ids.size(), 3U);
}

TEST_F(Initialising, BeginsOnlyWhenAllAreReachable) {
  make(3, true);
  EXPECT_THAT(up(0, "").adopt, IsEmpty());
  EXPECT_THAT(up(2, "").adopt, IsEmpty());

  const actions asked = up(1, "");

  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].node, 0U) << "the smallest run id";
  EXPECT_EQ(asked.adopt[0].expected, "");
  EXPECT_EQ(node_mark::parse(asked.adopt[0].mark)->is, node_mark::state::candidate);
}

TEST_F(Initialising, LetsTheSmallestRunIdDecide) {
  make(3, true);
  std::ignore = up(0, "", true, "ccc");
  std::ignore = up(1, "", true, "aaa");
  const actions asked = up(2, "", true, "bbb");
  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].node, 1U);
}

TEST_F(Initialising, LetsNobodyVoteBeforeAllAreCandidates) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) std::ignore = up(node, "");
  node_mark first = test_mark("fresh", 3, 0, "run0");
  first.is = node_mark::state::candidate;
  const actions asked = members->adopted(0, first.text(), now);
  ASSERT_EQ(asked.adopt.size(), 2U);
  EXPECT_EQ(asked.read_counters, 0U);

  EXPECT_EQ(members->adopted(1, asked.adopt[0].mark, now).read_counters, 0U);
  EXPECT_EQ(members->voters(), 0U);
  const actions ready = members->adopted(2, asked.adopt[1].mark, now);

  EXPECT_EQ(members->voters(), 0U);
  EXPECT_EQ(ready.read_counters, 7U);
  EXPECT_EQ(ready.read_clocks, 7U);
}

TEST_F(Initialising, GivesAllCountersOneFloorHoweverFarTheClocksAreApart) {
  make(3, true);
  ahead_us[1] = std::uint64_t{20} * 24 * 3600 * 1'000'000;
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_GE(floors[1], (server_us() + ahead_us[1]) / 1000 * 1024);
  EXPECT_EQ(floors[0], floors[1]);
  EXPECT_EQ(floors[2], floors[1]);
}

TEST_F(Initialising, BeginsAboveACounterThatWasThere) {
  make(3, true);
  floors[2] = server_us() * 2;
  meet();

  EXPECT_EQ(floors[0], server_us() * 2);
}

TEST_F(Initialising, AsksAgainForAClockThatDidNotCome) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) marks[node] = "";
  for (node_number node = 0; node < 3; ++node) std::ignore = up(node, "");
  node_mark first = test_mark("fresh", 3, 0, "run0");
  first.is = node_mark::state::candidate;
  const actions asked = members->adopted(0, first.text(), now);
  for (const auto& each : asked.adopt) std::ignore = members->adopted(each.node, each.mark, now);

  ASSERT_LE(members->wake_at(), now + 1s);
  const actions again = pass(members->wake_at() - now);
  EXPECT_EQ(again.read_clocks, 7U);
  EXPECT_EQ(again.read_counters, 7U);
}

TEST_F(Initialising, AgreesWithAnotherWhoDoesItAtTheSameTime) {
  make(3, true, "mine");
  node_mark theirs = test_mark("theirs", 3, 0, "run0", 30s);
  theirs.is = node_mark::state::candidate;
  for (node_number node = 0; node < 3; ++node) std::ignore = up(node, "");
  marks[0] = theirs.text();

  carry_out(members->adopted(0, marks[0], now));

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(found(2).store, "theirs");
  EXPECT_EQ(found(2).own, "id2");
  EXPECT_EQ(members->max_lease(), 30s);
}

TEST_F(Initialising, FinishesWhatAnotherBegan) {
  make(3, true);
  node_mark begun = test_mark("old", 3, 0, "run0");
  begun.is = node_mark::state::candidate;
  marks[0] = begun.text();
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(found(1).store, "old");
}

TEST_F(Initialising, LetsTheCandidatesVoteWhenOneDoesAlready) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) {
    node_mark mark = test_mark("old", 3, node, run_of(node));
    if (node > 0) mark.is = node_mark::state::candidate;
    marks[node] = mark.text();
  }
  meet();

  EXPECT_EQ(members->voters(), 7U);
}

TEST_F(Initialising, DoesNotTakeForNewWhoMayHaveVoted) {
  make(3, true);
  marks[0] = mark_of(0);
  meet();

  EXPECT_EQ(members->voters(), only(0));
  EXPECT_EQ(marks[1], "");
  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail, HasSubstr("init --force"));
}

TEST_F(Initialising, TakesNoShortcutWhenAMajorityIsMarkedAlready) {
  make(3, true);
  std::ignore = up(0, mark_of(0));
  std::ignore = up(1, mark_of(1));

  EXPECT_EQ(up(2, "").read_marks, only(2)) << "somebody else may have been faster";
  note(members->adopted(2, "", now));

  EXPECT_THAT(complaints(), HasSubstr("node2 has lost its data, or may have"));
}

TEST_F(Initialising, LeavesNodesAloneThatHaveTheirMarks) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) marks[node] = mark_of(node);
  const auto before = marks;
  meet();

  EXPECT_EQ(marks, before);
  EXPECT_FALSE(members->initialising());
}

TEST_F(Initialising, LeavesMembersAloneWhereAForceWasNotFinished) {
  make(3, true);
  for (node_number node = 0; node < 3; ++node) marks[node] = mark_of(node);
  node_mark begun = test_mark("old", 3, 0, "run0");
  begun.epoch = 2;
  begun.is = node_mark::state::candidate;
  marks[0] = begun.text();
  const auto before = marks;
  meet();

  EXPECT_EQ(marks, before);
  EXPECT_EQ(members->voters(), only(1) | only(2));

  make(3, true, "fresh", true);
  meet();
  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(found(0).epoch, 3U) << "a force that is run again begins anew";
}

TEST_F(Initialising, DoesNotMakeAMemberOfAStoreThatIsThere) {
  make(4, true);
  for (node_number node = 0; node < 3; ++node) {
    marks[node] = test_mark("old", 3, node, run_of(node)).text();
  }
  meet();

  EXPECT_EQ(marks[3], "");
  EXPECT_FALSE(members->is_as_listed());
  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail, HasSubstr("The members are node0, node1, node2."));
}

TEST_F(Initialising, DoesNothingToTheNodesOfAnotherStore) {
  for (const bool force : {false, true}) {
    make(3, true, "fresh", force);
    marks[0] = mark_of(0);
    marks[1] = mark_of(1);
    marks[2] = mark_of(2, "run2", "other");
    const auto before = marks;
    meet();

    EXPECT_EQ(marks, before);
    EXPECT_TRUE(members->initialising());
  }
}

TEST_F(Initialising, NeedsTheRunIdOfEveryServer) {
  make(3, true);
  std::ignore = up(0, "");
  std::ignore = up(1, "", true, "");
  EXPECT_THAT(up(2, "").adopt, IsEmpty());
}

TEST_F(Initialising, RefusesAListThatNamesAServerTwice) {
  make(3, true);
  std::ignore = up(0, "");
  std::ignore = up(1, "");
  EXPECT_THAT(up(2, "", true, run_of(1)).adopt, IsEmpty());
}

TEST_F(Initialising, WorksForASingleNode) {
  make(1, true);
  meet();
  EXPECT_EQ(members->voters(), 1U);
}

TEST_F(Initialising, ByForceReplacesAMember) {
  make(3, true, "fresh", true);
  // The store was node0, node1 and one at another address, in whose place comes node2.
  std::vector<roster_member> members_before = test_roster(3);
  members_before[2] = {"id9", "node9"};
  for (node_number node = 0; node < 2; ++node) {
    node_mark mark = test_mark("old", 3, node, run_of(node));
    mark.members = members_before;
    marks[node] = mark.text();
    floors[node] = server_us() * 2;
  }
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(floors[2], server_us() * 2) << "tokens go on";
  for (node_number node = 0; node < 3; ++node) {
    EXPECT_EQ(found(node).store, "old") << "gates stay bound";
    EXPECT_EQ(found(node).epoch, 2U);
    EXPECT_EQ(found(node).members, found(0).members);
  }
  EXPECT_EQ(found(0).own, "id0");
  EXPECT_THAT(found(2).own, Not(AnyOf("id0", "id1", "id9")));
}

TEST_F(Initialising, ByForceTakesInAMajorityThatLostItsData) {
  make(3, true, "fresh", true);
  marks[1] = mark_of(1);
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(found(0).store, "old");
  EXPECT_EQ(found(0).epoch, 2U);
}

TEST_F(Initialising, ByForceReadsMarksOfAnEarlierVersion) {
  make(3, true, "fresh", true);
  for (node_number node = 0; node < 3; ++node) marks[node] = "sp2 abc 3 60000 " + run_of(node);
  meet();

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_EQ(found(2).store, "fresh");
}

TEST_F(Initialising, SaysWhatToDoWithMarksOfAnEarlierVersion) {
  make(3);
  for (node_number node = 0; node < 3; ++node) marks[node] = "sp2 abc 3 60000 " + run_of(node);
  meet();

  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail,
              AllOf(HasSubstr("mark of an earlier version"), HasSubstr("init --force")));
}

TEST_F(Initialising, ThatWasNotFinishedIsToldToWhoeverComes) {
  make(3);
  for (node_number node = 0; node < 2; ++node) {
    node_mark mark = test_mark("old", 3, node, run_of(node));
    mark.is = node_mark::state::candidate;
    marks[node] = mark.text();
  }
  meet();

  EXPECT_EQ(members->voters(), 0U);
  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail, HasSubstr("`sallyport init ADDRESS` goes on"));
}

TEST_F(Initialising, LetsWhoeverComesTakeInACandidateThatWasForgotten) {
  make(3);
  up_all_but(only(2));
  node_mark mark = test_mark("old", 3, 2, "run2");
  mark.is = node_mark::state::candidate;
  std::ignore = up(2, mark.text());

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_EQ(pass(0s).read_counters, only(0) | only(1)) << "it has never voted: no wait";
  std::ignore = read(0, 5);
  const actions asked = read(1, 7);
  ASSERT_EQ(asked.adopt.size(), 1U);
  EXPECT_EQ(asked.adopt[0].mark, mark_of(2));
  EXPECT_EQ(asked.adopt[0].floor, 7U);
}

// ---- the list and the members ----------------------------------------------------------------------

class Roster : public MembershipTest {
 protected:
  /// A list of these addresses, for a store of node0, node1, node2.
  void list(std::vector<std::string> names) {
    membership::settings how;
    how.names = std::move(names);
    members = std::make_unique<membership>(std::move(how));
    size = 3;
  }
};

TEST_F(Roster, TakesNobodyInAtAnotherAddress) {
  list({"node0", "node1", "node9"});
  up_all_but(only(2));

  const actions asked = up(2, "");

  EXPECT_EQ(asked.read_clocks, 0U);
  EXPECT_EQ(pass(1h).read_counters, 0U);
  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_THAT(complaints(), HasSubstr("node9 has no mark and is at no member's address"));
}

TEST_F(Roster, NamesTheMemberThatAListLacks) {
  list({"node0", "node1", "node9"});
  up_all_but(only(2));
  EXPECT_THAT(members->missing(), IsEmpty()) << "node9 may be node2 under another name";
  EXPECT_TRUE(members->list_in_doubt());
  std::ignore = up(2, "");

  EXPECT_THAT(members->missing(), ElementsAre("node2"));
  EXPECT_EQ(members->trouble(now).code, errc::store_refused);
  EXPECT_THAT(members->trouble(now).detail,
              AllOf(HasSubstr("node2 is a member of this store, and is not in the list"),
                    HasSubstr("The members are node0, node1, node2"), HasSubstr("init --force")));
}

TEST_F(Roster, CountsAMajorityOfTheMembersNotOfTheList) {
  list({"node8", "node0", "node1", "node2", "node9"});
  std::ignore = up(0, "");
  std::ignore = up(4, "");
  std::ignore = up(1, mark_of(0, "run1"));
  std::ignore = up(2, mark_of(1, "run2"));

  EXPECT_EQ(members->size(), 3U);
  EXPECT_EQ(members->majority(), 2U);
  EXPECT_EQ(members->voters(), only(1) | only(2));
  EXPECT_THAT(members->missing(), IsEmpty());
  EXPECT_EQ(members->members(), only(1) | only(2));
}

TEST_F(Roster, KnowsAMemberByItsMarkWhateverItIsCalled) {
  list({"localhost2", "localhost0", "localhost1"});
  std::ignore = up(0, mark_of(2, "run0"));
  std::ignore = up(1, mark_of(0, "run1"));
  std::ignore = up(2, mark_of(1, "run2"));

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_THAT(members->missing(), IsEmpty());
}

TEST_F(Roster, DoesNotMissAMemberThatItHasMetWhenThatLosesItsData) {
  list({"localhost0", "localhost1", "localhost2"});
  for (node_number node = 0; node < 3; ++node) std::ignore = up(node, mark_of(node));

  std::ignore = members->mark_differs(2, "", now);

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_THAT(members->missing(), IsEmpty());
  EXPECT_EQ(pass(1h).read_counters, 0U) << "whoever calls it by its name takes it in";
}

TEST_F(Roster, BelievesTheMarkWhenTwoMembersHaveChangedPlaces) {
  list({"node0", "node2", "node1"});
  std::ignore = up(0, mark_of(0));
  std::ignore = up(1, mark_of(1));
  std::ignore = up(2, mark_of(2));

  EXPECT_EQ(members->voters(), 7U);
  EXPECT_THAT(members->missing(), IsEmpty());
}

TEST_F(Roster, DoesNotLetABlankServerTakeThePlaceOfAMemberThatIsElsewhere) {
  list({"node0", "node1", "node2", "moved"});
  std::ignore = up(3, mark_of(2, "run3"));
  up_all_but(only(2));

  EXPECT_EQ(up(2, "").read_clocks, 0U);
  EXPECT_EQ(members->voters(), only(0) | only(1) | only(3));
}

TEST_F(Roster, LetsAMemberThatWasRestartedComeBackAtItsOwnAddressOnly) {
  list({"node0", "node1", "moved"});
  up_all_but(only(2));
  const std::string quiet = quiet_mark_of(2, "run2", server_us());
  node_mark candidate = test_mark("old", 3, 2, "run2");
  candidate.is = node_mark::state::candidate;

  for (const bool durable : {true, false}) {
    for (const std::string& mark : {mark_of(2, "earlier"), quiet, candidate.text()}) {
      const actions out = up(2, mark, durable);
      EXPECT_THAT(out.adopt, IsEmpty());
      EXPECT_EQ(out.read_clocks, 0U);
      EXPECT_EQ(pass(1h).read_counters, 0U);
      EXPECT_EQ(members->voters(), only(0) | only(1));
      EXPECT_THAT(complaints(), HasSubstr("votes again when a client calls it node2"));
    }
  }
  EXPECT_THAT(members->missing(), IsEmpty());
}

TEST_F(Roster, CountsACopyOfAMemberNotAtAll) {
  list({"copy", "node0", "node1", "node2"});
  std::ignore = up(1, mark_of(0, "run1"));
  std::ignore = up(0, mark_of(0, "run1"));  // of the life of node0's server
  std::ignore = up(2, mark_of(1, "run2"));

  EXPECT_EQ(members->voters(), only(1) | only(2));
  EXPECT_THAT(complaints(),
              HasSubstr("copy is the same server as another node of the list, or a copy"));
}

TEST_F(Roster, DoesNotAskWhoWasAMemberOnce) {
  list({"node0", "node1", "node2", "node9"});
  node_mark before = test_mark("old", 3, 2, "run3");
  before.members[2] = {"id9", "node9"};
  before.own = "id9";
  std::ignore = up(3, before.text());
  EXPECT_EQ(members->voters(), only(3)) << "nothing newer is known yet";
  const auto newer = [&](node_number node) {
    node_mark mark = test_mark("old", 3, node, run_of(node));
    mark.epoch = 2;
    return mark.text();
  };
  std::ignore = up(0, newer(0));
  std::ignore = up(1, newer(1));

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_THAT(complaints(), HasSubstr("node9 was a member once"));
  std::ignore = down(0);
  std::ignore = down(1);
  EXPECT_EQ(members->voters(), 0U) << "an epoch that was seen is not forgotten";
}

TEST_F(Roster, IsOverForAClientThatHasSeenALaterOneMadeByForce) {
  list({"node0", "node1", "node2"});
  up_all_but();
  ASSERT_EQ(members->voters(), 7U);
  node_mark forced = test_mark("old", 3, 0, run_of(0));
  forced.epoch = 2;
  forced.members[2] = {"id9", "node9"};

  std::ignore = members->mark_differs(0, forced.text(), now);

  EXPECT_EQ(members->epoch(), 2U) << "the operator has said that nobody holds anything any more";
  EXPECT_EQ(members->voters(), only(0)) << "though two have marks of the earlier one";
}

TEST_F(Roster, KeepsAMemberQuietThatCameBackWithTheMarkOfAnEarlierEpoch) {
  list({"node0", "node1", "node2"});
  for (node_number node = 0; node < 2; ++node) {
    node_mark mark = test_mark("old", 3, node, run_of(node));
    mark.epoch = 2;
    std::ignore = up(node, mark.text());
  }

  note(up(2, mark_of(2)));

  EXPECT_EQ(members->voters(), only(0) | only(1));
  EXPECT_EQ(members->wake_at(), now + 12s);
}

}  // namespace
}  // namespace sallyport::backends::redlock
