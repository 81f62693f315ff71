#include "backends/sql/numbers.hpp"
#include "backends/sql/test_live_rules.hpp"

#include <algorithm>
#include <memory>
#include <string>

// Calls whose work would grow with the number of contenders: none does something for more than a fixed number of
// them, so that nobody waits behind a long transaction; and the rest is done all the same.
namespace sallyport::sql_live {
namespace {

constexpr int most = backends::sql::most_contenders_at_once;
constexpr int crowd = 700;

class Crowd : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = start_server();
    open(server_->address());
  }
  static void TearDownTestSuite() { server_.reset(); }
  void TearDown() override {
    server_->rows("DELETE FROM " + table("lock"));
    server_->rows("DELETE FROM " + table("queue"));
  }

  static int rows_in(const std::string& which) {
    return std::stoi(server_->value("SELECT COUNT(*) FROM " + table(which)));
  }
  static int rows() { return rows_in("lock") + rows_in("queue"); }

  /// Calls until there is nothing more to do, and looks at what each one did to the rows that `count`
  /// counts.
  template <class Call, class Count>
  static void in_pieces(Call call, Count count) {
    for (int pieces = 1;; ++pieces) {
      const int before = count();
      const std::string said = call();
      const int done = before - count();
      EXPECT_LE(done, most) << said;
      if (said.find(',') == std::string::npos && said != "{6}") break;
      ASSERT_EQ(done, most) << said;
      ASSERT_LT(pieces, crowd);
    }
  }

  static std::unique_ptr<sql_server> server_;
};
std::unique_ptr<sql_server> Crowd::server_;

TEST_F(Crowd, OfDeadWaitersIsTakenAwayInPieces) {
  add_readers(*server_, "room", crowd, false);

  in_pieces([] { return settle(*server_, "room"); }, [] { return rows_in("queue"); });

  EXPECT_EQ(rows(), 0);
}

TEST_F(Crowd, OfDeadHoldersIsTakenAwayInPieces) {
  add_dead_holders(*server_, "room", crowd);
  add_readers(*server_, "room", 1, false);

  in_pieces([] { return settle(*server_, "room"); }, [] { return rows_in("lock"); });

  EXPECT_EQ(rows(), 0);
}

TEST_F(Crowd, OfReadersIsLetInInPieces) {
  add_readers(*server_, "room", crowd, true);

  in_pieces([] { return settle(*server_, "room"); }, [] { return rows_in("queue"); });

  EXPECT_EQ(rows_in("lock"), crowd);
}

TEST_F(Crowd, OfDeadContendersDoesNotMakeAFreeLockHeld) {
  add_readers(*server_, "room", crowd, false);
  EXPECT_EQ(try_to_write(*server_, "room"), "{6}");
  add_dead_holders(*server_, "room", crowd);
  EXPECT_EQ(try_to_write(*server_, "room"), "{6}");
  // A try goes on from piece to piece within the time of one request; a busy server takes longer for them all.
  client_options patient = quick();
  patient.request_timeout = patience;
  shared_mutex room{open(server_->address(), patient), "room", lasting()};

  auto held = room.try_acquire();

  ASSERT_TRUE(held);
  EXPECT_EQ(held->release(), release_result::released);
  EXPECT_EQ(rows(), 0);
}

TEST_F(Crowd, OfDeadNamesIsSweptInPieces) {
  for (int i = 0; i < 3; ++i) {
    add_readers(*server_, "room" + std::to_string(i), crowd / 4, false);
    add_dead_holders(*server_, "other" + std::to_string(i), crowd / 4);
  }

  in_pieces([] { return sweep_once(*server_); }, [] { return rows(); });

  EXPECT_EQ(rows(), 0);
}

TEST_F(Crowd, OfDeadWaitersDoesNotKeepTheLiveOneBehindItWaiting) {
  const auto inside = open(server_->address());
  shared_mutex room{inside, "room", lasting()};
  shared_mutex same_room{open(server_->address()), "room", lasting()};
  auto held = room.acquire();
  add_readers(*server_, "room", crowd, false);
  background<bool> next([&] { return same_room.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(eventually([&] { return inside.who("room").value().waiters.size() == 1; }));

  held.release();

  EXPECT_TRUE(next.get());
  EXPECT_TRUE(kit::eventually([] { return rows() == 0; }));
}

TEST_F(Crowd, OfReadersEntersWhenTheWriterLeavesAlthoughNobodyAsks) {
  shared_mutex room{open(server_->address()), "room", lasting()};
  auto held = room.acquire();
  add_readers(*server_, "room", crowd, true);

  held.release();

  EXPECT_TRUE(kit::eventually([] { return rows_in("lock") == crowd; })) << rows_in("lock");
}

TEST_F(Crowd, OfReadersEntersWhenTheWriterIsDowngradedAlthoughNobodyAsks) {
  shared_mutex room{open(server_->address()), "room", lasting()};
  auto held = room.acquire();
  add_readers(*server_, "room", crowd, true);

  held.downgrade();

  EXPECT_TRUE(kit::eventually([] { return rows_in("lock") == crowd + 1; })) << rows_in("lock");
  EXPECT_EQ(held.release(), release_result::released);
}

TEST_F(Crowd, OfNamesIsListedInPieces) {
  for (int i = 100; i < 250; ++i) add_readers(*server_, "n" + std::to_string(i), 1, true);
  const auto store = open(server_->address());

  const auto all = store.list("n", "n100", 140);

  ASSERT_EQ(all.size(), 140U);
  EXPECT_EQ(all.front().name, "n101");
  EXPECT_EQ(all.back().name, "n240");
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &lock_info::name));
  EXPECT_EQ(store.list("n", "n240", 140).size(), 9U);
}

}  // namespace
}  // namespace sallyport::sql_live
