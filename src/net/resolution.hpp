#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <vector>

namespace sallyport::net {

/// An address that a socket can be connected to.
struct socket_address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  /// For people: "192.0.2.1:6379", "[2001:db8::1]:6379".
  [[nodiscard]] std::string describe() const;
};

/// The question which addresses a host has, asked of the system without blocking: a thread of the C
/// library looks it up. Destroying it abandons the question; what the C library still uses is freed
/// when it is done with it.
///
/// One has to look for the answer (poll). The C library would also call back, but from a thread of
/// its own, for a gain of some milliseconds a connection.
/// Thread safety: none.
class resolution {
 public:
  /// Addresses in digits are answered at once.
  resolution(const std::string& host, std::uint16_t port);
  ~resolution();
  resolution(const resolution&) = delete;
  resolution& operator=(const resolution&) = delete;

  /// Nothing: not yet.
  std::optional<base::result<std::vector<socket_address>>> poll();

  /// Frees what abandoned questions have left, as far as they are done with; how many are left.
  static std::size_t sweep_abandoned();

 private:
  struct question;

  std::unique_ptr<question> asked_;
  std::optional<base::result<std::vector<socket_address>>> known_;
};

}  // namespace sallyport::net
