#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/contract/redis_groups.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// SALLYPORT_REDIS_SETUP says how the server is reached and who asks:
//   tcp   (default) a plain connection, and a user who may do everything
//   unix  a unix socket
//   tls   TLS, with certificates on both sides
//   acl   a user who has the rights that docs/redis.md asks for, and no other
//   sentinel, cluster  several servers (redis_groups.hpp)
namespace sallyport::contract {
namespace {

using kit::redis_server;

/// One way to reach a server: an address is `begin`, the options with the prefix among them.
struct setup {
  std::unique_ptr<redis_server> server;
  std::string begin;
  std::string options;
  std::string unreachable;
  std::unique_ptr<redis_group> group = {};  // instead of `server`

  [[nodiscard]] std::vector<kit::redis_address> masters() const {
    if (group) return group->masters();
    return {server->address()};
  }
};

setup of_group(std::unique_ptr<redis_group> group) {
  const std::string begin = group->address();
  const std::string unreachable = group->unreachable();
  return {nullptr, begin, "", unreachable, std::move(group)};
}

setup plain() {
  auto server = std::make_unique<redis_server>();
  const std::string begin = "redis://127.0.0.1:" + std::to_string(server->port());
  return {std::move(server), begin, "", "redis://127.0.0.1:1"};
}

setup over_unix_socket() {
  auto server = std::make_unique<redis_server>(kit::redis_options{.unix_socket = true});
  const std::string begin = "redis+unix://" + server->unix_path();
  return {std::move(server), begin, "", "redis+unix:///nonexistent/sallyport-test"};
}

setup over_tls() {
  static const kit::certificates files;
  auto server = std::make_unique<redis_server>(kit::redis_options{
      .tls = kit::redis_tls{.certificate = files.server.certificate,
                            .key = files.server.key,
                            .authority = files.authority,
                            .clients = kit::redis_client_certificates::required}});
  const std::string begin = "rediss://localhost:" + std::to_string(server->tls_port());
  return {std::move(server), begin,
          "&ca_file=" + files.authority.string() + "&cert_file=" +
              files.client.certificate.string() + "&key_file=" + files.client.key.string(),
          "rediss://127.0.0.1:1"};
}

/// docs/redis.md, "Permissions", has this line.
constexpr std::string_view least_rights =
    "resetkeys ~contract-* resetchannels &contract-* -@all "
    "+eval +evalsha +script|load +script|exists +select +client|setname +info +config|get "
    "+ping +subscribe +unsubscribe +publish "
    "+time +get +set +del +exists +incrby +pttl +pexpire +pexpireat "
    "+hget +hset +hdel +hlen +hincrby +hgetall +hexists "
    "+zadd +zrem +zpopmin +zrange +zrangebyscore +zrank "
    "+type +getrange +scan";

setup with_least_rights() {
  auto server = std::make_unique<redis_server>(kit::redis_options{
      .users = {"user locks on >of-the-locks " + std::string(least_rights), "user default off"}});
  const auto file = server->folder() / "password";
  std::ofstream(file) << "of-the-locks\n";
  const std::string begin = "redis://locks@127.0.0.1:" + std::to_string(server->port());
  return {std::move(server), begin, "&password_file=" + file.string(), "redis://127.0.0.1:1"};
}

setup chosen() {
  const std::string name =
      chosen_setup("SALLYPORT_REDIS_SETUP", {"tcp", "unix", "tls", "acl", "sentinel", "cluster"});
  if (name == "tcp") return plain();
  if (name == "unix") return over_unix_socket();
  if (name == "tls") return over_tls();
  if (name == "acl") return with_least_rights();
  return of_group(make_redis_group(name));
}

/// One server for all tests of a process; each test has names of its own.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// All keys of a store but the counter.
std::vector<std::string> keys_with(const std::string& prefix) {
  std::vector<std::string> all;
  for (const kit::redis_address& each : the_setup().masters()) {
    kit::redis_probe probe{each};
    for (std::string& key : kit::leftovers(probe)) {
      // In a cluster a tag may stand before the prefix.
      if (key.find(prefix) != std::string::npos) all.push_back(std::move(key));
    }
  }
  return all;
}

/// Of all keys of a store: fields of hashes, members of sorted sets, and one for each other key.
std::size_t parts_with(const std::string& prefix) {
  std::size_t all = 0;
  for (const kit::redis_address& each : the_setup().masters()) {
    kit::redis_probe probe{each};
    for (const std::string& key : kit::leftovers(probe)) {
      if (key.find(prefix) != std::string::npos) all += kit::parts_of(probe, key);
    }
  }
  return all;
}

std::unique_ptr<fresh_store> make() {
  const std::string prefix = "contract-" + std::to_string(next_store_number()) + ":";
  return std::make_unique<plain_store>(
      the_setup().begin + "?prefix=" + prefix + the_setup().options,
      [prefix] { expect_nothing_left("keys", [&] { return keys_with(prefix); }); },
      [prefix] { return parts_with(prefix); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.survives_store_restart = false;
  all.expiry_granularity = std::chrono::milliseconds{2};
  return all;
}

/// Groups have ways of their own to do without a server.
std::optional<server_switch> the_switch() {
  if (the_setup().group) return std::nullopt;
  return server_switch{[] { the_setup().server->kill(); }, [] { the_setup().server->start(); }};
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test redis{
      .name = "redis",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = the_setup().unreachable,
      .server = the_switch(),
  };
  return redis;
}

}  // namespace sallyport::contract
