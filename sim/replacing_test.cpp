#include "backends/redlock/test_quorum_world.hpp"
#include "base/planted.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

// Whether the world of a quorum whose members are replaced would notice what could be wrong with that.
namespace sallyport::sim {
namespace {

using namespace std::chrono_literals;
using backends::redlock::quorum_world::faults;
using backends::redlock::quorum_world::world;
using base::defect;

/// Nothing is lost here: what is found is found by who comes in, or stays, when a member is replaced.
constexpr faults nobody_forgets{
    .slow = 0.05, .breaks = 0.03, .client_deaths = 0.02, .rivals = true};

/// What was said to be wrong with this story; empty: nothing.
template <class Story>
std::string flaws_in(std::uint64_t seed, const faults& how, unsigned spares, Story tell) {
  testing::TestPartResultArray found;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
    world all(seed, 3, how, spares);
    tell(all);
  }
  std::string text;
  for (int i = 0; i < found.size(); ++i) text += found.GetTestPartResult(i).message();
  return text;
}

std::string flaws_of(std::uint64_t seed, const faults& how) {
  return flaws_in(seed, how, 2, [](world& all) { all.run(15s, 3); });
}

bool breaks_a_promise(const std::string& flaws) {
  return flaws.find("two are in") != std::string::npos ||
         flaws.find("tokens only grow") != std::string::npos;
}

constexpr std::uint64_t seeds_to_try = 300;

/// By one of the seeds from this one on, some promise is broken; and by none of them where nothing is
/// planted.
void expect_found(defect which, const faults& how, std::uint64_t first_seed = 1) {
  base::planted_defect = which;
  std::uint64_t seed = first_seed;
  std::string flaws;
  for (; seed < first_seed + seeds_to_try && flaws.empty(); ++seed) {
    std::string all = flaws_of(seed, how);
    if (breaks_a_promise(all)) flaws = std::move(all);
  }
  base::planted_defect = defect::none;
  EXPECT_FALSE(flaws.empty()) << "not found within " << seeds_to_try << " seeds";
  testing::Test::RecordProperty("seed", std::to_string(seed - 1));
  std::printf("found by seed %llu\n", static_cast<unsigned long long>(seed - 1));
  for (std::uint64_t control = first_seed; control < seed; ++control) {
    EXPECT_EQ(flaws_of(control, how), "") << "seed " << control << ", and nothing is planted";
  }
}

// Seeds that show them are rare, and seconds of those before them are saved.
TEST(ReplacingDefects, ANewMemberThatVotesAtOnceIsFound) {
  expect_found(defect::rejoin_at_once, nobody_forgets, 230);
}

TEST(ReplacingDefects, ANewMemberWithoutTheCounterIsFound) {
  expect_found(defect::rejoin_without_counter, nobody_forgets, 130);
}

TEST(ReplacingDefects, AReplacedMemberThatVotesIsFound) {
  expect_found(defect::former_member_votes, nobody_forgets);
}

TEST(ReplacingDefects, ARosterThatAMinorityHasIsFound) {
  expect_found(defect::minority_in_force, nobody_forgets, 100);
}

/// So much has to come together for it that chance does not find it.
TEST(ReplacingDefects, AReadingOfMembersThatHaveMovedIsFound) {
  const auto tell = [](world& all) { all.run_with_stale_client(); };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(flaws_in(seed, {}, 1, tell), "") << "seed " << seed << ", and nothing is planted";
    base::planted_defect = defect::look_uncompared;
    EXPECT_TRUE(breaks_a_promise(flaws_in(seed, {}, 1, tell))) << "seed " << seed;
    base::planted_defect = defect::none;
  }
}

}  // namespace
}  // namespace sallyport::sim
