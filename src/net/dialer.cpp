#include "net/dialer.hpp"

#include "net/failure.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

namespace sallyport::net {
namespace {

using namespace std::chrono_literals;

// How often to look whether the C library has found a host's addresses.
constexpr lease_clock::duration first_look = 250us;
constexpr lease_clock::duration longest_look = 10ms;
constexpr lease_clock::duration least_per_address = 100ms;

// A peer that vanished without a word is noticed by the kernel, too; requests have deadlines of their
// own.
constexpr int keepalive_idle_s = 15;
constexpr int keepalive_interval_s = 5;
constexpr int keepalive_count = 3;
constexpr unsigned unacknowledged_ms = 30'000;

void set_options(int socket, int family) {
  if (family == AF_UNIX) return;
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &keepalive_idle_s, sizeof keepalive_idle_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &keepalive_interval_s,
               sizeof keepalive_interval_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &keepalive_count, sizeof keepalive_count);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

base::result<socket_address> unix_address(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) {
    return tl::unexpected(system_failure(ENAMETOOLONG, "the path of a Unix socket"));
  }
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  socket_address address;
  std::memcpy(&address.storage, &name, sizeof name);
  address.length = sizeof name;
  return address;
}

/// A socket that looks for a server on a port of its own machine where nobody listens may be given
/// that very port, and then meets itself.
bool connected_to_itself(int socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &here_length) != 0) return false;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &there_length) != 0) return false;
  if (here.ss_family != AF_INET && here.ss_family != AF_INET6) return false;
  return here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

}  // namespace

dialer::dialer(endpoint where, std::shared_ptr<const tls_context> tls,
               const std::string& server_name, time_point give_up)
    : where_(std::move(where)),
      tls_(std::move(tls)),
      server_name_(server_name.empty() ? where_.host : server_name),
      give_up_(give_up),
      next_look_(first_look) {}

dialer::progress dialer::proceed(time_point now) {
  if (now >= give_up_) {
    progress late;
    late.what = progress::state::failed;
    late.why = last_.code ? last_ : system_failure(ETIMEDOUT, "connecting");
    return late;
  }
  switch (stage_) {
    case stage::resolving:
      return resolve(now);
    case stage::choosing:
      return choose(now);
    case stage::connecting:
      return check_connection(now);
    case stage::handshaking:
      return shake_hands(now);
  }
  return {};
}

dialer::progress dialer::resolve(time_point now) {
  if (where_.local()) {
    auto address = unix_address(where_.path);
    if (!address) return give_up_address(address.error(), now);
    addresses_.push_back(*address);
    return choose(now);
  }
  if (!resolution_) resolution_.emplace(where_.host, where_.port);
  auto found = resolution_->poll();
  if (!found) {
    progress later;
    later.look_again = std::min(now + next_look_, give_up_);
    next_look_ = std::min(2 * next_look_, longest_look);
    return later;
  }
  resolution_.reset();
  if (!*found) return give_up_address(found->error(), now);
  addresses_ = std::move(**found);
  return choose(now);
}

dialer::progress dialer::wait_for(int socket, std::uint32_t events) const {
  progress later;
  later.watch = socket;
  later.watch_for = events;
  later.look_again = std::min(address_until_, give_up_);
  return later;
}

dialer::progress dialer::give_up_address(base::failure why, time_point now) {
  last_ = std::move(why);
  stream_.reset();
  socket_ = base::descriptor();
  return choose(now);
}

dialer::progress dialer::choose(time_point now) {
  stage_ = stage::choosing;
  while (tried_ < addresses_.size()) {
    const socket_address& address = addresses_[tried_];
    const auto left = static_cast<std::int64_t>(addresses_.size() - tried_);
    address_until_ = now + std::max((give_up_ - now) / left, least_per_address);
    ++tried_;
    base::descriptor fresh(
        ::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fresh.open()) {
      last_ = system_failure(errno, "making a socket");
      continue;
    }
    set_options(fresh.number(), address.family());
    const int outcome = ::connect(fresh.number(), address.get(), address.length);
    if (outcome != 0 && errno != EINPROGRESS && errno != EINTR) {
      last_ = system_failure(errno, "connecting");
      continue;
    }
    // Not by assignment alone: that would swap, and close the old one later.
    socket_ = base::descriptor();
    socket_ = std::move(fresh);
    stage_ = stage::connecting;
    return outcome == 0 ? check_connection(now) : wait_for(socket_.number(), EPOLLOUT);
  }
  progress nowhere;
  nowhere.what = progress::state::failed;
  nowhere.why = last_.code ? last_ : system_failure(EHOSTUNREACH, "connecting");
  return nowhere;
}

dialer::progress dialer::check_connection(time_point now) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket_.number(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return give_up_address(system_failure(error, "connecting"), now);
  sockaddr_storage peer{};
  socklen_t peer_length = sizeof peer;
  if (::getpeername(socket_.number(), reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    if (now < address_until_) return wait_for(socket_.number(), EPOLLOUT);
    return give_up_address(system_failure(ETIMEDOUT, "connecting"), now);
  }
  if (connected_to_itself(socket_.number())) {
    return give_up_address(system_failure(ECONNREFUSED, "connecting"), now);
  }
  stream_ = std::make_unique<stream>(std::move(socket_));
  if (tls_) {
    if (auto began = stream_->encrypt(*tls_, server_name_); !began) {
      return give_up_address(began.error(), now);
    }
    stage_ = stage::handshaking;
    return shake_hands(now);
  }
  progress done;
  done.what = progress::state::connected;
  return done;
}

dialer::progress dialer::shake_hands(time_point now) {
  const transfer step = stream_->handshake();
  switch (step.what) {
    case transfer::outcome::moved: {
      progress done;
      done.what = progress::state::connected;
      return done;
    }
    case transfer::outcome::again:
      if (now >= address_until_) {
        return give_up_address(system_failure(ETIMEDOUT, "the TLS handshake"), now);
      }
      return wait_for(stream_->descriptor_number(), step.wants_write ? EPOLLOUT : EPOLLIN);
    case transfer::outcome::closed:
      return give_up_address(
          protocol_failure("the server closed the connection during the TLS handshake"), now);
    case transfer::outcome::failed: {
      base::failure why = step.why;
      if (why.detail.find("mismatch") != std::string::npos) {
        why.detail += " (expected '" + server_name_ + "')";
      }
      return give_up_address(std::move(why), now);
    }
  }
  return {};
}

}  // namespace sallyport::net
