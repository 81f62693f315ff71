#include "base/random.hpp"
#include "core/local_turns.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace sallyport::core {
namespace {

using namespace std::chrono_literals;
using backend_api::token_block;

/// A caller as the model sees it: it waits until it gets exactly one answer.
struct model_caller final : turn_taker {
  turn_wish wish;
};

/// Plays store, callers and clock around one lane at random, and compares every action with a naive
/// model: a list of those who wait, and what the one contender in the store is doing.
class lane_ordeal {
 public:
  explicit lane_ordeal(std::uint64_t seed)
      : source_(seed),
        limits_{.count = static_cast<std::uint32_t>(1 + source_.below(6)),
                .time = duration{source_.below(duration{5s}.count())}} {}

  void run() {
    for (int step = 0; step < 300; ++step) {
      ASSERT_NO_FATAL_FAILURE(random_step());
      ASSERT_NO_FATAL_FAILURE(check_books());
    }
    ASSERT_NO_FATAL_FAILURE(drain());
  }

 private:
  enum class contender { none, asking, held, drawing };

  void random_step() {
    now_ += duration{source_.below(duration{300ms}.count())};
    switch (source_.below(8)) {
      case 0:
      case 1:
        return want();
      case 2:
        return cancel();
      case 3:
        return answer_attempt();
      case 4:
        return leave_turn();
      case 5:
        return answer_draw();
      case 6:
        return leave_earlier_turn();
      case 7:
        return source_.chance(0.2) ? lose() : answer_attempt();
    }
  }

  void want() {
    auto& caller = *callers_.emplace_back(std::make_unique<model_caller>());
    caller.wish = {.lease_length = source_.chance(0.8) ? 30s : 60s,
                   .renew = source_.chance(0.8) ? renewal::automatic : renewal::never,
                   .may_wait = source_.chance(0.8)};
    const bool queued = caller.wish.may_wait || contender_ == contender::none;
    if (queued) waiting_.push_back(&caller);
    expect_busy_ = queued ? nullptr : &caller;
    turn_actions out;
    lane_.want(caller, caller.wish, out);
    ASSERT_NO_FATAL_FAILURE(follow(out));
    ASSERT_EQ(expect_busy_, nullptr) << "neither queued nor told busy";
  }

  void cancel() {
    turn_actions out;
    if (waiting_.empty() || source_.chance(0.2)) {
      // Somebody who was served or dropped, or never asked.
      model_caller stranger;
      model_caller& other = callers_.empty() ? stranger : *callers_[source_.below(callers_.size())];
      if (std::find(waiting_.begin(), waiting_.end(), &other) != waiting_.end()) return;
      lane_.cancel(other, out);
      ASSERT_TRUE(out.empty());
      return;
    }
    const auto chosen =
        waiting_.begin() + static_cast<std::ptrdiff_t>(source_.below(waiting_.size()));
    model_caller& leaver = **chosen;
    waiting_.erase(chosen);
    lane_.cancel(leaver, out);
    ASSERT_NO_FATAL_FAILURE(follow(out));
  }

  void answer_attempt() {
    if (contender_ != contender::asking) return;
    turn_actions out;
    const std::uint64_t choice = source_.below(10);
    if (choice < 7) {
      contender_ = contender::held;
      turns_of_grant_ = 0;
      first_turn_at_ = now_;
      grant_ = reserve();
      lane_.won(grant_, now_, out);
      ASSERT_NO_FATAL_FAILURE(follow(out));
      ASSERT_TRUE(turn_) << "won for nobody";
    } else if (choice < 9 && !asked_.may_wait) {
      contender_ = contender::none;
      expect_busy_ = waiting_.front();
      waiting_.pop_front();
      lane_.busy(out);
      ASSERT_NO_FATAL_FAILURE(follow(out));
      ASSERT_EQ(expect_busy_, nullptr);
    } else {
      contender_ = contender::none;
      failures_due_ = asked_.may_wait ? waiting_.size() : 1;
      lane_.failed({errc::unavailable, "down"}, out);
      ASSERT_NO_FATAL_FAILURE(follow(out));
      ASSERT_EQ(failures_due_, 0U);
    }
  }

  void leave_turn() {
    if (!turn_) return;
    const bool fresh = source_.chance(0.9);
    may_pass_ = fresh && turns_of_grant_ < limits_.count && now_ - first_turn_at_ < limits_.time;
    const turn_number ending = *turn_;
    turn_.reset();
    turn_actions out;
    ASSERT_TRUE(lane_.leave(ending, fresh, limits_, now_, out));
    ASSERT_NO_FATAL_FAILURE(follow(out));
    ASSERT_TRUE(turn_ || contender_ != contender::held) << "the grant was forgotten";
  }

  void leave_earlier_turn() {
    const turn_number turn = source_.below(last_turn_ + 2);
    if (turn_ && turn == *turn_) return;
    turn_actions out;
    ASSERT_FALSE(lane_.leave(turn, true, limits_, now_, out));
    ASSERT_TRUE(out.empty());
  }

  void answer_draw() {
    turn_actions out;
    if (contender_ != contender::drawing) {
      lane_.drew(reserve(), out);
      ASSERT_TRUE(out.empty());
      return;
    }
    contender_ = contender::held;
    const bool given = source_.chance(0.8);
    if (given) grant_ = reserve();
    lane_.drew(given ? std::optional{grant_} : std::nullopt, out);
    ASSERT_NO_FATAL_FAILURE(follow(out));
    ASSERT_TRUE(turn_ || contender_ != contender::held);
  }

  void lose() {
    turn_actions out;
    if (contender_ == contender::held || contender_ == contender::drawing) {
      contender_ = contender::none;
      turn_.reset();
      grant_ = {fencing_token{1}, fencing_token{0}};
      lane_.lost(out);
      ASSERT_NO_FATAL_FAILURE(follow(out));
    } else {
      lane_.lost(out);
      ASSERT_TRUE(out.empty());
    }
  }

  /// Tokens of the store only grow; other processes take some in between.
  token_block reserve() {
    const std::uint64_t first = next_token_ + source_.below(3);
    const std::uint64_t last = first + source_.below(4);
    next_token_ = last + 1;
    return {fencing_token{first}, fencing_token{last}};
  }

  void follow(const turn_actions& actions) {
    for (const turn_action& action : actions) {
      ASSERT_NO_FATAL_FAILURE(std::visit([this](const auto& what) { obey(what); }, action));
    }
  }

  void obey(const turn_ask& ask) {
    ASSERT_EQ(contender_, contender::none) << "two contenders of one process";
    ASSERT_FALSE(waiting_.empty());
    ASSERT_EQ(ask.taker, waiting_.front());
    asked_ = waiting_.front()->wish;
    contender_ = contender::asking;
  }
  void obey(const turn_abandon&) {
    ASSERT_EQ(contender_, contender::asking);
    ASSERT_TRUE(waiting_.empty() || !suits(waiting_.front()->wish));
    contender_ = contender::none;
  }
  void obey(const turn_give& give) {
    ASSERT_EQ(contender_, contender::held);
    ASSERT_FALSE(turn_) << "two turns out";
    ASSERT_FALSE(waiting_.empty());
    ASSERT_EQ(give.taker, waiting_.front()) << "out of order";
    ASSERT_GT(give.token, last_token_) << "the token did not grow";
    ASSERT_GE(give.token, grant_.first);
    ASSERT_LE(give.token, grant_.last) << "a token of an earlier grant";
    ASSERT_GT(give.turn, last_turn_);
    ASSERT_TRUE(turns_of_grant_ == 0 || (may_pass_ && waiting_.front()->wish.fits(asked_)));
    ASSERT_EQ(waiting_.front()->wish.lease_length, asked_.lease_length);
    ASSERT_EQ(waiting_.front()->wish.renew, asked_.renew);
    last_token_ = give.token;
    last_turn_ = give.turn;
    turn_ = give.turn;
    ++turns_of_grant_;
    waiting_.pop_front();
  }
  void obey(const turn_busy& busy) {
    ASSERT_NE(expect_busy_, nullptr);
    ASSERT_EQ(busy.taker, expect_busy_);
    ASSERT_FALSE(expect_busy_->wish.may_wait) << "told busy though it would have waited";
    expect_busy_ = nullptr;
  }
  void obey(const turn_fail& fail) {
    ASSERT_GT(failures_due_, 0U);
    ASSERT_EQ(fail.taker, waiting_.front());
    --failures_due_;
    waiting_.pop_front();
  }
  void obey(const turn_part&) {
    ASSERT_EQ(contender_, contender::held);
    ASSERT_FALSE(turn_);
    contender_ = contender::none;
    grant_ = {fencing_token{1}, fencing_token{0}};
  }
  void obey(const turn_draw&) {
    ASSERT_EQ(contender_, contender::held);
    ASSERT_FALSE(turn_);
    ASSERT_EQ(last_token_, grant_.last) << "tokens were left";
    contender_ = contender::drawing;
  }

  [[nodiscard]] bool suits(const turn_wish& wish) const {
    return wish.fits(asked_) && wish.may_wait == asked_.may_wait;
  }

  void check_books() {
    ASSERT_EQ(lane_.waiting(), waiting_.size());
    ASSERT_EQ(lane_.turn_out(), turn_.has_value());
    ASSERT_EQ(lane_.idle(), contender_ == contender::none && waiting_.empty());
    ASSERT_TRUE(waiting_.empty() || contender_ != contender::none) << "waiters were forgotten";
  }

  /// When the store is well and turns end, everybody who waits is served.
  void drain() {
    for (int step = 0; !lane_.idle(); ++step) {
      ASSERT_LT(step, 10'000);
      ASSERT_NO_FATAL_FAILURE(answer_attempt());
      ASSERT_NO_FATAL_FAILURE(leave_turn());
      if (contender_ == contender::drawing) {
        ASSERT_NO_FATAL_FAILURE(answer_draw());
      }
      ASSERT_NO_FATAL_FAILURE(check_books());
    }
    ASSERT_TRUE(waiting_.empty());
  }

  base::random source_;
  turn_limits limits_;
  local_turns lane_;
  time_point now_{1'000h};
  std::vector<std::unique_ptr<model_caller>> callers_;
  std::deque<model_caller*> waiting_;
  contender contender_ = contender::none;
  turn_wish asked_;
  token_block grant_{fencing_token{1}, fencing_token{0}};
  std::uint64_t next_token_ = 1;
  std::optional<turn_number> turn_;
  turn_number last_turn_ = 0;
  fencing_token last_token_;
  std::uint32_t turns_of_grant_ = 0;
  time_point first_turn_at_;
  bool may_pass_ = false;
  model_caller* expect_busy_ = nullptr;
  std::size_t failures_due_ = 0;
};

TEST(LocalTurnsModel, AgreesWithANaiveQueueWhateverHappens) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(seed);
    lane_ordeal ordeal{seed};
    ASSERT_NO_FATAL_FAILURE(ordeal.run());
  }
}

}  // namespace
}  // namespace sallyport::core
