#include "net/dialer.hpp"

#include "base/check.hpp"
#include "net/endpoint.hpp"
#include "net/resolution.hpp"
#include "net/stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace sallyport::net {
namespace {

using namespace std::chrono_literals;
using progress = dialer::progress;

/// Somebody who listens on a port of this machine, or has just stopped.
class listening {
 public:
  explicit listening(int family = AF_INET)
      : socket_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage where{};
    where.ss_family = static_cast<sa_family_t>(family);
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(&where)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    } else {
      reinterpret_cast<sockaddr_in6*>(&where)->sin6_addr = in6addr_loopback;
    }
    works_ = bind(socket_.number(), reinterpret_cast<sockaddr*>(&where), length) == 0 &&
             listen(socket_.number(), 8) == 0;
    getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&where), &length);
    // The port stands at the same place in both.
    port_ = ntohs(reinterpret_cast<sockaddr_in*>(&where)->sin_port);
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] bool works() const { return works_; }
  void stop() { socket_ = base::descriptor(); }
  [[nodiscard]] base::descriptor accepted() const {
    return base::descriptor(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  base::descriptor socket_;
  std::uint16_t port_ = 0;
  bool works_ = false;
};

/// Does what an owner does: waits for what the dialer wants and lets it proceed.
progress dial(dialer& attempt) {
  for (;;) {
    progress step = attempt.proceed(lease_clock::now());
    if (step.what != progress::state::working) return step;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::min<lease_clock::duration>(step.look_again - lease_clock::now(), 10s));
    pollfd watched{step.watch, static_cast<short>(step.watch_for == EPOLLOUT ? POLLOUT : POLLIN),
                   0};
    poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  }
}

dialer plain(const endpoint& where, lease_clock::duration patience = 5s) {
  return dialer(where, nullptr, "", lease_clock::now() + patience);
}

TEST(Endpoint, IsDescribedForPeople) {
  EXPECT_EQ((endpoint{"redis.example", 6379, ""}).describe(), "redis.example:6379");
  EXPECT_EQ((endpoint{"::1", 6379, ""}).describe(), "[::1]:6379");
  EXPECT_EQ((endpoint{"", 0, "/run/redis.sock"}).describe(), "unix:/run/redis.sock");
}

TEST(Dialer, ConnectsToAnAddressInDigits) {
  listening server;
  dialer attempt = plain({"127.0.0.1", server.port(), ""});

  ASSERT_EQ(dial(attempt).what, progress::state::connected);

  const std::unique_ptr<stream> made = attempt.take();
  const base::descriptor other = server.accepted();
  EXPECT_EQ(made->write_some("hello").bytes, 5U);
  std::array<char, 8> bytes{};
  EXPECT_EQ(read(other.number(), bytes.data(), bytes.size()), 5);
}

TEST(Dialer, SetsTheOptionsOfItsSocket) {
  listening server;
  dialer attempt = plain({"127.0.0.1", server.port(), ""});
  ASSERT_EQ(dial(attempt).what, progress::state::connected);
  const std::unique_ptr<stream> made = attempt.take();

  int no_delay = 0;
  socklen_t length = sizeof no_delay;
  getsockopt(made->descriptor_number(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);

  EXPECT_NE(no_delay, 0);
  EXPECT_NE(fcntl(made->descriptor_number(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(made->descriptor_number(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(Dialer, FindsAHostByItsName) {
  listening server;
  dialer attempt = plain({"localhost", server.port(), ""});

  // If localhost is ::1 as well, nobody listens there, and the next address is tried.
  EXPECT_EQ(dial(attempt).what, progress::state::connected);
}

TEST(Dialer, SaysThatNobodyListens) {
  listening server;
  server.stop();
  dialer attempt = plain({"127.0.0.1", server.port(), ""});

  const progress end = dial(attempt);

  ASSERT_EQ(end.what, progress::state::failed);
  EXPECT_EQ(end.why.detail, "connecting: Connection refused");
}

TEST(Dialer, SaysThatAHostIsUnknown) {
  dialer attempt = plain({"no-such-host.invalid", 1, ""}, 10s);

  const progress end = dial(attempt);

  ASSERT_EQ(end.what, progress::state::failed);
  EXPECT_NE(end.why.detail.find("no-such-host.invalid"), std::string::npos) << end.why.detail;
}

TEST(Dialer, GivesUpInTime) {
  listening server;
  dialer attempt(endpoint{"127.0.0.1", server.port(), ""}, nullptr, "", lease_clock::now());

  const progress end = dial(attempt);

  ASSERT_EQ(end.what, progress::state::failed);
  EXPECT_EQ(end.why.detail, "connecting: Connection timed out");
}

TEST(Dialer, ConnectsToAUnixSocket) {
  std::string folder = std::filesystem::temp_directory_path() / "dialer-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/socket";
  const base::descriptor server(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  path.copy(where.sun_path, sizeof where.sun_path - 1);
  ASSERT_EQ(bind(server.number(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  ASSERT_EQ(listen(server.number(), 1), 0);

  dialer attempt = plain({"", 0, path});
  EXPECT_EQ(dial(attempt).what, progress::state::connected);
  std::filesystem::remove_all(folder);
  dialer again = plain({"", 0, path});
  const progress end = dial(again);

  ASSERT_EQ(end.what, progress::state::failed);
  EXPECT_EQ(end.why.detail, "connecting: No such file or directory");
}

TEST(Dialer, RefusesAPathThatIsTooLong) {
  dialer attempt = plain({"", 0, std::string(200, 'x')});

  EXPECT_EQ(dial(attempt).what, progress::state::failed);
}

TEST(Resolution, KnowsAddressesInDigitsAtOnce) {
  resolution four("192.0.2.7", 6379);
  resolution six("2001:db8::7", 6379);

  ASSERT_TRUE(four.poll().has_value());
  EXPECT_EQ(four.poll()->value().at(0).describe(), "192.0.2.7:6379");
  ASSERT_TRUE(six.poll().has_value());
  EXPECT_EQ(six.poll()->value().at(0).describe(), "[2001:db8::7]:6379");
}

TEST(Resolution, LeavesNothingBehindWhenItIsAbandoned) {
  for (int i = 0; i < 20; ++i) {
    const resolution abandoned("host-" + std::to_string(i) + ".invalid", 1);
  }

  const auto give_up = lease_clock::now() + 30s;
  while (resolution::sweep_abandoned() > 0) {
    ASSERT_LT(lease_clock::now(), give_up);
    poll(nullptr, 0, 1);
  }
}

class Stream : public testing::Test {
 protected:
  Stream() {
    std::array<int, 2> ends{-1, -1};
    SALLYPORT_CHECK(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    other_ = base::descriptor(ends[0]);
    stream_ = std::make_unique<stream>(base::descriptor(ends[1]));
  }

  base::descriptor other_;
  std::unique_ptr<stream> stream_;
  std::array<char, 4> room_{};
};

TEST_F(Stream, SaysHowMuchCameAndWhetherThereMayBeMore) {
  ASSERT_EQ(write(other_.number(), "abcdef", 6), 6);

  const transfer first = stream_->read_some(room_);
  EXPECT_EQ(first.bytes, 4U);
  EXPECT_TRUE(first.more);
  const transfer second = stream_->read_some(room_);
  EXPECT_EQ(second.bytes, 2U);
  EXPECT_FALSE(second.more);

  EXPECT_EQ(stream_->read_some(room_).what, transfer::outcome::again);
}

TEST_F(Stream, SaysThatTheOtherSideHasGone) {
  other_ = base::descriptor();

  EXPECT_EQ(stream_->read_some(room_).what, transfer::outcome::closed);
}

TEST_F(Stream, RaisesNoSignalWhenNobodyReads) {
  other_ = base::descriptor();

  const transfer lost = stream_->write_some("x");

  EXPECT_EQ(lost.what, transfer::outcome::failed);
  EXPECT_EQ(lost.why.detail, "writing: Broken pipe");
}

TEST_F(Stream, WritesInPiecesWhenTheOtherSideIsSlow) {
  const std::string much(4UL * 1024 * 1024, 'x');

  const transfer first = stream_->write_some(much);
  ASSERT_EQ(first.what, transfer::outcome::moved);
  ASSERT_LT(first.bytes, much.size());
  const transfer second = stream_->write_some(std::string_view(much).substr(first.bytes));

  EXPECT_EQ(second.what, transfer::outcome::again);
  EXPECT_TRUE(second.wants_write);
}

TEST(TlsContext, NamesTheFileThatCannotBeRead) {
  const auto made = tls_context::make({.on = true, .ca_file = "/no/such/ca.pem"});

  ASSERT_FALSE(made);
  EXPECT_NE(made.error().detail.find("/no/such/ca.pem"), std::string::npos) << made.error().detail;
}

TEST(TlsContext, RefusesToVerifyNobody) {
  const auto made = tls_context::make({.on = true});
  ASSERT_TRUE(made);

  EXPECT_FALSE((*made)->make_session(0, ""));
}

}  // namespace
}  // namespace sallyport::net
