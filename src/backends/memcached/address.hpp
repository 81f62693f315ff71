#pragma once

#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/tls.hpp"

#include <string>
#include <string_view>

namespace sallyport::backends::memcached {

/// An address of a memcached server, understood. Holds secrets: never log it.
struct address {
  net::endpoint server;
  net::tls_settings tls;
  std::string user;
  std::string password;  ///< empty: no login
  std::string prefix;    ///< stands before every lock's name
  std::string store;     ///< names the store; empty: made from where the server is
};

/// memcached://, memcacheds:// (TLS) and memcached+unix://. Reads password files. Fails with bad_uri,
/// naming what is wrong and what would be right, never a secret.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

/// Names the store: `store`, or where the server is, with the prefix.
[[nodiscard]] std::string store_id_of(const address& where);

}  // namespace sallyport::backends::memcached
