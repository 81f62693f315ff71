#include "tests/kit/fault_proxy_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr auto never = lease_clock::time_point::max();
/// What a flow holds back at most; a sender beyond it meets a full network.
constexpr std::size_t most_queued = std::size_t{16} << 20;
constexpr flow both[] = {flow::to_server, flow::to_client};

bool try_again() { return errno == EAGAIN || errno == EINTR || errno == ENOTCONN; }

}  // namespace

proxied_connection::proxied_connection(int client, int server) : sockets_{client, server} {
  if (server < 0) end(ending::reset);
  for (const int socket : sockets_) {
    const int yes = 1;
    if (socket >= 0) ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
}

proxied_connection::~proxied_connection() { close_sockets(true); }

int proxied_connection::source(flow direction) const { return sockets_[index_of(direction)]; }

int proxied_connection::target(flow direction) const { return sockets_[1 - index_of(direction)]; }

void proxied_connection::set(flow direction, std::shared_ptr<fault_rule> rule) {
  half& one = halves_[index_of(direction)];
  one.rule = std::move(rule);
  one.since = 0;
  if (direction == flow::to_client) {
    one.requested = one.rule->now().request.empty();
    one.request_tail.clear();
  }
  if (one.rule->now().is != fault::kind::hold) {
    for (chunk& held : one.queue) {
      if (held.due == never) held.due = lease_clock::now();
    }
  }
  cut_if_due(direction);
}

void proxied_connection::close_sockets(bool reset) {
  state_ = state::closed;
  for (int& socket : sockets_) {
    if (socket < 0) continue;
    if (reset) {
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    ::close(std::exchange(socket, -1));
  }
}

void proxied_connection::end(ending how) {
  if (state_ == state::closed) return;
  switch (how) {
    case ending::reset:
      close_sockets(true);
      break;
    case ending::finish:
      // Not closed before the others have: with unread bytes, close would reset.
      state_ = state::finishing;
      for (const int socket : sockets_) ::shutdown(socket, SHUT_WR);
      discard();
      break;
    case ending::silence:
      for (half& one : halves_) {
        one.mute = true;
        one.queue.clear();
        one.queued = 0;
      }
      break;
  }
}

/// The end that a fault of this flow asks for.
void proxied_connection::stop(flow direction, ending how) {
  if (how == ending::silence) {
    halves_[index_of(direction)].mute = true;
  } else {
    end(how);
  }
}

bool proxied_connection::wants_to_read(const half& one) const {
  return !one.source_ended && one.queued < most_queued;
}

void proxied_connection::watch(std::vector<pollfd>& watched) const {
  if (state_ == state::closed) return;
  for (const flow direction : both) {
    short events = 0;
    // This socket is the source of one flow and the target of the other.
    if (wants_to_read(halves_[index_of(direction)])) events |= POLLIN;
    if (state_ == state::open && halves_[1 - index_of(direction)].full) events |= POLLOUT;
    if (events != 0) {
      watched.push_back({.fd = source(direction), .events = events, .revents = 0});
    }
  }
}

lease_clock::time_point proxied_connection::next_due() const {
  auto next = never;
  if (state_ != state::open) return next;
  for (const half& one : halves_) {
    if (!one.full && !one.queue.empty()) next = std::min(next, one.queue.front().due);
  }
  return next;
}

void proxied_connection::move_bytes(lease_clock::time_point now) {
  for (const flow direction : both) {
    if (state_ == state::open) read_from(direction, now);
    if (state_ == state::open) pass_on(direction, now);
  }
  if (state_ == state::finishing) discard();
}

void proxied_connection::read_from(flow direction, lease_clock::time_point now) {
  half& one = halves_[index_of(direction)];
  if (!wants_to_read(one)) return;
  std::array<char, 65'536> buffer;
  const ssize_t got = ::recv(source(direction), buffer.data(), buffer.size(), 0);
  if (got < 0 && try_again()) return;
  if (got > 0) {
    one.read += static_cast<std::uint64_t>(got);
    take(direction, {buffer.data(), static_cast<std::size_t>(got)}, now);
    return;
  }
  one.source_ended = true;
  take_last(one, got < 0 ? ending::reset : ending::finish, now);
}

void proxied_connection::take(flow direction, std::string_view bytes, lease_clock::time_point now) {
  half& one = halves_[index_of(direction)];
  if (one.mute) return;
  // A copy: its rule may be used up on the way.
  const fault what = one.rule->now();
  auto due = now;
  switch (what.is) {
    case fault::kind::pass:
      break;
    case fault::kind::delay:
      due = now + what.by;
      break;
    case fault::kind::hold:
      due = never;
      break;
    case fault::kind::silence:
      return;
    case fault::kind::cut_after:
      bytes = bytes.substr(0, what.bytes - one.since);
      break;
    case fault::kind::drop_reply:
      if (!one.requested) break;
      one.rule->use();
      ++replies_dropped_;
      stop(direction, what.then);
      return;
  }
  if (bytes.empty()) return;
  one.since += bytes.size();
  one.queue.push_back({.due = due, .bytes = std::string{bytes}});
  one.queued += bytes.size();
  if (direction == flow::to_server) note_request(bytes);
}

void proxied_connection::take_last(half& one, ending how, lease_clock::time_point now) {
  auto due = now;
  switch (one.rule->now().is) {
    case fault::kind::pass:
    case fault::kind::cut_after:
    case fault::kind::drop_reply:
      break;
    case fault::kind::delay:
      due = now + one.rule->now().by;
      break;
    case fault::kind::hold:
      due = never;
      break;
    case fault::kind::silence:
      return;
  }
  if (!one.mute) one.queue.push_back({.due = due, .bytes = {}, .last = how});
}

void proxied_connection::note_request(std::string_view bytes) {
  half& answers = halves_[index_of(flow::to_client)];
  const std::string& wanted = answers.rule->now().request;
  if (answers.requested || wanted.empty()) return;
  answers.request_tail += bytes;
  answers.requested = answers.request_tail.find(wanted) != std::string::npos;
  if (answers.request_tail.size() >= wanted.size()) {
    answers.request_tail.erase(0, answers.request_tail.size() - wanted.size() + 1);
  }
}

void proxied_connection::cut_if_due(flow direction) {
  half& one = halves_[index_of(direction)];
  if (state_ != state::open || one.mute || !one.queue.empty()) return;
  const fault what = one.rule->now();
  if (what.is != fault::kind::cut_after || one.since < what.bytes) return;
  one.rule->use();
  ++cuts_;
  stop(direction, what.then);
}

void proxied_connection::pass_on(flow direction, lease_clock::time_point now) {
  half& one = halves_[index_of(direction)];
  one.full = false;
  while (!one.queue.empty() && one.queue.front().due <= now) {
    chunk& front = one.queue.front();
    if (front.last == ending::reset) return end(ending::reset);
    if (front.last) {
      ::shutdown(target(direction), SHUT_WR);
      one.queue.pop_front();
      if (halves_[0].source_ended && halves_[1].source_ended && halves_[0].queue.empty() &&
          halves_[1].queue.empty()) {
        close_sockets(false);
      }
      return;
    }
    const ssize_t sent =
        ::send(target(direction), front.bytes.data(), front.bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && try_again()) {
      one.full = true;
      return;
    }
    if (sent < 0) return end(ending::reset);  // whom it was for is gone
    one.passed += static_cast<std::uint64_t>(sent);
    one.queued -= static_cast<std::size_t>(sent);
    front.bytes.erase(0, static_cast<std::size_t>(sent));
    if (front.bytes.empty()) one.queue.pop_front();
  }
  cut_if_due(direction);
}

/// Reads to the end of both sides, for nobody.
void proxied_connection::discard() {
  for (const flow direction : both) {
    half& one = halves_[index_of(direction)];
    std::array<char, 65'536> buffer;
    while (!one.source_ended) {
      const ssize_t got = ::recv(source(direction), buffer.data(), buffer.size(), 0);
      if (got < 0 && try_again()) break;
      if (got > 0) {
        one.read += static_cast<std::uint64_t>(got);
      } else {
        one.source_ended = true;
      }
    }
  }
  if (halves_[0].source_ended && halves_[1].source_ended) close_sockets(false);
}

connection_counts proxied_connection::counts() const {
  const half& requests = halves_[index_of(flow::to_server)];
  const half& answers = halves_[index_of(flow::to_client)];
  return {.open = state_ == state::open,
          .read_from_client = requests.read,
          .passed_to_server = requests.passed,
          .read_from_server = answers.read,
          .passed_to_client = answers.passed};
}

}  // namespace sallyport::kit
