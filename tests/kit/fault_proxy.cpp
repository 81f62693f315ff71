#include "tests/kit/fault_proxy.hpp"

#include "base/mutex.hpp"
#include "tests/kit/fault_proxy_connection.hpp"
#include "tests/kit/free_port.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <future>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace sallyport::kit {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Any kind of address.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

socket_address address_of(std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  socket_address out;
  std::memcpy(&out.bytes, &address, sizeof address);
  out.length = sizeof address;
  return out;
}

socket_address address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) throw kit_error("too long for a socket: " + text);
  text.copy(address.sun_path, text.size());
  socket_address out;
  std::memcpy(&out.bytes, &address, sizeof address);
  out.length = sizeof address;
  return out;
}

int listen_on(const socket_address& address) {
  const int listener =
      ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address.bytes), address.length) != 0 ||
      ::listen(listener, SOMAXCONN) != 0) {
    const int why = errno;
    ::close(listener);
    throw kit_error("the proxy cannot listen: " + error_text(why));
  }
  return listener;
}

/// -1 when it is refused. On a full backlog it goes on connecting, and bytes wait until it has.
int connect_to(std::uint16_t port) {
  const int connecting = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_in address = loopback(port);
  if (::connect(connecting, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
      errno == EINPROGRESS) {
    return connecting;
  }
  ::close(connecting);
  return -1;
}

void add(connection_counts& total, const connection_counts& counts) {
  total.open |= counts.open;
  total.read_from_client += counts.read_from_client;
  total.passed_to_server += counts.passed_to_server;
  total.read_from_server += counts.read_from_server;
  total.passed_to_client += counts.passed_to_client;
}

}  // namespace

/// The thread, and what only it touches: everything but the queue of tasks that others give it.
class fault_proxy::loop {
 public:
  /// Without a path it listens on a port.
  loop(std::uint16_t target_port, std::filesystem::path socket)
      : socket_(std::move(socket)),
        port_(socket_.empty() ? std::make_unique<free_port>() : nullptr),
        target_port_(target_port),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) throw kit_error("eventfd failed");
    set_all(flow::to_server, fault::pass());
    set_all(flow::to_client, fault::pass());
    listener_ = listen();
    thread_ = std::thread{[this] { run(); }};
    ::pthread_setname_np(thread_.native_handle(), "fault-proxy");
  }
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() {
    perform([this] { stopping_ = true; });
    thread_.join();
    stop_listening();
    ::close(wake_);
  }

  [[nodiscard]] std::uint16_t port() const {
    if (!port_) throw kit_error("the proxy listens on a unix socket");
    return port_->number();
  }

  /// Runs `work` on the proxy's thread and waits for it.
  void perform(std::function<void()> work) {
    std::packaged_task<void()> task{std::move(work)};
    std::future<void> done = task.get_future();
    {
      const base::mutex_lock lock{mutex_};
      tasks_.push_back(std::move(task));
    }
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
    done.get();
  }

  // What follows runs on the proxy's thread.

  void set_all(flow direction, const fault& what) {
    auto& rules = rules_[index_of(direction)];
    rules.general = std::make_shared<fault_rule>(what);
    rules.single.clear();
    for (auto& connection : connections_) connection->set(direction, rules.general);
  }

  void set_one(std::size_t number, flow direction, const fault& what) {
    auto rule = std::make_shared<fault_rule>(what);
    rules_[index_of(direction)].single[number] = rule;
    if (number <= connections_.size()) connections_[number - 1]->set(direction, std::move(rule));
  }

  void set_target(std::uint16_t port) { target_port_ = port; }

  void set_accepting(bool accepting) {
    if (accepting == (listener_ >= 0)) return;
    if (accepting) {
      listener_ = listen();
    } else {
      stop_listening();
    }
  }

  void close(std::size_t number, ending how) {
    if (number <= connections_.size()) connections_[number - 1]->end(how);
  }
  void close_all(ending how) {
    for (auto& connection : connections_) connection->end(how);
  }

  [[nodiscard]] proxy_counts counts() const {
    proxy_counts all;
    for (const auto& connection : connections_) {
      all.connections.push_back(connection->counts());
      all.cuts += connection->cuts();
      all.replies_dropped += connection->replies_dropped();
      add(all.total, all.connections.back());
      if (all.connections.back().open) ++all.open;
    }
    return all;
  }

 private:
  struct rules_of_flow {
    std::shared_ptr<fault_rule> general;
    std::map<std::size_t, std::shared_ptr<fault_rule>> single;
  };

  [[nodiscard]] int listen() const {
    return listen_on(port_ ? address_of(port_->number()) : address_of(socket_));
  }

  void stop_listening() {
    if (listener_ < 0) return;
    ::close(std::exchange(listener_, -1));
    if (!port_) ::unlink(socket_.c_str());
  }

  void run() {
    while (!stopping_) {
      std::vector<pollfd> watched{{.fd = wake_, .events = POLLIN, .revents = 0},
                                  {.fd = listener_, .events = POLLIN, .revents = 0}};
      auto next = lease_clock::now() + std::chrono::minutes{1};
      for (auto& connection : connections_) {
        connection->watch(watched);
        next = std::min(next, connection->next_due());
      }
      ::poll(watched.data(), watched.size(), milliseconds_until(next));
      // Tasks first: a fault that was set holds for all bytes that have not been read.
      run_tasks();
      if (stopping_) break;
      accept_all();
      for (auto& connection : connections_) connection->move_bytes(lease_clock::now());
    }
    close_all(ending::reset);
  }

  void run_tasks() {
    std::uint64_t ignored = 0;
    (void)!::read(wake_, &ignored, sizeof ignored);
    std::vector<std::packaged_task<void()>> todo;
    {
      const base::mutex_lock lock{mutex_};
      todo.swap(tasks_);
    }
    for (auto& task : todo) task();
  }

  void accept_all() {
    while (listener_ >= 0) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (client < 0) return;
      auto added = std::make_unique<proxied_connection>(client, connect_to(target_port_));
      const std::size_t number = connections_.size() + 1;
      for (const flow direction : {flow::to_server, flow::to_client}) {
        const auto& rules = rules_[index_of(direction)];
        const auto single = rules.single.find(number);
        added->set(direction, single == rules.single.end() ? rules.general : single->second);
      }
      connections_.push_back(std::move(added));
    }
  }

  const std::filesystem::path socket_;
  const std::unique_ptr<const free_port> port_;  // none with a socket
  std::uint16_t target_port_;
  const int wake_;  // an eventfd
  int listener_ = -1;
  bool stopping_ = false;
  rules_of_flow rules_[2];
  std::vector<std::unique_ptr<proxied_connection>> connections_;

  base::mutex mutex_;
  std::vector<std::packaged_task<void()>> tasks_ SALLYPORT_GUARDED_BY(mutex_);

  std::thread thread_;
};

fault_proxy::fault_proxy(std::uint16_t target_port)
    : fault_proxy(target_port, std::filesystem::path{}) {}

fault_proxy::fault_proxy(std::uint16_t target_port, const std::filesystem::path& socket)
    : loop_(std::make_unique<loop>(target_port, socket)) {}

fault_proxy::~fault_proxy() = default;

std::uint16_t fault_proxy::port() const { return loop_->port(); }

void fault_proxy::set(flow direction, const fault& what) {
  loop_->perform([&] { loop_->set_all(direction, what); });
}

void fault_proxy::set(std::size_t connection, flow direction, const fault& what) {
  if (connection == 0) throw kit_error("connections are counted from 1");
  loop_->perform([&] { loop_->set_one(connection, direction, what); });
}

void fault_proxy::heal() {
  loop_->perform([&] {
    loop_->set_all(flow::to_server, fault::pass());
    loop_->set_all(flow::to_client, fault::pass());
  });
}

void fault_proxy::set_target(std::uint16_t target_port) {
  loop_->perform([&] { loop_->set_target(target_port); });
}

void fault_proxy::refuse_connections() {
  loop_->perform([&] { loop_->set_accepting(false); });
}

void fault_proxy::accept_connections() {
  loop_->perform([&] { loop_->set_accepting(true); });
}

void fault_proxy::close_all(ending how) {
  loop_->perform([&] { loop_->close_all(how); });
}

void fault_proxy::close(std::size_t connection, ending how) {
  if (connection == 0) throw kit_error("connections are counted from 1");
  loop_->perform([&] { loop_->close(connection, how); });
}

proxy_counts fault_proxy::counts() const {
  proxy_counts counts;
  loop_->perform([&] { counts = loop_->counts(); });
  return counts;
}

bool fault_proxy::wait_for(const std::function<bool(const proxy_counts&)>& wanted,
                           lease_clock::duration within) const {
  return eventually([&] { return wanted(counts()); }, within);
}

}  // namespace sallyport::kit
