#include "backends/redis/test_live_store.hpp"

#include <atomic>
#include <set>
#include <thread>

// What fencing gates know a store by: a name that the store itself keeps, however it is reached.
namespace sallyport::redis_live {
namespace {

constexpr const char* name_key = "\1store";

std::string fence_lock(const client& store) {
  mutex lock{store, "door", lasting()};
  return lock.acquire().fence_pass().lock;
}

std::string fence_lock_at(const std::string& address) {
  return fence_lock(client::open(address, quick()));
}

TEST(StoreName, IsTheSameThroughEveryAddress) {
  const redis_server server{{.unix_socket = true}};
  const std::string port = std::to_string(server.port());

  const std::string lock = fence_lock_at("redis://127.0.0.1:" + port);

  EXPECT_EQ(lock, "redis:" + server.command({"GET", name_key}).text + "|door");
  for (const std::string& address :
       {"redis://localhost:" + port, "redis://127.1:" + port, "redis://127.0.0.1:" + port + "/0",
        "redis+unix://" + server.unix_path(), "redis://127.0.0.1:" + port + "?client_name=other"}) {
    EXPECT_EQ(fence_lock_at(address), lock) << address;
  }
}

TEST(StoreName, IsAnotherOneInAnotherDatabaseAndUnderAnotherPrefix) {
  const redis_server server;
  std::set<std::string> names;

  for (const char* each : {"", "/1", "?prefix=a:", "?prefix=b:", "/1?prefix=a:"}) {
    names.insert(fence_lock_at(address_at(server.port(), each)));
  }

  EXPECT_EQ(names.size(), 5U);
}

TEST(StoreName, IsDrawnOnceByManyWhoComeAtOnce) {
  const redis_server server;
  constexpr int clients = 16;
  std::vector<std::string> names(clients);
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < clients; ++i) {
      all.emplace_back([&, i] {
        names[static_cast<std::size_t>(i)] = open(server.port()).capabilities().store_id;
      });
    }
  }

  for (const std::string& each : names) EXPECT_EQ(each, names.front());
  EXPECT_EQ(names.front(), "redis:" + server.command({"GET", name_key}).text);
}

TEST(StoreName, CanBeGivenByHandAndThenTheStoreIsNotAsked) {
  const redis_server server;

  EXPECT_EQ(fence_lock_at(address_at(server.port(), "?store=shop-1")), "redis:shop-1/0:|door");
  // Each prefix and each database has tokens of its own, and so a name of its own.
  EXPECT_EQ(fence_lock_at(address_at(server.port(), "?store=shop-1&prefix=a:")),
            "redis:shop-1/0:a:|door");
  EXPECT_EQ(fence_lock_at(address_at(server.port(), "/2?store=shop-1")), "redis:shop-1/2:|door");

  EXPECT_EQ(server.command({"EXISTS", name_key}).integer, 0);
  for (const char* bad : {"?store=", "?store=a%20b", "?store=a%7Cb", "?store=a/b"}) {
    EXPECT_EQ(
        error_of([&] { static_cast<void>(client::open(address_at(server.port(), bad))); }).code,
        errc::bad_uri)
        << bad;
  }
}

TEST(StoreName, OfALostStoreIsDrawnAnewAndALeaseKeepsThatOfItsGrant) {
  const redis_server server;
  const auto store = open(server.port());
  mutex lock{store, "door", lasting()};
  const auto held = lock.acquire();
  const std::string before = held.fence_pass().lock;

  server.command({"FLUSHALL"});
  server.command({"CLIENT", "KILL", "TYPE", "normal"});
  const std::string after = [&] {
    mutex other{store, "other", lasting()};
    return other.acquire().fence_pass().lock;
  }();

  EXPECT_NE(after, before.substr(0, before.find('|')) + "|other") << "the name was drawn anew";
  EXPECT_EQ(after, "redis:" + server.command({"GET", name_key}).text + "|other");
  EXPECT_EQ(held.fence_pass().lock, before) << "its token is of the store as it was";
}

TEST(StoreName, IsKnownToALeaseOfAClientThatWasOpenedWhileTheServerWasAway) {
  redis_server server;
  const std::string lock = fence_lock(open(server.port()));
  server.stop(true);

  const auto store = open(server.port());
  EXPECT_EQ(store.capabilities().store_id, "");
  server.start();

  EXPECT_EQ(fence_lock(store), lock);
}

TEST(StoreName, IsDrawnOnAServerThatIsFull) {
  const redis_server server;
  server.command({"SET", "ballast", std::string(1'000'000, 'x')});
  server.command({"CONFIG", "SET", "maxmemory", "1"});

  const auto store = open(server.port());

  EXPECT_EQ(store.capabilities().store_id, "redis:" + server.command({"GET", name_key}).text);
  EXPECT_EQ(server.command({"PTTL", name_key}).integer, -1);
}

TEST(StoreName, ThatIsNoneIsRefusedAndLeftAlone) {
  const redis_server server;
  server.command({"SET", name_key, "no name"});
  const auto words = error_of([&] { static_cast<void>(open(server.port())); });
  EXPECT_EQ(words.code, errc::store_refused);
  EXPECT_TRUE(words.says("name")) << words.text;
  EXPECT_EQ(server.command({"GET", name_key}).text, "no name");

  server.command({"DEL", name_key});
  server.command({"LPUSH", name_key, "1"});
  EXPECT_EQ(error_of([&] { static_cast<void>(open(server.port())); }).code, errc::store_refused);
}

}  // namespace
}  // namespace sallyport::redis_live
