#include "backends/redis/test_live_store.hpp"
#include "base/log.hpp"
#include "tests/kit/certificates.hpp"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

// Opening a client: who is let in, what those are told who are not, and that no secret is told.
namespace sallyport::redis_live {
namespace {

constexpr std::string_view secret = "s3cr3t-of-the-tests";
constexpr std::string_view wrong = "wr0ng-of-the-tests";

/// All that the library logs while it lives.
class log_reader {
 public:
  log_reader() {
    base::set_log_sink([this](base::log_level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_ += std::string(line) + "\n";
    });
  }
  log_reader(const log_reader&) = delete;
  log_reader& operator=(const log_reader&) = delete;
  ~log_reader() { base::set_log_sink({}); }
  [[nodiscard]] std::string all() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::string lines_;
};

testing::AssertionResult holds(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

testing::AssertionResult tells_no_secret(const std::string& text) {
  for (const std::string_view each : {secret, wrong}) {
    if (text.find(each) != std::string::npos) {
      return testing::AssertionFailure() << "a password is in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

told opening(const std::string& address) {
  return error_of([&] { static_cast<void>(client::open(address, quick())); });
}

void expect_refused(const std::string& address, std::string_view cause, std::string_view remedy) {
  log_reader log;
  const told error = opening(address);
  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_TRUE(holds(error.text, cause));
  EXPECT_TRUE(holds(error.text, remedy));
  EXPECT_TRUE(tells_no_secret(error.text));
  EXPECT_TRUE(tells_no_secret(log.all()));
}

void expect_works(const std::string& address) {
  const auto error = error_of([&] {
    mutex lock{client::open(address, quick()), "door"};
    EXPECT_TRUE(lock.try_acquire());
  });
  EXPECT_FALSE(error.code) << error.text;
}

class Passwords : public testing::Test {
 protected:
  [[nodiscard]] std::string address(std::string_view login, std::string_view options = {}) const {
    return "redis://" + std::string(login) + "127.0.0.1:" + std::to_string(server_.port()) +
           std::string(options);
  }
  [[nodiscard]] const redis_server& server() const { return server_; }

 private:
  redis_server server_{{.password = std::string(secret),
                        .users = {"user alice on >" + std::string(secret) + " ~* &* +@all",
                                  "user nobody on >" + std::string(secret) + " ~* &* -@all",
                                  "user half on >" + std::string(secret) + " ~* &* +@all -publish",
                                  "user blind on >" + std::string(secret) + " ~other:* &* +@all"}}};
};

TEST_F(Passwords, OpenTheDoor) {
  expect_works(address(":" + std::string(secret) + "@"));
  expect_works(address("alice:" + std::string(secret) + "@"));
}

TEST_F(Passwords, MayBeInAFile) {
  const auto file = server().folder() / "password";
  std::ofstream(file) << secret << "\n";
  expect_works(address("", "?password_file=" + file.string()));
  expect_works(address("alice@", "?password_file=" + file.string()));
  expect_works(address("", "?user=alice&password_file=" + file.string()));
}

TEST_F(Passwords, MayBeInTheEnvironment) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  ASSERT_EQ(::setenv("SALLYPORT_TEST_PASSWORD", secret.data(), 1), 0);
  expect_works(address("alice@", "?password_env=SALLYPORT_TEST_PASSWORD"));
  ::unsetenv("SALLYPORT_TEST_PASSWORD");  // NOLINT(concurrency-mt-unsafe)

  const told error = opening(address("", "?password_env=SALLYPORT_TEST_PASSWORD"));
  EXPECT_EQ(error.code, errc::bad_uri);
  EXPECT_TRUE(holds(error.text, "SALLYPORT_TEST_PASSWORD"));
}

TEST_F(Passwords, AreNamedWhenTheFileIsMissing) {
  const told error = opening(address("", "?password_file=/nowhere/password"));
  EXPECT_EQ(error.code, errc::bad_uri);
  EXPECT_TRUE(holds(error.text, "/nowhere/password"));
}

TEST_F(Passwords, ThatAreWrongAreRefused) {
  expect_refused(address(":" + std::string(wrong) + "@"), "WRONGPASS", "password");
  expect_refused(address("alice:" + std::string(wrong) + "@"), "WRONGPASS", "password");
}

TEST_F(Passwords, OfUnknownUsersAreRefused) {
  expect_refused(address("mallory:" + std::string(secret) + "@"), "WRONGPASS", "user");
}

TEST_F(Passwords, ThatAreMissingAreRefused) { expect_refused(address(""), "NOAUTH", "password"); }

TEST_F(Passwords, OfUsersWithoutRightsAreRefused) {
  expect_refused(address("nobody:" + std::string(secret) + "@"), "NOPERM", "Permissions");
}

TEST_F(Passwords, OfUsersWithoutTheKeysAreRefused) {
  expect_refused(address("blind:" + std::string(secret) + "@"), "NOPERM", "Permissions");
}

TEST_F(Passwords, OfUsersWhoLackARightAreToldSoWhenItIsNeeded) {
  const auto store = client::open(address("half:" + std::string(secret) + "@"), quick());
  election race{store, "throne", lasting(1s)};

  const told error = error_of([&] { static_cast<void>(race.try_campaign_for("me", 100ms)); });

  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_TRUE(holds(error.text, "Permissions"));
  EXPECT_TRUE(tells_no_secret(error.text));
}

/// A server whose default user needs no password, as most have; another one needs none either.
class Users : public testing::Test {
 protected:
  [[nodiscard]] std::string address(std::string_view user) const {
    return "redis://" + std::string(user) + "@127.0.0.1:" + std::to_string(server_.port());
  }
  [[nodiscard]] const redis_server& server() const { return server_; }

 private:
  redis_server server_{{.users = {"user carol on nopass ~* &* +@all",
                                  "user alice on >" + std::string(secret) + " ~* &* +@all",
                                  "user asleep off nopass ~* &* +@all"}}};
};

TEST_F(Users, WithoutAPasswordAreLoggedIn) {
  mutex lock{client::open(address("carol"), quick()), "door", lasting()};
  mutex wanted{client::open(address("carol"), quick()), "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server(), "door", 1));

  // Two connections for commands and one at least for notices.
  std::istringstream clients(server().command({"CLIENT", "LIST"}).text);
  int ours = 0;
  for (std::string line; std::getline(clients, line);) {
    if (line.find(" name=sallyport:") == std::string::npos) continue;
    ++ours;
    EXPECT_TRUE(holds(line, " user=carol "));
  }
  EXPECT_GE(ours, 3);
  held.release();
  EXPECT_TRUE(next.get());
}

TEST_F(Users, WhoAreUnknownAreRefusedWithoutAPassword) {
  expect_refused(address("mallory"), "WRONGPASS", "password_file");
}

TEST_F(Users, WhosePasswordIsForgottenAreRefused) {
  expect_refused(address("alice"), "WRONGPASS", "password_file");
  expect_refused(address("alice:"), "WRONGPASS", "password_file");
}

TEST_F(Users, WhoAreSwitchedOffAreRefused) {
  expect_refused(address("asleep"), "WRONGPASS", "disabled");
}

TEST_F(Passwords, ThatAreEmptyInTheEnvironmentAreABadAddress) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  ASSERT_EQ(::setenv("SALLYPORT_TEST_PASSWORD", "", 1), 0);
  for (const char* login : {"", "alice@"}) {
    const told error = opening(address(login, "?password_env=SALLYPORT_TEST_PASSWORD"));
    EXPECT_EQ(error.code, errc::bad_uri) << error.text;
    EXPECT_TRUE(holds(error.text, "SALLYPORT_TEST_PASSWORD"));
    EXPECT_TRUE(holds(error.text, "empty"));
  }
  ::unsetenv("SALLYPORT_TEST_PASSWORD");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Passwords, AreNotToldWhenTheAddressIsWrong) {
  for (const char* options : {"?nonsense=1", "?prefix=%01", "/notanumber", "?verify=perhaps"}) {
    const told error = opening(address(":" + std::string(secret) + "@", options));
    EXPECT_EQ(error.code, errc::bad_uri) << options;
    EXPECT_TRUE(tells_no_secret(error.text));
  }
}

TEST_F(Passwords, AreNotToldWhenTheServerGoesAway) {
  log_reader log;
  auto away = std::make_optional<redis_server>(kit::redis_options{.password = std::string(secret)});
  const auto open_client =
      client::open("redis://:" + std::string(secret) + "@127.0.0.1:" + std::to_string(away->port()),
                   {.request_timeout = 300ms, .store_patience = 300ms});
  mutex lock{open_client, "door"};
  away.reset();

  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });

  EXPECT_TRUE(error.code);
  EXPECT_TRUE(tells_no_secret(error.text));
  EXPECT_TRUE(tells_no_secret(log.all()));
  EXPECT_TRUE(tells_no_secret(open_client.capabilities().store_id));
}

TEST(Opening, OfAServerWithoutPasswordsMayNotBringOne) {
  const redis_server server;
  expect_refused("redis://:" + std::string(wrong) + "@127.0.0.1:" + std::to_string(server.port()),
                 "AUTH", "password");
}

TEST(Opening, OfADatabaseThatIsNotThereIsRefused) {
  const redis_server server;
  expect_refused(address_at(server.port(), "/99"), "out of range", "databases");
  expect_works(address_at(server.port(), "/3"));
}

TEST(Opening, OfAReplicaIsRefused) {
  const redis_server master;
  const redis_server replica{{.replica_of = master.port()}};
  expect_refused(address_at(replica.port()), "replica", "redis+sentinel://");
}

TEST(Opening, OfANodeOfAClusterIsRefused) {
  const redis_server node{{.cluster = true}};
  expect_refused(address_at(node.port()), "cluster", "redis+cluster://");
}

TEST(Opening, OfAPortThatSpeaksSomethingElseEndsInTime) {
  kit::certificates files;
  const redis_server server{
      {.tls = kit::redis_tls{files.server.certificate, files.server.key, files.authority}}};
  // Without TLS to the port of TLS: the server just hangs up.
  const auto began = lease_clock::now();
  const told error = error_of([&] {
    mutex lock{client::open(address_at(server.tls_port()),
                            {.request_timeout = 300ms, .store_patience = 300ms}),
               "door"};
    static_cast<void>(lock.try_acquire());
  });
  EXPECT_EQ(error.code, errc::unavailable) << error.text;
  EXPECT_LT(lease_clock::now() - began, slack);
}

class Tls : public testing::Test {
 protected:
  explicit Tls() = default;
  [[nodiscard]] static std::string address(std::uint16_t port, const std::string& options) {
    return "rediss://localhost:" + std::to_string(port) + "?" + options;
  }
  [[nodiscard]] redis_server serve(
      const kit::certificate_files& as,
      kit::redis_client_certificates clients = kit::redis_client_certificates::not_asked) const {
    return redis_server{{.tls = kit::redis_tls{as.certificate, as.key, files_.authority, clients}}};
  }
  [[nodiscard]] std::string trusted() const { return "ca_file=" + files_.authority.string(); }
  [[nodiscard]] const kit::certificates& files() const { return files_; }

 private:
  kit::certificates files_;
};

TEST_F(Tls, OfATrustedServerWorks) {
  const redis_server server = serve(files().server);
  expect_works(address(server.tls_port(), trusted()));
}

TEST_F(Tls, OfAnUnknownAuthorityIsRefused) {
  const redis_server server = serve(files().server);
  expect_refused(address(server.tls_port(), "ca_file=" + files().other_authority.string()),
                 "certificate was refused", "ca_file");
}

TEST_F(Tls, OfAnotherHostIsRefused) {
  const redis_server server = serve(files().wrong_host);
  expect_refused(address(server.tls_port(), trusted()), "mismatch", "server_name");
  expect_works(address(server.tls_port(), trusted() + "&server_name=wrong.example"));
}

TEST_F(Tls, ThatHasExpiredIsRefused) {
  const redis_server server = serve(files().expired);
  expect_refused(address(server.tls_port(), trusted()), "expired", "certificate");
}

TEST_F(Tls, WithoutTheCertificateThatIsAskedForIsRefused) {
  const redis_server server = serve(files().server, kit::redis_client_certificates::required);
  expect_refused(address(server.tls_port(), trusted()), "certificate", "cert_file");
  expect_works(address(server.tls_port(), trusted() +
                                              "&cert_file=" + files().client.certificate.string() +
                                              "&key_file=" + files().client.key.string()));
}

TEST_F(Tls, WithFilesThatAreMissingIsABadOption) {
  const redis_server server = serve(files().server);
  const told error = opening(address(server.tls_port(), "ca_file=/nowhere/ca.pem"));
  EXPECT_EQ(error.code, errc::bad_option) << error.text;
  EXPECT_TRUE(holds(error.text, "/nowhere/ca.pem"));
}

TEST(Opening, OfAServerThatIsStartedLaterWorks) {
  redis_server server;
  server.stop();
  const auto early = open(server.port());
  EXPECT_FALSE(early.capabilities().caveats.empty());
  mutex lock{early, "door", lasting()};
  waiter next(lock);

  server.start();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->valid());
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(server));
}

}  // namespace
}  // namespace sallyport::redis_live
