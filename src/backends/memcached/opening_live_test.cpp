#include "backends/memcached/test_live_server.hpp"
#include "tests/kit/certificates.hpp"

#include <cstdlib>
#include <fstream>

// Opening a client: who is let in, what those are told who are not; and names of all sorts.
namespace sallyport::memcached_live {
namespace {

constexpr std::string_view secret = "s3cr3t-of-the-tests";

told opening(const std::string& address) {
  return error_of([&] {
    mutex lock{client::open(address, quick()), "door"};
    EXPECT_TRUE(lock.try_acquire());
  });
}

TEST(Login, ComesFromAFileOrTheEnvironmentAndIsNeverTold) {
  const memcached_server server{{.login = "locks:" + std::string(secret)}};
  const auto file = server.folder() / "password";
  std::ofstream(file) << secret << "\n";
  ASSERT_EQ(::setenv("SALLYPORT_TEST_PASSWORD", std::string(secret).c_str(), 1), 0);
  const std::string at = address_at(server.port());

  EXPECT_EQ(opening(at + "?user=locks&password_file=" + file.string()).text, "");
  EXPECT_EQ(opening(at + "?user=locks&password_env=SALLYPORT_TEST_PASSWORD").text, "");

  std::ofstream(file) << "wrong-" << secret << "\n";
  for (const std::string& options : {std::string(), "?user=locks&password_file=" + file.string(),
                                     "?user=other&password_file=" + file.string()}) {
    const told error = opening(at + options);
    EXPECT_EQ(error.code, errc::store_refused) << error.text;
    EXPECT_TRUE(holds(error.text, "password"));
    EXPECT_FALSE(holds(error.text, secret));
  }
}

TEST(Addresses, ThatAreWrongSayWhatIsWrong) {
  for (const auto& [address, cause] :
       {std::pair{"memcached://a,b", "one server"},
        {"memcached://h:0", "port"},
        {"memcached://h/path", "path"},
        {"memcached://h?prefix=two%20words", "prefix"},
        {"memcached://h?prefix=x%0d%0aflush_all", "prefix"},
        {"memcached://h?nonsense=1", "nonsense"},
        {"memcached://h?user=me", "password"},
        {"memcached://me:two%20words@h", "blanks"},
        {"memcached://h?password_file=/nowhere/password", "/nowhere/password"},
        {"memcached://h?ca_file=/x", "memcacheds"},
        {"memcached+unix://h/x", "whole path"}}) {
    const told error = error_of([&] { static_cast<void>(client::open(address, quick())); });
    EXPECT_EQ(error.code, errc::bad_uri) << address << ": " << error.text;
    EXPECT_TRUE(holds(error.text, cause));
    EXPECT_TRUE(holds(error.text, "memcached://"));
  }
}

TEST(Servers, WithoutCasAreRefused) {
  const memcached_server server{{.arguments = {"-C"}}};
  const told error = opening(address_at(server.port()));
  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_TRUE(holds(error.text, "-C"));
}

TEST(Servers, ThatAreStartedLaterAreWaitedFor) {
  memcached_server server;
  server.kill();
  const auto early = open(server.port());
  mutex lock{early, "door", lasting()};
  waiter next(lock);

  server.start();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Tls, AsksForTheRightCertificates) {
  const kit::certificates files;
  const memcached_server server{{.tls = kit::memcached_tls{.certificate = files.server.certificate,
                                                           .key = files.server.key,
                                                           .authority = files.authority}}};
  const std::string ours =
      "&cert_file=" + files.client.certificate.string() + "&key_file=" + files.client.key.string();

  EXPECT_EQ(opening(server.address() + "?ca_file=" + files.authority.string() + ours).text, "");
  const told stranger =
      opening(server.address() + "?ca_file=" + files.other_authority.string() + ours);
  EXPECT_EQ(stranger.code, errc::store_refused) << stranger.text;
  EXPECT_TRUE(holds(stranger.text, "ca_file"));
}

TEST(Capabilities, SayWhatACacheDoesNotPromise) {
  const memcached_server server;
  const auto store = open(server.port());

  EXPECT_FALSE(store.capabilities().fencing);
  EXPECT_FALSE(store.capabilities().fifo);
  std::string all;
  for (const std::string& each : store.capabilities().caveats) all += each + "\n";
  for (const char* const word : {"restart", "flush_all", "fencing", "evicts", "listed"}) {
    EXPECT_TRUE(holds(all, word));
  }
  EXPECT_EQ(error_of([&] {
              mutex{store, "door", {.require_fencing = true}};
            }).code,
            errc::not_supported);
  EXPECT_EQ(error_of([&] { shared_mutex{store, "page"}; }).code, errc::not_supported);
  EXPECT_EQ(error_of([&] { semaphore{store, "pool", 2}; }).code, errc::not_supported);
  EXPECT_EQ(error_of([&] { static_cast<void>(store.list()); }).code, errc::not_supported);
}

TEST(Names, OfAllSortsAreLockedOrRefusedAndNeverSaidToTheServer) {
  const memcached_server server;
  const auto store = open(server.port());
  const std::string before = "kept";
  ASSERT_EQ(server.probe()->ask("set kept 0 0 1\r\nx"), "STORED");

  for (const std::string& good :
       {std::string("quote'\"`$;"), std::string("two words"), std::string(" lead and trail "),
        std::string(255, 'x'), std::string(250, 'y'), std::string("md kept"),
        std::string("\xc2\xa0"), std::string("\xf0\x9f\x9a\xaa")}) {
    mutex lock{store, good, lasting()};
    auto held = lock.try_acquire();
    ASSERT_TRUE(held) << good;
    EXPECT_FALSE(lock.try_acquire());
    EXPECT_EQ(store.who(good).value().name, good);
    EXPECT_EQ(held->release(), release_result::released);
  }
  for (const std::string& bad :
       {std::string(), std::string("nul\0byte", 8), std::string("line\r\nflush_all"),
        std::string("tab\t"), std::string("\xff"), std::string("cut \xc3"), std::string(256, 'x'),
        std::string(1 << 20, 'x')}) {
    EXPECT_EQ(error_of([&] { mutex{store, bad}; }).code, errc::bad_name);
  }
  EXPECT_TRUE(server.probe()->ask("mg kept c").starts_with("HD"));
}

}  // namespace
}  // namespace sallyport::memcached_live
