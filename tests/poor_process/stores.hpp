#pragma once

#include <array>
#include <string>

namespace sallyport::poor {

/// Every store that a client can be poor on.
inline constexpr std::array all_stores{"memory",  "local",     "redis", "postgres",
                                       "mariadb", "memcached", "etcd",  "zookeeper"};

/// What client::open takes. A server is started when its store is first asked for; all tests of this
/// process share it.
[[nodiscard]] std::string address_of(const std::string& store);

}  // namespace sallyport::poor
