#include "backends/redlock/test_live_quorum.hpp"
#include "base/random.hpp"
#include "tests/contract/kit/holder_process.hpp"
#include "tests/kit/shifted_clock.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <array>
#include <chrono>
#include <string>
#include <vector>

// Nodes whose wall clocks are stepped. Exclusion rests on a majority's clocks and may break with them;
// the order of tokens does not, so a gate holds.
namespace sallyport::redlock_live {
namespace {

using kit::shifted_clock;
using std::chrono::hours;

/// The gates' name for the nodes, whichever way a client takes to them.
const std::string store_name = "nodes";

std::vector<kit::redis_options> with_clocks(const std::array<shifted_clock, 3>& clocks) {
  std::vector<kit::redis_options> all;
  all.reserve(clocks.size());
  for (const shifted_clock& each : clocks) all.push_back({.clock = &each});
  return all;
}

class ClockStep : public testing::TestWithParam<hours> {
 protected:
  ClockStep() { nodes_.initialise(); }

  [[nodiscard]] static bool forwards() { return GetParam() > hours{0}; }
  void step(std::size_t nodes) {
    for (std::size_t i = 0; i < nodes; ++i) clocks_[i].step(GetParam());
  }
  /// All of them, not only a majority.
  [[nodiscard]] bool all_vote(const std::string& key) {
    return eventually(
        [&] { return votes(nodes_, 0, key) && votes(nodes_, 1, key) && votes(nodes_, 2, key); });
  }

  std::array<shifted_clock, 3> clocks_;
  redis_quorum nodes_{with_clocks(clocks_)};
};

/// What is written behind two gates, one in memory and one in a file.
class guarded {
 public:
  bool write(const lease& held) {
    const auto first = memory_.run(held, [] {});
    const auto second = file_.run(held, [] {});
    EXPECT_EQ(first, second);
    EXPECT_TRUE(first == fence::verdict::passed || first == fence::verdict::stale);
    return first == fence::verdict::passed;
  }

 private:
  kit::temporary_folder folder_{"gate"};
  fence::memory_gate memory_;
  fence::file_gate file_{folder_.path() / "gate"};
};

TEST_P(ClockStep, OfOneNodeBreaksNothing) {
  mutex held_lock{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  mutex wanted_lock{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  guarded resource;
  auto held = held_lock.acquire();
  ASSERT_TRUE(all_vote("door"));
  EXPECT_TRUE(resource.write(held));

  step(1);

  EXPECT_FALSE(wanted_lock.try_acquire());
  EXPECT_TRUE(held.valid());
  EXPECT_TRUE(resource.write(held));
  EXPECT_EQ(held.release(), release_result::released);
  auto next = wanted_lock.try_acquire_for(patience);
  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), held.token());
  EXPECT_TRUE(resource.write(*next));
  next->release();
  EXPECT_TRUE(nothing_is_left(nodes_));
}

TEST_P(ClockStep, OfAMajorityMayLetTwoInButTheGateRefusesTheLateOne) {
  mutex held_lock{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  mutex wanted_lock{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  guarded resource;
  auto held = held_lock.acquire();
  ASSERT_TRUE(all_vote("door"));
  EXPECT_TRUE(resource.write(held));

  step(2);
  if (forwards()) {
    auto next = wanted_lock.try_acquire_for(patience);
    ASSERT_TRUE(next);
    EXPECT_TRUE(held.valid() && next->valid()) << "this is how exclusion breaks";
    EXPECT_GT(next->token(), held.token());
    EXPECT_TRUE(resource.write(*next));
    EXPECT_FALSE(resource.write(held));
  } else {
    EXPECT_FALSE(wanted_lock.try_acquire());
    EXPECT_EQ(held.release(), release_result::released);
    auto next = wanted_lock.try_acquire_for(patience);
    ASSERT_TRUE(next);
    EXPECT_GT(next->token(), held.token());
    EXPECT_TRUE(resource.write(*next));
    EXPECT_FALSE(resource.write(held));
  }
}

TEST_P(ClockStep, OfOneNodeOfABareMajorityMayLetTwoInButTheGateRefusesTheLateOne) {
  network wires(nodes_);
  wires[2].refuse_connections();
  mutex held_lock{open(wires.address("?store=" + store_name)), "door", lasting(30s)};
  mutex wanted_lock{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  guarded resource;
  auto held = held_lock.acquire();
  ASSERT_FALSE(votes(nodes_, 2, "door"));
  EXPECT_TRUE(resource.write(held));

  step(1);
  if (!forwards()) {
    EXPECT_FALSE(wanted_lock.try_acquire());
    held.release();
  }
  auto next = wanted_lock.try_acquire_for(patience);

  ASSERT_TRUE(next);
  EXPECT_EQ(held.valid(), forwards());
  EXPECT_GT(next->token(), held.token());
  EXPECT_TRUE(resource.write(*next));
  EXPECT_FALSE(resource.write(held));
}

TEST_P(ClockStep, LetsWaitersGoOn) {
  for (const std::size_t count : {1U, 2U}) {
    const std::string name = "door-" + std::to_string(count);
    mutex held_lock{open_to_all(nodes_.address() + "?store=" + store_name), lock_name(name),
                    lasting(30s)};
    mutex wanted_lock{open_to_all(nodes_.address() + "?store=" + store_name), lock_name(name),
                      lasting(30s)};
    auto held = held_lock.acquire();
    waiter next(wanted_lock);
    ASSERT_TRUE(waiters_become(nodes_, name, 1));

    step(count);
    held.release();

    auto got = next.get();
    ASSERT_TRUE(got) << count << " nodes were stepped";
    EXPECT_GT(got->token(), held.token());
  }
}

TEST_P(ClockStep, OfAnyNodesInAnyOrderKeepsTokensInOrder) {
  mutex one{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  mutex two{open_to_all(nodes_.address() + "?store=" + store_name), "door", lasting(30s)};
  base::random dice(3);
  std::uint64_t last = 0;
  for (int turn = 0; turn < 30; ++turn) {
    auto held = (turn % 2 == 0 ? one : two).try_acquire_for(patience);
    ASSERT_TRUE(held);
    ASSERT_GT(held->token().value(), last);
    last = held->token().value();
    clocks_[dice.below(clocks_.size())].step(dice.chance(0.5) ? GetParam() : -GetParam());
    held->release();
  }
}

TEST_P(ClockStep, LeavesALockThatCanBeBroken) {
  contract::holder_process dead{nodes_.address(), "door", {"--lease-ms", "1000"}};
  ASSERT_EQ(dead.ask("acquire").substr(0, 8), "acquired");
  ASSERT_TRUE(all_vote("door"));
  const auto store = open_to_all(nodes_.address() + "?store=" + store_name);
  mutex lock{store, "door", lasting(30s)};

  // With its clock an hour behind, a node keeps the dead one's vote for an hour more.
  step(2);
  dead.kill();
  if (forwards()) {
    EXPECT_TRUE(lock.try_acquire_for(patience));
    return;
  }
  EXPECT_FALSE(lock.try_acquire_for(1500ms));
  const auto seen = store.who("door");
  ASSERT_TRUE(seen && seen->holders.size() == 1);
  store.break_lock("door", seen->holders.front().token, break_style::at_once);

  auto next = lock.try_acquire_for(patience);
  ASSERT_TRUE(next);
  EXPECT_GT(next->token(), seen->holders.front().token);
}

TEST(ForgetfulNode, WhoseClockIsSetForwardIsQuietForAsLong) {
  constexpr auto longest_lease = 1000ms;
  std::array<shifted_clock, 3> clocks;
  redis_quorum nodes{with_clocks(clocks)};
  nodes.initialise({}, longest_lease);
  const auto store = open_to_all(nodes.address());
  nodes[0].kill();
  nodes[0].start();
  mutex lock{store, "door", lasting(longest_lease)};
  lock.acquire().release();
  ASSERT_TRUE(eventually([&] { return mark_of(nodes, 0).find(" q ") != std::string::npos; }));

  // As when a machine that has just started learns what time it is.
  const auto noted = lease_clock::now();
  clocks[0].step(hours{1});

  EXPECT_TRUE(eventually([&] { return mark_of(nodes, 0).find(" f ") != std::string::npos; }));
  EXPECT_GE(lease_clock::now() - noted, longest_lease);
}

INSTANTIATE_TEST_SUITE_P(Hours, ClockStep, testing::Values(hours{1}, hours{-1}),
                         [](const auto& step) {
                           return step.param > hours{0} ? "forwards" : "backwards";
                         });

}  // namespace
}  // namespace sallyport::redlock_live
