#include "tests/contract/kit/store_under_test.hpp"
#include "tests/contract/redis_groups.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/redis_leftovers.hpp"
#include "tests/kit/redis_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

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
    "+eval +evalsha +script|load +select +client|setname +info +config|get "
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
  const char* const found = std::getenv("SALLYPORT_REDIS_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "tcp" : found;
  if (name == "tcp") return plain();
  if (name == "unix") return over_unix_socket();
  if (name == "tls") return over_tls();
  if (name == "acl") return with_least_rights();
  if (auto group = make_redis_group(name)) return of_group(std::move(group));
  throw std::invalid_argument(
      "SALLYPORT_REDIS_SETUP is tcp, unix, tls, acl, sentinel or cluster, not '" +
      std::string(name) + "'");
}

/// One server for all tests of a process; each test has names of its own.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// Locks under a prefix. When the test is over, nothing may be left of them but the counter: what
/// dead clients left goes with their leases and tickets.
class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    prefix_ = "contract-" + std::to_string(++made) + ":";
  }
  ~prefix_store() override {
    std::vector<std::string> left;
    const bool clean = kit::eventually([&] {
      left.clear();
      for (const kit::redis_address& each : the_setup().masters()) {
        kit::redis_probe probe{each};
        for (std::string& key : kit::leftovers(probe)) {
          // In a cluster a tag may stand before the prefix.
          if (key.find(prefix_) != std::string::npos) left.push_back(std::move(key));
        }
      }
      return left.empty();
    });
    EXPECT_TRUE(clean) << left.size() << " keys are left, one is " << left.front();
  }
  prefix_store(const prefix_store&) = delete;
  prefix_store& operator=(const prefix_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_setup().begin + "?prefix=" + prefix_ + the_setup().options;
  }

 private:
  std::string prefix_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test redis{
      .name = "redis",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = false,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = std::chrono::milliseconds{2},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = the_setup().unreachable,
  };
  return redis;
}

}  // namespace sallyport::contract
