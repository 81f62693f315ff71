#include "backends/sql/test_live_rules.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The procedures, called by many at random: what must hold is looked at by the server itself, inside of
// each transaction that changes a lock.
namespace sallyport::sql_live {
namespace {

TEST(Rules, HoldWhateverManyDoAtOnce) {
  const auto server = start_server();
  open(server->address());
  set_watchman(*server);
  std::vector<std::unique_ptr<background<int>>> all;

  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    all.push_back(std::make_unique<background<int>>([&server, seed] {
      base::random random(seed);
      const auto probe = server->connect();
      int refused = 0;
      for (int i = 0; i < 400; ++i) {
        try {
          probe->rows(random_call(random));
        } catch (const kit::kit_error& error) {
          // Which the client repeats.
          if (std::string_view(error.what()).find(word_for_deadlock()) == std::string_view::npos) {
            throw;
          }
          ++refused;
        }
      }
      return refused;
    }));
  }
  for (auto& each : all) EXPECT_LE(each->get(), 20);

  // Tokens grow from grant to grant of a name, and blocks do not meet.
  EXPECT_GT(std::stoi(server->value("SELECT COUNT(*) FROM history")), 100);
  EXPECT_EQ(
      server->value("SELECT COUNT(*) FROM (SELECT first_token, LAG(last_token) OVER (PARTITION BY "
                    "name ORDER BY n) AS before_it FROM history) h WHERE first_token <= before_it"),
      "0");
  EXPECT_TRUE(nothing_is_left(*server));
}

}  // namespace
}  // namespace sallyport::sql_live
