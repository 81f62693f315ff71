// Recipes for locks on Redis that are often copied, each on the schedule on which it fails, and
// Sallyport on the same schedule. docs/why-not.md tells these stories.
#include "tests/kit/child_process.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/shifted_clock.hpp"
#include "tests/kit/temporary_folder.hpp"
#include <sallyport/fence_redis.hpp>
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>

namespace sallyport {
namespace {

using namespace std::chrono_literals;
using fence::redis_gate;
using fence::verdict;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::redis_probe;
using kit::redis_server;

std::string address_of(std::uint16_t port) { return "redis://127.0.0.1:" + std::to_string(port); }

client open(const redis_server& server) { return client::open(address_of(server.port())); }

std::string value_of(const redis_server& server, const std::string& key) {
  return server.command({"GET", key}).text;
}

/// The part of every recipe below that is right: one command, with a time to live.
bool set_if_free(redis_probe& redis, const std::string& value, std::chrono::milliseconds ttl) {
  return redis.expect({"SET", "orders", value, "NX", "PX", std::to_string(ttl.count())}).is_ok();
}

void wait_until_expired(redis_probe& redis) {
  ASSERT_TRUE(kit::eventually([&] { return redis.expect({"EXISTS", "orders"}).integer == 0; }));
}

// --- SETNX, then EXPIRE ---------------------------------------------------------------------------

TEST(SetnxThenExpire, LocksForEverWhenTheHolderDiesInBetween) {
  kit::shifted_clock clock;
  redis_server server{{.clock = &clock}};
  auto second = server.probe();
  {
    auto first = server.probe();
    ASSERT_EQ(first.expect({"SETNX", "orders", "first"}).integer, 1);
  }  // dies here, before its EXPIRE

  clock.step(24h * 365);

  EXPECT_EQ(second.expect({"PTTL", "orders"}).integer, -1);
  EXPECT_EQ(second.expect({"SETNX", "orders", "second"}).integer, 0);
}

TEST(SetnxThenExpire, SallyportsLockEndsAlsoWhenItsHolderDiesBeforeItHearsOfIt) {
  redis_server server;
  fault_proxy network{server.port()};
  const client first_client =
      client::open(address_of(network.port()), {.request_timeout = 500ms, .store_patience = 500ms});
  mutex first{first_client, "orders", {.lease_length = 2s}};
  first.acquire().release();  // connected

  // The server grants it, and nothing is heard of the holder from then on.
  network.refuse_connections();
  network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "orders"));
  std::error_code error;
  const auto nothing = first.try_acquire(error);
  ASSERT_FALSE(nothing);
  ASSERT_TRUE(error);
  ASSERT_EQ(network.counts().replies_dropped, 1u);

  EXPECT_NE(server.command({"PTTL", "orders"}).integer, -1);
  const client second_client = open(server);
  mutex second{second_client, "orders"};
  EXPECT_TRUE(second.try_acquire_for(kit::patience));
}

// --- GETSET with the clients' clocks --------------------------------------------------------------

/// SETNX with the time of expiry as the value; when that has passed, GETSET decides who takes over.
struct getset_client {
  redis_probe redis;
  std::int64_t now;  // what this client's clock says, in ms

  std::string ends() const { return std::to_string(now + 30'000); }
  bool has_passed(const std::string& time) const { return std::stoll(time) < now; }

  bool set_if_free() { return redis.expect({"SETNX", "orders", ends()}).integer == 1; }
  bool looks_expired() { return has_passed(redis.expect({"GET", "orders"}).text); }
  bool take_over() { return has_passed(redis.expect({"GETSET", "orders", ends()}).text); }
  /// As recipes have it: only who finds its own time deletes.
  bool may_release() { return redis.expect({"GET", "orders"}).text == ends(); }
};

TEST(GetsetWithClientClocks, LetsAClockThatRunsAheadStealALiveLock) {
  redis_server server;
  getset_client first{server.probe(), 1'000'000};
  getset_client ahead{server.probe(), 1'060'000};  // at the same moment

  EXPECT_TRUE(first.set_if_free());
  EXPECT_FALSE(ahead.set_if_free());
  EXPECT_TRUE(ahead.looks_expired());
  EXPECT_TRUE(ahead.take_over());  // two holders
}

TEST(GetsetWithClientClocks, LetsALoserChangeTheWinnersLock) {
  redis_server server;
  server.command({"SET", "orders", "900000"});  // left by a dead holder
  getset_client winner{server.probe(), 1'000'000};
  getset_client loser{server.probe(), 1'000'005};

  EXPECT_TRUE(winner.looks_expired());
  EXPECT_TRUE(loser.looks_expired());
  EXPECT_TRUE(winner.take_over());
  EXPECT_FALSE(loser.take_over());

  EXPECT_FALSE(winner.may_release());  // it no longer knows its own lock
}

TEST(GetsetWithClientClocks, SallyportAsksTheServersClockAlone) {
  redis_server server;
  const client first_client = open(server);
  mutex first{first_client, "orders"};
  const lease held = first.acquire();
  const std::string value = value_of(server, "orders");

  kit::shifted_clock ahead;
  ahead.step(1h);
  const kit::temporary_folder folder{"why-not"};
  auto environment = ahead.environment();
  environment.push_back("SALLYPORT_STORE=" + address_of(server.port()));
  kit::child_process second{{.program = SALLYPORT_COMMAND,
                             .called_as = {},
                             .arguments = {"run", "-w", "0.5", "orders", "--", "true"},
                             .environment = environment,
                             .folder = folder.path(),
                             .log = folder.path() / "log",
                             .run_as = {}}};

  EXPECT_EQ(second.wait_for_end(), 75) << second.log_tail();  // kept out
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(value_of(server, "orders"), value);
}

// --- DEL without a comparison ---------------------------------------------------------------------

TEST(DelWithoutCompare, FreesAnothersLock) {
  redis_server server;
  auto first = server.probe();
  auto second = server.probe();
  auto third = server.probe();

  ASSERT_TRUE(set_if_free(first, "first", 20ms));
  wait_until_expired(second);
  ASSERT_TRUE(set_if_free(second, "second", 30s));
  first.expect({"DEL", "orders"});  // it was slow, and is done now

  EXPECT_TRUE(set_if_free(third, "third", 30s));  // while the second is inside
}

TEST(DelWithoutCompare, SallyportReleasesOnlyItsOwn) {
  redis_server server;
  const client first_client = open(server);
  const client second_client = open(server);
  const client third_client = open(server);
  mutex first{first_client, "orders"};
  mutex second{second_client, "orders"};
  mutex third{third_client, "orders"};

  lease of_first = first.acquire();
  // Gone before its time, so that its holder believes in it and does ask for the release.
  server.command({"DEL", "orders"});
  const auto of_second = second.try_acquire_for(kit::patience);
  ASSERT_TRUE(of_second);
  of_first.release();

  EXPECT_FALSE(third.try_acquire());
  EXPECT_TRUE(of_second->valid());
}

// --- GET, compare in the client, DEL --------------------------------------------------------------

TEST(GetThenDel, FreesAnothersLockWhenThePauseIsInBetween) {
  redis_server server;
  auto first = server.probe();
  auto second = server.probe();
  auto third = server.probe();

  ASSERT_TRUE(set_if_free(first, "first", 5s));
  ASSERT_EQ(first.expect({"GET", "orders"}).text, "first");  // mine; and then it stands still
  first.expect({"PEXPIRE", "orders", "1"});                  // the rest of the five seconds
  wait_until_expired(second);
  ASSERT_TRUE(set_if_free(second, "second", 30s));
  first.expect({"DEL", "orders"});

  EXPECT_TRUE(set_if_free(third, "third", 30s));  // while the second is inside
}

TEST(GetThenDel, SallyportComparesWhenTheReleaseArrives) {
  redis_server server;
  fault_proxy network{server.port()};
  const client first_client = client::open(address_of(network.port()), {.request_timeout = 20s});
  const client second_client = open(server);
  const client third_client = open(server);
  mutex first{first_client, "orders", {.lease_length = 2s, .renew = renewal::never}};
  mutex second{second_client, "orders"};
  mutex third{third_client, "orders"};

  lease of_first = first.acquire();
  const auto before = network.counts().total;
  network.set(flow::to_server, fault::hold());
  std::thread releasing{[&] { of_first.release(); }};  // sent in time, and held up on its way
  EXPECT_TRUE(network.wait_for(
      [&](const auto& now) { return now.total.read_from_client > before.read_from_client; }));
  const auto of_second = second.try_acquire_for(kit::patience);
  const std::string value = value_of(server, "orders");
  network.heal();
  EXPECT_TRUE(network.wait_for(
      [&](const auto& now) { return now.total.read_from_server > before.read_from_server; }));
  releasing.join();

  ASSERT_TRUE(of_second);
  EXPECT_EQ(value_of(server, "orders"), value);
  EXPECT_FALSE(third.try_acquire());
}

// --- A fail-over before the lock was replicated ---------------------------------------------------

/// A master and its replica behind one address, and a fail-over that comes before the last writes
/// have reached the replica.
class Failover : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        kit::eventually([&] { return replica_.probe().info("master_link_status") == "up"; }));
  }

  /// A store has had its name for long when it fails over; here it was drawn a moment ago.
  [[nodiscard]] bool replica_knows_the_name() {
    return kit::eventually([&] { return replica_.command({"EXISTS", "\x01store"}).integer == 1; });
  }
  void stop_replication() { replication_.set(flow::to_client, fault::silence()); }
  void fail_over() {
    master_.kill();
    replica_.command({"REPLICAOF", "NO", "ONE"});
    address_.set_target(replica_.port());
    address_.close_all();
  }

  [[nodiscard]] redis_probe connect() const {
    return redis_probe{{.port = address_.port(), .unix_path = {}, .user = {}, .password = {}}};
  }
  [[nodiscard]] std::string address() const { return address_of(address_.port()); }
  /// Where the guarded data is: a server that does not fail.
  redis_server& data() { return data_; }

 private:
  redis_server master_;
  fault_proxy replication_{master_.port()};
  redis_server replica_{{.replica_of = replication_.port()}};
  fault_proxy address_{master_.port()};
  redis_server data_;
};

TEST_F(Failover, ForgetsTheLockAndTheLateHolderOverwrites) {
  auto first = connect();
  stop_replication();
  ASSERT_TRUE(set_if_free(first, "first", 30s));
  fail_over();
  auto second = connect();

  EXPECT_TRUE(set_if_free(second, "second", 30s));  // two holders
  data().command({"SET", "balance", "150"});        // the second's
  data().command({"SET", "balance", "70"});         // the first's, which knows of nothing
  EXPECT_EQ(value_of(data(), "balance"), "70");
}

TEST_F(Failover, CostsSallyportTheLockButNotTheData) {
  const redis_gate gate{"balance:fence"};
  const client first_client = client::open(address());
  mutex first{first_client, "orders"};
  ASSERT_TRUE(replica_knows_the_name());
  stop_replication();
  const lease of_first = first.acquire();
  fail_over();
  const client second_client = client::open(address());
  mutex second{second_client, "orders"};
  const auto of_second = second.try_acquire_for(kit::patience);

  // No client can know what the new master never heard of: two holders, here too.
  ASSERT_TRUE(of_second);
  EXPECT_GT(of_second->token(), of_first.token());
  const auto by_second =
      data().command(gate.command(*of_second, {{"SET", "balance", "150"}}, {"balance"}));
  const auto by_first =
      data().command(gate.command(of_first, {{"SET", "balance", "70"}}, {"balance"}));
  EXPECT_EQ(redis_gate::verdict_of(by_second.items.at(0).integer), verdict::passed);
  EXPECT_EQ(redis_gate::verdict_of(by_first.items.at(0).integer), verdict::stale);
  EXPECT_EQ(value_of(data(), "balance"), "150");
}

}  // namespace
}  // namespace sallyport
