#include "backends/etcd/test_live_cluster.hpp"
#include "tests/kit/etcd_probe.hpp"

#include <algorithm>
#include <sstream>

// What a network may do between one client and the store.
namespace sallyport::etcd_live {
namespace {

class EtcdWireFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new etcd_cluster{}; }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  ~EtcdWireFaults() override { EXPECT_TRUE(nothing_is_left(*cluster_)); }

  [[nodiscard]] static etcd_cluster& cluster() { return *cluster_; }
  [[nodiscard]] static client healthy() { return open(cluster().address()); }
  [[nodiscard]] client hurt() const { return open(address_at(network_.port())); }
  /// How many there are on the member.
  [[nodiscard]] static int watches() {
    const std::string all = kit::etcd_probe{cluster().port(0)}.page("/metrics");
    const std::string name = "\netcd_debugging_mvcc_watcher_total ";
    const std::size_t at = all.find(name);
    return at == std::string::npos ? -1 : std::stoi(all.substr(at + name.size(), 8));
  }
  /// Tombstones need not be waited for.
  static void end_leases() {
    std::istringstream words(cluster().ctl({"lease", "list"}));
    std::string line;
    std::getline(words, line);  // "found 1 leases", then one a line
    while (words >> line) cluster().ctl({"lease", "revoke", line});
  }
  void cut_off() {
    network_.set(flow::to_server, fault::silence());
    network_.set(flow::to_client, fault::silence());
  }
  /// Everything passes; connections with a hole in them are gone.
  void heal() {
    network_.heal();
    network_.close_all();
  }

  fault_proxy network_{cluster_->port(0)};

 private:
  static etcd_cluster* cluster_;
};

etcd_cluster* EtcdWireFaults::cluster_ = nullptr;

TEST_F(EtcdWireFaults, AHolderThatIsCutOffKnowsBeforeTheNextOneEnters) {
  mutex mine{hurt(), "door", lasting(3s)};
  mutex theirs{healthy(), "door", lasting()};
  const auto held = mine.acquire();
  waiter next{theirs};

  cut_off();
  ASSERT_TRUE(becomes_lost(held));
  const bool nobody_yet = !next.done();
  const auto got = next.get();

  EXPECT_TRUE(nobody_yet);
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), held.token());
  heal();
}

TEST_F(EtcdWireFaults, AConnectionWithAHoleIsReplacedAlthoughNobodyClosedIt) {
  mutex mine{hurt(), "door", lasting(6s)};
  mine.acquire().release();

  network_.set(1, flow::to_client, fault::silence());

  EXPECT_TRUE(mine.try_acquire_for(patience));
}

TEST_F(EtcdWireFaults, AHolderSurvivesACutThatIsShorterThanItsLease) {
  mutex mine{hurt(), "door", lasting(6s)};
  const auto held = mine.acquire();

  network_.close_all();
  const auto deadline = held.deadline();

  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline; }));
  EXPECT_TRUE(held.valid());
}

TEST_F(EtcdWireFaults, AHolderIsSuspectAtOnceWhenItsConnectionBreaksAndHeldWhenItIsBack) {
  ASSERT_TRUE(eventually([] { return watches() == 0; }));
  mutex mine{hurt(), "door", lasting()};
  const auto held = mine.acquire();
  const auto is = [&](lease_state wanted) {
    return [&held, wanted] { return held.state() == wanted; };
  };
  // From then on there is a stream that can break: its own key's.
  ASSERT_TRUE(eventually([] { return watches() > 0; }));
  const auto deadline = held.deadline();

  network_.refuse_connections();
  network_.close_all();
  EXPECT_TRUE(eventually(is(lease_state::suspect)));
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.deadline(), deadline);  // a minute: two thirds of it have not passed
  network_.accept_connections();

  EXPECT_TRUE(eventually(is(lease_state::held)));
  EXPECT_GT(held.deadline(), deadline);
}

TEST_F(EtcdWireFaults, ALostAnswerToTheEnteringTransactionLeavesNothingBehind) {
  const client store = hurt();
  mutex first{store, "other", lasting(6s)};
  const auto held = first.acquire();  // the connection and the lease are there
  mutex lock{store, "door", lasting(6s)};

  network_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "door/"));
  {
    const auto got = lock.try_acquire_for(patience);
    ASSERT_TRUE(got);
    EXPECT_EQ(network_.counts().replies_dropped, 1U);
    EXPECT_EQ(healthy().who("door").value().waiters.size(), 0U) << "its own put, found again";
  }

  EXPECT_TRUE(eventually([&] { return !healthy().who("door"); }));
}

TEST_F(EtcdWireFaults, ALostAnswerToATryIsWithdrawn) {
  const client store = hurt();
  mutex first{store, "other", lasting(6s)};
  const auto held = first.acquire();
  mutex lock{store, "door", lasting(6s)};

  network_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "door/").repeated(20));
  const auto failed = error_of([&] { EXPECT_FALSE(lock.try_acquire()); }).code;
  network_.heal();

  EXPECT_EQ(failed, errc::outcome_unknown);
  EXPECT_TRUE(eventually([&] { return !healthy().who("door"); }));
}

TEST_F(EtcdWireFaults, ALostAnswerToAReleaseIsSaidAgain) {
  const client store = hurt();
  mutex lock{store, "door", lasting(6s)};
  auto held = lock.acquire();

  network_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "door/"));
  EXPECT_NE(held.release(), release_result::already_lost);

  EXPECT_TRUE(eventually([&] { return !healthy().who("door"); }));
}

TEST_F(EtcdWireFaults, ALostAnswerToTheGrantOfALeaseCostsNothingButTime) {
  for (const lock_options& each : {lasting(6s), live::ending(6s)}) {
    fault_proxy network{cluster().port(0)};
    mutex lock{open(address_at(network.port())), "door", each};

    network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "LeaseGrant"));
    std::optional<lease> got;
    const auto failed = error_of([&] { got = lock.try_acquire(); });

    EXPECT_EQ(network.counts().replies_dropped, 1U);
    EXPECT_TRUE(got) << failed.text;
  }
}

TEST_F(EtcdWireFaults, ALostAnswerToABreakIsNotUndoneByItsRepetition) {
  mutex mine{healthy(), "door", lasting()};
  const auto held = mine.acquire();
  const client admin = hurt();
  const auto token = admin.who("door").value().holders.at(0).token;

  // Executed, not answered, and sent again: by then the lock is not what it was.
  network_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "closed"));
  const auto failed = error_of([&] { admin.break_lock("door", token, break_style::safe); });

  EXPECT_EQ(network_.counts().replies_dropped, 1U);
  EXPECT_FALSE(failed.code) << failed.text;
  ASSERT_TRUE(becomes_lost(held));
  const auto seen = healthy().who("door");
  ASSERT_TRUE(seen) << "the tombstone has gone, and with it the time that the holder had left";
  EXPECT_GT(seen->closed_for, 30s);
  end_leases();
}

TEST_F(EtcdWireFaults, ALostAnswerToABreakAtOnceIsNotTakenForNothingToBreak) {
  mutex mine{healthy(), "door", lasting()};
  const auto held = mine.acquire();
  const client admin = hurt();
  const auto token = admin.who("door").value().holders.at(0).token;

  network_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "#m"));
  const auto failed = error_of([&] { admin.break_lock("door", token, break_style::at_once); });

  EXPECT_EQ(network_.counts().replies_dropped, 1U);
  // Whether the first try was executed before the connection broke decides which.
  EXPECT_TRUE(!failed.code || failed.code == errc::outcome_unknown) << failed.text;
  EXPECT_FALSE(healthy().who("door"));
}

TEST_F(EtcdWireFaults, AWaiterWhoseLeaseEndedStandsInLineAgain) {
  mutex gate{healthy(), "door", lasting()};
  const client store = hurt();
  mutex lock{store, "door", lasting(2s)};
  auto held = gate.acquire();
  waiter waiting{lock};
  const client watching = healthy();
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  cut_off();
  ASSERT_TRUE(waiters_become(watching, "door", 0)) << "its lease has ended";
  heal();
  ASSERT_TRUE(waiters_become(watching, "door", 1));
  held.release();

  EXPECT_TRUE(waiting.get());
}

TEST_F(EtcdWireFaults, NothingIsHeardWhileTheStreamIsCutButTheHeartbeatFindsOut) {
  mutex gate{healthy(), "door", lasting()};
  mutex lock{hurt(), "door", lasting()};
  auto held = gate.acquire();
  waiter waiting{lock};
  ASSERT_TRUE(waiters_become(healthy(), "door", 1));

  network_.close_all();
  held.release();

  EXPECT_TRUE(waiting.get());
}

TEST_F(EtcdWireFaults, ACompactionDisturbsNoWaiter) {
  mutex gate{healthy(), "door", lasting()};
  mutex lock{healthy(), "door", lasting()};
  auto held = gate.acquire();
  waiter waiting{lock};
  ASSERT_TRUE(waiters_become(healthy(), "door", 1));
  cluster().ctl({"put", "compacted", "1"});
  cluster().ctl({"put", "compacted", "2"});
  cluster().ctl({"del", "compacted"});
  cluster().ctl({"compaction", std::to_string(held.token().value() + 2), "--physical"});

  held.release();

  EXPECT_TRUE(waiting.get());
}

TEST_F(EtcdWireFaults, HandOffsDoNotWaitForTheStoresSlowLoop) {
  // A watch from a past revision on would be served ten times a second.
  mutex one{healthy(), "door", lasting()};
  mutex two{healthy(), "door", lasting()};
  const client watching = healthy();
  std::vector<lease_clock::duration> took;
  std::optional<lease> held = one.acquire();
  mutex* next = &two;
  for (int round = 0; round < 15; ++round) {
    waiter waiting{*next};
    ASSERT_TRUE(waiters_become(watching, "door", 1));
    const auto began = lease_clock::now();
    held->release();
    held = waiting.get();
    took.push_back(lease_clock::now() - began);
    ASSERT_TRUE(held);
    next = next == &one ? &two : &one;
  }
  held.reset();

  std::ranges::sort(took);
  EXPECT_LT(took[took.size() / 2], 80ms);
}

TEST_F(EtcdWireFaults, AClientThatIsClosedLeavesNoLeaseBehind) {
  {
    const client store = healthy();
    for (const auto length : {20s, 30s, 40s}) {
      mutex lock{store, "door", lasting(length)};
      const auto held = lock.acquire();
    }
    mutex fixed{store, "window", {.lease_length = 50s, .renew = renewal::never}};
    const auto held = fixed.acquire();
    EXPECT_EQ(cluster().leases(), 4U);
  }

  EXPECT_EQ(cluster().leases(), 0U) << "at once, not when they lapse";
}

}  // namespace
}  // namespace sallyport::etcd_live
