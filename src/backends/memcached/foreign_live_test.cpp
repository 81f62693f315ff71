#include "backends/memcached/test_live_server.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

// Items under a lock's name that others made: locks of other clients, by plain `add` and `delete`.
namespace sallyport::memcached_live {
namespace {

class Foreign : public testing::Test {
 protected:
  /// Runs a few lines of Python with `server`, a pymemcache client; what it prints.
  std::string python(const std::string& lines) {
    const auto script = server_.folder() / "other.py";
    std::ofstream(script) << "from pymemcache.client.base import Client\n"
                          << "server = Client(('127.0.0.1', " << server_.port() << "))\n"
                          << lines << "\n";
    const std::string command = "/usr/bin/python3 -B " + script.string() + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
    std::string text;
    for (int each = std::fgetc(pipe.get()); each != EOF; each = std::fgetc(pipe.get())) {
      text += static_cast<char>(each);
    }
    return text;
  }

  memcached_server server_;
  const client store_ = open(server_.port());
  mutex lock_{store_, "door", lasting()};
};

TEST_F(Foreign, LockOfPymemcacheKeepsUsOutAndOursKeepsItOut) {
  ASSERT_EQ(python("print(server.add('door', b'theirs', expire=60, noreply=False))"), "True\n");
  EXPECT_FALSE(lock_.try_acquire());
  EXPECT_FALSE(lock_.try_acquire_for(100ms));
  waiter next(lock_);

  ASSERT_EQ(python("print(server.delete('door', noreply=False))"), "True\n");
  auto got = next.get();
  ASSERT_TRUE(got);

  EXPECT_EQ(python("print(server.add('door', b'theirs', expire=60, noreply=False))"), "False\n");
  got->release();
  EXPECT_EQ(python("print(server.add('door', b'theirs', expire=60, noreply=False))"), "True\n");
}

TEST_F(Foreign, ItemIsShownAsAStrangersAndNeverTouched) {
  const auto probe = server_.probe();
  ASSERT_EQ(probe->ask("add door 0 0 6\r\ntheirs"), "STORED");

  EXPECT_FALSE(lock_.try_acquire());
  const auto seen = store_.who("door");

  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->holders.at(0).label, "not a Sallyport client");
  EXPECT_EQ(error_of([&] { store_.break_lock("door", fencing_token{1}); }).code,
            errc::not_supported);
  EXPECT_TRUE(probe->ask("mg door c").starts_with("HD"));
}

TEST_F(Foreign, ItemInOurPlaceIsNeitherRenewedNorReleased) {
  mutex lock{open(server_.port()), "door", lasting(3s)};
  auto held = lock.acquire();
  const auto probe = server_.probe();
  ASSERT_EQ(probe->ask("set door 0 60 6\r\ntheirs"), "STORED") << "they may: it is a cache";
  const std::string theirs = probe->ask("mg door c s");

  EXPECT_TRUE(becomes_lost(held));
  EXPECT_EQ(held.release(), release_result::already_lost);
  EXPECT_EQ(probe->ask("mg door c s"), theirs);
}

TEST_F(Foreign, ItemOfAnySizeOrKindIsHeld) {
  const auto probe = server_.probe();
  for (const std::string& value : {std::string(), std::string("sp1"), std::string("END\r\nSTORED"),
                                   std::string(900'000, 'x')}) {
    ASSERT_EQ(probe->ask("set door 0 60 " + std::to_string(value.size()) + "\r\n" + value),
              "STORED");
    EXPECT_FALSE(lock_.try_acquire()) << value.size();
    EXPECT_TRUE(store_.who("door"));
  }
  ASSERT_EQ(probe->ask("delete door"), "DELETED");
  EXPECT_TRUE(lock_.try_acquire());
}

}  // namespace
}  // namespace sallyport::memcached_live
