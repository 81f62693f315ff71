#include "fence/gate_state.hpp"

#include "base/random.hpp"
#include "fence/gate_testing.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::fence {

namespace {

struct row {
  const char* name;
  std::uint64_t newest_exclusive;
  std::uint64_t newest_shared;
  pass shown;
  verdict answer;
  std::uint64_t exclusive_after;
  std::uint64_t shared_after;
};

TEST(GateState, FollowsTheRule) {
  const std::vector<row> table{
      {"the first writer", 0, 0, exclusive(1), verdict::passed, 1, 0},
      {"the first reader", 0, 0, shared(1), verdict::passed, 0, 1},
      {"the same writer again", 7, 0, exclusive(7), verdict::passed, 7, 0},
      {"a newer writer", 7, 0, exclusive(8), verdict::passed, 8, 0},
      {"a late writer", 7, 0, exclusive(6), verdict::stale, 7, 0},
      {"a reader after the writer", 7, 0, shared(8), verdict::passed, 7, 8},
      {"a writer that was downgraded reads", 7, 0, shared(7), verdict::passed, 7, 7},
      {"a late reader", 7, 0, shared(6), verdict::stale, 7, 0},
      {"a writer older than a reader", 7, 9, exclusive(8), verdict::stale, 7, 9},
      {"a writer as old as a reader", 7, 9, exclusive(9), verdict::stale, 7, 9},
      {"a downgraded writer writes", 7, 7, exclusive(7), verdict::stale, 7, 7},
      {"a writer newer than all readers", 7, 9, exclusive(10), verdict::passed, 10, 9},
      {"the same reader again", 7, 9, shared(9), verdict::passed, 7, 9},
      {"an older reader beside a newer", 7, 9, shared(8), verdict::passed, 7, 9},
      {"a newer reader", 7, 9, shared(10), verdict::passed, 7, 10},
      {"a reader that a writer overtook", 10, 9, shared(9), verdict::stale, 10, 9},
      {"the largest token", 7, 9, exclusive(~0ULL), verdict::passed, ~0ULL, 9},
      {"no token, to write", 0, 0, exclusive(0), verdict::stale, 0, 0},
      {"no token, to read", 0, 0, shared(0), verdict::stale, 0, 0},
      {"no token, later", 7, 9, shared(0), verdict::stale, 7, 9},
  };

  for (const row& line : table) {
    SCOPED_TRACE(line.name);
    gate_state state{.lock = "orders",
                     .newest_exclusive = fencing_token{line.newest_exclusive},
                     .newest_shared = fencing_token{line.newest_shared}};

    const verdict answer = state.judge(line.shown);
    if (answer == verdict::passed) state.raise(line.shown);

    EXPECT_EQ(answer, line.answer);
    EXPECT_EQ(state.newest_exclusive.value(), line.exclusive_after);
    EXPECT_EQ(state.newest_shared.value(), line.shared_after);
  }
}

TEST(GateState, IsBoundAnewAsTheRuleSays) {
  struct line {
    const char* name;
    const char* lock;
    const char* from;
    std::uint64_t token;
    rebinding kind;
    verdict answer;
    gate_state after;
  };
  const auto state = [](const char* lock, std::uint64_t written, std::uint64_t read) {
    return gate_state{.lock = lock,
                      .newest_exclusive = fencing_token{written},
                      .newest_shared = fencing_token{read}};
  };
  constexpr auto keep = rebinding::keeps_numbers;
  constexpr auto restart = rebinding::restarts_numbers;
  // All begin with a writer's 7 and a reader's 9, and are to be bound to "orders".
  const std::vector<line> table{
      {"newer", "old", "old", 10, keep, verdict::passed, state("orders", 10, 9)},
      {"as new as a reader", "old", "old", 9, keep, verdict::stale, state("old", 7, 9)},
      {"older", "old", "old", 6, keep, verdict::stale, state("old", 7, 9)},
      {"newer, and restarted", "old", "old", 10, restart, verdict::passed, state("orders", 10, 0)},
      {"older, and restarted", "old", "old", 3, restart, verdict::passed, state("orders", 3, 0)},
      {"of another", "third", "old", 10, keep, verdict::wrong_lock, state("third", 7, 9)},
      {"of another, too", "third", "old", 10, restart, verdict::wrong_lock, state("third", 7, 9)},
      {"of nobody", "", "old", 10, restart, verdict::wrong_lock, state("", 7, 9)},
      {"done before", "orders", "old", 10, keep, verdict::passed, state("orders", 10, 9)},
      {"done before, and late", "orders", "old", 6, keep, verdict::stale, state("orders", 7, 9)},
      {"done before, late, and restarted", "orders", "old", 6, restart, verdict::stale,
       state("orders", 7, 9)},
      {"done before, and restarted", "orders", "old", 10, restart, verdict::passed,
       state("orders", 10, 9)},
  };

  for (const line& each : table) {
    SCOPED_TRACE(each.name);
    gate_state gate = state(each.lock, 7, 9);

    const verdict answer = gate.judge_rebinding(each.from, exclusive(each.token), each.kind);
    if (answer == verdict::passed) gate.rebind(each.from, exclusive(each.token), each.kind);

    EXPECT_EQ(answer, each.answer);
    EXPECT_EQ(gate, each.after);
  }
}

TEST(GateState, RefusesWhatNoGateCanBeBoundFromOrTo) {
  const auto code_of = [](const std::string& from, const pass& shown) {
    const auto checked = check_rebinding(from, shown);
    return checked ? std::error_code{} : checked.error().code;
  };

  EXPECT_EQ(code_of("old", exclusive(1)), std::error_code{});
  EXPECT_EQ(code_of("orders", exclusive(1)), errc::bad_option);
  EXPECT_EQ(code_of("old", shared(1)), errc::bad_option);
  EXPECT_EQ(code_of("old", exclusive(0)), errc::no_fencing);
  EXPECT_EQ(code_of("", exclusive(1)), errc::bad_name);
  EXPECT_EQ(code_of(std::string(gate::max_lock_bytes + 1, 'x'), exclusive(1)), errc::bad_name);
}

TEST(GateState, IsBoundByTheFirstPassThatPassed) {
  gate_state state;
  EXPECT_EQ(state.judge(exclusive(0)), verdict::stale);
  EXPECT_EQ(state.lock, "");

  state.raise(exclusive(3));

  EXPECT_EQ(state.lock, "orders");
}

TEST(GateState, RefusesAnotherLockWhateverItsToken) {
  gate_state state;
  state.raise(exclusive(3));
  const pass other{.lock = "invoices", .token = fencing_token{99}};
  const pass without_token{.lock = "invoices"};
  const pass prefix{.lock = "order", .token = fencing_token{99}};

  EXPECT_EQ(state.judge(other), verdict::wrong_lock);
  EXPECT_EQ(state.judge(without_token), verdict::wrong_lock);
  EXPECT_EQ(state.judge(prefix), verdict::wrong_lock);
}

TEST(GateStateDeathTest, AbortsWhenARefusedPassIsRaised) {
  gate_state state{.lock = "orders", .newest_exclusive = fencing_token{7}};

  EXPECT_DEATH(state.raise(exclusive(6)), "judge");
}

TEST(CheckPass, RefusesWhatCanNeverBeJudged) {
  EXPECT_TRUE(check_pass(exclusive(1)));
  EXPECT_EQ(check_pass(exclusive(0)).error().code, errc::no_fencing);
  EXPECT_EQ(check_pass({.lock = "", .token = fencing_token{1}}).error().code, errc::bad_name);
  EXPECT_TRUE(
      check_pass({.lock = std::string(gate::max_lock_bytes, 'x'), .token = fencing_token{1}}));
  EXPECT_EQ(
      check_pass({.lock = std::string(gate::max_lock_bytes + 1, 'x'), .token = fencing_token{1}})
          .error()
          .code,
      errc::bad_name);
}

// The rule said anew without W and S: compare with everything that ever passed.
bool may_pass_by_history(const std::vector<pass>& passed, const pass& shown) {
  return shown.token.value() != 0 && std::ranges::all_of(passed, [&](const pass& earlier) {
           if (earlier.mode == lock_mode::exclusive) return shown.token >= earlier.token;
           return shown.mode == lock_mode::shared || shown.token > earlier.token;
         });
}

TEST(GateState, AgreesWithTheWholeHistory) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    base::random random{seed};
    gate_state state;
    std::vector<pass> passed;

    for (int step = 0; step < 60; ++step) {
      const std::uint64_t token = random.below(12) + static_cast<std::uint64_t>(step) / 6;
      const pass shown = random.chance(0.5) ? exclusive(token) : shared(token);
      const gate_state before = state;

      const bool may_pass = may_pass_by_history(passed, shown);
      ASSERT_EQ(state.judge(shown) == verdict::passed, may_pass) << "seed " << seed;
      if (!may_pass) continue;
      state.raise(shown);
      passed.push_back(shown);

      ASSERT_GE(state.newest_exclusive, before.newest_exclusive) << "seed " << seed;
      ASSERT_GE(state.newest_shared, before.newest_shared) << "seed " << seed;
    }
  }
}

// What the rule is for, said in grants: a lock hands out tokens as promised, holders arrive at the
// gate late and in any order, and yet no grant passes after a conflicting later one did, while the
// newest always passes.
TEST(GateState, LetsNoGrantThroughAfterAConflictingLaterOne) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    base::random random{seed};
    gate_state state;
    std::vector<pass> grants;  // in the order in which the lock gave them
    std::uint64_t counter = 0;
    std::optional<std::size_t> newest_passed_writer;
    std::optional<std::size_t> newest_passed;

    for (int step = 0; step < 60; ++step) {
      if (grants.empty() || random.chance(0.3)) {
        // A downgrade keeps its token, and readers that follow each other need not differ.
        const bool keeps_token = !grants.empty() && random.chance(0.3);
        if (!keeps_token) counter += 1 + random.below(3);
        grants.push_back(keeps_token || random.chance(0.5) ? shared(counter) : exclusive(counter));
      }
      const std::size_t arriving =
          grants.size() - 1 - random.below(std::min<std::size_t>(grants.size(), 6));
      const pass& shown = grants[arriving];

      const bool passes = state.judge(shown) == verdict::passed;

      const auto& conflicting =
          shown.mode == lock_mode::exclusive ? newest_passed : newest_passed_writer;
      if (conflicting && *conflicting > arriving) {
        ASSERT_FALSE(passes) << "seed " << seed;
      } else {
        ASSERT_TRUE(passes) << "seed " << seed;
      }
      if (!passes) continue;
      state.raise(shown);
      newest_passed = std::max(newest_passed.value_or(0), arriving);
      if (shown.mode == lock_mode::exclusive) newest_passed_writer = arriving;
    }
  }
}

}  // namespace
}  // namespace sallyport::fence
