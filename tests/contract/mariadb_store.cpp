#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/mariadb_server.hpp"
#include <sallyport/client.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

// SALLYPORT_MARIADB_SETUP says how the server is reached, and by whom:
//   tcp    (default) a plain connection
//   unix   a unix socket
//   tls    TLS, with certificates of both sides
//   least  a user with the rights that `sallyport schema` gives, and no others
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::certificates> files = {};
  std::unique_ptr<kit::mariadb_server> server = {};
  std::string begin = {};
  std::string options = {};
  bool least = false;
};

setup chosen() {
  const char* const found =
      std::getenv("SALLYPORT_MARIADB_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "tcp" : found;
  setup made;
  kit::mariadb_options how;
  if (name == "tls") {
    made.files = std::make_unique<kit::certificates>();
    how.tls =
        kit::sql_tls{made.files->server.certificate, made.files->server.key, made.files->authority};
  }
  made.server = std::make_unique<kit::mariadb_server>(how);
  made.begin = made.server->address();
  if (name == "unix") {
    made.begin = "mariadb://root@/test";
    made.options = "&socket=" + made.server->socket().string();
  } else if (name == "tls") {
    made.begin = "mariadb://root@localhost:" + std::to_string(made.server->port()) + "/test";
    made.options = "&tls=yes&ca_file=" + made.files->authority.string() +
                   "&cert_file=" + made.files->client.certificate.string() +
                   "&key_file=" + made.files->client.key.string();
  } else if (name == "least") {
    made.least = true;
    made.begin = "mariadb://app@127.0.0.1:" + std::to_string(made.server->port()) + "/test";
    made.server->rows("CREATE USER app");
  } else if (name != "tcp") {
    throw std::invalid_argument("SALLYPORT_MARIADB_SETUP is tcp, unix, tls or least, not '" +
                                std::string(name) + "'");
  }
  return made;
}

/// The same server for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// Tables with a prefix. What dead clients left goes when somebody sweeps after their leases; then
/// nothing may be there.
class prefix_store final : public fresh_store {
 public:
  prefix_store() {
    static std::atomic<int> made{0};
    prefix_ = "c" + std::to_string(++made) + "_";
    if (the_setup().least) {
      kit::mariadb_probe probe{{.port = the_setup().server->port()}};
      probe.script(client::schema(address()));
    }
  }
  ~prefix_store() override {
    kit::mariadb_probe probe{{.port = the_setup().server->port()}};
    if (probe.value("SHOW TABLES LIKE '" + prefix_ + "state'").empty()) return;
    std::string left;
    const bool clean = kit::eventually([&] {
      probe.rows("CALL " + prefix_ + "sweep(1)");
      left = probe.value("SELECT (SELECT COUNT(*) FROM " + prefix_ +
                         "lock) + (SELECT COUNT(*) FROM " + prefix_ + "queue)");
      return left == "0";
    });
    EXPECT_TRUE(clean) << left << " rows are left";
    probe.rows("DROP TABLE " + prefix_ + "lock, " + prefix_ + "queue, " + prefix_ + "state, " +
               prefix_ + "stripe");
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
  static const store_under_test mariadb{
      .name = "mariadb",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<prefix_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = true,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{400},
      .clients_share = true,
      .processes_share = true,
      .waiters_ask = true,
      .unreachable_address = "mariadb://root@127.0.0.1:1/test",
  };
  return mariadb;
}

}  // namespace sallyport::contract
