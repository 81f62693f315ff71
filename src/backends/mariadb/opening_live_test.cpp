#include "backends/mariadb/test_live_store.hpp"
#include "base/log.hpp"
#include "tests/kit/certificates.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

// Who is let in, what is made on first use, and what the others are told.
namespace sallyport::mariadb_live {
namespace {

class Opening : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<mariadb_server>();
    server_->rows("CREATE USER locked IDENTIFIED BY 'open sesame'");
    server_->rows("GRANT ALL ON test.* TO locked");
    server_->rows("CREATE USER app");
  }
  static void TearDownTestSuite() { server_.reset(); }

  static void run_script(const std::string& script) {
    mariadb_probe{{.port = server_->port()}}.script(script);
  }

  static std::unique_ptr<mariadb_server> server_;
};
std::unique_ptr<mariadb_server> Opening::server_;

TEST_F(Opening, ByManyAtOnceMakesTheTablesOnce) {
  const std::string address = server_->address() + "?prefix=many_";
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
  EXPECT_EQ(server_->value("SELECT COUNT(*) FROM many_state"), "1");
  EXPECT_EQ(server_->value("SELECT COUNT(*) FROM many_stripe"), "1024");
}

TEST_F(Opening, RefusesSomebodyElsesTableAndDoesNotHarmIt) {
  server_->rows("CREATE TABLE other_lock (door TEXT)");
  server_->rows("INSERT INTO other_lock VALUES ('mine')");

  const auto refused = error_of([&] { open(server_->address() + "?prefix=other_"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.words;
  EXPECT_EQ(server_->value("SELECT door FROM other_lock"), "mine");
  EXPECT_EQ(server_->rows("SHOW TABLES LIKE 'other\\_%'").size(), 1U);
}

TEST_F(Opening, RefusesSomebodyElsesProcedureAndDoesNotHarmIt) {
  server_->rows("CREATE PROCEDURE works_settle() SELECT 7");

  const auto refused = error_of([&] { open(server_->address() + "?prefix=works_"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.words;
  EXPECT_EQ(server_->value("CALL works_settle()"), "7");
}

TEST_F(Opening, RefusesATableThatLooksLikeItsVersionAndIsNot) {
  server_->rows("CREATE TABLE false_state (one INT, version TEXT, store TEXT)");

  const auto refused = error_of([&] { open(server_->address() + "?prefix=false_"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.words;
}

TEST_F(Opening, RefusesAnotherVersion) {
  open(server_->address() + "?prefix=later_");
  server_->rows("UPDATE later_state SET version = 99");

  const auto refused = error_of([&] { open(server_->address() + "?prefix=later_"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("version 99")) << refused.words;
}

TEST_F(Opening, WithoutTheRightToMakeTablesSaysWhatAnAdministratorRuns) {
  const std::string address = with_user(*server_, "app", "?prefix=for_app_");
  const auto outside = error_of([&] { open(address); });
  EXPECT_EQ(outside.code, errc::store_refused);
  EXPECT_TRUE(outside.says("sallyport schema")) << outside.words;
  server_->rows("CREATE TABLE theirs (n INT)");
  server_->rows("GRANT SELECT ON test.theirs TO app");

  const auto refused = error_of([&] { open(address); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("sallyport schema")) << refused.words;

  run_script(client::schema(address));
  mutex lock{open(address), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);
}

TEST_F(Opening, WithoutTheRightToMakeProceduresSaysSo) {
  server_->rows("CREATE USER tables_only");
  server_->rows("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO tables_only");

  const auto refused =
      error_of([&] { open(with_user(*server_, "tables_only", "?prefix=half_made_")); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("CREATE ROUTINE")) << refused.words;
  // Who may goes on from there.
  EXPECT_EQ(error_of([&] { open(server_->address() + "?prefix=half_made_"); }).words, "");
}

TEST_F(Opening, MissingRightsAreTheServersOwnWord) {
  const std::string address = with_user(*server_, "app", "?prefix=half_");
  run_script(client::schema(address));
  server_->rows("REVOKE INSERT ON test.half_lock FROM app");

  mutex lock{open(address), "door", lasting()};
  const auto refused = error_of([&] { static_cast<void>(lock.acquire()); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("1142")) << refused.words;
}

TEST_F(Opening, TakesPasswordsFromFilesAndTellsNobody) {
  const auto file = server_->folder() / "password";
  std::ofstream(file) << "open sesame\n";
  const auto options = server_->folder() / "client.cnf";
  std::ofstream(options) << "[client]\npassword=open sesame\n[elsewhere]\npassword=wr0ng\n";
  ::setenv("SALLYPORT_TEST_PASSWORD", "open sesame", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto opening = [&](const std::string& how) {
    return error_of([&] { open(with_user(*server_, "locked", "?prefix=by_file_&" + how)); }).words;
  };

  EXPECT_EQ(opening("password_file=" + file.string()), "");
  EXPECT_EQ(opening("password_env=SALLYPORT_TEST_PASSWORD"), "");
  EXPECT_EQ(opening("defaults_file=" + options.string()), "");
  EXPECT_NE(opening("defaults_group=elsewhere&defaults_file=" + options.string()), "");
  const auto refused = error_of([&] { open(with_user(*server_, "locked:wr0ng")); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("1045")) << refused.words;
  EXPECT_FALSE(refused.says("wr0ng")) << refused.words;
  ::unsetenv("SALLYPORT_TEST_PASSWORD");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Opening, RefusesBadAddressesWithoutRepeatingSecrets) {
  for (const std::string& bad :
       {std::string("mariadb://u:s3cr%zzet@host/db"), std::string("mariadb://u:s3cret@host/db?x=1"),
        std::string("mariadb://u:s3cret@host"), std::string("mariadb://u:s3cret@host/a/b"),
        std::string("mariadb://a,b/db"), std::string("mariadb://h/db?prefix=a`b"),
        std::string("mariadb://h/db?prefix=a-b"), std::string("mariadb://h/db?prefix="),
        std::string("mariadb://h/db?tls=maybe"), std::string("mariadb://h/db?ca_file=/x"),
        std::string("mariadb://h/db?socket=/x"), std::string("mariadb://h/db?password_file=/no"),
        "mariadb://h/db?prefix=" + std::string(49, 'x')}) {
    const auto refused = error_of([&] { open(bad); });
    EXPECT_EQ(refused.code, errc::bad_uri) << bad << ": " << refused.words;
    EXPECT_FALSE(refused.says("s3cr")) << refused.words;
  }
}

TEST_F(Opening, SaysThatADatabaseIsNotThere) {
  const auto refused = error_of(
      [&] { open("mariadb://root@127.0.0.1:" + std::to_string(server_->port()) + "/nowhere"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("1049")) << refused.words;
}

TEST_F(Opening, AReadOnlyServerIsUnavailable) {
  open(with_user(*server_, "root", "?prefix=for_reader_"));
  server_->rows("CREATE USER reader");
  server_->rows("GRANT ALL ON test.* TO reader");
  auto options = quick();
  options.store_patience = 300ms;
  mutex lock{open(with_user(*server_, "reader", "?prefix=for_reader_"), options), "door",
             lasting()};

  server_->rows("SET GLOBAL read_only = 1");
  const auto refused = error_of([&] { static_cast<void>(lock.try_acquire()); });
  server_->rows("SET GLOBAL read_only = 0");

  EXPECT_EQ(refused.code, errc::unavailable);
  EXPECT_TRUE(refused.says("1290")) << refused.words;
  EXPECT_TRUE(lock.try_acquire());
}

TEST_F(Opening, LeavesTheProgramsSignalsAsTheyWere) {
  struct sigaction before {};
  sigaction(SIGPIPE, nullptr, &before);

  open(server_->address() + "?prefix=signals_");

  struct sigaction after {};
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(Opening, KeepsNamesApartThatOtherCollationsWouldMerge) {
  const auto store = open(server_->address() + "?prefix=names_");
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

  EXPECT_EQ(server_->value("SELECT MAX(LENGTH(name)) FROM names_lock"), "255");
}

TEST(OpeningMySql, IsSaidToBeUntestedOnce) {
  // MariaDB that calls itself something else: who it is we know by its version only.
  const mariadb_server server{{.settings = {"version=8.0.36"}}};
  const auto lines = std::make_shared<std::vector<std::string>>();
  base::set_log_sink([lines](base::log_level level, std::string_view line) {
    if (level == base::log_level::warning) lines->emplace_back(line);
  });

  const auto store = open("mysql://root@127.0.0.1:" + std::to_string(server.port()) + "/test");
  base::set_log_sink({});

  ASSERT_EQ(lines->size(), 1U);
  EXPECT_NE(lines->front().find("was not tested"), std::string::npos) << lines->front();
  EXPECT_TRUE(std::ranges::any_of(store.capabilities().caveats, [](const std::string& each) {
    return each.find("was not tested") != std::string::npos;
  }));
}

TEST(OpeningWithTls, ChecksCertificates) {
  const kit::certificates files;
  const mariadb_server server{
      {.tls = kit::sql_tls{files.server.certificate, files.server.key, files.authority}}};
  server.rows("CREATE USER secured REQUIRE SUBJECT '/CN=sallyport-client'");
  server.rows("GRANT ALL ON test.* TO secured");
  const auto address = [&](const std::string& user, const std::string& host,
                           const std::filesystem::path& authority, const std::string& more = {}) {
    return "mariadb://" + user + "@" + host + ":" + std::to_string(server.port()) +
           "/test?tls=yes&ca_file=" + authority.string() + more;
  };
  const std::string ours =
      "&cert_file=" + files.client.certificate.string() + "&key_file=" + files.client.key.string();

  mutex lock{open(address("secured", "localhost", files.authority, ours)), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(error_of([&] { open(address("root", "localhost", files.other_authority)); }).code,
            errc::store_refused);
  EXPECT_EQ(error_of([&] { open(address("secured", "localhost", files.authority)); }).code,
            errc::store_refused);
  EXPECT_EQ(error_of([&] {
              open(address("root", "localhost", files.other_authority, "&verify=no"));
            }).words,
            "");
}

TEST(OpeningWithTls, IsRefusedWhereTheNameIsAnothersOrTheServerHasNone) {
  const kit::certificates files;
  const mariadb_server wrong{
      {.tls = kit::sql_tls{files.wrong_host.certificate, files.wrong_host.key, files.authority}}};
  const mariadb_server plain;
  const auto opening = [&](const mariadb_server& server) {
    return error_of([&] {
             open("mariadb://root@localhost:" + std::to_string(server.port()) +
                  "/test?tls=yes&ca_file=" + files.authority.string());
           })
        .code;
  };

  EXPECT_EQ(opening(wrong), errc::store_refused);
  EXPECT_EQ(opening(plain), errc::store_refused);
}

}  // namespace
}  // namespace sallyport::mariadb_live
