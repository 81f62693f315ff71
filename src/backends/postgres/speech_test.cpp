#include "backends/postgres/speech.hpp"

#include "backends/postgres/address.hpp"
#include "backends/postgres/answers.hpp"
#include "backends/postgres/greeting.hpp"
#include "backends/postgres/lookup.hpp"
#include "backends/postgres/schema.hpp"
#include "backends/sql/answers.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sallyport::backends::postgres {
namespace {

using sql::acquire_answer_of;
using sql::renew_answers_of;

reply saying(std::string text) {
  return {.error_code = {}, .error = {}, .rows = {{std::move(text)}}};
}
reply refusing(std::string code) {
  return {.error_code = std::move(code), .error = "no", .rows = {}};
}

TEST(Speech, QuotesIdentifiers) { EXPECT_EQ(quoted("a\"b"), "\"a\"\"b\""); }

TEST(Speech, SendsNamesAsBytesAndNeverInTheText) {
  const speech said({.schema = "s", .durable = true, .client = 1, .owner = {}});
  const lock_name name("it's a \"name\"");

  const call made = said.acquire({.name = name, .holder = {1, 2}, .value = {}, .answer_by = {}});

  EXPECT_EQ(made.prepared->text.find("name\""), std::string::npos);
  EXPECT_EQ(made.parameters.front().bytes, name.text());
  EXPECT_TRUE(made.parameters.front().binary);
  EXPECT_EQ(made.parameters.size(), 17U);
}

TEST(Speech, WritesABatchAsArrays) {
  const speech said({.schema = "s", .durable = true, .client = 1, .owner = {}});
  const lock_name first("a");
  const lock_name second("b");
  const std::vector<backend_api::renew_request> batch{
      {.name = first, .holder = {1, 2}, .lease_length = std::chrono::seconds{1}, .answer_by = {}},
      {.name = second, .holder = {3, 4}, .lease_length = std::chrono::seconds{2}, .answer_by = {}}};

  const call made = said.renew(batch);

  EXPECT_EQ(made.parameters[0].bytes, "{\"\\\\x61\",\"\\\\x62\"}");
  EXPECT_EQ(made.parameters[2].bytes, "{1000,2000}");
}

TEST(Answers, AreReadOrRefusedAsAWhole) {
  const auto grant = acquire_answer_of(saying("{1,5,20,30000,1,1}"));
  ASSERT_TRUE(grant);
  const auto& granted = std::get<backend_api::granted>(*grant);
  EXPECT_EQ(granted.tokens.first.value(), 5U);
  EXPECT_TRUE(granted.provisional);
  EXPECT_EQ(acquire_answer_of(saying("{4,2}")).error().code, errc::wrong_kind);
  for (const char* const odd : {"", "{}", "{1}", "{1,2,3}", "{x}", "{1,,2}",
                                "{9223372036854775808}", "{5,1,1,1,1,1}", "1,2"}) {
    EXPECT_FALSE(acquire_answer_of(saying(odd))) << odd;
    EXPECT_FALSE(renew_answers_of(saying(odd), 2)) << odd;
  }
}

TEST(Answers, TellAServerThatIsBusyFromOneThatCanNotServe) {
  for (const char* const busy : {"40001", "40P01", "55P03", "57014"}) {
    EXPECT_TRUE(failure_of(refusing(busy)).no_outage) << busy;
  }
  for (const char* const away : {"53300", "57P01", "25006", "08006"}) {
    EXPECT_FALSE(failure_of(refusing(away)).no_outage) << away;
  }
}

TEST(Answers, TellWhatPassesFromWhatDoesNot) {
  for (const char* const passing :
       {"40001", "40P01", "53300", "55P03", "57014", "57P01", "25006"}) {
    EXPECT_EQ(failure_of(refusing(passing)).code, errc::unavailable) << passing;
  }
  for (const char* const lasting : {"42501", "42P01", "SP001", "SP002", "22P02"}) {
    EXPECT_EQ(failure_of(refusing(lasting)).code, errc::store_refused) << lasting;
  }
}

TEST(Notices, AreReadOrIgnored) {
  const std::string id(32, 'a');
  const auto granted = parse_notice("g " + id + " 5 20 3000 1");
  ASSERT_TRUE(granted && granted->grant);
  EXPECT_EQ(granted->grant->tokens.last.value(), 20U);
  const auto lost = parse_notice("l " + id);
  ASSERT_TRUE(lost);
  EXPECT_FALSE(lost->grant);
  for (const std::string& odd : {std::string(), std::string("g"), "g " + id, "x " + id,
                                 "l " + std::string(32, 'z'), std::string("l abc")}) {
    EXPECT_FALSE(parse_notice(odd)) << odd;
  }
}

TEST(Schema, HasNoPlaceholderLeft) {
  const std::string script = schema_script("my locks", "app");

  EXPECT_EQ(script.find("{schema"), std::string::npos);
  EXPECT_EQ(script.find("{version"), std::string::npos);
  EXPECT_NE(script.find("\"my locks\".acquire("), std::string::npos);
  EXPECT_NE(script.find("TO \"app\";"), std::string::npos);
}

TEST(Address, TakesItsOwnOptionsAndLeavesTheRestToLibpq) {
  const auto found = parse_address(
      "postgresql://me@db1:6000/"
      "shop?schema=my%20locks&sslmode=require&durable=no&connect_timeout=7");

  ASSERT_TRUE(found) << found.error().detail;
  EXPECT_EQ(found->schema, "my locks");
  EXPECT_FALSE(found->durable);
  EXPECT_EQ(found->user, "me");
  EXPECT_EQ(found->connect_timeout_s, 7U);
  EXPECT_EQ(found->description, "postgres at db1:6000/shop");
  bool tls = false;
  for (const auto& [keyword, value] : found->where) {
    tls = tls || (keyword == "sslmode" && value == "require");
    EXPECT_NE(keyword, "schema");
  }
  EXPECT_TRUE(tls);
}

TEST(Lookup, GivesLibpqAddressesBesideNames) {
  lookup one({{"host", "127.0.0.1,/run/pg,::1"}, {"port", "1,2,3"}, {"user", "me"}});
  const auto found = one.poll();
  ASSERT_TRUE(found && *found);
  const wire_parameters wanted{{"user", "me"},
                               {"host", "127.0.0.1,/run/pg,::1"},
                               {"hostaddr", "127.0.0.1,,::1"},
                               {"port", "1,2,3"}};
  EXPECT_EQ(**found, wanted);

  // What libpq alone knows is left to it.
  const wire_parameters service{{"service", "locks"}};
  lookup other(service);
  const auto same = other.poll();
  ASSERT_TRUE(same && *same);
  EXPECT_EQ(**same, service);
}

TEST(Greeting, RefusesReplicasAndOldServers) {
  const auto where = parse_address("postgres://h/db");
  ASSERT_TRUE(where);
  const auto told = [&](const std::string& replica, const std::string& version) {
    greeting one(*where, 7);
    EXPECT_TRUE(one.next(nullptr));
    reply said;
    said.rows = {{"7", replica, version, "on", "on", "on", "", "0", "7200"}};
    const auto next = one.next(&said);
    return next ? std::error_code{} : next.error().code;
  };

  EXPECT_EQ(told("f", "150004"), std::error_code{});
  EXPECT_EQ(told("t", "150004"), errc::unavailable);
  EXPECT_EQ(told("f", "120004"), errc::store_refused);
}

TEST(Greeting, ShortensWhatAServerTakesTooLongFor) {
  const auto where = parse_address("postgres://h/db");
  ASSERT_TRUE(where);
  const auto settings = [&](const std::string& lock_timeout, const std::string& keep_alive) {
    greeting one(*where, 7);
    EXPECT_TRUE(one.next(nullptr));
    reply said;
    said.rows = {{"7", "f", "150004", "on", "on", "on", "", lock_timeout, keep_alive}};
    const auto next = one.next(&said);
    return next && *next ? **next : "";
  };
  const auto sets = [](const std::string& text, const std::string& name) {
    return text.find("SET " + name + " = ") != std::string::npos;
  };

  const std::string usual = settings("0", "7200");
  EXPECT_TRUE(sets(usual, "lock_timeout") && sets(usual, "tcp_keepalives_idle")) << usual;
  // What somebody has chosen stays, and a unix socket has no keep-alives.
  EXPECT_FALSE(sets(settings("100ms", "7200"), "lock_timeout"));
  EXPECT_FALSE(sets(settings("0", "5"), "tcp_keepalives_idle"));
  EXPECT_FALSE(sets(settings("0", "0"), "tcp_keepalives_idle"));
}

}  // namespace
}  // namespace sallyport::backends::postgres
