#pragma once

#include <cstdint>
#include <string>

namespace sallyport::net {

/// Where a server listens: a host and port, or the path of a Unix socket.
struct endpoint {
  std::string host = {};  ///< a name, or an address (IPv6 without brackets); empty with `path`
  std::uint16_t port = 0;
  std::string path = {};  ///< of a Unix socket; empty: host and port count

  [[nodiscard]] bool local() const noexcept { return !path.empty(); }
  /// For people: "host:6379", "[::1]:6379", "unix:/run/redis.sock".
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const endpoint&, const endpoint&) = default;
};

}  // namespace sallyport::net
