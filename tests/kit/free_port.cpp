#include "tests/kit/free_port.hpp"

#include "tests/kit/waiting.hpp"

#include <arpa/inet.h>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr std::uint32_t first_port = 10'000;
constexpr std::uint32_t fewest_ports = 1'000;

/// One above the ports to take from: where the kernel's own choice for outgoing connections begins.
std::uint32_t end_of_ports() {
  std::uint32_t first_outgoing = 32'768;
  std::ifstream{"/proc/sys/net/ipv4/ip_local_port_range"} >> first_outgoing;
  return first_outgoing < first_port + fewest_ports ? 65'536 : first_outgoing;
}

/// Binds a name in the kernel's abstract namespace: -1 when somebody has it.
int reserve(std::uint32_t port) {
  const int reservation = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (reservation < 0) throw kit_error("cannot open a unix socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "sallyport-test-port-" + std::to_string(port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(reservation, reinterpret_cast<const sockaddr*>(&address), size) == 0) {
    return reservation;
  }
  ::close(reservation);
  return -1;
}

/// Whether a server could listen there now.
bool can_be_bound(std::uint32_t port) {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) throw kit_error("cannot open a TCP socket");
  const int yes = 1;
  ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);  // as servers do
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return bound;
}

/// Where to begin: elsewhere in every process, and not with a port that was just given back.
std::uint16_t somewhere() {
  static std::atomic<std::uint32_t> asked{0};
  const std::uint32_t count = end_of_ports() - first_port;
  const std::uint32_t place =
      static_cast<std::uint32_t>(::getpid()) * 7'919 + asked.fetch_add(1) * 13;
  return static_cast<std::uint16_t>(first_port + place % count);
}

}  // namespace

free_port::free_port() : free_port(somewhere()) {}

free_port::free_port(std::uint16_t first) {
  const std::uint32_t end = end_of_ports();
  const std::uint32_t count = end - first_port;
  if (first < first_port || first >= end) throw kit_error("tests do not use that port");
  for (std::uint32_t tried = 0; tried < count; ++tried) {
    const std::uint32_t port = first_port + (first - first_port + tried) % count;
    reservation_ = reserve(port);
    if (reservation_ < 0) continue;
    if (can_be_bound(port)) {
      number_ = static_cast<std::uint16_t>(port);
      return;
    }
    ::close(reservation_);
  }
  throw kit_error("no free TCP port is left");
}

free_port::free_port(free_port&& other) noexcept
    : number_(other.number_), reservation_(std::exchange(other.reservation_, -1)) {}

free_port::~free_port() {
  if (reservation_ >= 0) ::close(reservation_);
}

}  // namespace sallyport::kit
