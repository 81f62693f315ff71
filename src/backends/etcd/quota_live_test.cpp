#include "backends/etcd/test_live_cluster.hpp"
#include "tests/kit/etcd_probe.hpp"

#include <optional>
#include <string>

// A store that is full (--quota-backend-bytes): etcd raises the alarm NOSPACE and takes nothing more
// in until somebody has made space and ended the alarm.
namespace sallyport::etcd_live {
namespace {

class EtcdQuota : public testing::Test {
 protected:
  void fill() {
    const kit::etcd_probe probe{cluster_.port(0)};
    const std::string ballast(400'000, 'x');
    bool full = false;
    for (int i = 0; i < 100 && !full; ++i) {
      try {
        probe.put("ballast/" + std::to_string(i), ballast);
      } catch (const kit::kit_error&) {
        full = true;
      }
    }
    ASSERT_TRUE(full);
    ASSERT_TRUE(eventually([&] {
      return cluster_.ctl({"alarm", "list"}).find("NOSPACE") != std::string::npos;
    }));
  }
  void make_space() {
    cluster_.ctl({"del", "ballast/", "--prefix"});
    const std::string status = cluster_.ctl({"endpoint", "status", "-w", "json"});
    const std::string word = "\"revision\":";
    const std::size_t at = status.find(word);
    ASSERT_NE(at, std::string::npos) << status;
    cluster_.ctl(
        {"compact", "--physical", std::to_string(std::stoll(status.substr(at + word.size())))});
    cluster_.ctl({"defrag"});
    cluster_.ctl({"alarm", "disarm"});
  }
  static testing::AssertionResult is_renewed(const lease& held) {
    const auto deadline = held.deadline();
    if (eventually([&] { return held.deadline() > deadline || !held.valid(); }) && held.valid()) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "valid: " << held.valid();
  }

  etcd_cluster cluster_{{.flags = {"--quota-backend-bytes=4000000"}}};
  fault_proxy network_{cluster_.port(0)};
};

TEST_F(EtcdQuota, WhoHoldsRenewsAndReleasesAlsoAfterAReconnect) {
  mutex door{open(address_at(network_.port())), "door", lasting(4s)};
  auto held = door.acquire();

  fill();
  EXPECT_TRUE(is_renewed(held));
  network_.close_all();
  EXPECT_TRUE(is_renewed(held));
  EXPECT_TRUE(is_renewed(held)) << "and not by what was on its way";

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(cluster_.keys("door/").empty());
}

TEST_F(EtcdQuota, AnAcquireIsToldThatTheStoreIsFullAndLeavesNothingBehind) {
  const client store = open(address_at(network_.port()));
  mutex other{store, "other", lasting(4s)};
  const lease held = other.acquire();
  mutex door{store, "door", lasting()};
  fill();

  const auto refused = error_of([&] { static_cast<void>(door.try_acquire_for(patience)); });
  EXPECT_EQ(refused.code, errc::store_refused) << refused.text;
  EXPECT_TRUE(refused.says("space exceeded")) << refused.text;
  network_.close_all();
  ASSERT_TRUE(is_renewed(held)) << "there is a connection again";
  // The store's name is asked for again, which takes no space.
  const auto later = error_of([&] { static_cast<void>(door.try_acquire_for(patience)); });
  EXPECT_EQ(later.code, errc::store_refused) << later.text;
  EXPECT_TRUE(later.says("space exceeded")) << later.text;
  EXPECT_FALSE(later.says("name is not known")) << later.text;
  mutex stranger{open(cluster_.address()), "door", lasting()};
  const auto first = error_of([&] { static_cast<void>(stranger.try_acquire_for(patience)); });
  EXPECT_EQ(first.code, errc::store_refused) << first.text;
  EXPECT_TRUE(first.says("space exceeded")) << first.text;
  EXPECT_TRUE(cluster_.keys("door/").empty());
  EXPECT_TRUE(held.valid());

  make_space();
  EXPECT_TRUE(door.try_acquire_for(patience));
}

TEST_F(EtcdQuota, AWaiterEntersWhenThereIsSpaceAgain) {
  mutex mine{open(cluster_.address()), "door", lasting()};
  mutex theirs{open(cluster_.address()), "door", lasting()};
  const client watching = open(cluster_.address());
  std::optional<lease> held = mine.acquire();
  waiter waiting{theirs};
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  fill();

  held.reset();
  make_space();

  EXPECT_TRUE(waiting.get());
}

}  // namespace
}  // namespace sallyport::etcd_live
