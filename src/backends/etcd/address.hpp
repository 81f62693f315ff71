#pragma once

#include "base/result.hpp"
#include "net/endpoint.hpp"
#include "net/tls.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::etcd {

/// An address of an etcd cluster, understood. Holds secrets: never log it.
struct address {
  std::vector<net::endpoint> members;
  net::tls_settings tls;
  std::string user;  ///< empty: no log-in
  std::string password;
  std::string prefix;  ///< stands before every lock's name
  std::string store;   ///< names the token space by hand; empty: the name that the store keeps
};

/// etcd:// and etcds://. Reads password files. Fails with bad_uri, naming what is wrong and what
/// would be right, never a secret.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

}  // namespace sallyport::backends::etcd
