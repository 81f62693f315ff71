#pragma once

#include "tests/kit/fault_proxy.hpp"

#include <array>
#include <deque>
#include <optional>
#include <poll.h>
#include <string_view>

/// Inside of fault_proxy: one connection of it. Thread safety: none; the proxy's thread only.
namespace sallyport::kit {

constexpr std::size_t index_of(flow direction) { return direction == flow::to_server ? 0 : 1; }

/// A fault that was set, shared by all flows that it was set for: they use it up together.
class fault_rule {
 public:
  explicit fault_rule(fault what) : what_(std::move(what)), left_(what_.times) {}
  /// The fault; pass when it is used up.
  [[nodiscard]] const fault& now() const noexcept { return left_ > 0 ? what_ : used_up_; }
  void use() noexcept {
    if (left_ != fault::always && left_ > 0) --left_;
  }

 private:
  const fault what_;
  const fault used_up_;
  std::uint32_t left_;
};

class proxied_connection {
 public:
  /// Takes over the sockets. `server` may be -1: the target refused, and so does the connection.
  proxied_connection(int client, int server);
  proxied_connection(const proxied_connection&) = delete;
  proxied_connection& operator=(const proxied_connection&) = delete;
  ~proxied_connection();

  void set(flow direction, std::shared_ptr<fault_rule> rule);
  void end(ending how);

  /// Adds what poll(2) shall look at.
  void watch(std::vector<pollfd>& watched) const;
  /// When the next delayed bytes are to go.
  [[nodiscard]] lease_clock::time_point next_due() const;
  /// Reads and writes what can be read and written.
  void move_bytes(lease_clock::time_point now);

  [[nodiscard]] connection_counts counts() const;
  [[nodiscard]] std::size_t cuts() const noexcept { return cuts_; }
  [[nodiscard]] std::size_t replies_dropped() const noexcept { return replies_dropped_; }

 private:
  enum class state { open, finishing, closed };

  struct chunk {
    lease_clock::time_point due;
    std::string bytes;
    std::optional<ending> last = {};  // after it, nothing comes
  };

  struct half {
    std::shared_ptr<fault_rule> rule;
    std::uint64_t since = 0;   // bytes read since the rule was set
    bool requested = false;    // drop_reply: the request has passed
    std::string request_tail;  // the end of what passed, for a text in two pieces
    bool source_ended = false;
    bool mute = false;  // silence for good
    bool full = false;  // the other side takes no more for now
    std::deque<chunk> queue;
    std::size_t queued = 0;
    std::uint64_t read = 0;
    std::uint64_t passed = 0;
  };

  [[nodiscard]] int source(flow direction) const;
  [[nodiscard]] int target(flow direction) const;
  [[nodiscard]] bool wants_to_read(const half& one) const;
  void read_from(flow direction, lease_clock::time_point now);
  void take(flow direction, std::string_view bytes, lease_clock::time_point now);
  void take_last(half& one, ending how, lease_clock::time_point now);
  void note_request(std::string_view bytes);
  void cut_if_due(flow direction);
  void pass_on(flow direction, lease_clock::time_point now);
  void discard();
  void stop(flow direction, ending how);
  void close_sockets(bool reset);

  state state_ = state::open;
  std::array<int, 2> sockets_;  // client, server
  std::array<half, 2> halves_;  // by index_of
  std::size_t cuts_ = 0;
  std::size_t replies_dropped_ = 0;
};

}  // namespace sallyport::kit
