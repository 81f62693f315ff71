#include "tests/kit/fault_proxy.hpp"

#include "tests/kit/free_port.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace sallyport::kit {
namespace {

using namespace std::chrono_literals;

/// A client that sees every byte and how its connection ends.
class raw_client {
 public:
  explicit raw_client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(port);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&there), sizeof there) == 0;
  }
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;
  ~raw_client() { ::close(socket_); }

  [[nodiscard]] bool connected() const { return connected_; }
  void send(const std::string& bytes) const {
    (void)!::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Everything until the end: the bytes, then "|finish" or "|reset"; "|open" when no end comes.
  [[nodiscard]] std::string read_to_end(std::chrono::milliseconds within = patience) const {
    std::string all;
    for (;;) {
      pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, static_cast<int>(within.count())) <= 0) return all + "|open";
      std::array<char, 512> buffer{};
      const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
      if (got == 0) return all + "|finish";
      if (got < 0) return all + (errno == ECONNRESET ? "|reset" : "|error");
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  int socket_;
  bool connected_ = false;
};

class FaultProxy : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<redis_server>(); }
  static void TearDownTestSuite() { server_.reset(); }
  FaultProxy() { (void)server_->command({"FLUSHALL"}); }

  /// Of the server, through the proxy.
  [[nodiscard]] redis_address address() const {
    return {.port = proxy_.port(), .unix_path = {}, .user = {}, .password = {}};
  }
  [[nodiscard]] static std::int64_t on_server(const std::string& key) {
    return server_->command({"EXISTS", key}).integer;
  }

  static std::unique_ptr<redis_server> server_;
  fault_proxy proxy_{server_->port()};
};

std::unique_ptr<redis_server> FaultProxy::server_;

TEST_F(FaultProxy, PassesAndCounts) {
  redis_probe first{address()};
  redis_probe second{address()};
  EXPECT_EQ(first.command({"PING"}).text, "PONG");
  EXPECT_EQ(second.command({"PING"}).text, "PONG");

  const proxy_counts counts = proxy_.counts();

  EXPECT_EQ(counts.connections.size(), 2U);
  EXPECT_EQ(counts.open, 2U);
  const std::size_t request = std::string{"*1\r\n$4\r\nPING\r\n"}.size();
  EXPECT_EQ(counts.connections[0].read_from_client, request);
  EXPECT_EQ(counts.connections[0].passed_to_server, request);
  EXPECT_EQ(counts.connections[0].passed_to_client, std::string{"+PONG\r\n"}.size());
  EXPECT_EQ(counts.total.passed_to_server, 2 * request);
}

TEST_F(FaultProxy, ListensOnAUnixSocket) {
  const temporary_folder folder{"proxy"};
  fault_proxy there{server_->port(), folder.path() / "socket"};
  redis_probe probe{
      {.port = 0, .unix_path = (folder.path() / "socket").string(), .user = {}, .password = {}}};

  EXPECT_EQ(probe.command({"PING"}).text, "PONG");
  there.refuse_connections();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "socket"));
  there.accept_connections();
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "socket"));
  EXPECT_THROW((void)there.port(), kit_error);
}

TEST_F(FaultProxy, PassesManyBytes) {
  redis_probe probe{address()};
  const std::string many(std::size_t{20} << 20, 'x');

  EXPECT_TRUE(probe.command({"SET", "a", many}).is_ok());

  EXPECT_EQ(probe.command({"GET", "a"}).text, many);
}

TEST_F(FaultProxy, PassesOnTheEndOfEitherSide) {
  {
    redis_probe probe{address()};
    EXPECT_EQ(probe.command({"PING"}).text, "PONG");
  }
  EXPECT_TRUE(proxy_.wait_for([](const proxy_counts& counts) { return counts.open == 0; }));

  const raw_client client{proxy_.port()};
  client.send("QUIT\r\n");
  EXPECT_EQ(client.read_to_end(), "+OK\r\n|finish");
}

TEST_F(FaultProxy, DelaysOneDirection) {
  redis_probe probe{address()};
  proxy_.set(flow::to_client, fault::delay(60ms));

  const auto before = lease_clock::now();
  EXPECT_TRUE(probe.command({"SET", "a", "b"}).is_ok());

  EXPECT_GE(lease_clock::now() - before, 60ms);
}

TEST_F(FaultProxy, HoldsUntilItHeals) {
  redis_probe probe{address()};
  proxy_.set(flow::to_server, fault::hold());
  probe.send({"INCR", "n"});
  probe.send({"INCR", "n"});
  EXPECT_FALSE(probe.readable(30ms));
  EXPECT_EQ(on_server("n"), 0);

  proxy_.heal();

  EXPECT_EQ(probe.receive().integer, 1);
  EXPECT_EQ(probe.receive().integer, 2);
}

TEST_F(FaultProxy, SwallowsInSilence) {
  const raw_client client{proxy_.port()};
  proxy_.set(flow::to_server, fault::silence());

  client.send("SET a b\r\n");

  EXPECT_TRUE(proxy_.wait_for([](const proxy_counts& counts) {
    return counts.total.read_from_client == 9 && counts.total.passed_to_server == 0;
  }));
  EXPECT_EQ(client.read_to_end(20ms), "|open");
  proxy_.heal();
  EXPECT_EQ(client.read_to_end(20ms), "|open");
  EXPECT_EQ(on_server("a"), 0);
}

TEST_F(FaultProxy, CutsAnAnswerAfterExactlySoManyBytes) {
  for (const auto& [how, end] :
       {std::pair{ending::finish, "|finish"}, std::pair{ending::reset, "|reset"}}) {
    const raw_client client{proxy_.port()};
    proxy_.set(flow::to_client, fault::cut_after(3, how));

    client.send("PING\r\n");

    EXPECT_EQ(client.read_to_end(), std::string{"+PO"} + end);
  }
  EXPECT_EQ(proxy_.counts().cuts, 2U);
  EXPECT_EQ(proxy_.counts().open, 0U);
}

TEST_F(FaultProxy, CutsAnAnswerAndStaysSilent) {
  const raw_client client{proxy_.port()};
  proxy_.set(flow::to_client, fault::cut_after(3, ending::silence));

  client.send("PING\r\n");

  EXPECT_EQ(client.read_to_end(20ms), "+PO|open");
}

TEST_F(FaultProxy, CutsARequestBeforeItsLastByte) {
  const std::string request = "SET a b\r\n";
  const raw_client client{proxy_.port()};
  proxy_.set(flow::to_server, fault::cut_after(request.size() - 1));

  client.send(request);

  EXPECT_EQ(client.read_to_end(), "|reset");
  EXPECT_EQ(proxy_.counts().total.passed_to_server, request.size() - 1);
  EXPECT_EQ(on_server("a"), 0);
}

TEST_F(FaultProxy, CutsAtOnceAfterNothing) {
  const raw_client client{proxy_.port()};
  ASSERT_TRUE(proxy_.wait_for([](const proxy_counts& counts) { return counts.open == 1; }));

  proxy_.set(flow::to_client, fault::cut_after(0));

  EXPECT_EQ(client.read_to_end(), "|reset");
}

TEST_F(FaultProxy, DropsAReplyAfterTheServerHasDoneIt) {
  for (const auto& [how, end] :
       {std::pair{ending::finish, "|finish"}, std::pair{ending::reset, "|reset"}}) {
    const raw_client client{proxy_.port()};
    proxy_.set(flow::to_client, fault::drop_reply(how));

    client.send("INCR n\r\n");

    EXPECT_EQ(client.read_to_end(), end);
  }
  EXPECT_EQ(server_->command({"GET", "n"}).text, "2");
  EXPECT_EQ(proxy_.counts().replies_dropped, 2U);
}

TEST_F(FaultProxy, DropsAReplyInSilence) {
  const raw_client client{proxy_.port()};
  proxy_.set(flow::to_client, fault::drop_reply(ending::silence));

  client.send("INCR n\r\n");

  EXPECT_TRUE(proxy_.wait_for([](const proxy_counts& c) { return c.replies_dropped == 1; }));
  EXPECT_EQ(client.read_to_end(20ms), "|open");
  EXPECT_EQ(server_->command({"GET", "n"}).text, "1");
}

TEST_F(FaultProxy, DropsTheReplyToOneRequestOnly) {
  redis_probe probe{address()};
  proxy_.set(flow::to_client, fault::drop_reply(ending::reset, "DECR"));
  EXPECT_EQ(probe.command({"INCR", "n"}).integer, 1);

  EXPECT_THROW((void)probe.command({"DECR", "n"}), kit_error);

  EXPECT_EQ(server_->command({"GET", "n"}).text, "0");
}

TEST_F(FaultProxy, UsesAFaultUpOnceOrAsOftenAsAsked) {
  proxy_.set(flow::to_client, fault::drop_reply().repeated(2));

  for (int round = 0; round < 2; ++round) {
    const raw_client client{proxy_.port()};
    client.send("PING\r\n");
    EXPECT_EQ(client.read_to_end(), "|reset");
  }

  redis_probe third{address()};
  EXPECT_EQ(third.command({"PING"}).text, "PONG");
}

TEST_F(FaultProxy, HurtsOneConnectionOnly) {
  proxy_.set(2, flow::to_client, fault::drop_reply(ending::reset));
  redis_probe first{address()};
  EXPECT_EQ(first.command({"PING"}).text, "PONG");
  redis_probe second{address()};

  EXPECT_THROW((void)second.command({"PING"}), kit_error);

  EXPECT_EQ(first.command({"PING"}).text, "PONG");
}

TEST_F(FaultProxy, RefusesAndAcceptsAgain) {
  redis_probe before{address()};
  EXPECT_EQ(before.command({"PING"}).text, "PONG");

  proxy_.refuse_connections();
  EXPECT_FALSE(raw_client{proxy_.port()}.connected());
  EXPECT_EQ(before.command({"PING"}).text, "PONG");

  proxy_.accept_connections();
  redis_probe after{address()};
  EXPECT_EQ(after.command({"PING"}).text, "PONG");
}

TEST_F(FaultProxy, ClosesAll) {
  const raw_client first{proxy_.port()};
  const raw_client second{proxy_.port()};
  ASSERT_TRUE(proxy_.wait_for([](const proxy_counts& counts) { return counts.open == 2; }));

  proxy_.close(1, ending::finish);
  EXPECT_EQ(first.read_to_end(), "|finish");
  EXPECT_EQ(proxy_.counts().open, 1U);

  proxy_.close_all();
  EXPECT_EQ(second.read_to_end(), "|reset");
}

TEST_F(FaultProxy, ResetsWhenTheTargetIsNotThere) {
  const free_port nobody;
  proxy_.set_target(nobody.number());

  const raw_client client{proxy_.port()};

  EXPECT_EQ(client.read_to_end(), "|reset");
}

}  // namespace
}  // namespace sallyport::kit
