#include "tests/contract/kit/contract_test.hpp"
#include "tests/contract/kit/holder_process.hpp"

#include <string>
#include <vector>

// Promises 1 to 8 with holders and waiters in processes of their own, which are killed and stopped.
namespace sallyport::contract {
namespace {

class Processes : public contract_test {
 protected:
  [[nodiscard]] holder_process start(std::vector<std::string> more = {}) const {
    std::vector<std::string> options{"--lease-ms", std::to_string(3 * short_lease().count()),
                                     "--label", "process"};
    options.insert(options.end(), more.begin(), more.end());
    return holder_process{address(), "door", std::move(options)};
  }

  /// A store of one process only: what another process does under the same address is not seen
  /// here.
  [[nodiscard]] bool shared() const {
    if (store().processes_share) return true;
    const auto client = open();
    holder_process elsewhere = start();
    EXPECT_TRUE(elsewhere.ask("try").starts_with("acquired "));
    EXPECT_FALSE(client.who("door"));
    EXPECT_FALSE(client.capabilities().caveats.empty()) << "that is to be said";
    return false;
  }
};

TEST_F(Processes, ExcludeEachOther) {
  if (!shared()) return;
  mutex mine{open(), "door", lasting()};
  holder_process other = start();
  ASSERT_TRUE(other.ask("acquire").starts_with("acquired "));

  EXPECT_FALSE(mine.try_acquire());
  EXPECT_EQ(other.ask("release"), "released");
  const auto held = mine.try_acquire();
  EXPECT_TRUE(held);
  EXPECT_EQ(other.ask("try"), "busy");
}

TEST_F(Processes, AKilledHolderDelaysOthersByItsLeaseAtMost) {
  if (!shared()) return;
  mutex mine{open(), "door", lasting()};
  holder_process other = start();
  ASSERT_TRUE(other.ask("acquire").starts_with("acquired "));
  const auto token = std::stoull(other.ask("token"));

  other.kill();
  const auto killed = lease_clock::now();
  const auto held = mine.try_acquire_for(patience);

  ASSERT_TRUE(held);
  EXPECT_LT(lease_clock::now() - killed, (claims().notices_death ? 0 : 3) * short_lease() + 5s);
  EXPECT_TRUE(!claims().fencing || held->token().value() > token);
}

TEST_F(Processes, AStoppedHolderFindsItsLeaseLostAndFreesNobodyElse) {
  if (!shared()) return;
  const auto client = open();
  mutex mine{client, "door", lasting()};
  holder_process other = start();
  ASSERT_TRUE(other.ask("acquire").starts_with("acquired "));

  other.stop();
  const auto held = mine.try_acquire_for(patience);
  other.resume();

  ASSERT_TRUE(held);
  EXPECT_EQ(other.ask("valid"), "false");
  EXPECT_EQ(other.ask("release"), "already_lost");
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);
}

TEST_F(Processes, AKilledWaiterIsPassedOver) {
  if (!shared()) return;
  const auto client = open();
  mutex gate{client, "door", lasting()};
  mutex wanted{open("next"), "door", lasting()};
  auto held = gate.acquire();
  holder_process dead = start();
  ASSERT_TRUE(dead.send("acquire"));
  ASSERT_TRUE(waiters_become(client, "door", 1));
  background next([&] { return wanted.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(client, "door", 2));

  dead.kill();
  held.release();

  EXPECT_TRUE(next.get());
  EXPECT_TRUE(becomes_free(client, "door"));
}

TEST_F(Processes, AStoppedWaiterThatIsGrantedTheLockDelaysOthersByItsClaimWindowAtMost) {
  if (!shared()) return;
  const auto client = open();
  mutex gate{client, "door", lasting()};
  mutex wanted{open("next"), "door", lasting()};
  auto held = gate.acquire();
  holder_process stopped = start();
  ASSERT_TRUE(stopped.send("acquire"));
  ASSERT_TRUE(waiters_become(client, "door", 1));

  stopped.stop();
  held.release();
  const auto next = wanted.try_acquire_for(patience);
  ASSERT_TRUE(next);
  stopped.resume();

  EXPECT_TRUE(next->valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);
}

}  // namespace
}  // namespace sallyport::contract
