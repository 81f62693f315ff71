#include "backends/postgres/test_live_store.hpp"
#include "backends/sql/test_live_opening.hpp"
#include "tests/kit/certificates.hpp"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

// Who is let in, what is made on first use, and what the others are told.
namespace sallyport::postgres_live {
namespace {

TEST_F(Opening, TakesASchemaWhoseNameHasSpaces) {
  mutex lock{open(server_->address() + "?schema=name%20with%20spaces"), "door", lasting()};
  auto held = lock.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(server_->value("SELECT count(*) FROM \"name with spaces\".state"), "1");
}

TEST_F(Opening, RefusesSomebodyElsesFunctionAndDoesNotHarmIt) {
  server_->rows(
      "CREATE SCHEMA works; CREATE FUNCTION works.draw(boolean) RETURNS bigint LANGUAGE sql "
      "AS 'SELECT 7::bigint'");

  const auto refused = error_of([&] { open(server_->address() + "?schema=works"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_EQ(server_->value("SELECT works.draw(true)"), "7");
}

TEST_F(Opening, TheSchemaReplacesTheFunctionsOfAnEarlierVersion) {
  const std::string address = server_->address() + "?schema=older";
  open(address);
  const auto made = [&] {
    return server_->value(
        "SELECT string_agg(proname || pronargs, ' ' ORDER BY proname, pronargs) FROM pg_proc "
        "WHERE pronamespace = 'older'::regnamespace");
  };
  const std::string functions = made();
  server_->rows(
      "DROP FUNCTION older.settle; "
      "CREATE FUNCTION older.settle(p_name bytea, p_now timestamptz, p_asker bytea, p_durable "
      "boolean) RETURNS integer LANGUAGE sql AS 'SELECT 0'; "
      "COMMENT ON FUNCTION older.settle IS 'Sallyport: serves a queue'");

  server_->rows("DROP TABLE older.state");  // whoever comes next makes all of it again
  mutex lock{open(address), "door", lasting()};
  auto held = lock.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(made(), functions);
}

TEST_F(Opening, TakesPasswordsFromFilesAndTellsNobody) {
  const auto file = server_->folder() / "password";
  std::ofstream(file) << "open sesame\n";
  const auto passfile = server_->folder() / "pgpass";
  std::ofstream(passfile) << "*:*:*:locked:open sesame\n";
  std::filesystem::permissions(passfile, std::filesystem::perms::owner_read);

  EXPECT_EQ(error_of([&] {
              open(with_user(*server_, "locked", "?schema=by_file&password_file=" + file.string()));
            }).text,
            "");
  EXPECT_EQ(error_of([&] {
              open(with_user(*server_, "locked", "?schema=by_file&passfile=" + passfile.string()));
            }).text,
            "");
  const auto refused = error_of([&] { open(with_user(*server_, "locked:wr0ng")); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("28P01")) << refused.text;
  EXPECT_FALSE(refused.says("wr0ng")) << refused.text;
}

TEST_F(Opening, ReadsServiceFiles) {
  const auto file = server_->folder() / "services";
  std::ofstream(file) << "[locks]\nhost=127.0.0.1\nport=" << server_->port()
                      << "\nuser=postgres\ndbname=postgres\n";
  ::setenv("PGSERVICEFILE", file.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)

  mutex lock{open("postgres:///?service=locks&schema=by_service"), "door", lasting()};
  auto held = lock.acquire();

  EXPECT_EQ(held.release(), release_result::released);
  ::unsetenv("PGSERVICEFILE");  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(Opening, RefusesBadAddressesWithoutRepeatingSecrets) {
  for (const std::string& bad :
       {std::string("postgres://u:s3cr%zzet@host/db"),
        std::string("postgres://u:s3cret@host/db?x=1"), std::string("postgres://u:s3cret@[::1/db"),
        std::string("postgres://h/db?schema=a\"b"), std::string("postgres://h/db?schema=a$$b"),
        std::string("postgres://h/db?schema="), std::string("postgres://h/db?schema=pg_mine"),
        std::string("postgres://h/db?durable=maybe"), std::string("postgres://h/db?pooler=some"),
        std::string("postgres://h/db?password_file=/no"),
        "postgres://h/db?schema=" + std::string(64, 'x')}) {
    const auto refused = error_of([&] { open(bad); });
    EXPECT_EQ(refused.code, errc::bad_uri) << bad << ": " << refused.text;
    EXPECT_FALSE(refused.says("s3cr")) << refused.text;
  }
}

TEST_F(Opening, AReadOnlyServerIsUnavailable) {
  open(server_->address() + "?schema=read_only");
  make_user(*server_, "reader");
  server_->rows("ALTER ROLE reader SET default_transaction_read_only = on");
  auto options = quick();
  options.store_patience = 300ms;

  mutex lock{open(with_user(*server_, "reader", "?schema=read_only"), options), "door", lasting()};
  const auto refused = error_of([&] { static_cast<void>(lock.try_acquire()); });

  EXPECT_EQ(refused.code, errc::unavailable);
  EXPECT_TRUE(refused.says("25006")) << refused.text;
}

TEST_F(Opening, AStricterIsolationOfTheRoleDoesNoHarm) {
  make_user(*server_, "strict");
  server_->rows("ALTER ROLE strict SET default_transaction_isolation = 'serializable'");
  const std::string options = "?schema=strict";

  mutex lock{open(with_user(*server_, "strict", options)), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);

  // Where we may not set it, it is refused and not risked.
  mutex other{open(with_user(*server_, "strict", options + "&pooler=transaction")), "door",
              lasting()};
  const auto refused = error_of([&] { static_cast<void>(other.try_acquire()); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("read committed")) << refused.text;
}

TEST(OpeningWithTls, ChecksCertificatesAsLibpqDoes) {
  const kit::certificates files;
  const postgres_server server{
      {.hba = {"hostssl all all 127.0.0.1/32 cert"},
       .tls = kit::sql_tls{files.server.certificate, files.server.key, files.authority}}};
  const auto key = server.folder() / "client.key";
  std::filesystem::copy_file(files.client.key, key);
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  server.rows("CREATE ROLE \"sallyport-client\" LOGIN SUPERUSER");
  const auto address = [&](const std::filesystem::path& authority) {
    return "postgres://sallyport-client@localhost:" + std::to_string(server.port()) +
           "/postgres?hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert=" + authority.string() +
           "&sslcert=" + files.client.certificate.string() + "&sslkey=" + key.string();
  };

  mutex lock{open(address(files.authority)), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(error_of([&] { open(address(files.other_authority)); }).code, errc::store_refused);
}

}  // namespace
}  // namespace sallyport::postgres_live

namespace sallyport::sql_live {

std::unique_ptr<sql_server> start_server_with_users() {
  auto server = std::make_unique<kit::postgres_server>(
      kit::postgres_options{.hba = {"host all locked 127.0.0.1/32 scram-sha-256"}});
  server->rows("CREATE ROLE locked LOGIN PASSWORD 'open sesame'");
  server->rows("GRANT CREATE ON DATABASE postgres TO locked");
  server->rows("CREATE ROLE app LOGIN");
  return server;
}

void run_script(const sql_server& server, const std::string& script) { server.rows(script); }

std::vector<std::string> other_addresses(const sql_server& server) {
  const std::string port = std::to_string(server.port());
  const std::string user = "postgres://postgres@";
  return {user + "localhost:" + port + "/postgres", user + "127.0.0.1:" + port,
          "postgresql://postgres@127.0.0.1:" + port + "/postgres?client_encoding=UTF8",
          user + "/postgres?host=" + server.folder().string() + "&port=" + port};
}

void make_space(const sql_server& server, const std::string& space) {
  server.rows("CREATE SCHEMA " + space);
}

std::size_t count_tables(const sql_server& server, const std::string& space) {
  return std::stoul(
      server.value("SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                   "WHERE nspname = '" +
                   space + "'"));
}

testing::AssertionResult made_once(const sql_server& server, const std::string& space) {
  const std::string states = server.value("SELECT count(*) FROM " + table("state", space));
  if (states == "1") return testing::AssertionSuccess();
  return testing::AssertionFailure() << states << " states";
}

const error_words& errors() {
  static const error_words all{.missing_right = "42501",
                               .no_such_database = "3D000",
                               .strange_state = "not as Sallyport made it"};
  return all;
}

std::string address_of_nowhere(const sql_server& server) {
  return "postgres://postgres@127.0.0.1:" + std::to_string(server.port()) + "/nowhere";
}

}  // namespace sallyport::sql_live
