#pragma once

#include "tests/kit/waiting.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sallyport::kit {

/// The two directions of a connection.
enum class flow { to_server, to_client };

/// How a connection ends for both of its sides. `silence` is no end: the connection stays open, and
/// nothing passes in that direction any more.
enum class ending { reset, finish, silence };

/// What happens to the bytes of a flow.
struct fault {
  enum class kind { pass, delay, hold, silence, cut_after, drop_reply };
  static constexpr std::uint32_t always = std::numeric_limits<std::uint32_t>::max();

  kind is = kind::pass;
  std::chrono::milliseconds by{0};  // delay
  std::uint64_t bytes = 0;          // cut_after
  ending then = ending::reset;      // cut_after and drop_reply
  std::string request = {};         // drop_reply
  std::uint32_t times = 1;          // cut_after and drop_reply: after that many, pass

  static fault pass() { return {}; }
  /// Everything arrives, in order, that much later.
  static fault delay(std::chrono::milliseconds by) { return {.is = kind::delay, .by = by}; }
  /// A partition that heals: nothing arrives until another fault is set, and then all of it does.
  static fault hold() { return {.is = kind::hold}; }
  /// Bytes are taken and never arrive. The stream has a hole from then on: end the connection.
  static fault silence() { return {.is = kind::silence}; }
  /// Exactly `bytes` bytes arrive, counted from when the fault is set or the connection begins,
  /// then the connection ends; with 0 it ends at once.
  static fault cut_after(std::uint64_t bytes, ending then = ending::reset) {
    return {.is = kind::cut_after, .bytes = bytes, .then = then};
  }
  /// For flow::to_client: the request reaches the server, and once the server answers, the answer
  /// is lost and the connection ends. With `request`, only an answer that comes after a request
  /// that holds this text; answers before it pass.
  static fault drop_reply(ending then = ending::reset, std::string request = {}) {
    return {.is = kind::drop_reply, .then = then, .request = std::move(request)};
  }
  [[nodiscard]] fault repeated(std::uint32_t count) const {
    fault copy = *this;
    copy.times = count;
    return copy;
  }
};

struct connection_counts {
  bool open = false;
  /// Bytes that the proxy has read, and those that it has passed on.
  std::uint64_t read_from_client = 0;
  std::uint64_t passed_to_server = 0;
  std::uint64_t read_from_server = 0;
  std::uint64_t passed_to_client = 0;
};

struct proxy_counts {
  std::size_t open = 0;
  std::size_t cuts = 0;                        // by cut_after
  std::size_t replies_dropped = 0;             // by drop_reply
  connection_counts total;                     // `open`: whether any is
  std::vector<connection_counts> connections;  // in order of acceptance, with those that ended
};

/// Stands between a client and a server, on a port of 127.0.0.1 and a thread of its own, and does
/// to their bytes what a network may do. When a call has returned, its effect is there; bytes that
/// the proxy has not read by then meet the new fault. Knows nothing of the protocol, so TLS passes.
/// Thread safety: all members, from any thread but the proxy's own.
class fault_proxy {
 public:
  explicit fault_proxy(std::uint16_t target_port);
  /// Listens on a unix socket of that path instead of a port of its own. Whoever looks for it below
  /// its own working folder may find another proxy there than its neighbour does.
  fault_proxy(std::uint16_t target_port, const std::filesystem::path& socket);
  fault_proxy(const fault_proxy&) = delete;
  fault_proxy& operator=(const fault_proxy&) = delete;
  /// Resets what is open.
  ~fault_proxy();

  /// REQUIRES: it does not listen on a unix socket.
  [[nodiscard]] std::uint16_t port() const;

  /// For all connections, those that are open and those to come; replaces what was set before, also
  /// for single ones. `times` counts over all connections.
  void set(flow direction, const fault& what);
  /// For the connection of that number, from 1 in order of acceptance; it may be yet to come.
  void set(std::size_t connection, flow direction, const fault& what);
  /// Both flows of all connections pass.
  void heal();
  /// New connections go there.
  void set_target(std::uint16_t target_port);

  /// New connections are refused, as by a port on which nobody listens, or accepted again.
  void refuse_connections();
  void accept_connections();
  void close_all(ending how = ending::reset);
  void close(std::size_t connection, ending how = ending::reset);

  [[nodiscard]] proxy_counts counts() const;
  /// Waits until the counts are as wanted; false when `within` has passed.
  [[nodiscard]] bool wait_for(const std::function<bool(const proxy_counts&)>& wanted,
                              lease_clock::duration within = patience) const;

 private:
  class loop;
  std::unique_ptr<loop> loop_;
};

}  // namespace sallyport::kit
