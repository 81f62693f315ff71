#pragma once

#include "base/check.hpp"
#include "base/descriptor.hpp"
#include "net/endpoint.hpp"
#include "net/pump.hpp"
#include <sallyport/lease_clock.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace sallyport::backends::redis {

/// A server on 127.0.0.1 that says what a test tells it to, byte for byte. It has one client at a
/// time, the one accepted last, and never blocks.
class scripted_server {
 public:
  scripted_server() {
    sockaddr_in where = address();
    socklen_t length = sizeof where;
    const int on = 1;
    setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    SALLYPORT_CHECK(bind(listener_.number(), reinterpret_cast<sockaddr*>(&where), length) == 0);
    SALLYPORT_CHECK(listen(listener_.number(), 64) == 0);
    getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&where), &length);
    port_ = ntohs(where.sin_port);
  }

  [[nodiscard]] net::endpoint where() const { return {.host = "127.0.0.1", .port = port_}; }

  /// Takes the next client, if there is one; the one before is gone then.
  bool accept() {
    base::descriptor next(
        accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!next.open()) return false;
    client_ = base::descriptor();
    client_ = std::move(next);
    received_.clear();
    ++accepted_;
    return true;
  }
  [[nodiscard]] int accepted() const { return accepted_; }

  /// All that the client has sent and that was not taken.
  const std::string& received() {
    std::array<char, 65536> room;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    for (;;) {
      const ssize_t got = recv(client_.number(), room.data(), room.size(), 0);
      if (got <= 0) return received_;
      received_.append(room.data(), static_cast<std::size_t>(got));
    }
  }
  std::string take() {
    received();
    return std::exchange(received_, std::string());
  }
  /// The client has closed its end.
  [[nodiscard]] bool abandoned() {
    received();
    char one = 0;
    const ssize_t got = recv(client_.number(), &one, 1, MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  void say(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = send(client_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      SALLYPORT_CHECK(done > 0);
      bytes.remove_prefix(static_cast<std::size_t>(done));
    }
  }
  void hang_up() { client_ = base::descriptor(); }
  void reset() {
    const linger at_once{1, 0};
    setsockopt(client_.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    hang_up();
  }
  void stop_listening() { listener_ = base::descriptor(); }

 private:
  static sockaddr_in address() {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
  }

  base::descriptor listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  base::descriptor client_;
  std::uint16_t port_ = 0;
  int accepted_ = 0;
  std::string received_;
};

/// Runs the pump until the condition holds; false after ten seconds.
template <class Condition>
[[nodiscard]] bool run_until(net::pump& engine, Condition holds) {
  const auto give_up = lease_clock::now() + std::chrono::seconds{10};
  while (!holds()) {
    const auto now = lease_clock::now();
    if (now >= give_up) return false;
    engine.run_once(now + std::chrono::milliseconds{1});
  }
  return true;
}

}  // namespace sallyport::backends::redis
