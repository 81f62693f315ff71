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
  std::string store;  ///< names the token space by hand; empty: the name that the store keeps
  std::chrono::milliseconds tick{2000};
};

/// zookeeper://user@h1,h2,h3/chroot. Reads password files. Fails with bad_uri, naming what is wrong
/// and what would be right, never a secret; zookeepers:// is refused.
[[nodiscard]] base::result<address> parse_address(std::string_view uri);

}  // namespace sallyport::backends::zookeeper
