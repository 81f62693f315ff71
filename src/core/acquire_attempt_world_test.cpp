#include "base/random.hpp"
#include "core/acquire_attempt.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace sallyport::core {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::gone;
using backend_api::granted;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;

timing world_times() {
  return {.lease_length = 30s,
          .margin = 100ms,
          .heartbeat = 1s,
          .claim_window = 3s,
          .ticket_length = 60s,
          .request_timeout = 2s,
          .store_patience = 1h,
          .renew = renewal::automatic};
}

/// The store's truth about one name, seen by one contender ("we") among many.
class tiny_store {
 public:
  explicit tiny_store(bool tells_tokens) : tells_tokens_(tells_tokens) {}

  acquire_answer acquire(time_point now) {
    lapse(now);
    if (ours_until_) return granted{tokens(), *ours_until_ - now, !claimed_};
    queued_ = true;
    if (others_hold_) return wait();
    grant(now + world_times().lease_length, true);
    return granted{tokens(), world_times().lease_length};
  }
  renew_answer claim(time_point now) {
    lapse(now);
    if (ours_until_) {
      ours_until_ = now + world_times().lease_length;
      claimed_ = true;
      return renewed{tokens(), world_times().lease_length};
    }
    if (queued_) return wait();
    return gone{};
  }
  /// The others let go; true if that made us the holder, until our claim window ends.
  bool others_leave(time_point now) {
    lapse(now);
    if (!others_hold_) return false;
    others_hold_ = false;
    if (!queued_) return false;
    grant(now + world_times().claim_window, false);
    return true;
  }
  void others_enter(time_point now) {
    lapse(now);
    if (!ours_until_) others_hold_ = true;
  }
  /// Sometimes a grant that nobody claimed costs the place in the queue too.
  void forget_ticket(time_point now) {
    lapse(now);
    if (!ours_until_) queued_ = false;
  }

  [[nodiscard]] std::optional<time_point> ours_until(time_point now) {
    lapse(now);
    return ours_until_;
  }
  [[nodiscard]] token_block tokens() const {
    return {fencing_token{token_}, fencing_token{token_}};
  }

 private:
  [[nodiscard]] waiting wait() const {
    return {.ask_again_after = 1h, .newest_token = fencing_token{tells_tokens_ ? token_ : 0}};
  }
  void grant(time_point until, bool claimed) {
    ours_until_ = until;
    claimed_ = claimed;
    ++token_;
  }
  void lapse(time_point now) {
    if (!ours_until_ || now < *ours_until_) return;
    ours_until_.reset();
    others_hold_ = true;  // another waiter was next, and it is inside now
    ++token_;
  }

  bool tells_tokens_;
  bool others_hold_ = true;
  bool queued_ = false;
  bool claimed_ = false;
  std::optional<time_point> ours_until_;
  std::uint64_t token_ = 1;
};

struct tally {
  int won_by_answer = 0;
  int won_by_notice = 0;
  int claims = 0;
  int refused_claims = 0;
};

/// One attempt in a world of slow, lost and doubled messages and of pauses. Whenever it says "won",
/// the store must think so too, and for at least as long.
class attempt_ordeal {
 public:
  attempt_ordeal(std::uint64_t seed, tally& score) : source_(seed), score_(score) {}

  void run() {
    at_store(now_ + some(2s), [this](time_point when) { others_move(when); });
    ASSERT_NO_FATAL_FAILURE(follow(machine_.start(now_)));
    for (int step = 0; step < 5'000 && !over_; ++step) {
      const bool timer_first =
          to_us_.empty() || machine_.wake_at() <= to_us_.begin()->first || timer_is_due_and_lucky();
      const time_point due = timer_first ? machine_.wake_at() : to_us_.begin()->first;
      ASSERT_TRUE(due != time_point::max() || !in_store_.empty()) << "nothing will ever happen";
      if (!in_store_.empty() && in_store_.begin()->first <= std::max(now_, due)) {
        run_first_of(in_store_);
        continue;
      }
      now_ = std::max(now_, due);
      if (!timer_first) {
        ASSERT_NO_FATAL_FAILURE(run_first_of(to_us_));
      } else if (source_.chance(0.1)) {
        now_ += some(8s);  // our process is stopped for a while; the store goes on
      } else {
        ASSERT_NO_FATAL_FAILURE(follow(machine_.on_timer(now_)));
      }
    }
    ASSERT_TRUE(over_) << "never won";
  }

 private:
  duration some(duration most) {
    return duration{source_.below(static_cast<std::uint64_t>(most.count()))};
  }

  /// Mostly quick, sometimes longer than a claim window.
  duration travel() { return source_.chance(0.8) ? some(50ms) : some(5s); }

  using agenda = std::multimap<time_point, std::function<void(time_point)>>;

  void at_store(time_point when, std::function<void(time_point)> what) {
    in_store_.emplace(when, std::move(what));
  }
  void tell_us(time_point when, std::function<void()> what) {
    to_us_.emplace(when, [what = std::move(what)](time_point) { what(); });
  }
  static void run_first_of(agenda& events) {
    const auto first = events.extract(events.begin());
    first.mapped()(first.key());
  }
  /// After a pause, messages and the timer are due together, and either may be served first.
  bool timer_is_due_and_lucky() { return machine_.wake_at() <= now_ && source_.chance(0.5); }

  void others_move(time_point when) {
    at_store(when + some(3s), [this](time_point next) { others_move(next); });
    if (source_.chance(0.1)) store_.forget_ticket(when);
    if (source_.chance(0.3)) return store_.others_enter(when);
    if (!store_.others_leave(when)) return;
    const granted told{store_.tokens(), world_times().claim_window, true};
    const std::uint64_t copies = source_.below(3);
    for (std::uint64_t copy = 0; copy < copies; ++copy) {
      const bool with_grant = source_.chance(0.9);
      tell_us(when + travel(), [this, told, with_grant] {
        by_notice_ = true;
        follow(machine_.on_granted_notice(with_grant ? std::optional{told} : std::nullopt, now_));
      });
    }
  }

  void follow(const attempt_actions& actions) {
    if (actions.send_acquire) send_acquire();
    if (actions.send_claim) send_claim();
    if (actions.finish) finish(*actions.finish);
    by_notice_ = false;
  }

  void send_acquire() {
    const bool arrives = source_.chance(0.9);
    const bool answered = arrives && source_.chance(0.9);
    at_store(now_ + travel(), [this, arrives, answered](time_point when) {
      std::optional<acquire_answer> answer;
      if (arrives) answer = store_.acquire(when);
      tell_us(when + travel(), [this, answer, answered] {
        follow(answered ? machine_.on_acquire_answered(*answer, now_, source_.unit())
                        : machine_.on_acquire_answered(base::fail(errc::outcome_unknown), now_,
                                                       source_.unit()));
      });
    });
  }

  void send_claim() {
    ++score_.claims;
    const bool arrives = source_.chance(0.9);
    const bool answered = arrives && source_.chance(0.9);
    at_store(now_ + travel(), [this, arrives, answered](time_point when) {
      std::optional<renew_answer> answer;
      if (arrives) answer = store_.claim(when);
      if (answered && !std::holds_alternative<renewed>(*answer)) ++score_.refused_claims;
      tell_us(when + travel(), [this, answer, answered] {
        follow(answered ? machine_.on_claim_answered(*answer, now_, source_.unit())
                        : machine_.on_claim_answered(base::fail(errc::outcome_unknown), now_,
                                                     source_.unit()));
      });
    });
  }

  void finish(const attempt_outcome& outcome) {
    over_ = true;
    const auto* won = std::get_if<attempt_won>(&outcome);
    ASSERT_NE(won, nullptr);
    const time_point deadline = won->proof.counted_from + won->proof.span - world_times().margin;
    const std::optional<time_point> until = store_.ours_until(now_);
    ASSERT_TRUE(until) << "won what somebody else may hold";
    ASSERT_LE(deadline, *until) << "believes in it for longer than the store does";
    ASSERT_GT(deadline, now_);
    ASSERT_EQ(won->tokens, store_.tokens()) << "a token of an earlier grant";
    ++(by_notice_ ? score_.won_by_notice : score_.won_by_answer);
  }

  base::random source_;
  tally& score_;
  time_point now_{1'000h};
  tiny_store store_{source_.chance(0.5)};
  acquire_attempt machine_{world_times(), true};
  agenda in_store_;
  agenda to_us_;
  bool by_notice_ = false;
  bool over_ = false;
};

TEST(AcquireAttemptWorld, NeverWinsWhatTheStoreHasNotGranted) {
  tally score;

  for (std::uint64_t seed = 1; seed <= 5'000; ++seed) {
    SCOPED_TRACE(seed);
    attempt_ordeal ordeal{seed, score};
    ASSERT_NO_FATAL_FAILURE(ordeal.run());
    if (HasFailure()) return;
  }

  // All ways were taken, or the test above proves little.
  EXPECT_GT(score.won_by_answer, 500);
  EXPECT_GT(score.won_by_notice, 500);
  EXPECT_GT(score.claims, 500);
  EXPECT_GT(score.refused_claims, 100);
}

}  // namespace
}  // namespace sallyport::core
