#include "core/local_turns.hpp"

#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>

namespace sallyport::core {
namespace {

using namespace std::chrono_literals;
using backend_api::token_block;

constexpr time_point at(duration since_start) { return time_point{1'000h} + since_start; }

constexpr token_block block(std::uint64_t first, std::uint64_t last) {
  return {fencing_token{first}, fencing_token{last}};
}

class caller final : public turn_taker {};

/// A lane with a few callers. Actions are compared as words: "give 1 turn 2 token 3".
class LocalTurns : public testing::Test {
 protected:
  static constexpr turn_limits usual_limits{.count = 4, .time = 10s};

  struct call {
    turn_taker& taker;
    turn_wish wish{.lease_length = 30s};
  };

  call usual(std::size_t who) { return {.taker = callers_.at(who)}; }
  call impatient(std::size_t who) {
    call answer = usual(who);
    answer.wish.may_wait = false;
    return answer;
  }
  call longer(std::size_t who) {
    call answer = usual(who);
    answer.wish.lease_length = 60s;
    return answer;
  }
  call fixed(std::size_t who) {
    call answer = usual(who);
    answer.wish.renew = renewal::never;
    return answer;
  }

  void limit(const turn_limits& limits) { limits_ = limits; }

  // Each does one thing to the lane and says what the lane answered.
  std::string want(std::size_t who) { return want(usual(who)); }
  std::string want(const call& what) {
    turn_actions out;
    turns_.want(what.taker, what.wish, out);
    return words(out);
  }
  std::string cancel(std::size_t who) {
    turn_actions out;
    turns_.cancel(callers_.at(who), out);
    return words(out);
  }
  std::string won(const token_block& tokens, time_point now = at(0s)) {
    turn_actions out;
    turns_.won(tokens, now, out);
    return words(out);
  }
  std::string busy() {
    turn_actions out;
    turns_.busy(out);
    return words(out);
  }
  std::string failed() {
    turn_actions out;
    turns_.failed({errc::unavailable, "down"}, out);
    return words(out);
  }
  std::string leave(turn_number turn, bool fresh = true, time_point now = at(1s)) {
    turn_actions out;
    const bool left = turns_.leave(turn, fresh, limits_, now, out);
    return left ? words(out) : "not its turn;" + words(out);
  }
  std::string drew(const std::optional<token_block>& tokens) {
    turn_actions out;
    turns_.drew(tokens, out);
    return words(out);
  }
  std::string lost() {
    turn_actions out;
    turns_.lost(out);
    return words(out);
  }
  std::string detach() {
    turn_actions out;
    turns_.detach(out);
    return words(out);
  }

  local_turns turns_;

 private:
  [[nodiscard]] std::string name(const turn_taker* taker) const {
    for (std::size_t i = 0; i < callers_.size(); ++i) {
      if (&callers_[i] == taker) return std::to_string(i);
    }
    return "nobody";
  }
  [[nodiscard]] std::string words(const turn_actions& actions) const {
    std::string text;
    for (const turn_action& action : actions) {
      if (!text.empty()) text += ", ";
      if (const auto* ask = std::get_if<turn_ask>(&action)) {
        text += "ask for " + name(ask->taker);
      } else if (const auto* give = std::get_if<turn_give>(&action)) {
        text += "give " + name(give->taker) + " turn " + std::to_string(give->turn) + " token " +
                std::to_string(give->token.value());
      } else if (const auto* no = std::get_if<turn_busy>(&action)) {
        text += "busy " + name(no->taker);
      } else if (const auto* fail = std::get_if<turn_fail>(&action)) {
        text += "fail " + name(fail->taker) + " " + fail->why.detail;
      } else if (std::holds_alternative<turn_abandon>(action)) {
        text += "abandon";
      } else if (std::holds_alternative<turn_part>(action)) {
        text += "part";
      } else {
        text += "draw";
      }
    }
    return text.empty() ? "nothing" : text;
  }

  turn_limits limits_ = usual_limits;
  std::array<caller, 8> callers_;
};

class LocalTurnsDeathTest : public LocalTurns {};

// ---- idle ----

TEST_F(LocalTurns, AreIdleAtFirst) {
  EXPECT_TRUE(turns_.idle());
  EXPECT_FALSE(turns_.turn_out());
  EXPECT_EQ(turns_.waiting(), 0U);
}

TEST_F(LocalTurns, AskTheStoreForTheFirstCaller) {
  EXPECT_EQ(want(0), "ask for 0");

  EXPECT_FALSE(turns_.idle());
  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, AskTheStoreForACallerThatDoesNotWait) {
  EXPECT_EQ(want(impatient(0)), "ask for 0");
}

TEST_F(LocalTurns, IgnoreWhatIsNotTheirsWhenIdle) {
  EXPECT_EQ(cancel(0), "nothing");
  EXPECT_EQ(lost(), "nothing");
  EXPECT_EQ(drew(block(1, 2)), "nothing");
  EXPECT_EQ(leave(0), "not its turn;nothing");
  EXPECT_EQ(leave(1), "not its turn;nothing");
  EXPECT_TRUE(turns_.idle());
}

// ---- asking ----

TEST_F(LocalTurns, QueueFurtherCallersWhileAsking) {
  want(0);

  EXPECT_EQ(want(1), "nothing");

  EXPECT_EQ(turns_.waiting(), 2U);
}

TEST_F(LocalTurns, AreBusyForACallerThatDoesNotWaitWhileAsking) {
  want(0);

  EXPECT_EQ(want(impatient(1)), "busy 1");

  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, GiveTheGrantToTheFirstCaller) {
  want(0);
  want(1);

  EXPECT_EQ(won(block(10, 13)), "give 0 turn 1 token 10");

  EXPECT_TRUE(turns_.turn_out());
  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, AbandonTheAttemptWhenTheLastCallerCancels) {
  want(0);
  want(1);

  EXPECT_EQ(cancel(0), "nothing");
  EXPECT_EQ(cancel(1), "abandon");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, AskAnewAfterTheyAbandoned) {
  want(0);
  cancel(0);

  EXPECT_EQ(want(1), "ask for 1");
}

TEST_F(LocalTurns, GoOnAskingWhenTheHeadCancelsAndTheNextWantsTheSame) {
  want(0);
  want(1);

  EXPECT_EQ(cancel(0), "nothing");

  EXPECT_EQ(won(block(10, 13)), "give 1 turn 1 token 10");
}

TEST_F(LocalTurns, GoOnAskingWhenAnotherThanTheHeadCancels) {
  want(0);
  want(longer(1));
  want(2);

  EXPECT_EQ(cancel(1), "nothing");

  EXPECT_EQ(turns_.waiting(), 2U);
}

TEST_F(LocalTurns, AskAnewWhenTheHeadCancelsAndTheNextWantsAnotherLeaseLength) {
  want(0);
  want(longer(1));

  EXPECT_EQ(cancel(0), "abandon, ask for 1");

  EXPECT_EQ(won(block(10, 13)), "give 1 turn 1 token 10");
}

TEST_F(LocalTurns, AskAnewWhenTheHeadCancelsAndTheNextWantsAnotherRenewalMode) {
  want(0);
  want(fixed(1));

  EXPECT_EQ(cancel(0), "abandon, ask for 1");
}

TEST_F(LocalTurns, AskAnewWhenAHeadThatDidNotWaitCancelsAndTheNextWaits) {
  want(impatient(0));
  want(1);

  EXPECT_EQ(cancel(0), "abandon, ask for 1");
}

TEST_F(LocalTurns, IgnoreACancelOfSomebodyWhoDoesNotWait) {
  want(0);

  EXPECT_EQ(cancel(5), "nothing");

  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, TellTheHeadThatTheLockIsBusyAndAskForTheNext) {
  want(impatient(0));
  want(1);

  EXPECT_EQ(busy(), "busy 0, ask for 1");

  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, AreIdleAfterTheOnlyCallerWasToldBusy) {
  want(impatient(0));

  EXPECT_EQ(busy(), "busy 0");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, FailEverybodyWhenTheStoreWasBrokenForLong) {
  want(0);
  want(1);
  want(longer(2));

  EXPECT_EQ(failed(), "fail 0 down, fail 1 down, fail 2 down");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, DoNotFailPatientCallersWithOneThatHadNoPatience) {
  want(impatient(0));
  want(1);
  want(2);

  EXPECT_EQ(failed(), "fail 0 down, ask for 1");

  EXPECT_EQ(failed(), "fail 1 down, fail 2 down");
}

TEST_F(LocalTurns, IgnoreALossWhileAsking) {
  want(0);

  EXPECT_EQ(lost(), "nothing");
  EXPECT_EQ(drew(block(1, 2)), "nothing");
  EXPECT_EQ(leave(0), "not its turn;nothing");

  EXPECT_EQ(won(block(10, 13)), "give 0 turn 1 token 10");
}

// ---- held ----

TEST_F(LocalTurns, QueueCallersWhileATurnIsOut) {
  want(0);
  won(block(10, 13));

  EXPECT_EQ(want(1), "nothing");
  EXPECT_EQ(want(impatient(2)), "busy 2");

  EXPECT_EQ(turns_.waiting(), 1U);
}

TEST_F(LocalTurns, LetAWaiterCancelWhileATurnIsOut) {
  want(0);
  won(block(10, 13));
  want(1);

  EXPECT_EQ(cancel(1), "nothing");

  EXPECT_TRUE(turns_.turn_out());
  EXPECT_EQ(leave(1), "part");
}

TEST_F(LocalTurns, IgnoreACancelOfTheCallerThatHasItsTurn) {
  want(0);
  won(block(10, 13));

  EXPECT_EQ(cancel(0), "nothing");

  EXPECT_TRUE(turns_.turn_out());
}

TEST_F(LocalTurns, PassTheLockOnWithTheNextToken) {
  want(0);
  want(1);
  won(block(10, 13));

  EXPECT_EQ(leave(1), "give 1 turn 2 token 11");

  EXPECT_TRUE(turns_.turn_out());
}

TEST_F(LocalTurns, ServeCallersInTheOrderOfTheirNumbers) {
  want(0);
  want(1);
  want(2);
  want(3);
  won(block(10, 13));

  EXPECT_EQ(leave(1), "give 1 turn 2 token 11");
  EXPECT_EQ(leave(2), "give 2 turn 3 token 12");
  EXPECT_EQ(leave(3), "give 3 turn 4 token 13");
}

TEST_F(LocalTurns, GiveTheLockBackWhenNobodyWaits) {
  want(0);
  won(block(10, 13));

  EXPECT_EQ(leave(1), "part");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, GoBackThroughTheStoreAfterTheirNumberOfTurns) {
  limit({.count = 2, .time = 10s});
  want(0);
  want(1);
  want(2);
  won(block(10, 19));
  ASSERT_EQ(leave(1), "give 1 turn 2 token 11");

  EXPECT_EQ(leave(2), "part, ask for 2");
}

TEST_F(LocalTurns, GoBackThroughTheStoreAfterEveryTurnWhenTheirNumberIsOne) {
  limit({.count = 1, .time = 10s});
  want(0);
  want(1);
  won(block(10, 10));

  EXPECT_EQ(leave(1), "part, ask for 1");
}

TEST_F(LocalTurns, GoBackThroughTheStoreAfterTheirTime) {
  want(0);
  want(1);
  want(2);
  won(block(10, 13), at(0s));

  EXPECT_EQ(leave(1, true, at(10s) - 1ns), "give 1 turn 2 token 11");
  EXPECT_EQ(leave(2, true, at(10s)), "part, ask for 2");
}

TEST_F(LocalTurns, GoBackThroughTheStoreAfterEveryTurnWhenTheirTimeIsZero) {
  limit({.count = 4, .time = 0s});
  want(0);
  want(1);
  won(block(10, 13), at(0s));

  EXPECT_EQ(leave(1, true, at(0s)), "part, ask for 1");
}

TEST_F(LocalTurns, CountTurnsAndTimeAnewForEveryGrant) {
  limit({.count = 2, .time = 10s});
  want(0);
  want(1);
  want(2);
  want(3);
  won(block(10, 11), at(0s));
  ASSERT_EQ(leave(1, true, at(9s)), "give 1 turn 2 token 11");
  ASSERT_EQ(leave(2, true, at(9s)), "part, ask for 2");
  ASSERT_EQ(won(block(20, 21), at(20s)), "give 2 turn 3 token 20");

  EXPECT_EQ(leave(3, true, at(29s)), "give 3 turn 4 token 21");
}

TEST_F(LocalTurns, GoBackThroughTheStoreWhenTheGrantIsNoLongerFresh) {
  want(0);
  want(1);
  won(block(10, 13));

  EXPECT_EQ(leave(1, false), "part, ask for 1");
}

TEST_F(LocalTurns, GoBackThroughTheStoreForAnotherLeaseLength) {
  want(0);
  want(longer(1));
  won(block(10, 13));

  EXPECT_EQ(leave(1), "part, ask for 1");
}

TEST_F(LocalTurns, GoBackThroughTheStoreForAnotherRenewalMode) {
  want(0);
  want(fixed(1));
  won(block(10, 13));

  EXPECT_EQ(leave(1), "part, ask for 1");
}

TEST_F(LocalTurns, CompareWithTheLeaseThatWasAskedForAndNotWithTheLastTurn) {
  want(longer(0));
  want(longer(1));
  want(2);
  won(block(10, 13));
  ASSERT_EQ(leave(1), "give 1 turn 2 token 11");

  EXPECT_EQ(leave(2), "part, ask for 2");
}

TEST_F(LocalTurns, IgnoreTheLateReleaseOfAnEarlierTurn) {
  want(0);
  want(1);
  won(block(10, 13));
  ASSERT_EQ(leave(1), "give 1 turn 2 token 11");

  EXPECT_EQ(leave(1), "not its turn;nothing");

  EXPECT_TRUE(turns_.turn_out());
}

TEST_F(LocalTurns, IgnoreTheReleaseOfATurnThatHasNotCome) {
  want(0);
  won(block(10, 13));

  EXPECT_EQ(leave(2), "not its turn;nothing");
}

TEST_F(LocalTurns, NeverUseTheRestOfABlockAfterTheyGaveTheLockBack) {
  want(0);
  won(block(10, 13));
  ASSERT_EQ(leave(1), "part");
  want(1);
  want(2);

  EXPECT_EQ(won(block(50, 50)), "give 1 turn 2 token 50");
  EXPECT_EQ(leave(2), "draw");
}

TEST_F(LocalTurns, AskForTheNextCallerAfterALoss) {
  want(0);
  want(1);
  won(block(10, 13));

  EXPECT_EQ(lost(), "ask for 1");

  EXPECT_FALSE(turns_.turn_out());
}

TEST_F(LocalTurns, AreIdleAfterALossWhenNobodyWaits) {
  want(0);
  won(block(10, 13));

  EXPECT_EQ(lost(), "nothing");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, IgnoreTheReleaseOfALostTurn) {
  want(0);
  want(1);
  won(block(10, 13));
  lost();

  EXPECT_EQ(leave(1), "not its turn;nothing");
  ASSERT_EQ(won(block(20, 23)), "give 1 turn 2 token 20");
  EXPECT_EQ(leave(1), "not its turn;nothing");
}

TEST_F(LocalTurns, IgnoreASecondLoss) {
  want(0);
  want(1);
  won(block(10, 13));
  ASSERT_EQ(lost(), "ask for 1");

  EXPECT_EQ(lost(), "nothing");
}

TEST_F(LocalTurns, NeverUseTheRestOfABlockAfterALoss) {
  want(0);
  want(1);
  want(2);
  won(block(10, 13));
  lost();

  EXPECT_EQ(won(block(20, 20)), "give 1 turn 2 token 20");
  EXPECT_EQ(leave(2), "draw");
}

TEST_F(LocalTurns, LetTheTurnTakeTheGrantAlongAndAskForTheNext) {
  want(0);
  want(1);
  won(block(10, 13));

  EXPECT_EQ(detach(), "ask for 1");

  EXPECT_EQ(leave(1), "not its turn;nothing");
}

// ---- drawing ----

TEST_F(LocalTurns, DrawTokensWhenTheBlockIsUsedUp) {
  want(0);
  want(1);
  won(block(10, 10));

  EXPECT_EQ(leave(1), "draw");

  EXPECT_FALSE(turns_.turn_out());
  EXPECT_FALSE(turns_.idle());
}

TEST_F(LocalTurns, GiveTheDrawnTokenToTheHead) {
  want(0);
  want(1);
  want(2);
  won(block(10, 10));
  leave(1);

  EXPECT_EQ(drew(block(11, 12)), "give 1 turn 2 token 11");
  EXPECT_EQ(leave(2), "give 2 turn 3 token 12");
}

TEST_F(LocalTurns, DrawOnStoresWithoutTokensToo) {
  want(0);
  want(1);
  ASSERT_EQ(won(block(0, 0)), "give 0 turn 1 token 0");
  ASSERT_EQ(leave(1), "draw");

  EXPECT_EQ(drew(block(0, 0)), "give 1 turn 2 token 0");
}

TEST_F(LocalTurns, QueueCallersWhileDrawing) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);

  EXPECT_EQ(want(2), "nothing");
  EXPECT_EQ(want(impatient(3)), "busy 3");

  EXPECT_EQ(turns_.waiting(), 2U);
}

TEST_F(LocalTurns, GiveTheLockBackWhenTheStoreGivesNoTokens) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);

  EXPECT_EQ(drew(std::nullopt), "part, ask for 1");
}

TEST_F(LocalTurns, GiveTheLockBackWhenTheLastCallerCancelledWhileDrawing) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);
  ASSERT_EQ(cancel(1), "nothing");

  EXPECT_EQ(drew(block(11, 12)), "part");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, AreNotIdleWhileTheDrawOfACancelledCallerIsUnderWay) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);
  cancel(1);

  EXPECT_FALSE(turns_.idle());
}

TEST_F(LocalTurns, GiveTheDrawnTokenToWhoeverCameWhenTheHeadCancelled) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);
  cancel(1);
  want(2);

  EXPECT_EQ(drew(block(11, 12)), "give 2 turn 2 token 11");
}

TEST_F(LocalTurns, GoBackThroughTheStoreWhenTheHeadAfterADrawWantsAnotherLease) {
  want(0);
  want(1);
  want(longer(2));
  won(block(10, 10));
  leave(1);
  cancel(1);

  EXPECT_EQ(drew(block(11, 12)), "part, ask for 2");
}

TEST_F(LocalTurns, CountDrawnTurnsToo) {
  limit({.count = 2, .time = 10s});
  want(0);
  want(1);
  want(2);
  won(block(10, 10));
  leave(1);
  ASSERT_EQ(drew(block(11, 19)), "give 1 turn 2 token 11");

  EXPECT_EQ(leave(2), "part, ask for 2");
}

TEST_F(LocalTurns, AskForTheHeadAfterALossWhileDrawing) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);

  EXPECT_EQ(lost(), "ask for 1");
}

TEST_F(LocalTurns, AreIdleAfterALossWhileDrawingForNobody) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);
  cancel(1);

  EXPECT_EQ(lost(), "nothing");

  EXPECT_TRUE(turns_.idle());
}

TEST_F(LocalTurns, IgnoreTheAnswerToADrawAfterALoss) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);
  lost();

  EXPECT_EQ(drew(block(11, 12)), "nothing");

  EXPECT_EQ(won(block(20, 20)), "give 1 turn 2 token 20");
}

TEST_F(LocalTurns, IgnoreASecondReleaseWhileDrawing) {
  want(0);
  want(1);
  won(block(10, 10));
  leave(1);

  EXPECT_EQ(leave(1), "not its turn;nothing");
}

// ---- broken rules ----

TEST_F(LocalTurnsDeathTest, RefuseWhoWaitsAlready) {
  want(2);
  want(3);

  EXPECT_DEATH(want(2), "broken invariant");
  EXPECT_DEATH(want(3), "broken invariant");
}

TEST_F(LocalTurnsDeathTest, RefuseAnOutcomeThatNobodyAskedFor) {
  EXPECT_DEATH(won(block(1, 1)), "broken invariant");
  EXPECT_DEATH(busy(), "broken invariant");
  EXPECT_DEATH(failed(), "broken invariant");
  EXPECT_DEATH(detach(), "broken invariant");
}

TEST_F(LocalTurnsDeathTest, RefuseASecondGrant) {
  want(0);
  want(1);
  won(block(1, 1));

  EXPECT_DEATH(won(block(2, 2)), "broken invariant");
}

}  // namespace
}  // namespace sallyport::core
