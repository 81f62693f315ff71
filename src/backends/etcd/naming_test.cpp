#include "backends/etcd/naming.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sallyport::backends::etcd {
namespace {

using namespace std::chrono_literals;
using backend_api::granted;
using backend_api::holder_id;

constexpr time_point now{1h};
constexpr holder_id one{1, 1};
constexpr holder_id two{2, 2};

backend_api::acquire_request wish(const holder_id& holder, time_point answer_by = now + 2s) {
  static const lock_name name{"door"};
  return {.name = name, .holder = holder, .value = {}, .answer_by = answer_by};
}

granted grant_of(std::uint64_t token) {
  return {.tokens = {fencing_token{token}, fencing_token{token}}, .remaining = 10s};
}

/// A store whose name was learnt, and no trouble since.
naming known() {
  naming names{false};
  const auto question = names.park(wish(one));
  static_cast<void>(names.answered(question->number, true));
  return names;
}

TEST(Naming, WhatEtcdItselfSaysCastsNoDoubtOnTheConnection) {
  using answer = reply<int>;
  struct {
    answer said;
    bool doubt;
  } const table[] = {
      {{.value = 1}, false},
      {{.value = 1, .doubtful = true}, false},
      {{.why = trouble::refused}, false},
      {{.why = trouble::no_such_lease}, false},
      {{.why = trouble::lease_exists}, false},
      {{.why = trouble::refused, .doubtful = true}, true},
      {{.why = trouble::unavailable}, true},
      {{.why = trouble::unknown}, true},
  };
  for (const auto& each : table) {
    EXPECT_EQ(casts_doubt(each.said), each.doubt)
        << static_cast<int>(each.said.why) << each.said.doubtful;
  }
}

TEST(Naming, GivenByHandIsNeverAskedFor) {
  naming names{true};
  names.doubt();

  EXPECT_TRUE(names.fresh());
}

TEST(Naming, OneQuestionIsAskedForAllWhoWait) {
  naming names{false};

  const auto first = names.park(wish(one));
  const auto second = names.park(wish(two));
  const auto third = names.keep({3, 3}, grant_of(7), now + 3s);

  ASSERT_TRUE(first);
  EXPECT_FALSE(second);
  EXPECT_FALSE(third);
  const auto released = names.answered(first->number, true);
  EXPECT_EQ(released.acquires.size(), 2U);
  EXPECT_EQ(released.good.size(), 1U);
  EXPECT_TRUE(names.fresh());
}

TEST(Naming, WhoseTimeEndsBeforeTheQuestionUnderWayAsksAnother) {
  naming names{false};

  const auto slow = names.park(wish(one, now + 2s));
  const auto quick = names.park(wish(two, now + 1s));

  ASSERT_TRUE(slow);
  ASSERT_TRUE(quick);
  EXPECT_EQ(quick->answer_by, now + 1s);
  const auto failed = names.answered(quick->number, false);
  ASSERT_EQ(failed.acquires.size(), 1U);
  EXPECT_EQ(failed.acquires.front()->request.holder, two);
  EXPECT_EQ(names.answered(slow->number, true).acquires.size(), 1U);
}

TEST(Naming, AQuestionCountsFromWhenItWasAsked) {
  naming names{false};
  const auto before = names.park(wish(one));

  names.doubt();
  const auto after = names.park(wish(two));

  ASSERT_TRUE(after) << "the first one may be answered by the store of before";
  static_cast<void>(names.answered(before->number, true));
  EXPECT_FALSE(names.fresh());
  static_cast<void>(names.answered(after->number, true));
  EXPECT_TRUE(names.fresh());
}

TEST(Naming, AGrantIsToldWhenTheNameIsKnownAgainAndNothingBrokeMeanwhile) {
  naming names = known();
  names.doubt();

  const auto question = names.keep(one, grant_of(7), now + 500ms);

  ASSERT_TRUE(question);
  const auto released = names.answered(question->number, true);
  ASSERT_EQ(released.good.size(), 1U);
  EXPECT_EQ(released.good.front().holder, one);
  EXPECT_EQ(released.good.front().given.tokens.first, fencing_token{7});
  EXPECT_TRUE(released.doubtful.empty());
}

TEST(Naming, AGrantIsDoubtfulWhenTheConnectionBreaksBeforeTheNameIsKnown) {
  naming names = known();
  names.doubt();
  const auto question = names.keep(one, grant_of(7), now + 500ms);
  ASSERT_TRUE(question);

  names.doubt();

  const auto released = names.answered(question->number, true);
  EXPECT_TRUE(released.good.empty());
  ASSERT_EQ(released.doubtful.size(), 1U);
  EXPECT_EQ(released.doubtful.front(), one);
}

TEST(Naming, AGrantIsDoubtfulWhenTheQuestionFails) {
  naming names = known();
  names.doubt();
  const auto question = names.keep(one, grant_of(7), now + 500ms);
  ASSERT_TRUE(question);

  const auto released = names.answered(question->number, false);

  EXPECT_EQ(released.doubtful.size(), 1U);
  EXPECT_FALSE(names.fresh());
}

TEST(Naming, WhoHasLostItsGrantOrLeavesIsNotToldOfItLater) {
  naming names = known();
  names.doubt();
  const auto question = names.keep(one, grant_of(7), now + 500ms);
  ASSERT_TRUE(question);
  static_cast<void>(names.park(wish(two)));

  EXPECT_TRUE(names.take_grant(one));
  EXPECT_FALSE(names.take_grant(one));
  EXPECT_TRUE(names.take_acquire(two));
  EXPECT_FALSE(names.take_acquire(two));

  const auto released = names.answered(question->number, true);
  EXPECT_TRUE(released.good.empty());
  EXPECT_TRUE(released.acquires.empty());
}

TEST(Naming, ThatEndsGivesBackAllWhoWait) {
  naming names = known();
  names.doubt();
  static_cast<void>(names.park(wish(one)));
  static_cast<void>(names.keep(two, grant_of(7), now + 500ms));

  const auto released = names.take_all();

  EXPECT_EQ(released.acquires.size(), 1U);
  EXPECT_EQ(released.doubtful.size(), 1U);
  EXPECT_TRUE(names.take_all().acquires.empty());
}

}  // namespace
}  // namespace sallyport::backends::etcd
