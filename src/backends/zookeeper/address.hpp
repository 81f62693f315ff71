#pragma once

#include "backends/zookeeper/layout.hpp"
#include "base/result.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::zookeeper {

/// An address of a ZooKeeper ensemble, understood. Holds secrets: never log it.
struct address {
  std::vector<std::string> servers;  ///< "host:port"
  layout::settings nodes;
  std::string user;  ///< empty: no log-in, and nodes that anybody may change
  std::string password;
  std::string store;  ///< names the token space; empty: made from where the servers are
  std::chrono::milliseconds tick{2000};
};

/// zookeeper://user@h1,h2,h3/chroot. Reads password files. Fails with bad_uri, naming what is wrong
/// and what would be right, never a secret; zookeepers:// is refused.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

/// Names the token space: `store`, or where the servers are. Tokens are numbers of the whole
/// ensemble's changes, but locks of different roots are different locks.
[[nodiscard]] std::string store_id_of(const address& where);

}  // namespace sallyport::backends::zookeeper
