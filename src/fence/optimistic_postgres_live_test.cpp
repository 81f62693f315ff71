#include "fence/test_live_optimistic_server.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/postgres_server.hpp"
#include "tests/kit/sql_executors.hpp"
#include <sallyport/optimistic.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

namespace sallyport::optimistic {
namespace {

struct postgres_world : server_world<kit::postgres_server> {
  using connection = kit::postgres_executor;
  static constexpr const char* table_options = "";
  static constexpr const char* writers_type = "text";
  static constexpr const char* text_type = "text";
  static constexpr const char* bytes_type = "bytea";

  static std::unique_ptr<connection> connect(std::uint16_t port) {
    return std::make_unique<connection>(kit::postgres_server::address_at(port));
  }
  /// The statement that ends this connection.
  static std::string end_of(const connection& other) {
    return "SELECT pg_terminate_backend(" + std::to_string(other.process()) + ")";
  }
  static bool is_conflict(const kit::sql_error& error) {
    return error.state() == "40001" || error.state() == "40P01";
  }
  static bool is_loss(const kit::sql_error& error) {
    // The connection is gone, or an administrator ended it.
    return error.state().starts_with("08") || error.state().starts_with("57P");
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Postgres, OptimisticRows, postgres_world);
INSTANTIATE_TYPED_TEST_SUITE_P(Postgres, OptimisticRowsFarAway, postgres_world);

class OptimisticPostgres : public OptimisticRowsFarAway<postgres_world> {};

TEST_F(OptimisticPostgres, TellsWhichTextItCanNotKeep) {
  for (const std::string& bad : {std::string("a\0b", 3), std::string("\xff\xfe")}) {
    try {
      (void)update(database_.executor(), texts(), "a",
                   [&](const values&) { return change{.values = {bad}}; });
      ADD_FAILURE();
    } catch (const kit::sql_error& error) {
      EXPECT_EQ(error.state(), "22021");  // character_not_in_repertoire
    }
  }
  EXPECT_EQ(database_.number("SELECT version FROM texts"), 1);
}

TEST_F(OptimisticPostgres, FindsItsTransactionAfterTheNetworkTookTheAnswerToCommit) {
  kit::fault_proxy network{postgres_world::port()};
  session<postgres_world> far{network.port()};
  network.set(kit::flow::to_client, kit::fault::drop_reply(kit::ending::reset, "COMMIT"));

  const outcome done = update(far.executor(), texts(), "a", [](const values&) {
    return change{.values = {"after"}, .also = {{.text = "INSERT INTO noted VALUES (1)"}}};
  });

  EXPECT_EQ(network.counts().replies_dropped, 1U);
  EXPECT_TRUE(done);
  EXPECT_EQ(done.version, 2);
  EXPECT_EQ(noted(), 1);
}

TEST_F(OptimisticPostgres, TakesASerializationFailureForAConflict) {
  session<postgres_world> strict;
  strict.run("SET default_transaction_isolation = 'repeatable read'");
  session<postgres_world> other;
  int decisions = 0;

  const outcome done = update(
      [&](const sql::statement& one) {
        // Between BEGIN and the write: the snapshot is taken, and then the row changes.
        if (one.text == "BEGIN" && decisions == 1) {
          strict(one);
          sql::answer snapshot = strict.run("SELECT 1");
          add_tens(1);
          return snapshot;
        }
        return strict(one);
      },
      counters(), "a",
      [&](const values& read) {
        ++decisions;
        return change{.values = {number_in(read) + 1}, .also = {{.text = "SELECT 1"}}};
      },
      at_once());

  EXPECT_TRUE(done);
  EXPECT_EQ(done.conflicts, 1U);
  EXPECT_EQ(decisions, 2);
  EXPECT_EQ(n(), 16);
}

}  // namespace
}  // namespace sallyport::optimistic
