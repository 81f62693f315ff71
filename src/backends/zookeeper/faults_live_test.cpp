#include "backends/zookeeper/test_live_ensemble.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

// One server, and a network that fails.
namespace sallyport::zookeeper_live {
namespace {

class Faults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    servers = std::make_unique<zookeeper_ensemble>();
    nodes_at_first = nodes();
  }
  static void TearDownTestSuite() { servers.reset(); }

  Faults() : network(servers->port(0)) {
    static int made = 0;
    root = "/faults-" + std::to_string(++made);
  }
  ~Faults() override {
    EXPECT_TRUE(eventually([&] { return servers->ephemerals(root).empty(); }))
        << "something was left behind";
  }

  /// Of the whole server.
  static int nodes() {
    const std::string said = servers->say(0, "srvr");
    constexpr std::string_view label = "Node count: ";
    return std::stoi(said.substr(said.find(label) + label.size()));
  }
  // With a name by hand, so that the store does not keep one, and nothing is left.
  [[nodiscard]] std::string direct() const { return to_all(*servers, root) + "&store=faults"; }
  [[nodiscard]] std::string proxied() const {
    return through(network, *servers, root) + "&store=faults";
  }

  static std::unique_ptr<zookeeper_ensemble> servers;
  static int nodes_at_first;
  fault_proxy network;
  std::string root;
};

std::unique_ptr<zookeeper_ensemble> Faults::servers;
int Faults::nodes_at_first = 0;

TEST_F(Faults, ACutOffHolderIsToldBeforeTheNextOneEnters) {
  const auto one = open(proxied(), "one");
  const auto two = open(direct(), "two");
  mutex mine{one, "door", lasting()};
  mutex theirs{two, "door", lasting()};
  const auto held = mine.acquire();
  std::optional<lease_clock::time_point> told;
  const std::stop_callback on_loss(held.lost(), [&] { told = lease_clock::now(); });
  background next([&] {
    auto got = theirs.try_acquire_for(patience);
    return std::pair(lease_clock::now(), got ? got->token() : fencing_token{});
  });

  network.set(flow::to_server, fault::silence());
  network.set(flow::to_client, fault::silence());
  const auto [entered, token] = next.get();

  EXPECT_FALSE(held.valid());
  EXPECT_LE(held.deadline(), entered);
  EXPECT_GT(token, held.token());
  ASSERT_TRUE(becomes_lost(held));
  network.close_all();
  network.heal();
}

TEST_F(Faults, AShortCutDoesNotLoseTheLease) {
  const auto one = open(proxied(), "one");
  mutex mine{one, "door", lasting(6s)};
  const auto held = mine.acquire();
  const auto deadline = held.deadline();

  network.close_all();

  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline + 1s; }));
  EXPECT_TRUE(held.valid());
}

TEST_F(Faults, AWaiterWhoseConnectionWasCutKeepsItsPlace) {
  const auto one = open(direct(), "one");
  const auto two = open(proxied(), "two");
  mutex mine{one, "door", lasting(6s)};
  mutex theirs{two, "door", lasting(6s)};
  auto held = mine.acquire();
  background waiter([&] { return theirs.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(eventually([&] {
    const auto seen = one.who("door");
    return seen && seen->waiters.size() == 1;
  }));

  network.close_all();
  held.release();

  EXPECT_TRUE(waiter.get());
}

TEST_F(Faults, AWaiterWhoseSessionEndedComesInAnyway) {
  const auto one = open(direct(), "one");
  const auto two = open(proxied(), "two");
  mutex mine{one, "door", lasting()};
  mutex theirs{two, "door", lasting(1s)};
  auto held = mine.acquire();
  background waiter([&] { return theirs.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(eventually([&] {
    const auto seen = one.who("door");
    return seen && seen->waiters.size() == 1;
  }));

  network.refuse_connections();
  network.close_all();
  ASSERT_TRUE(eventually([&] { return one.who("door").value().waiters.empty(); }))
      << "its session ends";
  network.accept_connections();
  ASSERT_TRUE(eventually([&] { return one.who("door").value().waiters.size() == 1; }))
      << "it queues anew";
  held.release();

  EXPECT_TRUE(waiter.get());
}

TEST_F(Faults, AHolderWhoseSessionEndedIsLostForEver) {
  const auto one = open(proxied(), "one");
  mutex mine{one, "door", lasting(1s)};
  auto held = mine.acquire();

  network.refuse_connections();
  network.close_all();
  ASSERT_TRUE(becomes_lost(held));
  network.accept_connections();

  EXPECT_EQ(held.release(), release_result::already_lost);
  EXPECT_TRUE(mine.try_acquire_for(patience));
}

TEST_F(Faults, ACreationWhoseAnswerIsLostIsFoundAndNotMadeTwice) {
  const auto watching = open(direct(), "watching");
  const auto one = open(proxied(), "one");
  mutex mine{one, "door", lasting(6s)};
  mine.acquire().release();

  for (int round = 0; round < 3; ++round) {
    network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "-lock-"));
    auto held = mine.try_acquire_for(patience);
    ASSERT_TRUE(held);
    const auto seen = watching.who("door");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->holders.size(), 1U);
    EXPECT_TRUE(seen->waiters.empty());
    network.heal();
    EXPECT_EQ(held->release(), release_result::released);
  }
  EXPECT_EQ(network.counts().replies_dropped, 3U);
  EXPECT_TRUE(eventually([&] { return !watching.who("door"); }));
}

TEST_F(Faults, OfLocksThatNobodyUsesNothingIsLeft) {
  // What earlier tests left is swept away, too, so that what is counted here is of this one.
  ASSERT_TRUE(eventually([&] { return nodes() <= nodes_at_first; })) << nodes();
  {
    const auto one = open(direct(), "one");
    mutex door{one, "a/door", lasting()};
    shared_mutex page{one, "page", lasting()};
    semaphore pool{one, "pool", 2, lasting()};
    election leader{one, "leader", lasting()};
    const auto held = door.acquire();
    auto writer = page.acquire();
    writer.downgrade();
    const auto permit = pool.acquire();
    const auto leads = leader.campaign("me");
    EXPECT_GE(nodes(), nodes_at_first + 8) << "four names, with folders and nodes";
  }

  EXPECT_TRUE(eventually([&] { return nodes() <= nodes_at_first; }))
      << nodes_at_first << " became " << nodes();
}

TEST_F(Faults, TheStoresNameIsTheSameThroughEveryAddressAndForEveryUser) {
  ::setenv("SALLYPORT_TEST_PASSWORD", "of the locks", 1);  // NOLINT(concurrency-mt-unsafe)
  const std::string tick = "?" + servers->tick_option();
  const std::string port = std::to_string(servers->port(0));
  const auto lock_at = [](const std::string& address, const std::string& name) {
    mutex lock{open(address, "one"), name, lasting()};
    return lock.acquire().fence_pass().lock;
  };
  const auto as = [&](const std::string& user) {
    return to_all(*servers, root) + "&user=" + user + "&password_env=SALLYPORT_TEST_PASSWORD";
  };

  // The root itself is open to all, and its locks are their users'.
  const std::string window = lock_at(to_all(*servers, root) + "&store=first", "window");
  const std::string lock = lock_at(as("locks"), "door");

  const std::string store = lock.substr(0, lock.find('|'));
  EXPECT_EQ(window, "zookeeper:first" + root + "|window");
  EXPECT_EQ(store.size(), std::string("zookeeper:").size() + 32) << store;
  EXPECT_EQ(lock_at("zookeeper://localhost:" + port + root + tick, "roof"), store + "|roof");
  EXPECT_EQ(lock_at(through(network, *servers, root), "cellar"), store + "|cellar");
  EXPECT_NE(lock_at(to_all(*servers, root + "-other"), "door"), lock);
  EXPECT_EQ(error_of([&] { open(to_all(*servers, root) + "&store=a%20b", "one"); }).code,
            errc::bad_uri);
}

TEST_F(Faults, TheStoresNameIsAskedForAgainAfterTheConnectionBroke) {
  zookeeper_ensemble others;
  const auto store = open(through(network, *servers, root), "one");
  mutex door{store, "door", lasting(4s)};
  const auto held = door.acquire();
  const std::string before = held.fence_pass().lock;

  network.set_target(others.port(0));
  network.close_all();
  const std::string after = [&] {
    mutex window{store, "window", lasting()};
    return window.acquire().fence_pass().lock;
  }();

  EXPECT_NE(after.substr(0, after.find('|')), before.substr(0, before.find('|')));
  EXPECT_EQ(held.fence_pass().lock, before) << "its token is of the store as it was";
  mutex window{open(to_all(others, root), "two"), "window", lasting()};
  EXPECT_EQ(window.acquire().fence_pass().lock, after);
}

TEST_F(Faults, WhoHasNoRightsIsToldWhatToDo) {
  ::setenv("SALLYPORT_TEST_PASSWORD", "of the locks", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto as = [&](const std::string& user) {
    return open(direct() + "&user=" + user + "&password_env=SALLYPORT_TEST_PASSWORD", user);
  };
  mutex mine{as("locks"), "door", lasting()};
  const auto held = mine.acquire();
  const auto complaint = [](const client& store) -> std::string {
    mutex theirs{store, "door", lasting()};
    try {
      static_cast<void>(theirs.try_acquire_for(patience));
    } catch (const lock_error& error) {
      EXPECT_EQ(error.code(), errc::store_refused);
      return error.what();
    }
    return "none";
  };

  EXPECT_THAT(complaint(open(direct(), "stranger")), testing::HasSubstr("?user=NAME"));
  EXPECT_THAT(complaint(as("another")), testing::HasSubstr("belongs to another user"));
  EXPECT_TRUE(held.valid());
}

TEST_F(Faults, ABreakThatIsNotAnsweredKeepsItsTombstone) {
  const auto one = open(direct(), "one");
  const auto admin = open(proxied(), "admin");
  mutex mine{one, "door", lasting(8s)};
  const auto held = mine.acquire();
  const auto token = admin.who("door").value().holders.at(0).token;

  // Executed, and what follows on that connection still comes through: the end of a session, say.
  network.set(flow::to_client, fault::drop_reply(kit::ending::silence, "closed"));
  const auto failed = error_of([&] { admin.break_lock("door", token, break_style::safe); });

  EXPECT_EQ(failed.code, errc::outcome_unknown) << failed.text;
  ASSERT_TRUE(becomes_lost(held));
  wait_until(lease_clock::now() + 500ms);
  const auto seen = one.who("door");
  ASSERT_TRUE(seen) << "the tombstone has gone, and with it the time that the holder had left";
  EXPECT_GT(seen->closed_for, 0ms);
  network.heal();
}

TEST_F(Faults, AnUnreachableStoreIsUnavailableInTime) {
  const auto one = open(proxied(), "one", 2s);
  mutex mine{one, "door", lasting()};
  network.refuse_connections();
  network.close_all();
  const auto began = lease_clock::now();

  const auto error = error_of([&] { (void)mine.acquire(); }).code;

  EXPECT_EQ(error, errc::unavailable);
  EXPECT_LT(lease_clock::now() - began, 2s + contract::slack);
  network.accept_connections();
  EXPECT_TRUE(mine.try_acquire_for(patience));
}

TEST_F(Faults, AServerThatStandsStillLosesNobodyWhoHasTime) {
  const auto one = open(direct(), "one");
  mutex mine{one, "door", lasting(20s)};
  const auto held = mine.acquire();
  const auto deadline = held.deadline();

  servers->pause(0);
  wait_until(lease_clock::now() + 1s);
  servers->resume(0);

  EXPECT_TRUE(held.valid());
  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline; }));
}

}  // namespace
}  // namespace sallyport::zookeeper_live
