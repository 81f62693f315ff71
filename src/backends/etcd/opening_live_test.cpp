#include "backends/etcd/test_live_cluster.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <cstdlib>
#include <fstream>
#include <thread>

// Addresses, log-in and TLS.
namespace sallyport::etcd_live {
namespace {

TEST(EtcdOpening, AddressesThatMakeNoSenseAreRefused) {
  for (const std::string address :
       {"etcd://127.0.0.1:x", "etcd://127.0.0.1/path", "etcd://127.0.0.1?nosuch=option",
        "etcd://127.0.0.1?ca_file=/x", "etcd://u@127.0.0.1?password_file=/no/such/file",
        "etcds://127.0.0.1?ca_file=/no/such/file"}) {
    EXPECT_EQ(error_of([&] { client::open(address); }).code, errc::bad_uri) << address;
  }
}

TEST(EtcdOpening, AnyOfTheMembersIsEnough) {
  const etcd_cluster cluster;
  const std::string address =
      "etcd://127.0.0.1:1,127.0.0.1:2,127.0.0.1:" + std::to_string(cluster.port(0));

  mutex lock{open(address), "door", lasting()};

  EXPECT_TRUE(lock.try_acquire());
}

std::string lock_at(const std::string& address, const std::string& name = "door") {
  mutex lock{open(address), name, lasting()};
  return lock.acquire().fence_pass().lock;
}

TEST(EtcdStoreName, IsTheSameThroughEveryAddress) {
  etcd_cluster cluster{{.members = 3}};
  const std::string port = std::to_string(cluster.port(1));

  const std::string lock = lock_at(address_at(cluster.port(0)));

  EXPECT_EQ(lock.size(), std::string("etcd:").size() + 32 + std::string("|door").size()) << lock;
  EXPECT_EQ(lock_at("etcd://localhost:" + port), lock);
  EXPECT_EQ(lock_at(cluster.address()), lock);
  EXPECT_NE(lock_at(cluster.address() + "?prefix=app/"), lock);
  EXPECT_EQ(lock_at(cluster.address() + "?store=shop"), "etcd:shop:|door");
  EXPECT_EQ(lock_at(cluster.address() + "?store=shop&prefix=app/"), "etcd:shop:app/|door");
  EXPECT_EQ(error_of([&] { client::open(cluster.address() + "?store=a%20b"); }).code,
            errc::bad_uri);
}

TEST(EtcdStoreName, IsDrawnOnceByManyWhoComeAtOnce) {
  const etcd_cluster cluster;
  constexpr std::size_t clients = 8;
  std::vector<std::string> locks(clients);
  {
    std::vector<std::jthread> all;
    for (std::size_t i = 0; i < clients; ++i) {
      all.emplace_back([&, i] {
        const std::string lock = lock_at(address_at(cluster.port(0)), std::to_string(i));
        locks[i] = lock.substr(0, lock.find('|'));
      });
    }
  }

  for (const std::string& each : locks) EXPECT_EQ(each, locks.front());
}

TEST(EtcdStoreName, IsAskedForAgainAfterTheConnectionBroke) {
  etcd_cluster cluster;
  etcd_cluster other;
  fault_proxy network{cluster.port(0)};
  const auto store = open(address_at(network.port()));
  mutex door{store, "door", lasting()};
  const auto held = door.acquire();
  const std::string before = held.fence_pass().lock;

  network.set_target(other.port(0));
  network.close_all();
  const std::string after = [&] {
    mutex window{store, "window", lasting()};
    return window.acquire().fence_pass().lock;
  }();

  EXPECT_NE(after.substr(0, after.find('|')), before.substr(0, before.find('|')));
  EXPECT_EQ(held.fence_pass().lock, before) << "its token is of the store as it was";
  EXPECT_EQ(lock_at(address_at(other.port(0)), "window"), after);
}

TEST(EtcdStoreName, WithoutTheRightToKeepItNobodyIsLetInUnlessItIsGivenByHand) {
  etcd_cluster cluster{{.flags = {"--bcrypt-cost=4"}}};
  cluster.ctl({"user", "add", "root:topsecret"});
  cluster.ctl({"user", "add", "alice:secret"});
  cluster.ctl({"role", "add", "doors"});
  cluster.ctl({"role", "grant-permission", "doors", "--prefix=true", "readwrite", "door/"});
  cluster.ctl({"user", "grant-role", "alice", "doors"});
  cluster.ctl({"user", "grant-role", "root", "root"});
  cluster.ctl({"auth", "enable"});
  cluster.always_say({"--user=root:topsecret"});
  const std::string address = "etcd://alice:secret@127.0.0.1:" + std::to_string(cluster.port(0));

  const auto refused = error_of([&] { static_cast<void>(lock_at(address)); });

  EXPECT_EQ(refused.code, errc::store_refused) << refused.text;
  EXPECT_NE(refused.text.find("store's name"), std::string::npos) << refused.text;
  EXPECT_EQ(lock_at(address + "?store=shop"), "etcd:shop:|door");
}

/// A cluster that asks for a log-in, and whose tokens live for a short time only.
class EtcdLogIn : public testing::Test {
 protected:
  EtcdLogIn() {
    cluster_.ctl({"user", "add", "root:topsecret"});
    cluster_.ctl({"user", "add", "alice:secret"});
    cluster_.ctl({"role", "add", "locks"});
    cluster_.ctl({"role", "grant-permission", "locks", "--prefix=true", "readwrite", "app/"});
    cluster_.ctl({"user", "grant-role", "alice", "locks"});
    cluster_.ctl({"user", "grant-role", "root", "root"});
    cluster_.ctl({"auth", "enable"});
    cluster_.always_say({"--user=root:topsecret"});
  }
  [[nodiscard]] std::string address(std::string_view user, std::string_view options) const {
    return "etcd://" + std::string(user) + "127.0.0.1:" + std::to_string(cluster_.port(0)) +
           std::string(options);
  }

  etcd_cluster cluster_{{.flags = {"--auth-token-ttl=2", "--bcrypt-cost=4"}}};
};

TEST_F(EtcdLogIn, ATokenThatHasExpiredIsReplaced) {
  const client store = open(address("alice:secret@", "?prefix=app/"));
  mutex lock{store, "door", lasting(3s)};
  mutex other{open(address("alice:secret@", "?prefix=app/")), "door", lasting(3s)};
  std::optional<lease> held = lock.acquire();
  waiter waiting{other};

  // Longer than tokens live without being used, and over several renewals.
  const auto deadline = held->deadline() + 3s;
  EXPECT_TRUE(eventually([&] { return !held->valid() || lease_clock::now() > deadline; }));
  EXPECT_TRUE(held->valid());
  held.reset();

  EXPECT_TRUE(waiting.get());
}

TEST_F(EtcdLogIn, HandOffsAreAsFastAfterATokenWasReplacedAsBefore) {
  // A waiter that hears nothing notices at its next heartbeat, so those are rare here.
  client_options slow_heart = quick();
  slow_heart.heartbeat = 4s;
  const std::string where = address("alice:secret@", "?prefix=app/");
  mutex one{open(where, slow_heart), "door", lasting()};
  mutex two{open(where, slow_heart), "door", lasting()};
  const client watching = open(where);
  const auto hand_over = [&](mutex& from, mutex& to) -> lease_clock::duration {
    std::optional<lease> held = from.acquire();
    waiter waiting{to};
    EXPECT_TRUE(waiters_become(watching, "door", 1));
    const auto began = lease_clock::now();
    held.reset();
    EXPECT_TRUE(waiting.get());
    return lease_clock::now() - began;
  };
  EXPECT_LT(hand_over(one, two), 1s);
  EXPECT_LT(hand_over(two, one), 1s);

  // Nobody says anything for longer than tokens live.
  contract::wait_until(lease_clock::now() + 5s);

  for (int round = 0; round < 2; ++round) {
    EXPECT_LT(hand_over(one, two), 1s) << "the streams have the token that has expired";
    EXPECT_LT(hand_over(two, one), 1s);
  }
}

TEST_F(EtcdLogIn, ATokenOfAServerThatWasRestartedIsReplaced) {
  const client store = open(address("alice:secret@", "?prefix=app/"));
  mutex lock{store, "door", lasting()};
  lock.acquire().release();

  cluster_.kill(0);
  cluster_.start(0);
  cluster_.wait_until_healthy();

  EXPECT_TRUE(lock.try_acquire_for(patience));
}

TEST_F(EtcdLogIn, ALogInThatFailsAfterALostTryLeavesTheOutcomeUnknown) {
  fault_proxy network{cluster_.port(0)};
  client_options patient = quick();
  patient.request_timeout = 10s;
  const client store = open(
      "etcd://alice:secret@127.0.0.1:" + std::to_string(network.port()) + "?prefix=app/", patient);
  mutex other{store, "other", lasting()};
  const auto held = other.acquire();  // logged in, and the lease is there
  mutex lock{store, "door", lasting()};

  // Executed, and not answered; then the connection breaks, and the user is no longer known.
  network.set(flow::to_client, fault::hold());
  background<std::error_code> tried{
      [&] { return error_of([&] { (void)lock.try_acquire(); }).code; }};
  ASSERT_TRUE(eventually([&] { return !cluster_.keys("app/door/").empty(); }));
  cluster_.ctl({"user", "delete", "alice"});
  network.close_all();
  network.heal();

  EXPECT_EQ(tried.get(), errc::outcome_unknown);
}

TEST_F(EtcdLogIn, TheWrongPasswordAndForeignNamesAreTheStoresOwnWord) {
  mutex wrong{open(address("alice:wrong@", "?prefix=app/")), "door", lasting()};
  mutex elsewhere{open(address("alice:secret@", "?prefix=other/")), "door", lasting()};
  mutex nobody{open(address("", "?prefix=app/")), "door", lasting()};

  EXPECT_EQ(error_of([&] { (void)wrong.try_acquire(); }).code, errc::store_refused);
  EXPECT_EQ(error_of([&] { (void)elsewhere.try_acquire(); }).code, errc::store_refused);
  EXPECT_EQ(error_of([&] { (void)nobody.try_acquire(); }).code, errc::store_refused);
}

TEST_F(EtcdLogIn, ThePasswordMayComeFromAFileOrTheEnvironment) {
  const kit::temporary_folder folder;
  std::ofstream(folder.path() / "password") << "secret\n";
  ::setenv("SALLYPORT_TEST_ETCD_PASSWORD", "secret", 1);  // NOLINT(concurrency-mt-unsafe)

  for (const std::string& option : {"password_file=" + (folder.path() / "password").string(),
                                    std::string("password_env=SALLYPORT_TEST_ETCD_PASSWORD")}) {
    mutex lock{open(address("alice@", "?prefix=app/&" + option)), "door", lasting()};
    EXPECT_TRUE(lock.try_acquire()) << option;
  }
}

/// A cluster that speaks TLS and lets in only those with a certificate.
class EtcdTls : public testing::Test {
 protected:
  [[nodiscard]] std::string address(const std::string& options) const {
    return cluster_.address() + "?ca_file=" + options;
  }
  [[nodiscard]] static std::string with(const kit::certificate_files& own) {
    return "&cert_file=" + own.certificate.string() + "&key_file=" + own.key.string();
  }

  const kit::certificates papers;
  etcd_cluster cluster_{{.tls = kit::etcd_tls{.certificate = papers.server.certificate,
                                              .key = papers.server.key,
                                              .authority = papers.authority,
                                              .clients = papers.client}}};
};

TEST_F(EtcdTls, WhoHasAGoodCertificateGetsIn) {
  mutex lock{open(address(papers.authority.string() + with(papers.client))), "door", lasting()};

  EXPECT_TRUE(lock.try_acquire_for(patience));
}

TEST_F(EtcdTls, WhoHasNoneOrAWrongOneOrTrustsSomebodyElseDoesNot) {
  client_options impatient = quick();
  impatient.store_patience = 1s;
  for (const std::string& options :
       {papers.authority.string(), papers.authority.string() + with(papers.other_client),
        papers.other_authority.string() + with(papers.client)}) {
    mutex lock{open(address(options), impatient), "door", lasting()};
    EXPECT_EQ(error_of([&] { (void)lock.try_acquire(); }).code, errc::unavailable) << options;
  }
}

}  // namespace
}  // namespace sallyport::etcd_live
