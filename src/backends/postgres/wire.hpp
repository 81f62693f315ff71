#pragma once

#include "backends/sql/wire.hpp"
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

using sql::call;
using sql::parameter;
using sql::reply;
using sql::statement;

/// What libpq connects with: keywords and values. May hold a password: never log it.
using wire_parameters = std::vector<std::pair<std::string, std::string>>;

/// What an address means to libpq. Fails with bad_uri, in words without secrets.
[[nodiscard]] base::result<wire_parameters> wire_parameters_of(const std::string& uri);

/// One connection of libpq, which is seen nowhere else. It never blocks, but for looking up
/// hosts whose addresses it was not given (lookup.hpp).
/// Thread safety: none.
class wire final : public sql::wire {
 public:
  explicit wire(const wire_parameters& where);
  ~wire() override;
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;

  [[nodiscard]] base::result<wants> dial() override;
  [[nodiscard]] int descriptor() const noexcept override;
  /// The server's process, as told at the beginning; a pooler makes it up.
  [[nodiscard]] int server_process() const noexcept override;
  base::result<std::monostate> say(const std::string& text) override;
  base::result<std::optional<reply>> hear() override;
  base::result<std::monostate> begin_calls() override;
  base::result<std::monostate> send(const call& what, bool named) override;
  base::result<bool> flush() override;
  base::result<std::monostate> receive(std::vector<reply>& replies) override;
  void take_notifications(std::vector<notification>& into) override;
  [[nodiscard]] bool peer_has_left() const noexcept override;

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
