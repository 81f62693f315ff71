#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/memcached_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

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
  const char* const found = std::getenv("SALLYPORT_MEMCACHED_SETUP");  // NOLINT(*-mt-unsafe)
  const std::string_view name = found == nullptr ? "tcp" : found;
  if (name == "tcp") return {std::make_unique<kit::memcached_server>(), ""};
  if (name == "unix") {
    auto server = std::make_unique<kit::memcached_server>(
        kit::memcached_options{.unix_socket = true, .login = "locks:of-the-tests"});
    const auto file = server->folder() / "password";
    std::ofstream(file) << "of-the-tests\n";
    return {std::move(server), "&user=locks&password_file=" + file.string()};
  }
  if (name == "tls") {
    static const kit::certificates files;
    auto server = std::make_unique<kit::memcached_server>(
        kit::memcached_options{.tls = kit::memcached_tls{.certificate = files.server.certificate,
                                                         .key = files.server.key,
                                                         .authority = files.authority}});
    return {std::move(server), "&ca_file=" + files.authority.string() +
                                   "&cert_file=" + files.client.certificate.string() +
                                   "&key_file=" + files.client.key.string()};
  }
  throw std::invalid_argument("SALLYPORT_MEMCACHED_SETUP is tcp, unix or tls, not '" +
                              std::string(name) + "'");
}

/// One server for all tests of a process; each test has names of its own.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    prefix_ = "contract-" + std::to_string(++made) + "/";
  }
  /// What dead clients left goes with their leases; then nothing may be there.
  ~prefix_store() override {
    std::string left;
    const bool clean = kit::eventually([&] {
      left.clear();
      for (const std::string& key : the_setup().server->keys()) {
        if (key.starts_with(encoded_prefix())) left = key;
      }
      return left.empty();
    });
    EXPECT_TRUE(clean) << "keys are left, one is " << left;
  }
  prefix_store(const prefix_store&) = delete;
  prefix_store& operator=(const prefix_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_setup().server->address() + "?prefix=" + prefix_ + the_setup().options;
  }

 private:
  [[nodiscard]] std::string encoded_prefix() const {
    return prefix_.substr(0, prefix_.size() - 1) + "%2F";
  }

  std::string prefix_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test memcached{
      .name = "memcached",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = false,
                 .fifo = false,
                 .direct_handoff = false,
                 .shared_locks = false,
                 .semaphores = false,
                 .elections = true,
                 .lists = false,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = false,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = std::chrono::seconds{1},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::seconds{1},
      .clients_share = true,
      .processes_share = true,
      .shows_waiters = false,
      .unreachable_address = "memcached://127.0.0.1:1",
  };
  return memcached;
}

}  // namespace sallyport::contract
