#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/postgres_server.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

// SALLYPORT_POSTGRES_SETUP says how the server is reached, and what is promised:
//   tcp      (default) a plain connection
//   unix     a unix socket
//   latin1   a database whose encoding is not UTF-8
//   relaxed  durable=no
//   pooled   through a pgbouncer in transaction mode
namespace sallyport::contract {
namespace {

struct setup {
  std::unique_ptr<kit::postgres_server> server;
  std::unique_ptr<kit::pgbouncer> pooler = {};
  std::string begin;
  std::string options = {};
};

setup chosen() {
  const char* const found =
      std::getenv("SALLYPORT_POSTGRES_SETUP");  // NOLINT(concurrency-mt-unsafe)
  const std::string_view name = found == nullptr ? "tcp" : found;
  kit::postgres_options how;
  if (name == "latin1") how.encoding = "LATIN1";
  auto server = std::make_unique<kit::postgres_server>(how);
  setup made{.server = std::move(server), .begin = {}};
  made.begin = made.server->address();
  if (name == "unix") {
    made.begin = "postgres://postgres@/postgres";
    made.options =
        "&host=" + made.server->folder().string() + "&port=" + std::to_string(made.server->port());
  } else if (name == "relaxed") {
    made.options = "&durable=no";
  } else if (name == "pooled") {
    made.pooler = std::make_unique<kit::pgbouncer>(*made.server, "transaction");
    made.begin = made.pooler->address();
  } else if (name != "tcp" && name != "latin1") {
    throw std::invalid_argument(
        "SALLYPORT_POSTGRES_SETUP is tcp, unix, latin1, relaxed or pooled, not '" +
        std::string(name) + "'");
  }
  return made;
}

/// The same server for all tests of a process.
const setup& the_setup() {
  static const setup running = chosen();
  return running;
}

/// A schema. What dead clients left goes when somebody sweeps after their leases; then nothing may be
/// there.
class schema_store final : public fresh_store {
 public:
  schema_store() {
    static std::atomic<int> made{0};
    schema_ = "contract_" + std::to_string(++made);
  }
  ~schema_store() override {
    kit::postgres_probe probe{the_setup().server->address()};
    if (probe.value("SELECT to_regclass('" + schema_ + ".lock')").empty()) return;
    std::string left;
    const bool clean = kit::eventually([&] {
      probe.rows("SELECT " + schema_ + ".sweep(true, true)");
      left = probe.value("SELECT (SELECT count(*) FROM " + schema_ +
                         ".lock) + (SELECT count(*) FROM " + schema_ + ".queue)");
      return left == "0";
    });
    EXPECT_TRUE(clean) << left << " rows are left";
    probe.rows("DROP SCHEMA " + schema_ + " CASCADE");
  }
  schema_store(const schema_store&) = delete;
  schema_store& operator=(const schema_store&) = delete;
  [[nodiscard]] std::string address() const override {
    return the_setup().begin + "?schema=" + schema_ + the_setup().options;
  }

 private:
  std::string schema_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test postgres{
      .name = "postgres",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<schema_store>(); },
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
      .unreachable_address = "postgres://postgres@127.0.0.1:1/postgres",
  };
  return postgres;
}

}  // namespace sallyport::contract
