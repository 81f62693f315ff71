#pragma once

#include "backend_api/requests.hpp"
#include "backends/pipeline/link.hpp"
#include "backends/redis/reply.hpp"
#include "backends/redis/resp.hpp"
#include "backends/redis/wire.hpp"
#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/pump.hpp"
#include "net/tls.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

using backend_api::duration;
using backend_api::time_point;

/// Where a server is and how to log in.
struct link_settings {
  net::endpoint where = {};
  net::tls_settings tls = {};
  std::string user = {};      ///< empty: the default user
  std::string password = {};  ///< empty: no AUTH of the default user. Never in a message.
  std::string client_name = {};
  int database = 0;
  duration connect_timeout{};
};

/// A link to a Redis server: logs in, lets its user greet, and cuts what comes into replies.
class link final : public pipeline::link {
 public:
  using heard = reply;

  class user : public pipeline::link::user {
   public:
    /// Said after logging in; each is answered by one reply.
    virtual std::vector<wire_command> link_greeting() = 0;
    /// Asked once, when all that was answered: what is to be said besides, with scripts in full.
    virtual std::vector<wire_command> link_greeting_goes_on(const std::vector<reply>& /*said*/) {
      return {};
    }
    /// A failure ends the attempt: a replica where a master was expected, say.
    virtual base::result<std::monostate> link_greeted(const std::vector<reply>& said) = 0;
  };

  /// Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<link>> make(std::shared_ptr<net::pump> engine,
                                                  link_settings how, std::weak_ptr<user> whose);
  /// Use make().
  link(std::shared_ptr<net::pump> engine, link_settings how,
       std::shared_ptr<const net::tls_context> tls, std::weak_ptr<user> whose);

  /// Appends the replies that have come. True: there may be more at once. The failure is the end of
  /// the connection: pass it to fail(). REQUIRES: between link_up() and link_down().
  base::result<bool> read(std::vector<reply>& into) { return read_with(*reader_, into); }

 private:
  [[nodiscard]] std::string greeting() override;
  [[nodiscard]] base::result<bool> hear_greeting() override;
  /// True: there is more to be said.
  [[nodiscard]] bool go_on();
  [[nodiscard]] base::result<std::monostate> judge_greeting();
  /// What became of an attempt, by what the server said.
  [[nodiscard]] base::failure refusal(const std::string& what, const reply& said,
                                      std::string_view remedy);

  const link_settings settings_;
  const std::weak_ptr<user> user_;

  // The pump's thread only.
  std::optional<reply_reader> reader_;
  std::vector<reply> said_;  // in answer to the greeting
  std::size_t prelude_count_ = 0;
  std::size_t expected_ = 0;
  bool gone_on_ = false;
};

}  // namespace sallyport::backends::redis
