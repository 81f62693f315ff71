#pragma once

#include "backends/postgres/wire.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace sallyport::backends::postgres {

/// What stands between us and the server.
enum class pooling : std::uint8_t {
  detect,       ///< look: a pooler tells another process number than the server does
  none,         ///< nothing, or a pooler that gives every client a server of its own (session mode)
  transactions  ///< the next transaction may meet another session of the server
};

/// An address of a PostgreSQL database, understood. Holds secrets: never log it.
struct address {
  wire_parameters where;
  std::string description;  ///< for messages: hosts and database
  std::string user;         ///< empty: libpq's own choice
  std::string database;     ///< empty: libpq's own choice
  std::string schema = "sallyport";
  std::string store;  ///< names the token space by hand; empty: what the schema says
  bool durable = true;
  pooling pooler = pooling::detect;
  unsigned connect_timeout_s = 5;
};

/// postgres:// and postgresql://, as libpq reads them, with options of our own among its. Reads
/// password files. Fails with bad_uri, naming what is wrong and what would be right, never a secret.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

}  // namespace sallyport::backends::postgres
