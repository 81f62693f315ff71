#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/memcached_server.hpp"

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// SALLYPORT_MEMCACHED_SETUP says how the server is reached:
//   tcp   (default) a plain connection
//   unix  a unix socket, with a login
//   tls   TLS, with certificates on both sides
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::memcached_server> server;
  std::string options;
};

setup chosen() {
  const std::string name = chosen_setup("SALLYPORT_MEMCACHED_SETUP", {"tcp", "unix", "tls"});
  if (name == "tcp") return {std::make_unique<kit::memcached_server>(), ""};
  if (name == "unix") {
    auto server = std::make_unique<kit::memcached_server>(
        kit::memcached_options{.unix_socket = true, .login = "locks:of-the-tests"});
    const auto file = server->folder() / "password";
    std::ofstream(file) << "of-the-tests\n";
    return {std::move(server), "&user=locks&password_file=" + file.string()};
  }
  static const kit::certificates files;
  auto server = std::make_unique<kit::memcached_server>(
      kit::memcached_options{.tls = kit::memcached_tls{.certificate = files.server.certificate,
                                                       .key = files.server.key,
                                                       .authority = files.authority}});
  return {std::move(server), "&ca_file=" + files.authority.string() +
                                 "&cert_file=" + files.client.certificate.string() +
                                 "&key_file=" + files.client.key.string()};
}

/// One server for all tests of a process; each test has names of its own.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// The keys of a store.
std::vector<std::string> keys_with(const std::string& prefix) {
  std::vector<std::string> all = the_setup().server->keys();
  std::erase_if(all, [&](const std::string& key) { return !key.starts_with(prefix); });
  return all;
}

std::unique_ptr<fresh_store> make() {
  const std::string name = "contract-" + std::to_string(next_store_number());
  return std::make_unique<plain_store>(
      the_setup().server->address() + "?prefix=" + name + "/" + the_setup().options,
      [name] { expect_nothing_left("keys", [&] { return keys_with(name + "%2F"); }); },
      [name] { return keys_with(name + "%2F").size(); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.fencing = false;
  all.fifo = false;
  all.direct_handoff = false;
  all.shared_locks = false;
  all.semaphores = false;
  all.lists = false;
  all.survives_store_restart = false;
  all.lease_granularity = std::chrono::seconds{1};
  return all;
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test memcached{
      .name = "memcached",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::seconds{1},
      .clients_share = true,
      .processes_share = true,
      .shows_waiters = false,
      .unreachable_address = "memcached://127.0.0.1:1",
      .server =
          server_switch{[] { the_setup().server->kill(); }, [] { the_setup().server->start(); }},
  };
  return memcached;
}

}  // namespace sallyport::contract
