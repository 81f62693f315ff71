#include "backends/etcd/transport.hpp"

#include "backends/etcd/test_live_cluster.hpp"

#include <atomic>
#include <map>
#include <memory>

// The transport by itself, on a cluster that asks for a log-in: what the machine above it hides.
namespace sallyport::backends::etcd {
namespace {

using namespace std::chrono_literals;
using contract::eventually;

/// Watches two keys, and says so again whenever the stream is over.
class watching final : public transport_listener {
 public:
  void connected() override {}
  void kept_alive(const codec::kept_alive& /*said*/) override {}
  void keep_alives_over(stream_end /*how*/) override {}
  void watch_reported(const codec::watch_report& said) override {
    if (said.created && !said.ended) ++begun;
    if (said.ended) ++ended;
  }
  void watches_over(stream_end how) override {
    ++(how == stream_end::replaced ? replaced : broken);
    if (again) again();
  }
  void watches_back() override {}
  void alarm_rang() override {}

  std::function<void()> again;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  std::atomic<int> replaced{0};
  std::atomic<int> broken{0};
};

class EtcdTransport : public testing::Test {
 protected:
  EtcdTransport() {
    cluster_.ctl({"user", "add", "root:topsecret"});
    cluster_.ctl({"user", "add", "alice:secret"});
    cluster_.ctl({"role", "add", "locks"});
    cluster_.ctl({"role", "grant-permission", "locks", "--prefix=true", "readwrite", "app/"});
    cluster_.ctl({"user", "grant-role", "alice", "locks"});
    cluster_.ctl({"user", "grant-role", "root", "root"});
    cluster_.ctl({"auth", "enable"});
    cluster_.always_say({"--user=root:topsecret"});
    auto where = parse_address("etcd://alice:secret@127.0.0.1:" + std::to_string(cluster_.port(0)));
    io_ = transport::make(*where, heard_).value();
  }
  ~EtcdTransport() override { io_->close(); }

  void watch(watch_number number, const std::string& key) {
    io_->watch(codec::watch_request(number, key, {}, true));
  }

  kit::etcd_cluster cluster_{{.flags = {"--auth-token-ttl=2", "--bcrypt-cost=4"}}};
  watching heard_;
  std::shared_ptr<transport> io_;
};

TEST_F(EtcdTransport, AWatchThatIsDeniedBecauseTheLogInHasEndedIsTroubleOfTheStream) {
  heard_.again = [this] {
    watch(1, "app/one");
    watch(2, "app/two");
  };
  watch(1, "app/one");
  ASSERT_TRUE(eventually([&] { return heard_.begun == 1; }));

  contract::wait_until(lease_clock::now() + 5s);  // nobody asks for anything: the log-in ends
  watch(2, "app/two");

  EXPECT_TRUE(eventually([&] { return heard_.begun == 3; })) << heard_.ended << " were ended";
  EXPECT_EQ(heard_.replaced, 1);
  EXPECT_EQ(heard_.broken, 0);
  EXPECT_EQ(heard_.ended, 0);
}

TEST_F(EtcdTransport, AWatchOfWhatOneMayNotSeeIsDeniedAndNothingElse) {
  watch(1, "app/one");
  watch(2, "elsewhere/two");

  EXPECT_TRUE(eventually([&] { return heard_.ended == 1; }));
  EXPECT_EQ(heard_.begun, 1);
  EXPECT_EQ(heard_.replaced + heard_.broken, 0);
}

}  // namespace
}  // namespace sallyport::backends::etcd
