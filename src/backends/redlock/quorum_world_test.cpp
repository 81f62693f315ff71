#include "backends/redlock/test_quorum_world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;
using quorum_world::faults;
using quorum_world::world;

struct story {
  const char* name;
  unsigned nodes;
  faults how;
};

class QuorumWorld : public ::testing::TestWithParam<story> {};

TEST_P(QuorumWorld, KeepsItsPromises) {
  const story& what = GetParam();
  constexpr std::uint64_t seeds = 6;
  std::uint64_t grants = 0;
  std::uint64_t claims = 0;
  for (std::uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    world all(seed, what.nodes, what.how);
    all.run(20s, 3);
    grants += all.grants();
    claims += all.by_hand_over();
  }
  EXPECT_GT(grants, seeds * 20);
  EXPECT_GT(claims, seeds);
}

TEST(QuorumWorldWithReplacers, ReplacesMembersAndKeepsItsPromises) {
  std::uint64_t grants = 0;
  for (std::uint64_t seed = 1; seed <= 12 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const bool five = seed % 3 == 0;
    // Of three members none can be spared while another one is replaced.
    world all(seed, five ? 5 : 3,
              {.slow = 0.02, .breaks = 0.02, .forgets = five ? 0.05 : 0, .client_deaths = 0.02}, 1);
    all.run(20s, 3);
    grants += all.grants();
    EXPECT_GE(all.replaced(), 1U);
  }
  EXPECT_GT(grants, 100U);
}

TEST(QuorumWorldWithReplacers, IsSafeWhenTheyWantDifferentThingsAndNodesForget) {
  std::uint64_t grants = 0;
  std::uint64_t replaced = 0;
  for (std::uint64_t seed = 1; seed <= 20 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    world all(seed, 3,
              {.slow = 0.05, .breaks = 0.03, .forgets = 0.1, .client_deaths = 0.02, .rivals = true},
              2);
    all.run(15s, 3);
    grants += all.grants();
    replaced += all.replaced();
  }
  EXPECT_GT(grants, 100U);
  EXPECT_GT(replaced, 10U);
}

INSTANTIATE_TEST_SUITE_P(
    Stories, QuorumWorld,
    ::testing::Values(story{"Calm3", 3, {}}, story{"Calm5", 5, {}},
                      story{"Slow3", 3, {.slow = 0.05}}, story{"Breaking3", 3, {.breaks = 0.05}},
                      story{"Breaking5", 5, {.slow = 0.02, .breaks = 0.05}},
                      story{"Forgetful3", 3, {.breaks = 0.01, .forgets = 0.05}},
                      story{"Forgetful5", 5, {.slow = 0.01, .breaks = 0.02, .forgets = 0.05}},
                      story{"Dying4", 4, {.breaks = 0.02, .client_deaths = 0.05}}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace sallyport::backends::redlock
