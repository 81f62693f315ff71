#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sallyport::backends::mariadb {

struct tls_options {
  bool on = false;
  bool verify = true;
  std::string ca_file;  ///< empty: the system's authorities
  std::string cert_file;
  std::string key_file;
};

/// An address of a MariaDB database, understood. Holds secrets: never log it.
struct address {
  std::string host;  ///< empty: what an option file says
  std::uint16_t port = 3306;
  std::string socket;  ///< the path of a unix socket; then host and port do not count
  std::string database;
  std::string user;  ///< empty: the library's own choice
  std::optional<std::string> password;
  tls_options tls;
  std::string defaults_file;   ///< an option file of MariaDB's clients; empty: none is read
  std::string defaults_group;  ///< what of it counts beside [client]
  std::string prefix = "sallyport_";
  std::string store;  ///< names the token space by hand; empty: what the tables say
  unsigned connect_timeout_s = 5;
  std::string description;  ///< for messages: host and database
};

/// mariadb:// and mysql://. Reads password files. Fails with bad_uri, naming what is wrong and what
/// would be right, never a secret.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

}  // namespace sallyport::backends::mariadb
