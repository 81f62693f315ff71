#include "backends/redlock/test_quorum_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Nodes that were restarted while nobody asked for anything: whoever asks first finds out.
namespace sallyport::backends::redlock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReturningNodes : public QuorumTest {
 protected:
  /// The connection breaks, and with it what was under way there.
  void break_connection(node_number node) {
    down(node);
    if ((asked(kind::bid) & only(node)) != 0) answer(kind::bid, node, unknown());
  }
  /// A client finds that all of them were restarted.
  void ask_and_lose_all(bool may_wait) {
    make(3);
    now += 1h;
    acquire(me, may_wait);
    for (node_number node = 0; node < size; ++node) break_connection(node);
  }
};

TEST_F(ReturningNodes, AreAskedAgainByWhoLostThem) {
  for (const bool may_wait : {false, true}) {
    ask_and_lose_all(may_wait);
    EXPECT_EQ(told(), "");
    now += 10ms;
    up(0);
    EXPECT_EQ(told(), "");
    up(1);

    EXPECT_EQ(asked(kind::bid), only(0) | only(1));
    answer_all(kind::bid, 3, yes(20));
    EXPECT_THAT(told(), HasSubstr("acquire granted 20-20"));
    under_way.clear();
  }
}

TEST_F(ReturningNodes, AreAskedAgainWhenTheyHaveTheirNewMarks) {
  ask_and_lose_all(false);
  now += 10ms;
  for (const node_number node : {0U, 1U}) {
    up(node, test_mark("store", 3, node, "earlier").text());
    EXPECT_EQ(asked(kind::bid), 0U);
  }
  for (const node_number node : {0U, 1U}) {
    answer(kind::adopt, node, said::list({said::number(1), said::text(mark(node))}));
  }

  answer_all(kind::bid, 3, yes(20));
  EXPECT_THAT(told(), HasSubstr("acquire granted 20-20"));
}

TEST_F(ReturningNodes, AreAskedAgainWhenTheyCameBackBeforeTheLastAnswerFailed) {
  make(3);
  now += 1h;
  acquire(me, false);
  break_connection(0);
  now += 1ms;
  up(0);
  EXPECT_EQ(asked(kind::bid), only(1) | only(2)) << "the two that are left may do";
  break_connection(1);

  answer(kind::bid, 2, yes(20));
  EXPECT_EQ(told(), "reconnected now") << "a vote for the first bid, which is given back";
  answer_all(kind::bid, only(0) | only(2), yes(21));
  EXPECT_THAT(told(), HasSubstr("acquire granted 21-21"));
}

TEST_F(ReturningNodes, ThatRefuseAreNotWaitedFor) {
  ask_and_lose_all(false);
  down(0);
  EXPECT_EQ(told(), "") << "two may come";
  down(1);

  EXPECT_EQ(told(), "acquire unavailable");
}

TEST_F(ReturningNodes, AreTriedAgainForAQuestionThoughTheyRefusedBefore) {
  make(3);
  for (const node_number node : {0U, 1U, 0U, 1U}) down(node);
  acquire(me, false);
  EXPECT_EQ(told(), "");
  EXPECT_TRUE(reaches);
  down(0);
  down(1);
  EXPECT_EQ(told(), "acquire unavailable") << "they refused again";

  reaches = false;
  acquire(me, false);
  EXPECT_TRUE(reaches);
  up(1);
  EXPECT_EQ(asked(kind::bid), only(1) | only(2));
}

TEST_F(ReturningNodes, AreNotWaitedForForLong) {
  ask_and_lose_all(false);
  pass(499ms);
  EXPECT_EQ(told(), "");
  pass(1ms);

  EXPECT_EQ(told(), "acquire unavailable");
  EXPECT_THAT(trouble, HasSubstr("0 of 3 nodes may vote"));
}

TEST_F(ReturningNodes, AreWaitedForUntilTheirNewMarksAreWritten) {
  ask_and_lose_all(false);
  now += 10ms;
  for (const node_number node : {0U, 1U}) up(node, test_mark("store", 3, node, "earlier").text());
  pass(1900ms);
  EXPECT_EQ(told(), "") << "they were reached";
  pass(100ms);

  EXPECT_EQ(told(), "acquire unavailable") << "the question's time is up";
}

TEST_F(ReturningNodes, AreNotWaitedForByWhoHasLeft) {
  ask_and_lose_all(true);
  withdraw(me);
  EXPECT_THAT(told(), HasSubstr("acquire unavailable"));
  up(0);
  up(1);

  EXPECT_EQ(asked(kind::bid), 0U);
}

TEST_F(ReturningNodes, ThatOnlyDoNotAnswerAreNotAskedAgain) {
  make(3);
  now += 1h;
  acquire(me, false);
  answer_all(kind::bid, 7, unknown());

  EXPECT_EQ(told(), "acquire unavailable");
  EXPECT_EQ(asked(kind::bid), 0U);
}

}  // namespace
}  // namespace sallyport::backends::redlock
