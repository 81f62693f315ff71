#pragma once

#include "backend_api/requests.hpp"
#include "backends/memcached/server_facts.hpp"
#include "backends/memcached/wire.hpp"
#include "backends/pipeline/link.hpp"
#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/pump.hpp"
#include "net/tls.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::memcached {

using backend_api::duration;
using backend_api::time_point;

/// Where a server is and how to log in.
struct link_settings {
  net::endpoint where = {};
  net::tls_settings tls = {};
  std::string user = {};
  std::string password = {};  ///< empty: no login. Never in a message.
  duration connect_timeout{};
};

/// A link to a memcached server: logs in, asks who the server is, and cuts what comes into lines.
class link final : public pipeline::link {
 public:
  using heard = answer_line;

  class user : public pipeline::link::user {
   public:
    /// What the server says of itself. A failure ends the attempt: a server that can't keep locks.
    virtual base::result<std::monostate> link_greeted(const server_facts& said) = 0;
  };

  /// Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<link>> make(std::shared_ptr<net::pump> engine,
                                                  link_settings how, std::weak_ptr<user> whose);
  /// Use make().
  link(std::shared_ptr<net::pump> engine, link_settings how,
       std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose);

  /// Appends the lines that have come. True: there may be more at once. The failure is the end of
  /// the connection: pass it to fail(). REQUIRES: between link_up() and link_down().
  base::result<bool> read(std::vector<answer_line>& into) { return read_with(*reader_, into); }

 private:
  enum class greeting_state : std::uint8_t { partial, whole, refused };

  [[nodiscard]] std::string greeting() override;
  [[nodiscard]] base::result<bool> hear_greeting() override;
  /// Whether all that was asked has been answered; or what the server says against us.
  [[nodiscard]] greeting_state look_at_greeting(std::string& objection) const;
  [[nodiscard]] base::result<bool> judge_greeting();
  /// What became of an attempt, by what the server said.
  [[nodiscard]] base::failure refusal(const std::string& said);

  const link_settings settings_;
  const std::weak_ptr<user> user_;

  // The pump's thread only.
  std::optional<line_reader> reader_;
  std::vector<answer_line> said_;  // in answer to the greeting
};

}  // namespace sallyport::backends::memcached
