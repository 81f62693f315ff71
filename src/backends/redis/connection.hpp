#pragma once

#include "backend_api/holder_id.hpp"
#include "backend_api/requests.hpp"
#include "backends/pipeline/connection.hpp"
#include "backends/pipeline/exchange.hpp"
#include "backends/redis/link.hpp"
#include "backends/redis/reply.hpp"
#include "backends/redis/wire.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sallyport::backends::redis {

/// One command and who waits for its reply.
class exchange : public pipeline::exchange<wire_command, reply> {
 public:
  /// True: the server says that nothing was done and that it is to be sent again at once.
  [[nodiscard]] virtual bool again(const reply& /*said*/) const { return false; }

  /// Commands of one key take effect in the order in which they were sent; zero: none.
  backend_api::holder_id order_key;
};

/// Told on the pump's thread, without a mutex.
class connection_owner {
 public:
  connection_owner() = default;
  connection_owner(const connection_owner&) = delete;
  connection_owner& operator=(const connection_owner&) = delete;
  virtual ~connection_owner() = default;

  /// Said after logging in and before everything else, scripts by their names; each has one reply.
  virtual std::vector<wire_command> greeting() = 0;
  /// Said when all that was answered, scripts in full; the replies follow the others.
  virtual std::vector<wire_command> greeting_goes_on(const std::vector<reply>& /*said*/) {
    return {};
  }
  /// A failure ends the attempt ("this is a replica"); those who wait are answered with it.
  virtual base::result<std::monostate> greeted(const std::vector<reply>& said) = 0;
  /// Before anything is sent over it.
  virtual void connected() = 0;
  /// The connection was lost, or an attempt failed. The next attempt follows by itself.
  virtual void disconnected(const base::failure& why) = 0;
};

/// What is remembered of a command under way.
struct command_trace {
  backend_api::holder_id order_key;
  const script_source* script = nullptr;
  script_form form = script_form::by_name;
};

using command_pipeline = pipeline::connection<link, exchange, connection_owner, command_trace>;

/// The connection that carries commands; see pipeline::connection.
///
/// A command that is `asking` follows an ASKING of its own, whose reply nobody sees.
///
/// A script that the server does not know (NOSCRIPT) is sent again in full at once, and so is a
/// command that is to be sent again(), until its answer_by. If a later command of the same order_key
/// is under way already, it is answered `unavailable` instead.
///
/// A server that says that it has become a replica (READONLY, MASTERDOWN) is left: the next
/// connection may lead to the new master, when the address is a name that follows it.
class connection final : public command_pipeline {
 public:
  struct settings {
    net::endpoint where = {};
    net::tls_settings tls = {};
    std::string user = {};
    std::string password = {};
    std::string client_name = {};
    int database = 0;
    duration connect_timeout = std::chrono::seconds{2};
    /// What may wait for a connection or for the peer to read; more is answered `unavailable`.
    std::size_t max_waiting_bytes = 8UL * 1024 * 1024;
    /// Commands sent and not replied to; further ones wait.
    std::size_t max_in_flight = 16'384;

    /// `what_for` is added to the client's name.
    static settings of(const link_settings& login, std::string_view what_for = {}) {
      return {.where = login.where,
              .tls = login.tls,
              .user = login.user,
              .password = login.password,
              .client_name = login.client_name + std::string(what_for),
              .database = login.database,
              .connect_timeout = login.connect_timeout};
    }
  };

  /// Opens nothing yet: the first send() does. Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<connection>> make(std::shared_ptr<net::pump> engine,
                                                        settings how, std::weak_ptr<owner> whose);
  /// Use make().
  connection(const settings& how, std::weak_ptr<owner> whose);

  // link::user
  std::vector<wire_command> link_greeting() override;
  std::vector<wire_command> link_greeting_goes_on(const std::vector<reply>& said) override;
  base::result<std::monostate> link_greeted(const std::vector<reply>& said) override;

 private:
  void put_in_flight(std::unique_ptr<exchange> what) override SALLYPORT_REQUIRES(mutex_);
  void put_in_flight(std::unique_ptr<exchange> what, script_form form) SALLYPORT_REQUIRES(mutex_);
  base::result<std::monostate> match(std::vector<reply>& said) override SALLYPORT_REQUIRES(mutex_);
  void heal(std::unique_ptr<exchange> what) SALLYPORT_REQUIRES(mutex_);
  void repeat(std::unique_ptr<exchange> what) SALLYPORT_REQUIRES(mutex_);
  /// A later command of the same order is under way, or there is no connection any more.
  [[nodiscard]] bool too_late_for(const exchange& what) SALLYPORT_REQUIRES(mutex_);
};

/// Says nothing and takes everybody: for servers that are only asked where others are.
class quiet_owner final : public connection::owner {
 public:
  std::vector<wire_command> greeting() override { return {}; }
  base::result<std::monostate> greeted(const std::vector<reply>& /*said*/) override {
    return std::monostate{};
  }
  void connected() override {}
  void disconnected(const base::failure& /*why*/) override {}
};

}  // namespace sallyport::backends::redis

// Made in connection.cpp.
extern template class sallyport::backends::pipeline::connection<
    sallyport::backends::redis::link, sallyport::backends::redis::exchange,
    sallyport::backends::redis::connection_owner, sallyport::backends::redis::command_trace>;
