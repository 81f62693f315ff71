#pragma once

#include "backend_api/requests.hpp"
#include "backends/memcached/link.hpp"
#include "backends/memcached/server_facts.hpp"
#include "backends/memcached/wire.hpp"
#include "backends/pipeline/connection.hpp"
#include "backends/pipeline/exchange.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "net/pump.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace sallyport::backends::memcached {

/// One command and who waits for its reply.
using exchange = pipeline::exchange<wire_command, reply>;

/// Told on the pump's thread, without a mutex.
class connection_owner {
 public:
  connection_owner() = default;
  connection_owner(const connection_owner&) = delete;
  connection_owner& operator=(const connection_owner&) = delete;
  virtual ~connection_owner() = default;

  /// A failure ends the attempt ("it runs without CAS"); those who wait are answered with it.
  virtual base::result<std::monostate> greeted(const server_facts& said) = 0;
  /// Before anything is sent over it.
  virtual void connected() = 0;
  /// The connection was lost, or an attempt failed. The next attempt follows by itself.
  virtual void disconnected(const base::failure& why) = 0;
};

using command_pipeline = pipeline::connection<link, exchange, connection_owner, reply_builder>;

/// The connection that carries commands; see pipeline::connection. Every command has a tag, and an
/// answer with another one ends the connection.
class connection final : public command_pipeline {
 public:
  struct settings {
    net::endpoint where = {};
    net::tls_settings tls = {};
    std::string user = {};
    std::string password = {};
    duration connect_timeout = std::chrono::seconds{2};
    /// What may wait for a connection or for the peer to read; more is answered `unavailable`.
    std::size_t max_waiting_bytes = 8UL * 1024 * 1024;
    /// Commands sent and not replied to; further ones wait.
    std::size_t max_in_flight = 16'384;
  };

  /// Opens nothing yet: the first send() does. Fails when the files that TLS needs can't be read.
  static base::result<std::shared_ptr<connection>> make(std::shared_ptr<net::pump> engine,
                                                        settings how, std::weak_ptr<owner> whose);
  /// Use make().
  connection(const settings& how, std::weak_ptr<owner> whose);

  // link::user
  base::result<std::monostate> link_greeted(const server_facts& said) override;

 private:
  void put_in_flight(std::unique_ptr<exchange> what) override SALLYPORT_REQUIRES(mutex_);
  base::result<std::monostate> match(std::vector<answer_line>& said) override
      SALLYPORT_REQUIRES(mutex_);

  std::vector<reply> whole_;  // what is being told; the pump's thread only
  std::uint64_t last_tag_ SALLYPORT_GUARDED_BY(mutex_) = 0;
};

}  // namespace sallyport::backends::memcached

// Made in connection.cpp.
extern template class sallyport::backends::pipeline::connection<
    sallyport::backends::memcached::link, sallyport::backends::memcached::exchange,
    sallyport::backends::memcached::connection_owner,
    sallyport::backends::memcached::reply_builder>;
