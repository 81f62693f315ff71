#include "backends/memcached/test_live_server.hpp"
#include "tests/kit/fault_proxy.hpp"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <functional>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

// What a network may do to one request: the answer is lost, the connection is cut in the middle, one
// direction falls silent. Whatever happens: never two holders, nothing left behind.
namespace sallyport::memcached_live {
namespace {

using kit::ending;
using kit::fault;
using kit::fault_proxy;
using kit::flow;

/// How the network fails.
struct trouble {
  std::string name;
  std::function<void(fault_proxy&)> begin;
};

std::vector<trouble> all_troubles() {
  std::vector<trouble> all{
      {"answer_lost_and_reset",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply()); }},
      {"answer_lost_and_closed",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply(ending::finish)); }},
      {"answer_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::silence()); }},
      {"request_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_server, fault::silence()); }},
      {"both_held", [](fault_proxy& proxy) {
         proxy.set(flow::to_server, fault::hold());
         proxy.set(flow::to_client, fault::hold());
       }}};
  for (const std::uint64_t bytes : {0U, 1U, 40U, 150U}) {
    all.push_back({"request_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_server, fault::cut_after(bytes));
                   }});
  }
  for (const std::uint64_t bytes : {1U, 4U}) {
    all.push_back({"answer_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_client, fault::cut_after(bytes));
                   }});
  }
  return all;
}

class WireFault : public testing::TestWithParam<trouble> {
 protected:
  void begin_trouble() { GetParam().begin(proxy_); }
  /// The network works again; connections with a hole in them are gone.
  void heal() {
    proxy_.heal();
    proxy_.close_all();
  }

  memcached_server server_;
  fault_proxy proxy_{server_.port()};
  const client hurt_ = open(proxy_.port());      // through the proxy
  const client healthy_ = open(server_.port());  // not
};

TEST_P(WireFault, InMidAcquireLeavesAtMostOneHolder) {
  mutex lock{hurt_, "door", lasting(2s)};
  mutex other{healthy_, "door", lasting(2s)};
  ASSERT_TRUE(lock.try_acquire());  // connected, and released again

  begin_trouble();
  std::optional<lease> got;
  const told error = error_of([&] { got = lock.try_acquire(); });
  // A try that failed may have left a grant that is yet to be taken back; it is nobody's.
  auto theirs = other.try_acquire();
  EXPECT_FALSE(got && got->valid() && theirs);
  if (!got) {
    EXPECT_TRUE(error.code == errc::outcome_unknown || error.code == errc::unavailable)
        << error.text;
  }
  heal();

  got.reset();
  theirs.reset();
  EXPECT_TRUE(nothing_is_left(server_));
  EXPECT_TRUE(other.try_acquire_for(patience));
}

TEST_P(WireFault, InMidAcquireIsWaitedOut) {
  mutex lock{hurt_, "door", lasting(2s)};
  ASSERT_TRUE(lock.try_acquire());

  begin_trouble();
  waiter next(lock);
  // Long enough for the request to be overdue; a cut connection may be made again before.
  static_cast<void>(eventually([&] { return next.done(); }, 700ms));
  heal();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->valid());
  mutex other{healthy_, "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  got->release();
  EXPECT_TRUE(nothing_is_left(server_));
}

TEST_P(WireFault, InMidReleaseIsRepeatedUntilTheStoreKnows) {
  mutex lock{hurt_, "door", lasting(30s)};
  mutex other{healthy_, "door", lasting(30s)};
  auto held = lock.acquire();

  begin_trouble();
  const auto result = held.release();
  EXPECT_NE(result, release_result::already_lost);
  heal();

  // Long before the lease of 30 s ends.
  auto got = other.try_acquire_for(patience);
  ASSERT_TRUE(got);
  got->release();
  EXPECT_TRUE(nothing_is_left(server_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, WireFault, testing::ValuesIn(all_troubles()),
                         [](const auto& each) { return each.param.name; });

/// One holder whose network fails while it renews.
struct hurt_holder {
  explicit hurt_holder(const memcached_server& server, trouble how)
      : what(std::move(how)), proxy(server.port()) {
    auto options = quick();
    options.watcher = watcher;
    lock.emplace(open(proxy.port(), options), lock_name(what.name), lasting(4500ms));
    held.emplace(lock->acquire());
  }

  trouble what;
  fault_proxy proxy;
  std::shared_ptr<metrics> watcher = std::make_shared<metrics>();
  std::optional<mutex> lock;
  std::optional<lease> held;
};

// All at the same time: each takes as long as a lease.
TEST(WireFaults, InMidRenewalAreRepeatedInTime) {
  const memcached_server server;
  std::vector<std::unique_ptr<hurt_holder>> all;
  for (const trouble& each : all_troubles()) {
    all.push_back(std::make_unique<hurt_holder>(server, each));
  }
  for (const auto& each : all) {
    ASSERT_TRUE(eventually([&] { return each->watcher->read().renewed >= 1; })) << each->what.name;
  }

  for (const auto& each : all) each->what.begin(each->proxy);
  // Over the next renewal, which is due after a third of the lease.
  const auto trouble_until = lease_clock::now() + 1700ms;
  static_cast<void>(eventually([&] { return lease_clock::now() >= trouble_until; }));
  std::vector<std::uint64_t> renewed;
  for (const auto& each : all) {
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    each->proxy.heal();
    each->proxy.close_all();
    renewed.push_back(each->watcher->read().renewed);
  }

  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& each = all[i];
    EXPECT_TRUE(eventually([&] { return each->watcher->read().renewed > renewed[i]; }))
        << each->what.name;
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    EXPECT_EQ(each->watcher->read().lost, 0U) << each->what.name;
    EXPECT_EQ(each->held->release(), release_result::released) << each->what.name;
  }
  EXPECT_TRUE(nothing_is_left(server));
}

// ---- answers that are not ours -------------------------------------------------------------------

/// Says these bytes to whoever connects, once it has answered the greeting as a server would, and
/// for every further piece that it reads.
class liar {
 public:
  explicit liar(std::string says) : says_(std::move(says)), thread_([this] { serve(); }) {}
  liar(const liar&) = delete;
  liar& operator=(const liar&) = delete;
  ~liar() {
    over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  [[nodiscard]] std::uint16_t port() const { return port_.number(); }

 private:
  void serve() {
    while (!over_) {
      const int one = ::accept(listener_, nullptr, nullptr);
      if (one < 0) continue;
      timeval patience_of_a_call{.tv_sec = 1, .tv_usec = 0};
      ::setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &patience_of_a_call, sizeof patience_of_a_call);
      std::array<char, 4096> buffer{};
      std::string answer =
          "STAT pid 1\r\nSTAT uptime 9\r\nSTAT time 99\r\nSTAT version 1.6.18\r\nEND\r\n"
          "STAT cas_enabled yes\r\nEND\r\n";
      while (!over_ && ::recv(one, buffer.data(), buffer.size(), 0) > 0) {
        static_cast<void>(::send(one, answer.data(), answer.size(), MSG_NOSIGNAL));
        answer = says_;
      }
      ::close(one);
    }
  }
  int listen_on(std::uint16_t port) {
    const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(made, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 ||
        ::listen(made, 8) != 0) {
      throw kit::kit_error("the liar can't listen");
    }
    return made;
  }

  const std::string says_;
  const kit::free_port port_;
  const int listener_ = listen_on(port_.number());
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(Lies, AreNeverTakenForAGrant) {
  const std::string mine = "sp1 h m 00000000000000000000000000000001 0 0 0 0 - - -";
  for (const std::string& each : {
           std::string("STORED\r\nHD O99\r\n"),             // another's tag
           std::string("STORED\r\nSTORED\r\n"),             // the first line twice
           std::string("HD O1\r\nHD O1\r\n"),               // no storing line
           std::string("ERROR\r\n"),                        //
           std::string("CLIENT_ERROR bad data chunk\r\n"),  //
           std::string("STORED\r\nVA 9999999999 c1 t1 O1\r\n"),
           std::string("STORED\r\nVA 5 c1 t9 O1\r\nxxxxx\r\nEN O1\r\n"),  // more than was asked
           std::string(100'000, 'x'),
           "NOT_STORED\r\nVA " + std::to_string(mine.size()) + " c1 t9 O1\r\n" + mine + "\r\n",
       }) {
    const liar server{each};
    client_options options = quick();
    options.store_patience = 300ms;
    mutex lock{open(server.port(), options), "door", lasting(2s)};
    std::optional<lease> got;
    const told error = error_of([&] { got = lock.try_acquire(); });
    EXPECT_FALSE(got) << each.substr(0, 60);
    EXPECT_TRUE(!error.code || error.code == errc::outcome_unknown ||
                error.code == errc::unavailable)
        << error.text;
  }
}

}  // namespace
}  // namespace sallyport::memcached_live
