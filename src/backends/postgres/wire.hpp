#pragma once

#include "backends/postgres/statement.hpp"
#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::postgres {

/// What libpq connects with: keywords and values. May hold a password: never log it.
using wire_parameters = std::vector<std::pair<std::string, std::string>>;

/// What an address means to libpq. Fails with bad_uri, in words without secrets.
[[nodiscard]] base::result<wire_parameters> wire_parameters_of(const std::string& uri);

/// One connection of libpq, which is seen nowhere else. It never blocks, but for looking up
/// hosts whose addresses it was not given (lookup.hpp).
///
/// Life: dial() until it is there; then say() one text after the other and hear() its answer; from
/// begin_pipeline() on send() and receive(), in order.
/// Thread safety: none.
class wire {
 public:
  explicit wire(const wire_parameters& where);
  ~wire();
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;

  enum class wants : std::uint8_t { input, output, nothing };

  /// What to wait for before it is called again; nothing: it is connected. A failure is
  /// `unavailable`, or `store_refused`: what waiting does not mend.
  [[nodiscard]] base::result<wants> dial();
  [[nodiscard]] int descriptor() const noexcept;
  /// The server's process, as told at the beginning; a pooler makes it up.
  [[nodiscard]] int server_process() const noexcept;

  /// Before begin_pipeline(): statements without parameters, and the answer to them: the rows of the
  /// last one, or the first error. Nothing: not yet.
  base::result<std::monostate> say(const std::string& text);
  base::result<std::optional<reply>> hear();
  base::result<std::monostate> begin_pipeline();

  /// Puts a call into the buffer, with an end of its transaction behind it. `named`: the statement is
  /// prepared, once.
  base::result<std::monostate> send(const call& what, bool named);
  /// Writes what is in the buffer; true: all of it is gone.
  base::result<bool> flush();
  /// Reads what has come, and appends the replies of transactions that have ended. What has come
  /// before a failure is there, too.
  base::result<std::monostate> receive(std::vector<reply>& replies);

  struct notification {
    std::string channel;
    std::string payload;
  };
  void take_notifications(std::vector<notification>& into);

  /// Whether the server has ended the connection, as far as the kernel knows.
  [[nodiscard]] bool peer_has_left() const noexcept;

 private:
  struct handle;

  [[nodiscard]] base::failure trouble() const;

  std::unique_ptr<handle> handle_;
  std::set<const statement*> prepared_;
  std::optional<reply> half_;  // of a transaction whose end has not come
  // Transactions sent, whose end has not come: the statement that each prepares, if any.
  std::deque<const statement*> unended_;
  std::string last_words_;  // of a server that ended the connection
};

}  // namespace sallyport::backends::postgres
