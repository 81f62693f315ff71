#include "tests/kit/memcached_server.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr const char* memcached_program = SALLYPORT_MEMCACHED_PROGRAM;

int connected(int family, const sockaddr* where, socklen_t size) {
  const int made = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0 || ::connect(made, where, size) != 0) {
    const int error = errno;
    if (made >= 0) ::close(made);
    throw kit_error("memcached can't be reached: " + error_text(error));
  }
  return made;
}

}  // namespace

memcached_probe::memcached_probe(std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socket_ = connected(AF_INET, reinterpret_cast<const sockaddr*>(&where), sizeof where);
}

memcached_probe::memcached_probe(const std::string& unix_path) {
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  if (unix_path.size() >= sizeof where.sun_path) throw kit_error("a path that is too long");
  std::memcpy(where.sun_path, unix_path.data(), unix_path.size());
  socket_ = connected(AF_UNIX, reinterpret_cast<const sockaddr*>(&where), sizeof where);
}

memcached_probe::~memcached_probe() { ::close(socket_); }

std::string memcached_probe::line() {
  const auto until = lease_clock::now() + within_;
  for (;;) {
    // The crawler ends its lines in its own way.
    const auto end = rest_.find('\n');
    if (end != std::string::npos) {
      std::string found = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      if (found.ends_with('\r')) found.pop_back();
      return found;
    }
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, milliseconds_until(until)) <= 0) throw kit_error("memcached is silent");
    std::array<char, 16384> buffer{};
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (got <= 0) throw kit_error("memcached ended the connection");
    rest_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::string memcached_probe::ask(std::string_view words) {
  const std::string all = std::string(words) + "\r\n";
  std::size_t sent = 0;
  while (sent < all.size()) {
    const ssize_t step = ::send(socket_, all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
    if (step <= 0) throw kit_error("memcached does not listen");
    sent += static_cast<std::size_t>(step);
  }
  return line();
}

std::vector<std::string> memcached_probe::lines_until_end(std::string_view words) {
  std::vector<std::string> all;
  for (std::string next = ask(words); next != "END"; next = line()) all.push_back(std::move(next));
  return all;
}

memcached_server::memcached_server(memcached_options options) : options_(std::move(options)) {
  // The server runs as another user.
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  start();
}

memcached_server::~memcached_server() = default;

void memcached_server::start() {
  if (process_ && process_->running()) throw kit_error("memcached runs already");
  std::vector<std::string> arguments{"-U", "0", "-t", "2"};
  if (::geteuid() == 0) arguments.insert(arguments.end(), {"-u", "nobody"});
  if (options_.unix_socket) {
    std::error_code ignored;
    std::filesystem::remove(unix_path(), ignored);
    arguments.insert(arguments.end(), {"-s", unix_path(), "-a", "777"});
  } else {
    const std::string port_text = std::to_string(port());
    std::string where = "127.0.0.1:" + port_text;
    if (options_.tls) {
      where += ",notls:127.0.0.1:" + std::to_string(probe_port_.number());
      arguments.insert(arguments.end(), {"-Z", "-o",
                                         "ssl_chain_cert=" + options_.tls->certificate.string() +
                                             ",ssl_key=" + options_.tls->key.string() +
                                             ",ssl_ca_cert=" + options_.tls->authority.string() +
                                             ",ssl_verify_mode=2"});
    }
    arguments.insert(arguments.end(), {"-p", port_text, "-l", where});
  }
  if (!options_.login.empty()) {
    const auto file = folder_.path() / "logins";
    std::ofstream(file) << options_.login << "\n";
    arguments.insert(arguments.end(), {"-Y", file.string()});
  }
  arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
  process_ = std::make_unique<child_process>(child_options{.program = memcached_program,
                                                           .called_as = "memcached",
                                                           .arguments = std::move(arguments),
                                                           .environment = {},
                                                           .folder = folder_.path(),
                                                           .log = folder_.path() / "log",
                                                           .run_as = {}});
  const bool answers = eventually([&] {
    if (!process_->running()) return true;  // no use in waiting on
    return probe()->ask("version").starts_with("VERSION");
  });
  if (!answers || !process_->running()) {
    throw kit_error("memcached does not answer\n" + process_->log_tail());
  }
}

void memcached_server::kill() { process_->kill(); }

void memcached_server::pause() { process_->pause(); }

void memcached_server::resume() { process_->resume(); }

std::string memcached_server::address() const {
  if (options_.unix_socket) return "memcached+unix://" + unix_path();
  return (options_.tls ? "memcacheds://localhost:" : "memcached://127.0.0.1:") +
         std::to_string(port());
}

std::unique_ptr<memcached_probe> memcached_server::probe() const {
  auto made = options_.unix_socket
                  ? std::make_unique<memcached_probe>(unix_path())
                  : std::make_unique<memcached_probe>(options_.tls ? probe_port_.number() : port());
  if (!options_.login.empty()) {
    std::string login = options_.login;
    std::replace(login.begin(), login.end(), ':', ' ');
    if (made->ask("set login 0 0 " + std::to_string(login.size()) + "\r\n" + login) != "STORED") {
      throw kit_error("memcached refuses the login");
    }
  }
  return made;
}

std::vector<std::string> memcached_server::walk() const {
  const auto from = probe();
  std::vector<std::string> all;
  for (std::string line = from->ask("lru_crawler metadump all"); line != "END";
       line = from->line()) {
    // The crawler walks by itself, too, and says BUSY then.
    if (!line.starts_with("key=")) throw kit_error("memcached says '" + line + "'");
    // Keys are percent-encoded there.
    all.push_back(line.substr(4, line.find(' ') - 4));
  }
  return all;
}

std::vector<std::string> memcached_server::keys() const {
  std::vector<std::string> all;
  if (!eventually([&] {
        all = walk();
        return true;
      })) {
    throw kit_error("memcached does not tell its keys");
  }
  return all;
}

std::uint64_t memcached_server::stat(std::string_view name) const {
  const std::string wanted = "STAT " + std::string(name) + " ";
  for (const std::string& each : probe()->lines_until_end("stats")) {
    if (!each.starts_with(wanted)) continue;
    std::uint64_t value = 0;
    std::from_chars(each.data() + wanted.size(), each.data() + each.size(), value);
    return value;
  }
  throw kit_error("memcached has no count of " + std::string(name));
}

}  // namespace sallyport::kit
