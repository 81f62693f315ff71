#include "tests/kit/redis_probe.hpp"

#include <hiredis/hiredis.h>

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <ostream>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

redis_reply copy_of(const redisReply& reply) {
  redis_reply copy;
  switch (reply.type) {
    case REDIS_REPLY_INTEGER:
      copy.is = redis_reply::kind::integer;
      copy.integer = reply.integer;
      break;
    case REDIS_REPLY_STRING:
      copy.is = redis_reply::kind::text;
      copy.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_STATUS:
      copy.is = redis_reply::kind::status;
      copy.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_ERROR:
      copy.is = redis_reply::kind::error;
      copy.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_ARRAY:
      copy.is = redis_reply::kind::array;
      for (std::size_t i = 0; i < reply.elements; ++i) {
        copy.items.push_back(copy_of(*reply.element[i]));
      }
      break;
    default:
      break;
  }
  return copy;
}

int connect_to(const redis_address& address) {
  const bool local = !address.unix_path.empty();
  const int connected = ::socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connected < 0) return -1;
  int failed = 0;
  if (local) {
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    if (address.unix_path.size() >= sizeof there.sun_path) {
      ::close(connected);
      errno = ENAMETOOLONG;
      return -1;
    }
    std::memcpy(there.sun_path, address.unix_path.data(), address.unix_path.size());
    failed = ::connect(connected, reinterpret_cast<const sockaddr*>(&there), sizeof there);
  } else {
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_port = htons(address.port);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    failed = ::connect(connected, reinterpret_cast<const sockaddr*>(&there), sizeof there);
    const int yes = 1;
    ::setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  if (failed == 0) return connected;
  const int why = errno;
  ::close(connected);
  errno = why;
  return -1;
}

std::string name_of(const redis_address& address) {
  return address.unix_path.empty() ? "127.0.0.1:" + std::to_string(address.port)
                                   : address.unix_path;
}

}  // namespace

std::vector<std::string> redis_reply::texts() const {
  std::vector<std::string> all;
  all.reserve(items.size());
  for (const redis_reply& item : items) all.push_back(item.text);
  return all;
}

std::ostream& operator<<(std::ostream& out, const redis_reply& reply) {
  switch (reply.is) {
    case redis_reply::kind::nil:
      return out << "nil";
    case redis_reply::kind::integer:
      return out << reply.integer;
    case redis_reply::kind::text:
      return out << '"' << reply.text << '"';
    case redis_reply::kind::status:
      return out << '+' << reply.text;
    case redis_reply::kind::error:
      return out << '-' << reply.text;
    case redis_reply::kind::array:
      break;
  }
  const char* before = "[";
  for (const redis_reply& item : reply.items) out << std::exchange(before, ", ") << item;
  return out << (reply.items.empty() ? "[]" : "]");
}

redis_probe::redis_probe(const redis_address& address, lease_clock::duration within)
    : name_(name_of(address)),
      socket_(connect_to(address)),
      reader_(::redisReaderCreate(), [](redisReader* reader) { ::redisReaderFree(reader); }) {
  if (socket_ < 0) fail("cannot connect: " + error_text(errno));
  if (address.password.empty()) return;
  words login{"AUTH"};
  if (!address.user.empty()) login.push_back(address.user);
  login.push_back(address.password);
  try {
    (void)expect(login, within);
  } catch (const kit_error&) {
    ::close(socket_);
    throw;
  }
}

redis_probe::~redis_probe() {
  if (socket_ >= 0) ::close(socket_);
}

void redis_probe::fail(const std::string& what) const {
  throw kit_error("redis at " + name_ + ": " + what);
}

redis_reply redis_probe::command(const words& command, lease_clock::duration within) {
  send(command);
  return receive(within);
}

redis_reply redis_probe::expect(const words& command, lease_clock::duration within) {
  redis_reply reply = this->command(command, within);
  if (reply.is_error()) fail(command.front() + ": " + reply.text);
  return reply;
}

void redis_probe::send(const words& command) {
  std::vector<const char*> starts;
  std::vector<std::size_t> sizes;
  for (const std::string& word : command) {
    starts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* bytes = nullptr;
  const auto size = ::redisFormatCommandArgv(&bytes, static_cast<int>(command.size()),
                                             starts.data(), sizes.data());
  if (size < 0) fail("cannot format a command");
  const std::string request(bytes, static_cast<std::size_t>(size));
  ::redisFreeCommand(bytes);

  const auto give_up = lease_clock::now() + patience;
  for (std::size_t sent = 0; sent < request.size();) {
    pollfd writable{.fd = socket_, .events = POLLOUT, .revents = 0};
    const int left = milliseconds_until(give_up);
    if (left == 0) fail("takes no bytes");
    if (::poll(&writable, 1, left) <= 0) continue;
    const ssize_t took =
        ::send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (took < 0 && errno != EAGAIN && errno != EINTR) {
      fail(command.front() + ": cannot send: " + error_text(errno));
    }
    if (took > 0) sent += static_cast<std::size_t>(took);
  }
}

bool redis_probe::take_reply() {
  if (!ready_.empty()) return true;
  void* parsed = nullptr;
  if (::redisReaderGetReply(reader_.get(), &parsed) != REDIS_OK) fail(reader_->errstr);
  if (parsed == nullptr) return false;
  ready_.push_back(copy_of(*static_cast<redisReply*>(parsed)));
  ::freeReplyObject(parsed);
  return true;
}

bool redis_probe::read_some(lease_clock::time_point give_up) {
  for (;;) {
    pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
    const int left = milliseconds_until(give_up);
    if (::poll(&readable, 1, left) > 0) break;
    if (left == 0) return false;
  }
  std::array<char, 16'384> buffer;
  const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) fail("cannot read: " + error_text(errno));
  if (got == 0) fail("closed the connection");
  ::redisReaderFeed(reader_.get(), buffer.data(), static_cast<std::size_t>(got));
  return true;
}

bool redis_probe::readable(lease_clock::duration within) {
  const auto give_up = lease_clock::now() + within;
  while (!take_reply()) {
    if (!read_some(give_up)) return false;
  }
  return true;
}

redis_reply redis_probe::receive(lease_clock::duration within) {
  if (!readable(within)) fail("gave no answer in time");
  redis_reply reply = std::move(ready_.back());
  ready_.pop_back();
  return reply;
}

std::string redis_probe::info(std::string_view field) {
  const std::string all = "\n" + expect({"INFO", "everything"}).text;
  const std::string start = "\n" + std::string{field} + ":";
  const auto found = all.find(start);
  if (found == std::string::npos) return {};
  const auto value = found + start.size();
  return all.substr(value, all.find_first_of("\r\n", value) - value);
}

}  // namespace sallyport::kit
