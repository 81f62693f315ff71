#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "tests/kit/memcached_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <arpa/inet.h>
#include <array>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

/// A lock on memcached beside what people write without it: `add`, and `delete`.
namespace sallyport::bench {
namespace {

constexpr double memcached_bar = 1 / 0.8;

/// A blocking socket, and nothing between the caller and the server.
class raw_socket {
 public:
  explicit raw_socket(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int yes = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) {
      throw std::runtime_error("memcached can't be reached");
    }
  }
  raw_socket(const raw_socket&) = delete;
  raw_socket& operator=(const raw_socket&) = delete;
  ~raw_socket() { ::close(socket_); }

  /// The answer, which is good until the next question.
  std::string_view ask(std::string_view words) {
    if (::send(socket_, words.data(), words.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(words.size())) {
      throw std::runtime_error("memcached does not listen");
    }
    const ssize_t got = ::recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) throw std::runtime_error("memcached is gone");
    return {buffer_.data(), static_cast<std::size_t>(got)};
  }
  void ask(std::string_view words, std::string_view expected) {
    if (ask(words) != expected) throw std::runtime_error("memcached said something else");
  }

 private:
  int socket_;
  std::array<char, 1024> buffer_{};
};

double raw_memcached_pair(seconds time) {
  const kit::memcached_server server;
  raw_socket raw(server.port());
  const std::string id(100, 'x');  // about what a holder says of itself
  const std::string add = "add bench 0 32 " + std::to_string(id.size()) + "\r\n" + id + "\r\n";
  return nanoseconds_per_call(time,
                              [&] {
                                raw.ask(add, "STORED\r\n");
                                raw.ask("delete bench\r\n", "DELETED\r\n");
                              }) /
         1e3;
}

/// What the mutex says, without the mutex.
double same_words_pair(seconds time) {
  const kit::memcached_server server;
  raw_socket raw(server.port());
  const std::string id(100, 'x');
  const std::string add =
      "add bench 0 32 " + std::to_string(id.size()) + "\r\n" + id + "\r\nmg bench c t v u O1\r\n";
  return nanoseconds_per_call(
             time,
             [&] {
               const std::string_view said = raw.ask(add);
               const auto cas = said.find(" c") + 2;
               raw.ask("mg bench h u\r\nmd bench C" +
                           std::string(said.substr(cas, said.find(' ', cas) - cas)) + " O2\r\n",
                       "HD h0\r\nHD O2\r\n");
             }) /
         1e3;
}

double memcached_mutex_pair(seconds time) {
  const kit::memcached_server server;
  mutex lock{client::open(server.address()), "bench"};
  const auto pair = [&lock] {
    lease held = lock.acquire();
    if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
  };
  pair();
  return nanoseconds_per_call(time, pair) / 1e3;
}

program memcached_row(std::string id, std::string title, std::string limit, bar wanted,
                      double (*measure)(seconds)) {
  return {.id = std::move(id),
          .group = "memcached: one thread, nobody else wants the lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "acquire and release", .unit = "us", .wanted = wanted}},
          .measure = [measure](const measure_settings& how) {
            return std::vector<double>{measure(how.time)};
          }};
}

}  // namespace

std::vector<program> memcached_programs() {
  return {memcached_row("memcached-1/add", "a socket: add, delete", "", {}, &raw_memcached_pair),
          memcached_row("memcached-1/words", "a socket: what the mutex says", "memcached-1/add", {},
                        &same_words_pair),
          memcached_row("memcached-1/mutex", "sallyport::mutex acquire(), release()",
                        "memcached-1/add", times_limit(memcached_bar), &memcached_mutex_pair)};
}

}  // namespace sallyport::bench
