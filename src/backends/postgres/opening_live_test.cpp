#include "backends/postgres/test_live_store.hpp"
#include "tests/kit/certificates.hpp"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <vector>

// Who is let in, what is made on first use, and what the others are told.
namespace sallyport::postgres_live {
namespace {

std::string with_user(const postgres_server& server, const std::string& user,
                      const std::string& options = {}) {
  return "postgres://" + user + "@127.0.0.1:" + std::to_string(server.port()) + "/postgres" +
         options;
}

class Opening : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<postgres_server>(
        kit::postgres_options{.hba = {"host all locked 127.0.0.1/32 scram-sha-256"}});
    server_->rows("CREATE ROLE locked LOGIN PASSWORD 'open sesame'");
    server_->rows("GRANT CREATE ON DATABASE postgres TO locked");
    server_->rows("CREATE ROLE app LOGIN");
  }
  static void TearDownTestSuite() { server_.reset(); }

  static std::unique_ptr<postgres_server> server_;
};
std::unique_ptr<postgres_server> Opening::server_;

TEST_F(Opening, ByManyAtOnceMakesTheSchemaOnce) {
  const std::string address = server_->address() + "?schema=many%20at%20once";
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
  EXPECT_EQ(server_->value("SELECT count(*) FROM \"many at once\".state"), "1");
}

TEST_F(Opening, RefusesSomebodyElsesTableAndDoesNotHarmIt) {
  server_->rows("CREATE SCHEMA other; CREATE TABLE other.lock (door text)");
  server_->rows("INSERT INTO other.lock VALUES ('mine')");

  const auto refused = error_of([&] { open(server_->address() + "?schema=other"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("not Sallyport's")) << refused.words;
  EXPECT_EQ(server_->value("SELECT door FROM other.lock"), "mine");
  EXPECT_EQ(server_->value("SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = "
                           "c.relnamespace WHERE nspname = 'other'"),
            "1");
}

TEST_F(Opening, RefusesSomebodyElsesFunctionAndDoesNotHarmIt) {
  server_->rows(
      "CREATE SCHEMA works; CREATE FUNCTION works.draw(boolean) RETURNS bigint LANGUAGE sql "
      "AS 'SELECT 7::bigint'");

  const auto refused = error_of([&] { open(server_->address() + "?schema=works"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_EQ(server_->value("SELECT works.draw(true)"), "7");
}

TEST_F(Opening, RefusesAnotherVersion) {
  open(server_->address() + "?schema=later");
  server_->rows("UPDATE later.state SET version = 99");

  const auto refused = error_of([&] { open(server_->address() + "?schema=later"); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("version 99")) << refused.words;
}

TEST_F(Opening, WithoutTheRightToMakeTablesSaysWhatAnAdministratorRuns) {
  const std::string address = with_user(*server_, "app", "?schema=for_app");

  const auto refused = error_of([&] { open(address); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("sallyport schema")) << refused.words;

  server_->rows(client::schema(address));
  mutex lock{open(address), "door", lasting()};
  auto held = lock.acquire();
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_EQ(error_of([] { static_cast<void>(client::schema("memory:")); }).code,
            errc::not_supported);
}

TEST_F(Opening, MissingRightsAreTheServersOwnWord) {
  const std::string address = with_user(*server_, "app", "?schema=half");
  server_->rows(client::schema(address));
  server_->rows("REVOKE INSERT ON half.lock FROM app");

  mutex lock{open(address), "door", lasting()};
  const auto refused = error_of([&] { static_cast<void>(lock.acquire()); });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("42501")) << refused.words;
}

TEST_F(Opening, TakesPasswordsFromFilesAndTellsNobody) {
  const auto file = server_->folder() / "password";
  std::ofstream(file) << "open sesame\n";
  const auto passfile = server_->folder() / "pgpass";
  std::ofstream(passfile) << "*:*:*:locked:open sesame\n";
  std::filesystem::permissions(passfile, std::filesystem::perms::owner_read);

  EXPECT_EQ(error_of([&] {
              open(with_user(*server_, "locked", "?schema=by_file&password_file=" + file.string()));
            }).words,
            "");
  EXPECT_EQ(error_of([&] {
              open(with_user(*server_, "locked", "?schema=by_file&passfile=" + passfile.string()));
            }).words,
            "");
  const auto refused = error_of([&] { open(with_user(*server_, "locked:wr0ng")); });
  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("28P01")) << refused.words;
  EXPECT_FALSE(refused.says("wr0ng")) << refused.words;
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
    EXPECT_EQ(refused.code, errc::bad_uri) << bad << ": " << refused.words;
    EXPECT_FALSE(refused.says("s3cr")) << refused.words;
  }
}

TEST_F(Opening, SaysThatADatabaseIsNotThere) {
  const auto refused = error_of([&] {
    open("postgres://postgres@127.0.0.1:" + std::to_string(server_->port()) + "/nowhere");
  });

  EXPECT_EQ(refused.code, errc::store_refused);
  EXPECT_TRUE(refused.says("3D000")) << refused.words;
}

TEST_F(Opening, AReadOnlyServerIsUnavailable) {
  open(server_->address() + "?schema=read_only");
  server_->rows("CREATE ROLE reader LOGIN SUPERUSER");
  server_->rows("ALTER ROLE reader SET default_transaction_read_only = on");
  auto options = quick();
  options.store_patience = 300ms;

  mutex lock{open(with_user(*server_, "reader", "?schema=read_only"), options), "door", lasting()};
  const auto refused = error_of([&] { static_cast<void>(lock.try_acquire()); });

  EXPECT_EQ(refused.code, errc::unavailable);
  EXPECT_TRUE(refused.says("25006")) << refused.words;
}

TEST_F(Opening, NamesAndWordsOfAllSortsAreBytesToTheServer) {
  const auto store = open(server_->address());
  server_->rows("CREATE TABLE public.kept (n integer)");
  for (const std::string& good :
       {std::string("quote'\"`$;"), std::string("'); DROP TABLE public.kept; --"),
        std::string("$1"), std::string("back\\slash\\x00"), std::string("{array,\"item\"}"),
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
  EXPECT_EQ(server_->value("SELECT count(*) FROM public.kept"), "0");
}

TEST_F(Opening, AStricterIsolationOfTheRoleDoesNoHarm) {
  server_->rows("CREATE ROLE strict LOGIN SUPERUSER");
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
  EXPECT_TRUE(refused.says("read committed")) << refused.words;
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
