#pragma once

#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "net/tls.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sallyport::net {

/// What one attempt to move bytes came to.
struct transfer {
  enum class outcome : std::uint8_t {
    moved,   ///< `bytes` of them, at least one
    again,   ///< not now: wait until the socket can be read, or written with `wants_write`
    closed,  ///< the other side has ended the stream
    failed   ///< `why` says it; the stream is of no use any more
  };

  outcome what = outcome::again;
  std::size_t bytes = 0;
  bool wants_write = false;
  /// reading: there may be more at once, without the socket being readable
  bool more = false;
  base::failure why;
};

/// One non-blocking byte stream over a connected socket, TCP or Unix, plain or TLS. Never raises
/// SIGPIPE.
/// Thread safety: one thread at a time; shut_down() and peer_has_left() from any.
class stream {
 public:
  /// Takes over a connected, non-blocking socket.
  explicit stream(base::descriptor socket) noexcept;
  ~stream();
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  /// Puts TLS on top; handshake() comes next.
  base::result<bool> encrypt(const tls_context& context, const std::string& server_name);
  /// `moved` when it is done.
  transfer handshake();

  transfer read_some(std::span<char> into);
  /// With TLS, `again` means that a part of these bytes may have left as an unfinished record; the
  /// next call must begin with the same bytes.
  transfer write_some(std::string_view bytes);

  [[nodiscard]] bool encrypted() const noexcept { return session_ != nullptr; }
  [[nodiscard]] int descriptor_number() const noexcept { return socket_.number(); }
  /// Whether the peer has ended the connection, as far as the kernel knows: what is written now
  /// would be lost. From any thread.
  [[nodiscard]] bool peer_has_left() const noexcept;
  /// Ends the stream in both directions; the descriptor stays open.
  void shut_down() const noexcept;

 private:
  struct session_deleter {
    void operator()(ssl_st* session) const noexcept;
  };
  /// What a call on the session that did not succeed means.
  transfer judge(int returned);

  base::descriptor socket_;
  std::unique_ptr<ssl_st, session_deleter> session_;
  bool healthy_ = false;  // TLS: a farewell may be said
};

}  // namespace sallyport::net
