#include "backends/sql/test_live_opening.hpp"

#include <csignal>
#include <memory>
#include <string>
#include <vector>

// Who is let in, what is made on first use, and what the others are told.
namespace sallyport::sql_live {
namespace {

TEST_F(Opening, ByManyAtOnceMakesTheTablesOnce) {
  const std::string address = server_->address() + in_space("many");
  std::vector<std::unique_ptr<background<bool>>> all;
  all.reserve(12);
  for (int i = 0; i < 12; ++i) {
    all.push_back(std::make_unique<background<bool>>([&, i] {
      mutex lock{open(address), "door " + std::to_string(i % 3), lasting()};
      auto held = lock.acquire();
      return held.release() == release_result::released;
    }));
  }

  for (auto& each : all) EXPECT_TRUE(each->get());
  EXPECT_TRUE(made_once(*server_, "many"));
}

TEST_F(Opening, RefusesSomebodyElsesTableAndDoesNotHarmIt) {
  make_space(*server_, "other");
  server_->rows("CREATE TABLE " + table("lock", "other") + " (door TEXT)");
  server_->rows("INSERT INTO " + table("lock", "other") + " VALUES ('mine')");

  const auto refused = error_of([&] { open(server_->address() + in_space("other")); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.text;
  EXPECT_EQ(server_->value("SELECT door FROM " + table("lock", "other")), "mine");
  EXPECT_EQ(count_tables(*server_, "other"), 1U);
}

TEST_F(Opening, RefusesATableThatLooksLikeItsVersionAndIsNot) {
  make_space(*server_, "untrue");
  server_->rows("CREATE TABLE " + table("state", "untrue") +
                " (one INT, version TEXT, store TEXT)");

  const auto refused = error_of([&] { open(server_->address() + in_space("untrue")); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says(errors().strange_state)) << refused.text;
}

TEST_F(Opening, TheStoresNameIsTheSameThroughEveryAddress) {
  const auto lock_at = [](const std::string& address) {
    mutex lock{open(address), "door", lasting()};
    return lock.acquire().fence_pass().lock;
  };
  const std::string usual = address_at(server_->port());

  const std::string lock = lock_at(usual);

  EXPECT_NE(lock.find(server_->value("SELECT store FROM " + table("state")) + "|door"),
            std::string::npos)
      << lock;
  for (const std::string& address : other_addresses(*server_)) {
    EXPECT_EQ(lock_at(address), lock) << address;
  }
  EXPECT_NE(lock_at(usual + in_space("elsewhere")), lock);
  const std::string by_hand = lock_at(usual + "?store=shop");
  EXPECT_NE(by_hand.find(":shop/"), std::string::npos) << by_hand;
  std::string elsewhere = in_space("elsewhere");
  elsewhere += "&store=shop";
  EXPECT_NE(lock_at(usual + elsewhere), by_hand) << "its tokens are others";
  EXPECT_EQ(error_of([&] { open(usual + "?store=a%20b"); }).code, errc::bad_uri);
}

TEST_F(Opening, TheStoresNameIsKnownToALeaseAlsoIfTheServerWasNotThereAtFirst) {
  const std::string space = in_space("later");
  const std::string lock = [&] {
    mutex door{open(address_at(server_->port()) + space), "door", lasting()};
    return door.acquire().fence_pass().lock;
  }();
  fault_proxy network{server_->port()};
  network.refuse_connections();
  const auto store = open(address_at(network.port()) + space);
  EXPECT_EQ(store.capabilities().store_id, "");

  network.accept_connections();
  mutex door{store, "door", lasting()};

  EXPECT_EQ(door.acquire().fence_pass().lock, lock);
}

TEST_F(Opening, TheStoresNameIsThatOfTheTablesThatMadeTheGrant) {
  fault_proxy network{server_->port()};
  const auto store = open(address_at(network.port()) + in_space("renamed"));
  mutex door{store, "door", lasting()};
  const auto held = door.acquire();
  const std::string before = held.fence_pass().lock;

  server_->rows("UPDATE " + table("state", "renamed") +
                " SET store = '6d0b5a3c-29f4-4c4e-9d3f-0a1b2c3d4e5f'");
  network.close_all();
  mutex window{store, "window", lasting()};
  const std::string after = window.acquire().fence_pass().lock;

  EXPECT_NE(after.find(":6d0b5a3c-"), std::string::npos) << after;
  EXPECT_EQ(held.fence_pass().lock, before) << "its token is of the store as it was";
}

TEST_F(Opening, RefusesAnotherVersion) {
  open(server_->address() + in_space("later"));
  server_->rows("UPDATE " + table("state", "later") + " SET version = 99");

  const auto refused = error_of([&] { open(server_->address() + in_space("later")); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("version 99")) << refused.text;
}

TEST_F(Opening, WithoutTheRightToMakeTablesSaysWhatAnAdministratorRuns) {
  const std::string address = with_user(*server_, "app", in_space("for_app"));

  const auto refused = error_of([&] { open(address); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("sallyport schema")) << refused.text;

  run_script(*server_, client::schema(address));
  mutex lock{open(address), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(error_of([] { static_cast<void>(client::schema("memory:")); }).code,
            errc::not_supported);
}

TEST_F(Opening, MissingRightsAreTheServersOwnWord) {
  const std::string address = with_user(*server_, "app", in_space("half"));
  run_script(*server_, client::schema(address));
  server_->rows("REVOKE INSERT ON " + table("lock", "half") + " FROM app");

  mutex lock{open(address), "door", lasting()};
  const auto refused = error_of([&] { static_cast<void>(lock.acquire()); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says(errors().missing_right)) << refused.text;
}

TEST_F(Opening, SaysThatADatabaseIsNotThere) {
  const auto refused = error_of([&] { open(address_of_nowhere(*server_)); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says(errors().no_such_database)) << refused.text;
}

TEST_F(Opening, LeavesTheProgramsSignalsAsTheyWere) {
  struct sigaction before {};
  sigaction(SIGPIPE, nullptr, &before);

  open(server_->address() + in_space("signals"));

  struct sigaction after {};
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(Opening, KeepsNamesApartThatOtherCollationsWouldMerge) {
  const auto store = open(server_->address() + in_space("names"));
  std::vector<lease> all;
  for (const std::string& name :
       {std::string("door"), std::string("Door"), std::string("door "), std::string("do\xc3\xb6r"),
        std::string("doo\xcc\x88r"),
        std::string("d\xc3\x98"
                    "r"),
        std::string(255, 'x'), std::string(254, 'x'), std::string("it's `a` \"name\" \\ %_")}) {
    mutex lock{store, name, lasting()};
    auto held = lock.try_acquire();
    ASSERT_TRUE(held) << name;
    all.push_back(std::move(*held));
  }

  EXPECT_EQ(server_->value("SELECT MAX(LENGTH(name)) FROM " + table("lock", "names")), "255");
}

TEST_F(Opening, NamesAndWordsOfAllSortsAreBytesToTheServer) {
  const auto store = open(server_->address());
  server_->rows("CREATE TABLE kept (n INTEGER)");
  for (const std::string& good :
       {std::string("quote'\"`$;"), std::string("'); DROP TABLE kept; --"),
        std::string("'); DROP TABLE public.kept; --"), std::string("$1"),
        std::string("back\\slash\\x00"), std::string("{array,\"item\"}"),
        std::string("\xf0\x9f\x9a\xaa"), std::string(255, 'x')}) {
    mutex lock{store, good, lasting()};
    auto held = lock.try_acquire();
    ASSERT_TRUE(held) << good;
    EXPECT_FALSE(lock.try_acquire());
    EXPECT_EQ(store.who(good).value().name, good);
    EXPECT_EQ(held->release(), release_result::released);
  }
  for (const std::string& bad :
       {std::string(), std::string("nul\0byte", 8), std::string("line\nbreak"), std::string("\xff"),
        std::string("cut \xc3"), std::string(256, 'x'), std::string(1 << 20, 'x')}) {
    EXPECT_EQ(error_of([&] { mutex{store, bad}; }).code, errc::bad_name);
  }
  // What a leader says may be anything.
  using namespace std::string_literals;
  const std::string words = "nul\0, ', \n, \xff\xfe, "s + std::string(1000, '\x80');
  election chair{store, "chair", lasting()};
  auto leading = chair.try_campaign(words);
  ASSERT_TRUE(leading);
  EXPECT_EQ(chair.leader().value().value, words);
  leading->release();
  EXPECT_EQ(server_->value("SELECT COUNT(*) FROM kept"), "0");
}

}  // namespace
}  // namespace sallyport::sql_live
