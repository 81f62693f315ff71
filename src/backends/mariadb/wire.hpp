#pragma once

#include "backends/mariadb/address.hpp"
#include "backends/sql/wire.hpp"
#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::mariadb {

using sql::call;
using sql::reply;

/// One connection of libmariadb, which is seen nowhere else, through its calls that do not block. Only
/// what libmariadb has to look up itself blocks: a host whose certificate is checked, because it takes
/// the name for that from where it connects to, and one of an option file.
///
/// One statement is under way at a time, and all that it answers is taken: a CALL gives its rows and
/// then its end, and only that counts. After an error what may be open of its transaction is rolled
/// back before the reply is told: a statement that is killed inside a procedure passes by its handlers.
/// Thread safety: none. It may be used by one thread after the other.
class wire final : public sql::wire {
 public:
  /// `host`: an address in digits, or a name for libmariadb to look up. `label`: what the server's
  /// administrators see.
  wire(const address& where, std::string host, const std::string& label);
  ~wire() override;
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;

  [[nodiscard]] base::result<wants> dial() override;
  [[nodiscard]] int descriptor() const noexcept override;
  [[nodiscard]] int server_process() const noexcept override;
  base::result<std::monostate> say(const std::string& text) override;
  base::result<std::optional<reply>> hear() override;
  base::result<std::monostate> begin_calls() override { return std::monostate{}; }
  /// REQUIRES: nothing is under way.
  base::result<std::monostate> send(const call& what, bool named) override;
  base::result<bool> flush() override;
  base::result<std::monostate> receive(std::vector<reply>& replies) override;
  [[nodiscard]] bool has_replies() const noexcept override {
    return step_ == step::nothing && said_.has_value();
  }
  void take_notifications(std::vector<notification>& /*into*/) override {}
  [[nodiscard]] bool peer_has_left() const noexcept override;

 private:
  struct handle;
  enum class step : std::uint8_t { nothing, connecting, asking, storing, advancing };

  void begin(std::string text);
  /// Goes on with what is under way, as far as it goes.
  void go_on();
  /// Calls the library once more for the step under way; what it waits for, zero: it is done.
  int resume(int events);
  /// A step is done: begins the next one, if there is one.
  int next_step();
  void finish();
  [[nodiscard]] int start_storing();
  void keep_error();
  [[nodiscard]] base::failure trouble() const;

  const address where_;
  const std::string host_;
  std::unique_ptr<handle> handle_;
  step step_ = step::nothing;
  int waits_for_ = 0;  // what the step under way waits for
  std::string text_;   // of the statement under way; the library does not copy it
  reply half_;         // of the statement under way
  bool cleaning_up_ = false;
  std::optional<reply> said_;
  std::optional<base::failure> broken_;
};

/// Looks the host up, and makes the wire that dials it. `turn`: counts attempts; each tries the next
/// address of the host.
[[nodiscard]] std::unique_ptr<sql::search> search_for(const address& where,
                                                      const std::string& label, std::size_t turn);

}  // namespace sallyport::backends::mariadb
