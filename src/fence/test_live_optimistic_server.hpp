#pragma once

#include "fence/test_live_optimistic.hpp"
#include "tests/kit/fault_proxy.hpp"
#include <sallyport/optimistic.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

// What optimistic rows promise on a database behind a network.

namespace sallyport::optimistic {

/// The part of a `World` that is the same for all servers of the kit.
template <class Server>
struct server_world {
  static void start() { server() = std::make_unique<Server>(); }
  static void stop() { server().reset(); }
  static std::uint16_t port() { return server()->port(); }

 private:
  static std::unique_ptr<Server>& server() {
    static std::unique_ptr<Server> kept;
    return kept;
  }
};

template <class World>
class OptimisticRowsFarAway : public OptimisticRows<World> {
 protected:
  void SetUp() override {
    OptimisticRows<World>::SetUp();
    this->database_.run("DROP TABLE IF EXISTS texts");
    this->database_.run(
        "CREATE TABLE texts (k varchar(50) PRIMARY KEY, t text, version bigint NOT NULL, writers " +
        std::string(World::writers_type) + ")" + World::table_options);
    this->database_.run("INSERT INTO texts (k, t, version) VALUES ('a', 'before', 1)");
  }
  static table texts() {
    return table{World::connection::dialect(),
                 {.table = "texts", .key = "k", .values = {"t"}, .writers = "writers"}};
  }
};

TYPED_TEST_SUITE_P(OptimisticRowsFarAway);

TYPED_TEST_P(OptimisticRowsFarAway, FindTheirWriteAfterTheNetworkTookTheAnswer) {
  kit::fault_proxy network{TypeParam::port()};
  session<TypeParam> far{network.port()};
  // The value, which travels when the statement is carried out, not when it is prepared.
  network.set(kit::flow::to_client, kit::fault::drop_reply(kit::ending::reset, "marked"));

  const outcome done = update(far.executor(), this->texts(), "a",
                              [](const values&) { return change{.values = {"marked"}}; });

  EXPECT_EQ(network.counts().replies_dropped, 1U);
  EXPECT_TRUE(done);
  EXPECT_EQ(done.version, 2);
  EXPECT_EQ(done.attempts, 2U);
  EXPECT_EQ(done.conflicts, 0U);
  EXPECT_EQ(this->database_.number("SELECT version FROM texts"), 2);
}

TYPED_TEST_P(OptimisticRowsFarAway, SettleWhatAConnectionThatWasEndedLeftOpen) {
  const auto own = TypeParam::connect(TypeParam::port());
  const auto write = pending_after([&] {
    (void)update(
        [&](const sql::statement& one) {
          if (!is_write(one)) return (*own)(one);
          own->run("BEGIN");
          (*own)(one);
          // Written, not committed, and then nobody is there any more.
          this->database_.run(TypeParam::end_of(*own));
          throw sql::connection_lost("ended");
        },
        this->texts(), "a", [](const values&) { return change{.values = {"after"}}; },
        {.most_attempts = 1});
  });

  ASSERT_TRUE(write);
  EXPECT_EQ(settle(this->database_.executor(), this->texts(), *write), settlement::not_written);
  EXPECT_EQ(this->database_.run("SELECT t FROM texts").rows.at(0).at(0), sql::value{"before"});
}

REGISTER_TYPED_TEST_SUITE_P(OptimisticRowsFarAway, FindTheirWriteAfterTheNetworkTookTheAnswer,
                            SettleWhatAConnectionThatWasEndedLeftOpen);

}  // namespace sallyport::optimistic
