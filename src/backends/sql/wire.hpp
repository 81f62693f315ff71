#pragma once

#include "backends/sql/statement.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::sql {

/// One connection of a server's own client library. It never blocks.
///
/// Life: dial() until it is there; then say() one text after the other and hear() its answer; from
/// begin_calls() on send() and receive(), in order.
/// Thread safety: none.
class wire {
 public:
  wire() = default;
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;
  virtual ~wire() = default;

  enum class wants : std::uint8_t { input, output, nothing };

  /// What to wait for before it is called again; nothing: it is connected. A failure is
  /// `unavailable`, or `store_refused`: what waiting does not mend.
  [[nodiscard]] virtual base::result<wants> dial() = 0;
  [[nodiscard]] virtual int descriptor() const noexcept = 0;
  /// The server's number of this connection.
  [[nodiscard]] virtual int server_process() const noexcept = 0;

  /// Before begin_calls(): statements without parameters, and the answer to them: the rows of the
  /// last one, or the first error. Nothing: not yet.
  virtual base::result<std::monostate> say(const std::string& text) = 0;
  virtual base::result<std::optional<reply>> hear() = 0;
  virtual base::result<std::monostate> begin_calls() = 0;

  /// Takes a call to be sent, with an end of its transaction behind it. `named`: the statement may be
  /// prepared, once.
  virtual base::result<std::monostate> send(const call& what, bool named) = 0;
  /// Writes what has to be written; true: all of it is gone.
  virtual base::result<bool> flush() = 0;
  /// Reads what has come, and appends the replies of transactions that have ended. What has come
  /// before a failure is there, too.
  virtual base::result<std::monostate> receive(std::vector<reply>& replies) = 0;

  /// Whether receive() has something to give although the descriptor need not say so: some libraries read
  /// when they send.
  [[nodiscard]] virtual bool has_replies() const noexcept { return false; }

  struct notification {
    std::string channel;
    std::string payload;
  };
  virtual void take_notifications(std::vector<notification>& into) = 0;

  /// Whether the server has ended the connection, as far as the kernel knows.
  [[nodiscard]] virtual bool peer_has_left() const noexcept = 0;
};

/// One attempt to find the server, and to make a wire that can dial it, without blocking.
/// Thread safety: none.
class search {
 public:
  search() = default;
  search(const search&) = delete;
  search& operator=(const search&) = delete;
  virtual ~search() = default;

  /// Nothing: not yet. Fails with `unavailable` when no host has an address.
  [[nodiscard]] virtual std::optional<base::result<std::unique_ptr<wire>>> poll() = 0;
};

}  // namespace sallyport::backends::sql
