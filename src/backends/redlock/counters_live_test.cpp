#include "backends/redlock/test_live_quorum.hpp"
#include "tests/kit/shifted_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Counters of tokens that are far apart: no reason to say that a free lock is held.
namespace sallyport::redlock_live {
namespace {

constexpr int turns = 100;

/// Takes a lock that nobody else wants, again and again.
void expect_a_free_lock(const client& store, std::uint64_t& last) {
  mutex lock{store, "door", lasting(60s)};
  for (int i = 0; i < turns; ++i) {
    const auto held = lock.try_acquire();
    ASSERT_TRUE(held) << "turn " << i << ": a free lock was said to be held";
    EXPECT_GT(held->token().value(), last);
    last = held->token().value();
  }
}

TEST(CountersFarApart, AreNotMadeByInitialisingNodesWhoseClocksAre) {
  kit::shifted_clock ahead;
  ahead.step(24h * 20);
  redis_quorum nodes(std::vector<kit::redis_options>{{}, {.clock = &ahead}, {}});
  static_cast<void>(open(nodes.address() + "?initialise=yes"));
  std::uint64_t last = 0;

  EXPECT_EQ(counter_of(nodes, 0), counter_of(nodes, 1));
  EXPECT_EQ(counter_of(nodes, 2), counter_of(nodes, 1));
  expect_a_free_lock(open_to_all(nodes.address()), last);
  nodes[0].kill();
  expect_a_free_lock(open(nodes.address()), last);
}

class CounterFarBehind : public testing::TestWithParam<bool> {};

TEST_P(CounterFarBehind, IsBroughtUpByWhoeverWantsALock) {
  redis_quorum nodes(3);
  static_cast<void>(open(nodes.address() + "?initialise=yes"));
  const client store = open_to_all(nodes.address());
  std::uint64_t last = 0;
  expect_a_free_lock(store, last);

  // With a node less the two that are left have to agree.
  const bool one_less = GetParam();
  if (one_less) nodes[0].kill();
  for (const bool lost : {false, true}) {
    if (lost) {
      nodes[1].command({"DEL", "\1quorum-fence"});
    } else {
      nodes[1].command({"SET", "\1quorum-fence", "5"});
    }
    expect_a_free_lock(store, last);
    EXPECT_GE(counter_of(nodes, 1), last);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, CounterFarBehind, testing::Values(false, true),
                         [](const auto& shown) { return shown.param ? "Two" : "Three"; });

TEST(CounterFarAhead, ThatNobodyCountedUpIsAnErrorThatNamesANode) {
  redis_quorum nodes(3);
  nodes.initialise();
  const client store = open_to_all(nodes.address());
  nodes[0].kill();
  nodes[1].command({"SET", "\1quorum-fence", "9007199254740000"});
  mutex lock{store, "door", lasting(60s)};

  const told error = error_of([&] { EXPECT_FALSE(lock.try_acquire()); });

  EXPECT_EQ(error.code, errc::unavailable) << error.text;
  EXPECT_NE(error.text.find(std::to_string(nodes[2].port()) + "'s counter"), std::string::npos)
      << error.text;
}

}  // namespace
}  // namespace sallyport::redlock_live
