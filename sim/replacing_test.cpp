#include "backends/redlock/test_quorum_world.hpp"
#include "base/planted.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

// Whether the world of a quorum whose members are replaced would notice what could be wrong with that.
namespace sallyport::sim {
namespace {

using namespace std::chrono_literals;
using base::defect;

/// What was said to be wrong; empty: nothing.
std::string flaws_of(std::uint64_t seed) {
  using backends::redlock::quorum_world::world;
  testing::TestPartResultArray found;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
    world all(seed, 3, {.slow = 0.05, .breaks = 0.03, .client_deaths = 0.02, .rivals = true}, 2);
    all.run(15s, 3);
  }
  std::string text;
  for (int i = 0; i < found.size(); ++i) text += found.GetTestPartResult(i).message();
  return text;
}

constexpr std::uint64_t seeds_to_try = 300;

/// By one of the seeds from this one on, some promise is broken.
void expect_found(defect which, std::uint64_t first_seed = 1) {
  base::planted_defect = which;
  std::uint64_t seed = first_seed;
  std::string flaws;
  for (; seed < first_seed + seeds_to_try && flaws.empty(); ++seed) {
    const std::string all = flaws_of(seed);
    if (all.find("two are in") != std::string::npos ||
        all.find("tokens only grow") != std::string::npos) {
      flaws = all;
    }
  }
  base::planted_defect = defect::none;
  EXPECT_FALSE(flaws.empty()) << "not found within " << seeds_to_try << " seeds";
  testing::Test::RecordProperty("seed", std::to_string(seed - 1));
}

// No node forgets anything here: what is found is found by who comes in, or stays, when a member is replaced.
TEST(ReplacingDefects, ANewMemberThatVotesAtOnceIsFound) { expect_found(defect::rejoin_at_once); }

TEST(ReplacingDefects, ANewMemberWithoutTheCounterIsFound) {
  // Seeds that show it are rare, and seconds of those before it are saved.
  expect_found(defect::rejoin_without_counter, 130);
}

TEST(ReplacingDefects, AReplacedMemberThatVotesIsFound) {
  expect_found(defect::former_member_votes);
}

}  // namespace
}  // namespace sallyport::sim
