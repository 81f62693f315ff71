#include "backends/memcached/test_live_server.hpp"
#include "backends/pipeline/test_live_wire_faults.hpp"

#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace sallyport::memcached_live {
namespace {

/// The server of the tests that backends share.
class shared_server final : public live::server {
 public:
  [[nodiscard]] std::uint16_t port() const override { return server_.port(); }
  [[nodiscard]] client open(std::uint16_t port, client_options options) const override {
    return memcached_live::open(port, std::move(options));
  }
  [[nodiscard]] testing::AssertionResult nothing_is_left() const override {
    return memcached_live::nothing_is_left(server_);
  }
  [[nodiscard]] std::chrono::milliseconds short_lease() const override { return 2s; }

 private:
  const memcached_server server_;
};

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

std::unique_ptr<sallyport::live::server> sallyport::live::start_server() {
  return std::make_unique<memcached_live::shared_server>();
}
