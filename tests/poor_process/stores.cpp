#include "tests/poor_process/stores.hpp"

#include "base/check.hpp"
#include "tests/kit/etcd_server.hpp"
#include "tests/kit/mariadb_server.hpp"
#include "tests/kit/memcached_server.hpp"
#include "tests/kit/postgres_server.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"
#include "tests/kit/zookeeper_server.hpp"

namespace sallyport::poor {
namespace {

std::string folder_address() {
  static const kit::temporary_folder folder{"poor"};
  return "local:" + folder.path().string();
}

std::string redis_address() {
  static const kit::redis_server server;
  return "redis://127.0.0.1:" + std::to_string(server.port());
}

std::string zookeeper_address() {
  static const kit::zookeeper_ensemble server;
  return server.address() + "/poor?" + server.tick_option();
}

template <class Server>
std::string server_address() {
  static const Server server;
  return server.address();
}

}  // namespace

std::string address_of(const std::string& store) {
  if (store == "memory") return "memory:poor";
  if (store == "local") return folder_address();
  if (store == "redis") return redis_address();
  if (store == "postgres") return server_address<kit::postgres_server>();
  if (store == "mariadb") return server_address<kit::mariadb_server>();
  if (store == "memcached") return server_address<kit::memcached_server>();
  if (store == "etcd") return server_address<kit::etcd_cluster>();
  SALLYPORT_CHECK(store == "zookeeper");
  return zookeeper_address();
}

}  // namespace sallyport::poor
