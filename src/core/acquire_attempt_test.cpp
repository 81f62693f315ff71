#include "core/acquire_attempt.hpp"

#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace sallyport::core {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;

constexpr time_point at(duration since_start) { return time_point{1'000h} + since_start; }
/// Of a waiter that was told to wait at(100ms): on the grid that a client's waiters share.
constexpr time_point first_heartbeat = at(1s);

constexpr token_block tokens{fencing_token{7}, fencing_token{9}};
constexpr token_block newer_tokens{fencing_token{17}, fencing_token{19}};

/// A grant that was handed over is good for 5 s after the last "still waiting", and enough to start
/// with for 3 s.
timing usual_times() {
  return {.lease_length = 30s,
          .margin = 1s,
          .heartbeat = 1s,
          .claim_window = 6s,
          .ticket_length = 6s,
          .request_timeout = 2s,
          .store_patience = 10s,
          .renew = renewal::automatic};
}

granted whole_grant() { return {.tokens = tokens, .remaining = 30s}; }
/// What a notice says: it knows the tokens, and its own times prove nothing.
granted noticed() { return {.tokens = tokens, .remaining = 6s, .provisional = true, .permits = 5}; }
waiting still_waiting(duration ask_again_after = 1h) {
  return {.ask_again_after = ask_again_after, .permits = 5};
}

std::string words(const attempt_actions& actions) {
  std::string text;
  if (actions.send_acquire) text += "ask ";
  if (actions.send_claim) text += "claim ";
  if (actions.finish) {
    if (std::holds_alternative<attempt_won>(*actions.finish)) text += "won ";
    if (std::holds_alternative<attempt_busy>(*actions.finish)) text += "busy ";
    if (std::holds_alternative<attempt_abandoned>(*actions.finish)) text += "abandoned ";
    if (const auto* why = std::get_if<base::failure>(&*actions.finish)) {
      text += "failed: " + why->detail + " ";
    }
  }
  return text.empty() ? "nothing" : text.substr(0, text.size() - 1);
}

/// One attempt, and the short way into each of its phases. The first question is sent at 0 s.
class AcquireAttempt : public testing::Test {
 protected:
  std::string start() { return note(machine_.start(at(0s))); }
  std::string answered(const acquire_answer& answer, time_point now) {
    return note(machine_.on_acquire_answered(answer, now, 0.0));
  }
  std::string ask_failed(errc why, time_point now, double draw = 0.0) {
    return note(machine_.on_acquire_answered(base::fail(why, "down"), now, draw));
  }
  std::string claimed(const renew_answer& answer, time_point now) {
    return note(machine_.on_claim_answered(answer, now, 0.0));
  }
  std::string claim_failed(errc why, time_point now) {
    return note(machine_.on_claim_answered(base::fail(why, "down"), now, 0.0));
  }
  std::string notice(time_point now) { return note(machine_.on_granted_notice(noticed(), now)); }
  std::string hint(time_point now) { return note(machine_.on_granted_notice(std::nullopt, now)); }
  std::string reconnect(time_point now) { return note(machine_.on_reconnected(now)); }
  std::string timer(time_point now) { return note(machine_.on_timer(now)); }
  std::string give_up(time_point now) { return note(machine_.give_up(now)); }

  void do_not_wait() { machine_ = acquire_attempt{usual_times(), false}; }
  void be_patient_for(duration patience) {
    timing times = usual_times();
    times.store_patience = patience;
    machine_ = acquire_attempt{times, true};
  }

  /// Waiting since 0 s; asks again at 1.1 s.
  void reach_waiting() {
    ASSERT_EQ(start(), "ask");
    ASSERT_EQ(answered(still_waiting(), at(100ms)), "nothing");
  }
  /// Asking again at 1.1 s, waiting since 0 s.
  void reach_asking_again() {
    reach_waiting();
    ASSERT_EQ(timer(at(1'100ms)), "ask");
  }
  /// The claim was sent at 200 ms.
  void reach_claiming() {
    reach_waiting();
    ASSERT_EQ(hint(at(200ms)), "claim");
  }
  /// The first question failed at 100 ms and will be asked again at 110 ms.
  void reach_pausing() {
    ASSERT_EQ(start(), "ask");
    ASSERT_EQ(ask_failed(errc::unavailable, at(100ms)), "nothing");
  }

  [[nodiscard]] attempt_won prize() const {
    const auto* won = outcome_ ? std::get_if<attempt_won>(&*outcome_) : nullptr;
    EXPECT_NE(won, nullptr) << "not won";
    return won != nullptr ? *won : attempt_won{};
  }

  acquire_attempt machine_{usual_times(), true};

 private:
  std::string note(attempt_actions actions) {
    if (actions.finish) {
      EXPECT_FALSE(outcome_) << "finished twice";
      outcome_ = std::move(actions.finish);
      actions.finish = outcome_;
    }
    EXPECT_FALSE(actions.send_acquire && actions.send_claim);
    return words(actions);
  }

  std::optional<attempt_outcome> outcome_;
};

// ---- asking ----

TEST_F(AcquireAttempt, AsksAtOnce) {
  EXPECT_EQ(start(), "ask");

  EXPECT_TRUE(machine_.request_under_way());
  EXPECT_EQ(machine_.sent_at(), at(0s));
  EXPECT_EQ(machine_.wake_at(), time_point::max());
}

TEST_F(AcquireAttempt, WinsWithAGrant) {
  start();

  EXPECT_EQ(answered(whole_grant(), at(1s)), "won");

  EXPECT_EQ(prize().tokens, tokens);
  EXPECT_TRUE(machine_.remains().any);
}

TEST_F(AcquireAttempt, CountsAGrantFromTheSendingOfItsQuestion) {
  start();
  answered(whole_grant(), at(1s));

  EXPECT_EQ(prize().proof, (confirmation{at(0s), 30s, false}));
}

TEST_F(AcquireAttempt, CountsAnAlreadyYoursByWhatTheStoreSaysIsLeft) {
  start();
  answered(granted{.tokens = tokens, .remaining = 4s, .provisional = true}, at(1s));

  EXPECT_EQ(prize().proof, (confirmation{at(0s), 4s, true}));
}

TEST_F(AcquireAttempt, TellsTheStoredNumberOfPermits) {
  start();
  answered(granted{.tokens = tokens, .remaining = 30s, .permits = 5}, at(1s));

  EXPECT_EQ(prize().permits, 5U);
}

TEST_F(AcquireAttempt, ClaimsAGrantOfWhichNothingIsLeft) {
  start();

  EXPECT_EQ(answered(whole_grant(), at(29s)), "claim");

  EXPECT_EQ(machine_.sent_at(), at(29s));
}

TEST_F(AcquireAttempt, WinsWithTheLastMomentOfAGrant) {
  start();

  EXPECT_EQ(answered(whole_grant(), at(29s) - 1ns), "won");
}

TEST_F(AcquireAttempt, WaitsWhenQueued) {
  start();

  EXPECT_EQ(answered(still_waiting(), at(100ms)), "nothing");

  EXPECT_FALSE(machine_.request_under_way());
  EXPECT_EQ(machine_.wake_at(), first_heartbeat);
}

TEST_F(AcquireAttempt, AsksAgainEarlierWhenTheStoreSaysSo) {
  start();
  answered(still_waiting(300ms), at(100ms));

  EXPECT_EQ(machine_.wake_at(), at(400ms));
}

TEST_F(AcquireAttempt, DoesNotSpinWhenTheStoreSaysAgainAtOnce) {
  start();
  answered(still_waiting(0s), at(100ms));

  EXPECT_EQ(machine_.wake_at(), at(101ms));
}

TEST_F(AcquireAttempt, AsksMoreRarelyWhileManyStandBeforeItAndAtItsPaceAgainNearTheHead) {
  const auto behind = [](std::uint32_t ahead, std::uint32_t stretch) {
    return waiting{.ask_again_after = 1h, .ahead = ahead, .ticket_stretch = stretch};
  };
  ASSERT_EQ(start(), "ask");
  ASSERT_EQ(answered(behind(5'000, 1), at(0s)), "nothing");
  EXPECT_EQ(machine_.wake_at(), at(1s));
  ASSERT_EQ(timer(at(1s)), "ask");
  ASSERT_EQ(answered(behind(5'000, 32), at(1s)), "nothing");
  EXPECT_EQ(machine_.wake_at(), at(3s));
  EXPECT_EQ(machine_.ticket_stretch(), 32U);
  ASSERT_EQ(timer(at(3s)), "ask");
  ASSERT_EQ(answered(behind(5'000, 32), at(3s)), "nothing");
  EXPECT_EQ(machine_.wake_at(), at(7s));

  ASSERT_EQ(timer(at(7s)), "ask");
  ASSERT_EQ(answered(behind(100, 1), at(7s)), "nothing");

  EXPECT_EQ(machine_.wake_at(), at(8s));
  EXPECT_EQ(machine_.ticket_stretch(), 1U);
}

TEST_F(AcquireAttempt, DoesNotBelieveThatATicketLivesForEver) {
  start();
  answered(waiting{.ask_again_after = 1h, .ahead = 9, .ticket_stretch = 4'000'000'000}, at(0s));

  EXPECT_EQ(machine_.ticket_stretch(), max_ticket_stretch);
}

TEST_F(AcquireAttempt, TrustsANoticeAfterALongPauseIfTheStoreTellsOldOnesApart) {
  ASSERT_EQ(start(), "ask");
  ASSERT_EQ(answered(waiting{.ask_again_after = 1h, .newest_token = fencing_token{1}}, at(0s)),
            "nothing");
  ASSERT_EQ(timer(at(20s)), "ask");
  ASSERT_EQ(answered(waiting{.ask_again_after = 1h, .newest_token = fencing_token{6}}, at(20s)),
            "nothing");

  EXPECT_EQ(notice(at(21s)), "won");
}

TEST_F(AcquireAttempt, IsBusyWhenSomebodyElseHasItAndItDoesNotWait) {
  do_not_wait();
  start();

  EXPECT_EQ(answered(held{}, at(100ms)), "busy");

  EXPECT_FALSE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, time_point::min());
}

TEST_F(AcquireAttempt, IsUnansweredUntilTheStoreHasSpokenOnce) {
  start();

  EXPECT_FALSE(machine_.unanswered(at(499ms)));
  EXPECT_TRUE(machine_.unanswered(at(500ms)));
  ASSERT_EQ(answered(still_waiting(), at(600ms)), "nothing");
  ASSERT_EQ(timer(at(2s)), "ask");
  EXPECT_FALSE(machine_.unanswered(at(4s))) << "it is in the queue, as far as anybody knows";
}

TEST_F(AcquireAttempt, PausesWhenTheStoreCannotBeReached) {
  start();

  EXPECT_EQ(ask_failed(errc::unavailable, at(100ms)), "nothing");

  EXPECT_FALSE(machine_.request_under_way());
  EXPECT_EQ(machine_.wake_at(), at(110ms));
  ASSERT_TRUE(machine_.trouble());
  EXPECT_EQ(machine_.trouble()->code, errc::unavailable);
}

TEST_F(AcquireAttempt, FailsAtOnceWhenItDoesNotWait) {
  do_not_wait();
  start();

  EXPECT_EQ(ask_failed(errc::unavailable, at(100ms)), "failed: down");

  EXPECT_FALSE(machine_.remains().any);
}

TEST_F(AcquireAttempt, FailsAtOnceWithWhatWillNotGetBetter) {
  for (const errc why : {errc::wrong_kind, errc::store_refused, errc::closed, errc::bad_option}) {
    acquire_attempt machine{usual_times(), true};
    static_cast<void>(machine.start(at(0s)));

    EXPECT_EQ(words(machine.on_acquire_answered(base::fail(why, "no"), at(100ms), 0.0)),
              "failed: no");
  }
}

TEST_F(AcquireAttempt, LeavesATraceWhenItFailsWithAnUnknownOutcome) {
  do_not_wait();
  start();

  EXPECT_EQ(ask_failed(errc::outcome_unknown, at(2s)), "failed: down");

  EXPECT_TRUE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, at(30s));
}

TEST_F(AcquireAttempt, FailsAndLeavesATraceWhenMemoryEndedInsideTheRequest) {
  start();

  EXPECT_EQ(ask_failed(errc::not_enough_memory, at(2s)), "failed: down");

  EXPECT_TRUE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, at(30s));
}

TEST_F(AcquireAttempt, RemembersAnUnknownOutcomeThoughTheNextAnswerIsClear) {
  start();
  ask_failed(errc::outcome_unknown, at(2s));
  ASSERT_EQ(timer(at(3s)), "ask");
  ASSERT_EQ(answered(whole_grant(), at(4s)), "won");

  EXPECT_EQ(machine_.remains().late_until, at(30s));
}

TEST_F(AcquireAttempt, RemembersTheLatestUnknownOutcome) {
  start();
  ask_failed(errc::outcome_unknown, at(2s));
  ASSERT_EQ(timer(at(3s)), "ask");
  ask_failed(errc::outcome_unknown, at(5s));
  give_up(at(6s));

  EXPECT_EQ(machine_.remains().late_until, at(33s));
}

TEST_F(AcquireAttempt, KeepsANoticeThatOvertookTheAnswerThatItIsQueued) {
  start();
  ASSERT_EQ(notice(at(50ms)), "nothing");

  EXPECT_EQ(answered(still_waiting(), at(100ms)), "won");

  EXPECT_EQ(prize().proof, (confirmation{at(0s), 6s, true}));
  EXPECT_EQ(prize().tokens, tokens);
}

TEST_F(AcquireAttempt, KeepsAHintThatOvertookTheAnswerThatItIsQueued) {
  start();
  ASSERT_EQ(hint(at(50ms)), "nothing");

  EXPECT_EQ(answered(still_waiting(), at(100ms)), "claim");
}

TEST_F(AcquireAttempt, TrustsAnAnswerMoreThanTheNoticeThatOvertookIt) {
  start();
  notice(at(50ms));

  EXPECT_EQ(answered(granted{.tokens = newer_tokens, .remaining = 30s}, at(100ms)), "won");

  EXPECT_EQ(prize().tokens, newer_tokens);
}

TEST_F(AcquireAttempt, WinsByANoticeWhileItAsksAgain) {
  reach_asking_again();

  EXPECT_EQ(notice(at(1'200ms)), "won");

  EXPECT_EQ(prize().proof, (confirmation{at(0s), 6s, true}));
}

TEST_F(AcquireAttempt, IgnoresTheAnswerThatComesAfterItWonByANotice) {
  reach_asking_again();
  ASSERT_EQ(notice(at(1'200ms)), "won");

  EXPECT_EQ(answered(whole_grant(), at(1'300ms)), "nothing");
  EXPECT_EQ(machine_.sent_at(), at(1'100ms));
}

TEST_F(AcquireAttempt, KeepsANoticeWithAnOldProofForTheAnswerUnderWay) {
  reach_asking_again();
  ASSERT_EQ(notice(at(3'500ms)), "nothing");

  ASSERT_EQ(answered(still_waiting(), at(4s)), "won");

  EXPECT_EQ(prize().proof, (confirmation{at(1'100ms), 6s, true}));
}

TEST_F(AcquireAttempt, KeepsAHintForTheAnswerUnderWay) {
  reach_asking_again();
  ASSERT_EQ(hint(at(1'200ms)), "nothing");

  EXPECT_EQ(answered(still_waiting(), at(1'300ms)), "claim");
}

TEST_F(AcquireAttempt, UsesAKeptHintOnce) {
  reach_asking_again();
  hint(at(1'200ms));
  ASSERT_EQ(answered(still_waiting(), at(1'300ms)), "claim");
  ASSERT_EQ(claimed(still_waiting(), at(1'400ms)), "nothing");
  ASSERT_EQ(timer(at(2'400ms)), "ask");

  EXPECT_EQ(answered(still_waiting(), at(2'500ms)), "nothing");
}

TEST_F(AcquireAttempt, ForgetsAKeptNoticeOnceItHasClaimed) {
  start();
  notice(at(50ms));
  ASSERT_EQ(answered(whole_grant(), at(29s)), "claim");
  ASSERT_EQ(claimed(still_waiting(), at(29'100ms)), "nothing");
  ASSERT_EQ(timer(at(30'100ms)), "ask");

  EXPECT_EQ(answered(still_waiting(), at(30'200ms)), "nothing");
}

TEST_F(AcquireAttempt, DoesNotAskTwiceForAReconnectOrATimerWhileAsking) {
  start();

  EXPECT_EQ(reconnect(at(50ms)), "nothing");
  EXPECT_EQ(timer(at(1h)), "nothing");
}

// ---- waiting ----

TEST_F(AcquireAttempt, AsksAgainAtItsHeartbeat) {
  reach_waiting();

  EXPECT_EQ(timer(first_heartbeat - 1ns), "nothing");
  EXPECT_EQ(timer(first_heartbeat), "ask");

  EXPECT_EQ(machine_.sent_at(), first_heartbeat);
}

TEST_F(AcquireAttempt, AsksTogetherWithThoseWhoBeganToWaitALittleLater) {
  acquire_attempt other{usual_times(), true};
  start();
  static_cast<void>(other.start(at(0s)));

  EXPECT_EQ(answered(still_waiting(), at(10ms)), "nothing");
  static_cast<void>(other.on_acquire_answered(still_waiting(), at(110ms), 0.5));

  EXPECT_EQ(machine_.wake_at(), other.wake_at());
  EXPECT_GT(other.wake_at(), at(110ms) + 875ms);
}

TEST_F(AcquireAttempt, AsksAgainWhenNoticesMayHaveBeenMissed) {
  reach_waiting();

  EXPECT_EQ(reconnect(at(200ms)), "ask");
}

TEST_F(AcquireAttempt, WinsByANoticeAndCountsFromItsLastProofOfWaiting) {
  reach_waiting();

  EXPECT_EQ(notice(at(2s)), "won");

  EXPECT_EQ(prize().proof, (confirmation{at(0s), 6s, true}));
  EXPECT_EQ(prize().tokens, tokens);
  EXPECT_EQ(prize().permits, 5U);
}

TEST_F(AcquireAttempt, CountsFromTheLatestProofOfWaiting) {
  reach_asking_again();
  answered(still_waiting(), at(1'200ms));

  ASSERT_EQ(notice(at(1'300ms)), "won");

  EXPECT_EQ(prize().proof.counted_from, at(1'100ms));
}

TEST_F(AcquireAttempt, DoesNotCountAQuestionWithoutAnAnswerAsProofOfWaiting) {
  reach_asking_again();
  ask_failed(errc::outcome_unknown, at(1'200ms));

  ASSERT_EQ(notice(at(1'300ms)), "won");

  EXPECT_EQ(prize().proof.counted_from, at(0s));
}

TEST_F(AcquireAttempt, ClaimsFirstWhenLessThanAThirdOfTheWindowIsLeft) {
  reach_waiting();

  EXPECT_EQ(notice(at(3s)), "claim");
}

TEST_F(AcquireAttempt, WinsWithJustMoreThanAThirdOfTheWindow) {
  reach_waiting();

  EXPECT_EQ(notice(at(3s) - 1ns), "won");
}

TEST_F(AcquireAttempt, ClaimsFirstWhenTheMarginEatsTheWholeWindow) {
  timing times = usual_times();
  times.margin = 6s;
  machine_ = acquire_attempt{times, true};
  reach_waiting();

  EXPECT_EQ(notice(at(200ms)), "claim");
}

TEST_F(AcquireAttempt, ClaimsWhenAHintSaysPerhaps) {
  reach_waiting();

  EXPECT_EQ(hint(at(200ms)), "claim");

  EXPECT_EQ(machine_.wake_at(), time_point::max());
  EXPECT_TRUE(machine_.request_under_way());
}

TEST_F(AcquireAttempt, IgnoresADoubledNoticeAfterItWon) {
  reach_waiting();
  ASSERT_EQ(notice(at(200ms)), "won");

  EXPECT_EQ(notice(at(200ms)), "nothing");
  EXPECT_EQ(hint(at(300ms)), "nothing");
}

TEST_F(AcquireAttempt, IgnoresAnAnswerThatNobodyAskedFor) {
  reach_waiting();

  EXPECT_EQ(answered(whole_grant(), at(200ms)), "nothing");
  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(200ms)), "nothing");
  EXPECT_EQ(machine_.wake_at(), first_heartbeat);
}

TEST_F(AcquireAttempt, IsAbandonedAtOnceWhileWaiting) {
  reach_waiting();

  EXPECT_EQ(give_up(at(200ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, time_point::min());
}

// ---- late notices of grants that have lapsed ----

TEST_F(AcquireAttempt, ClaimsFirstAfterAHoleInItsProofsInWhichAGrantMayHaveLapsed) {
  // Waiting since 0 s: a grant made then, and never claimed, lapses at 6 s. The next "still
  // waiting" comes after that, and the notice of the lapsed grant comes even later.
  reach_waiting();
  ASSERT_EQ(timer(at(7s)), "ask");
  ASSERT_EQ(answered(still_waiting(), at(7'100ms)), "nothing");

  EXPECT_EQ(notice(at(7'200ms)), "claim");
}

TEST_F(AcquireAttempt, TrustsNoticesWhileItsProofsFollowEachOtherInsideTheWindow) {
  reach_waiting();
  ASSERT_EQ(timer(at(4'900ms)), "ask");
  ASSERT_EQ(answered(still_waiting(), at(5s) - 1ns), "nothing");

  EXPECT_EQ(notice(at(5'100ms)), "won");
}

TEST_F(AcquireAttempt, DistrustsNoticesWhenTheNextProofIsAsLateAsTheWindowLessTheMargin) {
  reach_waiting();
  ASSERT_EQ(timer(at(4'900ms)), "ask");
  ASSERT_EQ(answered(still_waiting(), at(5s)), "nothing");

  EXPECT_EQ(notice(at(5'100ms)), "claim");
}

TEST_F(AcquireAttempt, CountsTheHoleFromAFirstQuestionThatMayHaveQueuedIt) {
  start();
  ask_failed(errc::outcome_unknown, at(2s));
  ASSERT_EQ(timer(at(6s)), "ask");
  ASSERT_EQ(answered(still_waiting(), at(6'100ms)), "nothing");

  EXPECT_EQ(notice(at(6'200ms)), "claim");
}

TEST_F(AcquireAttempt, DoesNotTrustADoubledNoticeOfAGrantWhoseClaimWasRefused) {
  reach_waiting();
  ASSERT_EQ(notice(at(4s)), "claim");
  ASSERT_EQ(claimed(still_waiting(), at(4'100ms)), "nothing");

  EXPECT_EQ(notice(at(4'200ms)), "claim");
}

TEST_F(AcquireAttempt, DoesNotTrustADoubledNoticeThatComesWhileItAsksForItsOldPlace) {
  reach_waiting();
  ASSERT_EQ(notice(at(4s)), "claim");
  ASSERT_EQ(claimed(gone{}, at(4'100ms)), "ask");
  ASSERT_EQ(notice(at(4'150ms)), "nothing");

  EXPECT_EQ(answered(still_waiting(), at(4'200ms)), "claim");
}

TEST_F(AcquireAttempt, IgnoresANoticeThatIsOlderThanTheLastAnswer) {
  waiting later = still_waiting();
  later.newest_token = tokens.last;
  ASSERT_EQ(start(), "ask");
  ASSERT_EQ(answered(later, at(100ms)), "nothing");

  EXPECT_EQ(notice(at(200ms)), "nothing");
}

TEST_F(AcquireAttempt, TrustsANoticeThatIsNewerThanTheLastAnswer) {
  waiting later = still_waiting();
  later.newest_token = fencing_token{tokens.first.value() - 1};
  ASSERT_EQ(start(), "ask");
  ASSERT_EQ(answered(later, at(100ms)), "nothing");

  EXPECT_EQ(notice(at(200ms)), "won");
}

TEST_F(AcquireAttempt, KeepsADoubtedNoticeForTheAnswerUnderWay) {
  reach_claiming();
  ASSERT_EQ(claimed(still_waiting(), at(300ms)), "nothing");
  ASSERT_EQ(timer(at(1'300ms)), "ask");
  ASSERT_EQ(notice(at(1'400ms)), "nothing");

  EXPECT_EQ(answered(still_waiting(), at(1'500ms)), "claim");
}

TEST_F(AcquireAttempt, IgnoresANoticeWhoseTokensAreNotNewerThanItsProofOfWaiting) {
  start();
  answered(waiting{.ask_again_after = 1h, .newest_token = tokens.first}, at(100ms));

  EXPECT_EQ(notice(at(200ms)), "nothing");

  EXPECT_EQ(machine_.wake_at(), first_heartbeat);
}

TEST_F(AcquireAttempt, TrustsANoticeWhoseTokensAreNewerThanItsProofOfWaiting) {
  start();
  answered(waiting{.ask_again_after = 1h, .newest_token = fencing_token{6}}, at(100ms));

  EXPECT_EQ(notice(at(200ms)), "won");
}

TEST_F(AcquireAttempt, DropsAKeptNoticeThatTheAnswerProvesOld) {
  start();
  ASSERT_EQ(notice(at(50ms)), "nothing");

  EXPECT_EQ(answered(waiting{.ask_again_after = 1h, .newest_token = tokens.last}, at(100ms)),
            "nothing");
}

// ---- claiming ----

TEST_F(AcquireAttempt, WinsWithAConfirmedClaimCountedFromItsSending) {
  reach_claiming();

  EXPECT_EQ(claimed(renewed{newer_tokens, 30s}, at(400ms)), "won");

  EXPECT_EQ(prize().proof, (confirmation{at(200ms), 30s, false}));
  EXPECT_EQ(prize().tokens, newer_tokens);
}

TEST_F(AcquireAttempt, KnowsTheStoredNumberOfPermitsAfterAClaimToo) {
  reach_claiming();
  claimed(renewed{tokens, 30s}, at(400ms));

  EXPECT_EQ(prize().permits, 5U);
}

TEST_F(AcquireAttempt, ClaimsAgainWhenTheConfirmationCameTooLate) {
  reach_claiming();

  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(29'200ms)), "claim");
  EXPECT_EQ(machine_.sent_at(), at(29'200ms));
  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(29'300ms)), "won");
}

TEST_F(AcquireAttempt, WaitsOnAtItsOldPlaceWhenTheClaimWasRefused) {
  reach_claiming();

  EXPECT_EQ(claimed(still_waiting(), at(300ms)), "nothing");

  EXPECT_EQ(machine_.wake_at(), at(1'250ms));
}

TEST_F(AcquireAttempt, AsksForItsPlaceWhenTheStoreKnowsItNoLonger) {
  reach_claiming();

  EXPECT_EQ(claimed(gone{}, at(300ms)), "ask");

  EXPECT_EQ(machine_.sent_at(), at(300ms));
}

TEST_F(AcquireAttempt, PausesAndAsksAgainWhenItsClaimFailed) {
  reach_claiming();

  EXPECT_EQ(claim_failed(errc::outcome_unknown, at(300ms)), "nothing");
  EXPECT_EQ(machine_.wake_at(), at(310ms));
  EXPECT_EQ(timer(at(310ms)), "ask");
}

TEST_F(AcquireAttempt, IgnoresNoticesTimersAndReconnectsWhileClaiming) {
  reach_claiming();

  EXPECT_EQ(notice(at(250ms)), "nothing");
  EXPECT_EQ(hint(at(250ms)), "nothing");
  EXPECT_EQ(timer(at(1h)), "nothing");
  EXPECT_EQ(reconnect(at(250ms)), "nothing");
  EXPECT_EQ(answered(whole_grant(), at(250ms)), "nothing");
}

TEST_F(AcquireAttempt, ClaimsWithoutWaitingWhenItsOnlyAnswerCameTooLate) {
  do_not_wait();
  start();
  ASSERT_EQ(answered(whole_grant(), at(29s)), "claim");

  EXPECT_EQ(claim_failed(errc::unavailable, at(30s)), "failed: down");

  EXPECT_TRUE(machine_.remains().any);
}

// ---- pausing ----

TEST_F(AcquireAttempt, AsksAgainAfterItsPause) {
  reach_pausing();

  EXPECT_EQ(timer(at(110ms) - 1ns), "nothing");
  EXPECT_EQ(timer(at(110ms)), "ask");
}

TEST_F(AcquireAttempt, SpreadsItsPauses) {
  start();
  ask_failed(errc::unavailable, at(100ms), 0.5);

  EXPECT_EQ(machine_.wake_at(), at(115ms));
}

TEST_F(AcquireAttempt, PausesLongerAfterEveryFailureUpToASecond) {
  be_patient_for(1h);
  start();
  time_point now = at(0s);
  duration last{};

  for (int failures = 0; failures < 12; ++failures) {
    ASSERT_EQ(ask_failed(errc::unavailable, now, 0.999), "nothing");
    const duration pause = machine_.wake_at() - now;
    ASSERT_GE(pause, last);
    ASSERT_LE(pause, 1s);
    last = pause;
    now = machine_.wake_at();
    ASSERT_EQ(timer(now), "ask");
  }

  EXPECT_GT(last, 990ms);
}

TEST_F(AcquireAttempt, ForgetsItsTroubleWithTheFirstAnswer) {
  reach_pausing();
  ASSERT_EQ(timer(at(110ms)), "ask");

  ASSERT_EQ(answered(still_waiting(), at(200ms)), "nothing");

  EXPECT_FALSE(machine_.trouble());
  ASSERT_EQ(timer(at(1'200ms)), "ask");
  ASSERT_EQ(ask_failed(errc::unavailable, at(1'300ms)), "nothing");
  EXPECT_EQ(machine_.wake_at(), at(1'310ms));
}

TEST_F(AcquireAttempt, FailsWhenItsPatienceWithTheStoreIsOver) {
  reach_pausing();
  ASSERT_EQ(timer(at(9s)), "ask");

  EXPECT_EQ(ask_failed(errc::unavailable, at(10s)), "failed: down");
}

TEST_F(AcquireAttempt, HasPatienceUntilTheLastMoment) {
  reach_pausing();
  ASSERT_EQ(timer(at(9s)), "ask");

  EXPECT_EQ(ask_failed(errc::unavailable, at(10s) - 1ns), "nothing");
}

TEST_F(AcquireAttempt, CountsItsPatienceAnewForANewTrouble) {
  reach_pausing();
  ASSERT_EQ(timer(at(9s)), "ask");
  ASSERT_EQ(answered(still_waiting(), at(9'500ms)), "nothing");
  ASSERT_EQ(timer(at(10'500ms)), "ask");

  EXPECT_EQ(ask_failed(errc::unavailable, at(11s)), "nothing");
}

TEST_F(AcquireAttempt, HasNoPatienceWhenItIsZero) {
  be_patient_for(0s);
  start();

  EXPECT_EQ(ask_failed(errc::unavailable, at(0s)), "failed: down");
}

TEST_F(AcquireAttempt, AsksAtOnceWhenTheStoreIsBack) {
  reach_pausing();

  EXPECT_EQ(reconnect(at(101ms)), "ask");
}

TEST_F(AcquireAttempt, ClaimsWhenANoticeComesWithoutAnyProofOfWaiting) {
  reach_pausing();

  EXPECT_EQ(notice(at(105ms)), "claim");
}

TEST_F(AcquireAttempt, WinsByANoticeWhilePausingWithAYoungProof) {
  reach_asking_again();
  ask_failed(errc::unavailable, at(1'200ms));

  EXPECT_EQ(notice(at(1'205ms)), "won");
}

TEST_F(AcquireAttempt, ClaimsByAHintWhilePausing) {
  reach_pausing();

  EXPECT_EQ(hint(at(105ms)), "claim");
}

TEST_F(AcquireAttempt, IsAbandonedAtOnceWhilePausing) {
  reach_pausing();

  EXPECT_EQ(give_up(at(105ms)), "abandoned");

  EXPECT_FALSE(machine_.remains().any);
}

TEST_F(AcquireAttempt, LeavesATraceWhenAbandonedAfterAnUnknownOutcome) {
  start();
  ask_failed(errc::outcome_unknown, at(2s));

  ASSERT_EQ(give_up(at(2s)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, at(30s));
}

// ---- leaving ----

TEST_F(AcquireAttempt, WaitsForTheAnswerUnderWayBeforeItIsAbandoned) {
  start();

  EXPECT_EQ(give_up(at(50ms)), "nothing");

  EXPECT_TRUE(machine_.request_under_way());
  EXPECT_EQ(give_up(at(60ms)), "nothing");
  EXPECT_EQ(notice(at(60ms)), "nothing");
  EXPECT_EQ(hint(at(60ms)), "nothing");
  EXPECT_EQ(reconnect(at(60ms)), "nothing");
  EXPECT_EQ(timer(at(1h)), "nothing");
}

TEST_F(AcquireAttempt, HasSomethingToCleanUpWhenTheGrantCameAfterItWasGivenUp) {
  start();
  give_up(at(50ms));

  EXPECT_EQ(answered(whole_grant(), at(100ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
}

TEST_F(AcquireAttempt, HasSomethingToCleanUpWhenItWasQueuedAfterItWasGivenUp) {
  start();
  give_up(at(50ms));

  EXPECT_EQ(answered(still_waiting(), at(100ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
}

TEST_F(AcquireAttempt, HasNothingToCleanUpWhenTheLockWasHeldAfterItWasGivenUp) {
  do_not_wait();
  start();
  give_up(at(50ms));

  EXPECT_EQ(answered(held{}, at(100ms)), "abandoned");

  EXPECT_FALSE(machine_.remains().any);
}

TEST_F(AcquireAttempt, HasNothingToCleanUpWhenNothingHappenedAfterItWasGivenUp) {
  start();
  give_up(at(50ms));

  EXPECT_EQ(ask_failed(errc::unavailable, at(100ms)), "abandoned");

  EXPECT_FALSE(machine_.remains().any);
}

TEST_F(AcquireAttempt, HasALateRequestToCleanUpWhenTheAnswerNeverCameAfterItWasGivenUp) {
  start();
  give_up(at(50ms));

  EXPECT_EQ(ask_failed(errc::outcome_unknown, at(2s)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
  EXPECT_EQ(machine_.remains().late_until, at(30s));
}

TEST_F(AcquireAttempt, StillHasItsTicketToCleanUpWhenAHeartbeatFailedAfterItWasGivenUp) {
  reach_asking_again();
  give_up(at(1'150ms));

  EXPECT_EQ(ask_failed(errc::unavailable, at(1'200ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
}

TEST_F(AcquireAttempt, WaitsForTheAnswerToItsClaimBeforeItIsAbandoned) {
  reach_claiming();

  EXPECT_EQ(give_up(at(250ms)), "nothing");
  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(300ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
}

TEST_F(AcquireAttempt, HasAClaimedGrantToCleanUpThoughItNeverKnewThatItWasQueued) {
  reach_pausing();
  ASSERT_EQ(notice(at(105ms)), "claim");
  give_up(at(106ms));

  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(200ms)), "abandoned");

  EXPECT_TRUE(machine_.remains().any);
}

// ---- before the start and after the end ----

TEST_F(AcquireAttempt, DoesNothingBeforeItIsStarted) {
  EXPECT_EQ(notice(at(0s)), "nothing");
  EXPECT_EQ(hint(at(0s)), "nothing");
  EXPECT_EQ(reconnect(at(0s)), "nothing");
  EXPECT_EQ(timer(at(0s)), "nothing");
  EXPECT_FALSE(machine_.request_under_way());
}

TEST_F(AcquireAttempt, LeavesNothingBehindWhenGivenUpBeforeItIsStarted) {
  EXPECT_EQ(give_up(at(0s)), "abandoned");

  EXPECT_FALSE(machine_.remains().any);
}

TEST_F(AcquireAttempt, DoesNothingAnyMoreOnceFinished) {
  start();
  ASSERT_EQ(answered(whole_grant(), at(1s)), "won");

  EXPECT_EQ(answered(whole_grant(), at(2s)), "nothing");
  EXPECT_EQ(claimed(renewed{tokens, 30s}, at(2s)), "nothing");
  EXPECT_EQ(notice(at(2s)), "nothing");
  EXPECT_EQ(reconnect(at(2s)), "nothing");
  EXPECT_EQ(timer(at(1h)), "nothing");
  EXPECT_EQ(give_up(at(2s)), "nothing");
  EXPECT_EQ(machine_.wake_at(), time_point::max());
}

}  // namespace
}  // namespace sallyport::core
