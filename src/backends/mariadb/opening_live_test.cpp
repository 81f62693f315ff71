#include "backends/mariadb/test_live_store.hpp"
#include "backends/sql/test_live_opening.hpp"
#include "base/log.hpp"
#include "tests/kit/certificates.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

// Who is let in, what is made on first use, and what the others are told.
namespace sallyport::mariadb_live {
namespace {

TEST_F(Opening, RefusesSomebodyElsesProcedureAndDoesNotHarmIt) {
  server_->rows("CREATE PROCEDURE works_settle() SELECT 7");

  const auto refused = error_of([&] { open(server_->address() + "?prefix=works_"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.text;
  EXPECT_EQ(server_->value("CALL works_settle()"), "7");
}

TEST_F(Opening, ProceduresOfAnEarlierVersionAreReplacedAsTheManualSays) {
  const std::string address = with_user(*server_, "app", "?prefix=older_");
  std::string script = client::schema(address);
  run_script(*server_, script);
  const client store = open(address);
  mutex lock{store, "door", lasting()};
  auto held = lock.acquire();
  server_->rows("DROP PROCEDURE older_look");
  server_->rows(
      "CREATE PROCEDURE older_look(a VARBINARY(255), b VARBINARY(255), c INT, d INT) "
      "COMMENT 'Sallyport: of an earlier version' SELECT 'nothing'");

  run_script(*server_, script);  // leaves what is there
  EXPECT_EQ(server_->value("CALL older_look('', '', 1, 0)"), "nothing");
  const std::string made = "\nCREATE PROCEDURE IF NOT EXISTS";
  for (auto at = script.find(made); at != std::string::npos; at = script.find(made)) {
    script.replace(at, made.size(), "\nCREATE OR REPLACE PROCEDURE");
  }
  run_script(*server_, script);

  const auto seen = open(address).who("door");
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->holders.size(), 1U);
  EXPECT_EQ(held.release(), release_result::released);
}

TEST_F(Opening, WithoutAnyRightInTheDatabaseSaysWhatAnAdministratorRuns) {
  server_->rows("CREATE USER outsider");

  const auto refused =
      error_of([&] { open(with_user(*server_, "outsider", in_space("for_outsider"))); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("sallyport schema")) << refused.text;
}

TEST_F(Opening, WithoutTheRightToMakeProceduresSaysSo) {
  server_->rows("CREATE USER tables_only");
  server_->rows("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON test.* TO tables_only");

  const auto refused =
      error_of([&] { open(with_user(*server_, "tables_only", "?prefix=half_made_")); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("CREATE ROUTINE")) << refused.text;
  // Who may goes on from there.
  EXPECT_EQ(error_of([&] { open(server_->address() + "?prefix=half_made_"); }).text, "");
}

TEST_F(Opening, TakesPasswordsFromFilesAndTellsNobody) {
  const auto file = server_->folder() / "password";
  std::ofstream(file) << "open sesame\n";
  const auto options = server_->folder() / "client.cnf";
  std::ofstream(options) << "[client]\npassword=open sesame\n[elsewhere]\npassword=wr0ng\n";
  ::setenv("SALLYPORT_TEST_PASSWORD", "open sesame", 1);  // NOLINT(concurrency-mt-unsafe)
  const auto opening = [&](const std::string& how) {
    return error_of([&] { open(with_user(*server_, "locked", "?prefix=by_file_&" + how)); }).text;
  };

  EXPECT_EQ(opening("password_file=" + file.string()), "");
  EXPECT_EQ(opening("password_env=SALLYPORT_TEST_PASSWORD"), "");
  EXPECT_EQ(opening("defaults_file=" + options.string()), "");
  EXPECT_NE(opening("defaults_group=elsewhere&defaults_file=" + options.string()), "");
  const auto refused = error_of([&] { open(with_user(*server_, "locked:wr0ng")); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("1045")) << refused.text;
  EXPECT_FALSE(refused.says("wr0ng")) << refused.text;
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
    EXPECT_EQ(refused.code, errc::bad_uri) << bad << ": " << refused.text;
    EXPECT_FALSE(refused.says("s3cr")) << refused.text;
  }
}

TEST_F(Opening, AReadOnlyServerIsUnavailable) {
  open(with_user(*server_, "root", "?prefix=for_reader_"));
  make_user(*server_, "reader");
  auto options = quick();
  options.store_patience = 300ms;
  mutex lock{open(with_user(*server_, "reader", "?prefix=for_reader_"), options), "door",
             lasting()};

  server_->rows("SET GLOBAL read_only = 1");
  const auto refused = error_of([&] { static_cast<void>(lock.try_acquire()); });
  server_->rows("SET GLOBAL read_only = 0");

  EXPECT_EQ(refused.code, errc::unavailable);
  EXPECT_TRUE(refused.says("1290")) << refused.text;
  EXPECT_TRUE(lock.try_acquire());
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
            }).text,
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

namespace sallyport::sql_live {

std::unique_ptr<sql_server> start_server_with_users() {
  auto server = start_server();
  server->rows("CREATE USER locked IDENTIFIED BY 'open sesame'");
  server->rows("GRANT ALL ON test.* TO locked");
  server->rows("CREATE USER app");
  // Who may do nothing at all in a database does not even come in.
  server->rows("CREATE TABLE theirs (n INT)");
  server->rows("GRANT SELECT ON test.theirs TO app");
  return server;
}

void run_script(const sql_server& server, const std::string& script) {
  kit::mariadb_probe{{.port = server.port()}}.script(script);
}

std::vector<std::string> other_addresses(const sql_server& server) {
  const std::string port = std::to_string(server.port());
  const auto& here = dynamic_cast<const kit::mariadb_server&>(server);
  return {"mariadb://root@localhost:" + port + "/test", "mysql://root@127.0.0.1:" + port + "/test",
          "mariadb://root@localhost/test?socket=" + here.socket().string()};
}

void make_space(const sql_server& /*server*/, const std::string& /*space*/) {}

std::size_t count_tables(const sql_server& server, const std::string& space) {
  return server.rows("SHOW TABLES LIKE '" + space + "\\_%'").size();
}

testing::AssertionResult made_once(const sql_server& server, const std::string& space) {
  const std::string states = server.value("SELECT COUNT(*) FROM " + table("state", space));
  const std::string stripes = server.value("SELECT COUNT(*) FROM " + table("stripe", space));
  if (states == "1" && stripes == "1024") return testing::AssertionSuccess();
  return testing::AssertionFailure() << states << " states and " << stripes << " stripes";
}

const error_words& errors() {
  static const error_words all{
      .missing_right = "1142", .no_such_database = "1049", .strange_state = "not Sallyport's"};
  return all;
}

std::string address_of_nowhere(const sql_server& server) {
  return "mariadb://root@127.0.0.1:" + std::to_string(server.port()) + "/nowhere";
}

}  // namespace sallyport::sql_live
