#include "backends/mariadb/speech.hpp"

#include "backends/mariadb/address.hpp"
#include "backends/mariadb/answers.hpp"
#include "backends/mariadb/greeting.hpp"
#include "backends/mariadb/polling.hpp"
#include "backends/mariadb/schema.hpp"
#include "backends/sql/answers.hpp"
#include "backends/sql/lanes.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::mariadb {
namespace {

using namespace std::chrono_literals;

reply saying(std::string text) {
  return {.error_code = {}, .error = {}, .rows = {{std::move(text)}}};
}
reply refusing(std::string code) {
  return {.error_code = std::move(code), .error = "no", .rows = {}};
}

TEST(Speech, QuotesIdentifiers) { EXPECT_EQ(quoted("a`b"), "`a``b`"); }

TEST(Speech, WritesWhatUsersGaveInDigitsOnly) {
  const speech said("p_", {.host = "h'", .pid = 7, .label = "`"});
  const lock_name name("it's a \"name\"); --");

  const std::string text =
      text_of(said.acquire({.name = name, .holder = {1, 2}, .value = "\\'", .answer_by = {}}));

  EXPECT_TRUE(text.starts_with("CALL `p_acquire`(X'69742773")) << text;
  EXPECT_EQ(text.find("name"), std::string::npos);
  EXPECT_EQ(text.find("--"), std::string::npos);
  EXPECT_TRUE(text.ends_with(",7,X'6827',X'60',X'5C27')")) << text;
}

TEST(Speech, PacksABatch) {
  const speech said("p_", {});
  const lock_name first("a");
  const lock_name second("bc");
  const std::vector<backend_api::renew_request> batch{
      {.name = first, .holder = {1, 2}, .lease_length = 1s, .local_waiters = 3, .answer_by = {}},
      {.name = second, .holder = {3, 4}, .lease_length = 24h, .answer_by = {}}};

  EXPECT_EQ(text_of(said.renew(batch)),
            "CALL `p_renew`(X'"
            "01"
            "61"
            "00000000000000010000000000000002"
            "0000000003E8"
            "00000000"
            "00000003"
            "02"
            "6263"
            "00000000000000030000000000000004"
            "000005265C00"
            "00000000"
            "00000000')");
}

TEST(Answers, TellAServerThatIsBusyFromOneThatCanNotServe) {
  for (const char* const busy : {"1205", "1213", "1317", "1969"}) {
    EXPECT_TRUE(failure_of(refusing(busy)).no_outage) << busy;
  }
  for (const char* const away : {"1040", "1053", "1290", "1927"}) {
    EXPECT_FALSE(failure_of(refusing(away)).no_outage) << away;
  }
}

TEST(Answers, TellWhatPassesFromWhatDoesNotAndWhatNobodyKnows) {
  for (const char* const passing : {"1205", "1213", "1290", "1792", "1836", "1040"}) {
    EXPECT_EQ(failure_of(refusing(passing)).code, errc::unavailable) << passing;
  }
  for (const char* const lasting : {"1142", "1370", "1146", "1305", "1406", "4025"}) {
    EXPECT_EQ(failure_of(refusing(lasting)).code, errc::store_refused) << lasting;
  }
  for (const char* const unknown : {"1317", "1927", "1969", "1053", "1180"}) {
    EXPECT_EQ(failure_of(refusing(unknown)).code, errc::outcome_unknown) << unknown;
  }
}

TEST(Answers, TellThePlaceOfAWaiter) {
  EXPECT_EQ(position_in(saying("{2,300,0,1,17}")), 17U);
  EXPECT_TRUE(sql::acquire_answer_of(saying("{2,300,0,1,17}")));
  for (const char* const odd : {"", "{2,300,0,1}", "{1,5,20,30000,1,1}", "{2,3,0,1,x}"}) {
    EXPECT_EQ(position_in(saying(odd)), 0U) << odd;
  }
}

TEST(Polling, IsQuickForTheFirstAndSlowerForTheOthers) {
  EXPECT_EQ(poll_after(0, 0ms, 1.0), duration{2ms});
  EXPECT_EQ(poll_after(0, 0ms, 0.0), duration{1ms});
  EXPECT_EQ(poll_after(4, 0ms, 1.0), duration{10ms});
}

TEST(Polling, GetsSlowerWhileNothingMovesUpToABound) {
  EXPECT_EQ(poll_after(0, 3200ms, 1.0), duration{100ms});
  EXPECT_EQ(poll_after(0, 1h, 1.0), duration{longest_poll});
  EXPECT_EQ(poll_after(1'000'000'000, 0ms, 1.0), duration{longest_poll});
  EXPECT_EQ(poll_after(1'000'000'000, 1h, 0.0), duration{longest_poll} / 2);
}

TEST(Places, RememberSinceWhenNothingMoved) {
  places all;
  const time_point start{};
  const backend_api::holder_id one{1, 1};
  const backend_api::holder_id other{2, 2};

  EXPECT_EQ(all.told(one, 3, start), duration{0});
  EXPECT_EQ(all.told(one, 3, start + 50ms), duration{50ms});
  EXPECT_EQ(all.told(other, 3, start + 50ms), duration{0});
  EXPECT_EQ(all.told(one, 2, start + 60ms), duration{0});
  EXPECT_EQ(all.told(one, 2, start + 61ms), duration{1ms});

  all.forget(one);
  all.forget(other);
  EXPECT_EQ(all.size(), 0U);
}

TEST(Schema, HasNoPlaceholderLeftAndCanBeTakenApart) {
  const std::string script = schema_script("my_", "shop", "o'app");

  EXPECT_EQ(script.find("{p}"), std::string::npos);
  EXPECT_EQ(script.find("{version"), std::string::npos);
  EXPECT_NE(script.find("PROCEDURE IF NOT EXISTS `my_acquire`("), std::string::npos);
  EXPECT_NE(script.find("TO 'o''app'@'%';"), std::string::npos);
  for (const std::string& each : schema_statements("my_")) {
    EXPECT_NE(each.find("`my_"), std::string::npos) << each;
  }
}

TEST(Look, ReadsBytesAsThisVersionAndTheOneBeforeWriteThem) {
  struct {
    const char* written;
    std::string_view meant;
  } const table[] = {{"", ""},
                     {"\\x", ""},
                     {"646f6f72", "door"},
                     {"646F6F72", "door"},
                     {"\\x646F6F72", "door"},
                     {"00ff5c78", {"\0\xff\\x", 4}},
                     {"\\x00ff5c78", {"\0\xff\\x", 4}}};
  for (const auto& each : table) {
    const std::string text = each.written;
    reply said;
    said.rows = {
        {text, "f", "4", "0", "0", "0", "7", "10", "20", "0", "1", text, text, text},
        {text, "t", "4", "0", "0", "0", "0", "10", "20", "0", "1", text, text, text},
    };

    const auto found = sql::look_answer_of(said);

    ASSERT_TRUE(found) << text;
    ASSERT_EQ(found->size(), 1U) << text;
    EXPECT_EQ(found->front().name, each.meant) << text;
    EXPECT_EQ(found->front().holders.front().host, each.meant) << text;
    EXPECT_EQ(found->front().holders.front().value, each.meant) << text;
    EXPECT_EQ(found->front().waiters.front().label, each.meant) << text;
  }
}

TEST(Lanes, OfContendersOfWhomNothingIsInTheStoreAreFree) {
  using answer = base::result<backend_api::acquire_answer>;
  const auto failed = [](errc why) { return answer(base::fail(why, "")); };
  struct {
    answer said;
    bool first;
    std::size_t lane;
  } const table[] = {
      {backend_api::acquire_answer{backend_api::held{}}, true, 0},
      {backend_api::acquire_answer{backend_api::held{}}, false, 0},
      {backend_api::acquire_answer{backend_api::waiting{}}, true, 1},
      {backend_api::acquire_answer{backend_api::granted{}}, true, 1},
      {failed(errc::unavailable), true, 0},
      {failed(errc::wrong_kind), true, 0},
      // It may be executed yet, or an earlier one may have been: what follows comes after it.
      {failed(errc::outcome_unknown), true, 1},
      {failed(errc::store_refused), true, 1},
      {failed(errc::unavailable), false, 1},
      {failed(errc::store_refused), false, 1},
  };
  for (const auto& each : table) {
    sql::lanes lanes;
    const backend_api::holder_id who{1, 2};
    lanes.to_second(who);

    lanes.acquire_answered(who, each.said, each.first);

    EXPECT_EQ(lanes.of(who), each.lane) << &each - table;
  }
}

TEST(Address, IsUnderstood) {
  const auto found = parse_address(
      "mysql://me:se%2Fcret@db1:6000/shop?prefix=my_&tls=yes&ca_file=/ca&connect_timeout=7");

  ASSERT_TRUE(found) << found.error().detail;
  EXPECT_EQ(found->host, "db1");
  EXPECT_EQ(found->port, 6000);
  EXPECT_EQ(found->database, "shop");
  EXPECT_EQ(found->password, "se/cret");
  EXPECT_EQ(found->prefix, "my_");
  EXPECT_TRUE(found->tls.on);
  EXPECT_TRUE(found->tls.verify);
  EXPECT_EQ(found->connect_timeout_s, 7U);
  EXPECT_EQ(found->description, "mariadb at db1:6000/shop");
  EXPECT_EQ(parse_address("mariadb:///db?socket=/run/s")->description, "mariadb at /run/s/db");
}

/// What a server is told that describes itself so.
base::result<std::optional<std::string>> greeted(const std::string& version,
                                                 const std::string& binlog_format = "MIXED",
                                                 server_facts* facts = nullptr) {
  const auto where = parse_address("mariadb://h/db");
  greeting one(*where);
  const reply done;
  EXPECT_TRUE(one.next(nullptr));
  while (one.next(&done).value().value().starts_with("SET ")) continue;
  reply said;
  said.rows = {{"version", version},
               {"innodb_flush_log_at_trx_commit", "1"},
               {"log_bin", "ON"},
               {"binlog_format", binlog_format}};
  auto next = one.next(&said);
  if (facts != nullptr) *facts = one.facts();
  return next;
}

TEST(Greeting, RefusesServersThatAreTooOldOrLogStatements) {
  EXPECT_TRUE(greeted("10.6.0-MariaDB"));
  EXPECT_TRUE(greeted("11.4.2-MariaDB-log"));
  EXPECT_TRUE(greeted("8.0.36"));
  EXPECT_EQ(greeted("10.5.9-MariaDB").error().code, errc::store_refused);
  EXPECT_EQ(greeted("8.0.28").error().code, errc::store_refused);
  EXPECT_EQ(greeted("10.11.6-MariaDB", "STATEMENT").error().code, errc::store_refused);
}

TEST(Greeting, SaysOfMySqlThatItIsUntested) {
  server_facts facts;
  ASSERT_TRUE(greeted("8.0.36", "ROW", &facts));

  EXPECT_FALSE(facts.mariadb);
  const auto all = capabilities_of(facts);
  EXPECT_TRUE(std::ranges::any_of(all.caveats, [](const std::string& each) {
    return each.find("was not tested") != std::string::npos;
  }));
}

}  // namespace
}  // namespace sallyport::backends::mariadb
