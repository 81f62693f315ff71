#include "backends/sql/test_live_store.hpp"
#include "base/descriptor.hpp"

#include <arpa/inet.h>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

// What becomes of locks when the server restarts, stands still or ends connections.
namespace sallyport::sql_live {
namespace {

// ---- the server goes and comes -------------------------------------------------------------------

TEST(Restart, CleanOrNotKeepsLocksAndLetsRenewalsGoOn) {
  const auto server = start_server();
  const auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  mutex lock{open(server->address(), options), "door", lasting(6s)};
  auto held = lock.acquire();

  for (const bool clean : {true, false}) {
    if (clean) {
      server->stop();
    } else {
      server->kill();
    }
    server->start();
    const auto renewed = watcher->read().renewed;
    EXPECT_TRUE(eventually([&] { return watcher->read().renewed > renewed; }));
    EXPECT_TRUE(held.valid());
  }

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(Standstill, IsToldInTimeAndNeverAsHeld) {
  const auto server = start_server();
  auto options = quick();
  options.store_patience = 500ms;
  const auto store = open(server->address(), options);
  mutex lock{store, "door", lasting(1500ms)};
  mutex other{store, "window", lasting()};
  auto held = lock.acquire();

  server->pause();
  const auto trouble = error_of([&] { static_cast<void>(other.try_acquire()); });
  EXPECT_TRUE(becomes_lost(held));
  EXPECT_GE(lease_clock::now(), held.deadline() - 1ms);
  server->resume();

  EXPECT_TRUE(trouble.code == errc::outcome_unknown || trouble.code == errc::unavailable)
      << trouble.text;
  auto again = lock.acquire();
  EXPECT_EQ(again.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(*server));
}

// ---- connections ---------------------------------------------------------------------------------

TEST(Standstill, EndsAProclamationWithinTheRequestsTime) {
  const auto server = start_server();
  election race{open(server->address()), "leader", lasting()};
  const auto leads = race.campaign("first");

  server->pause();
  const auto began = lease_clock::now();
  const auto trouble = error_of([&] { race.proclaim(leads, "second"); });
  const auto taken = lease_clock::now() - began;
  server->resume();

  EXPECT_EQ(trouble.code, errc::outcome_unknown) << trouble.text;
  EXPECT_LT(taken, quick().request_timeout + 2s);
}

TEST(Connections, AreAtMostTwoForTwoHundredWaiters) {
  const auto server = start_server();
  const auto owner = open(server->address());
  make_user(*server, "crowd");
  std::vector<lease> held;
  for (int i = 0; i < 200; ++i) {
    mutex blocker{owner, "door " + std::to_string(i), lasting()};
    held.push_back(blocker.acquire());
  }
  auto options = quick();
  options.heartbeat = 2s;
  const auto crowd = open(with_user(*server, "crowd"), options);
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<std::unique_ptr<waiter>> waiters;
  locks.reserve(200);
  waiters.reserve(200);
  // Names of their own: waiters of one name would share a contender.
  for (int i = 0; i < 200; ++i) {
    locks.push_back(std::make_unique<mutex>(crowd, "door " + std::to_string(i), lasting()));
  }

  for (auto& each : locks) waiters.push_back(std::make_unique<waiter>(*each));
  ASSERT_TRUE(waiters_become(*server, 200));

  const int connections = connections_of(*server, "crowd");
  EXPECT_LE(connections, 2);
  if (waiters_are_told()) {
    EXPECT_EQ(connections, 2) << "one of them listens";
  }
  for (auto& each : waiters) each->cancel();
  ASSERT_TRUE(waiters_become(*server, 0));
  held.clear();
  waiters.clear();
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(Connections, ThatTheServerEndsAreMadeAgainAndNothingIsLost) {
  const auto server = start_server();
  make_user(*server, "victim");
  mutex lock{open(with_user(*server, "victim")), "door", lasting()};
  mutex wanted{open(with_user(*server, "victim")), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(*server, 1));

  end_connections(*server, "victim");

  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(*server));
}

TEST(LostAnswer, OfAnAcquireIsTheSameGrant) {
  const auto server = start_server();
  fault_proxy network{server->port()};
  const auto store = open(address_at(network.port()));
  mutex lock{store, "door", lasting()};
  lock.acquire().release();

  network.set(flow::to_client, fault::drop_reply(kit::ending::reset, "acquire"));
  auto held = lock.acquire();

  EXPECT_EQ(server->value("SELECT first_token FROM " + table("lock")),
            std::to_string(held.token().value()));
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(*server));
}

/// A port where connections are made and nobody says anything.
class silent_port {
 public:
  silent_port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    where_.sin_family = AF_INET;
    where_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where_;
    const bool listens = ::bind(socket_.number(), address(), size) == 0 &&
                         ::listen(socket_.number(), 64) == 0 &&
                         ::getsockname(socket_.number(), address(), &size) == 0;
    EXPECT_TRUE(listens);
  }
  [[nodiscard]] std::uint16_t number() const { return ntohs(where_.sin_port); }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&where_); }

  base::descriptor socket_;
  sockaddr_in where_{};
};

TEST(Connecting, ToSomebodyWhoNeverAnswersLeavesNothingOpen) {
  const silent_port nobody;
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  auto options = quick();
  options.store_patience = 200ms;
  const auto attempt = [&] {
    const auto store = open(address_at(nobody.number()) + "?connect_timeout=1", options);
    mutex lock{store, "door", lasting()};
    EXPECT_EQ(error_of([&] { static_cast<void>(lock.try_acquire()); }).code, errc::unavailable);
  };
  attempt();
  const auto before = open_files();

  attempt();

  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace sallyport::sql_live
