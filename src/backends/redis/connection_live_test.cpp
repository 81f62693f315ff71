#include "backends/redis/connection.hpp"

#include "backends/redis/test_driven_connection.hpp"
#include "tests/kit/certificates.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/waiting.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;
using kit::eventually;
using kit::fault;
using kit::flow;

connection::settings at(std::uint16_t port) {
  connection::settings how;
  how.where = {.host = "127.0.0.1", .port = port};
  how.client_name = "live-test";
  return how;
}

bool ok(const base::result<reply>& said) { return said && said->text == "OK"; }
bool is(const base::result<reply>& said, errc code) { return !said && said.error().code == code; }
std::string words(const base::result<reply>& said) {
  return said ? "answered: " + said->text : said.error().detail;
}
bool says(const base::result<reply>& said, std::string_view what) {
  return words(said).find(what) != std::string::npos;
}

class ConnectionLive : public testing::Test {
 protected:
  static kit::redis_server& server() {
    static kit::redis_server one{{.unix_socket = true}};
    return one;
  }
  void SetUp() override { server().command({"FLUSHALL"}); }
};

TEST_F(ConnectionLive, WorksOverTcpAndAUnixSocket) {
  connection::settings how;
  how.where.path = server().unix_path();
  driven_connection over_unix(how);
  driven_connection over_tcp(at(server().port()));

  EXPECT_TRUE(ok(over_tcp.ask({"SET", "a", "1"})));
  EXPECT_EQ(over_unix.ask({"GET", "a"})->text, "1");
}

TEST_F(ConnectionLive, FindsLocalhostByItsName) {
  connection::settings how = at(server().port());
  how.where.host = "localhost";
  driven_connection redis(how);

  EXPECT_TRUE(ok(redis.ask({"SET", "a", "1"})));
}

TEST_F(ConnectionLive, ChoosesItsDatabaseAndItsName) {
  connection::settings how = at(server().port());
  how.database = 5;
  driven_connection redis(how);

  EXPECT_EQ(redis.ask({"CLIENT", "GETNAME"})->text, "live-test");
  EXPECT_NE(redis.ask({"CLIENT", "INFO"})->text.find(" db=5 "), std::string::npos);
}

TEST_F(ConnectionLive, LogsInWithAUserAndAPassword) {
  const kit::redis_server guarded{
      {.password = "default-secret", .users = {"user alice on >alice-secret ~* +@all"}}};
  connection::settings as_default = at(guarded.port());
  as_default.password = "default-secret";
  connection::settings as_alice = at(guarded.port());
  as_alice.user = "alice";
  as_alice.password = "alice-secret";

  EXPECT_EQ(driven_connection(as_default).ask({"ACL", "WHOAMI"})->text, "default");
  EXPECT_EQ(driven_connection(as_alice).ask({"ACL", "WHOAMI"})->text, "alice");
}

TEST_F(ConnectionLive, SaysWhyItWasNotLetIn) {
  const kit::redis_server guarded{{.password = "right"}};
  connection::settings wrong = at(guarded.port());
  wrong.password = "not-the-secret";

  const auto with_wrong = driven_connection(wrong).ask({"GET", "a"});
  const auto with_none = driven_connection(at(guarded.port())).ask({"GET", "a"});

  EXPECT_TRUE(is(with_wrong, errc::unavailable));
  EXPECT_TRUE(says(with_wrong, "WRONGPASS")) << words(with_wrong);
  EXPECT_FALSE(says(with_wrong, "not-the-secret")) << words(with_wrong);
  EXPECT_TRUE(is(with_none, errc::unavailable));
  EXPECT_TRUE(says(with_none, "NOAUTH")) << words(with_none);
}

TEST_F(ConnectionLive, ServesManyThreadsOverOneConnection) {
  driven_connection redis(at(server().port()));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 16; ++caller) {
      callers.emplace_back([&, caller] {
        for (int i = 0; i < 300; ++i) {
          const std::string text = std::to_string(caller) + "/" + std::to_string(i);
          const auto said = redis.ask({"ECHO", text});
          if (!said || said->text != text) ++wrong;
        }
      });
    }
  }

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(redis.connections(), 1);
}

TEST_F(ConnectionLive, ComesBackAfterTheServerWasKilled) {
  kit::redis_server mortal;
  driven_connection redis(at(mortal.port()));
  ASSERT_TRUE(ok(redis.ask({"SET", "a", "1"})));

  mortal.kill();
  const auto lost = redis.ask({"SET", "a", "2"});
  EXPECT_FALSE(lost.has_value());
  EXPECT_TRUE(is(redis.ask({"SET", "a", "3"}), errc::unavailable));
  mortal.start();

  EXPECT_TRUE(eventually([&] { return ok(redis.ask({"SET", "a", "4"})); }));
}

TEST_F(ConnectionLive, ComesBackAfterItWasThrownOut) {
  driven_connection redis(at(server().port()));
  ASSERT_TRUE(ok(redis.ask({"SET", "a", "1"})));

  server().command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});

  EXPECT_TRUE(eventually([&] { return ok(redis.ask({"SET", "a", "2"})); }));
  EXPECT_EQ(redis.connections(), 2);
}

TEST_F(ConnectionLive, DoesNotWaitForAServerThatPauses) {
  driven_connection redis(at(server().port()));
  ASSERT_TRUE(ok(redis.ask({"SET", "a", "1"})));

  server().command({"CLIENT", "PAUSE", "500", "ALL"});
  const auto said = redis.ask({"SET", "a", "2"}, 100ms);

  EXPECT_TRUE(is(said, errc::outcome_unknown)) << words(said);
  EXPECT_TRUE(eventually([&] { return ok(redis.ask({"SET", "a", "3"})); }));
}

TEST_F(ConnectionLive, LeavesAServerThatStandsStill) {
  kit::redis_server frozen;
  driven_connection redis(at(frozen.port()));
  ASSERT_TRUE(ok(redis.ask({"SET", "a", "1"})));

  frozen.pause();
  const auto said = redis.ask({"SET", "a", "2"}, 100ms);
  const auto later = redis.ask({"SET", "a", "3"}, 100ms);
  frozen.resume();

  EXPECT_TRUE(is(said, errc::outcome_unknown)) << words(said);
  EXPECT_TRUE(is(later, errc::unavailable)) << words(later);
  EXPECT_TRUE(eventually([&] { return ok(redis.ask({"SET", "a", "4"})); }));
  EXPECT_GE(redis.connections(), 2);
}

// Cuts.

class ConnectionThroughProxy : public ConnectionLive {
 protected:
  kit::fault_proxy proxy_{server().port()};
  driven_connection redis_{at(proxy_.port())};
  std::string value(const std::string& key) { return server().command({"GET", key}).text; }
};

TEST_F(ConnectionThroughProxy, NeverSaysThatNothingHappenedWhenItDid) {
  std::string request;
  append_command(request, std::vector<std::string_view>{"SET", "key-000", "1"});
  int unknown = 0;
  for (std::size_t bytes = 0; bytes <= request.size(); ++bytes) {
    ASSERT_TRUE(eventually([&] { return ok(redis_.ask({"SET", "warm", "1"})); }));
    std::string key = "key-" + std::to_string(1000 + bytes).substr(1);
    proxy_.set(flow::to_server, fault::cut_after(bytes));

    const auto said = redis_.ask({"SET", key, "1"});

    proxy_.heal();
    // With no byte to pass the connection ends at once, perhaps before anything is sent; then the
    // next one serves.
    ASSERT_FALSE(said.has_value() && bytes > 0 && bytes < request.size()) << bytes;
    if (is(said, errc::outcome_unknown)) {
      ++unknown;
    } else if (!said) {
      EXPECT_TRUE(is(said, errc::unavailable)) << words(said);
      EXPECT_EQ(value(key), "") << bytes;
    }
    if (bytes > 0 && bytes < request.size()) {
      EXPECT_EQ(value(key), "") << "half a command was executed";
    }
  }
  EXPECT_GT(unknown, 0);
}

TEST_F(ConnectionThroughProxy, SaysThatNobodyKnowsWhenTheReplyIsCut) {
  for (std::uint64_t bytes = 1; bytes < 5; ++bytes) {  // "+OK\r\n"
    ASSERT_TRUE(eventually([&] { return ok(redis_.ask({"SET", "warm", "1"})); }));
    const std::string key = "key-" + std::to_string(bytes);
    proxy_.set(flow::to_client, fault::cut_after(bytes, kit::ending::finish));

    const auto said = redis_.ask({"SET", key, "1"});

    proxy_.heal();
    EXPECT_TRUE(is(said, errc::outcome_unknown)) << bytes << ": " << words(said);
    EXPECT_EQ(value(key), "1");
  }
}

TEST_F(ConnectionThroughProxy, SaysThatNobodyKnowsWhenTheReplyIsLost) {
  ASSERT_TRUE(ok(redis_.ask({"SET", "warm", "1"})));

  proxy_.set(flow::to_client, fault::drop_reply(kit::ending::reset, "the-key"));
  const auto said = redis_.ask({"SET", "the-key", "1"});

  EXPECT_TRUE(is(said, errc::outcome_unknown)) << words(said);
  EXPECT_EQ(value("the-key"), "1");
  EXPECT_TRUE(eventually([&] { return ok(redis_.ask({"SET", "warm", "1"})); }));
}

TEST_F(ConnectionThroughProxy, LeavesAPeerOfWhomNothingIsHeard) {
  ASSERT_TRUE(ok(redis_.ask({"SET", "warm", "1"})));

  proxy_.set(1, flow::to_client, fault::silence());
  const auto said = redis_.ask({"SET", "a", "1"}, 100ms);

  EXPECT_TRUE(is(said, errc::outcome_unknown)) << words(said);
  EXPECT_TRUE(eventually([&] { return ok(redis_.ask({"SET", "warm", "1"})); }));
  EXPECT_EQ(redis_.connections(), 2);
}

TEST_F(ConnectionThroughProxy, LeavesAPeerThatHearsNothing) {
  ASSERT_TRUE(ok(redis_.ask({"SET", "warm", "1"})));

  proxy_.set(1, flow::to_server, fault::silence());
  const auto said = redis_.ask({"SET", "a", "1"}, 100ms);

  EXPECT_TRUE(is(said, errc::outcome_unknown)) << words(said);
  EXPECT_TRUE(eventually([&] { return ok(redis_.ask({"SET", "warm", "1"})); }));
  EXPECT_EQ(value("a"), "");
}

TEST_F(ConnectionThroughProxy, ReportsNothingAsUnavailableThatWasCounted) {
  // Many callers, a network that breaks again and again: whatever was not `unavailable` may have
  // been counted, and whatever was answered has been, once.
  std::atomic<int> counted{0};
  std::atomic<int> unknown{0};
  std::atomic<bool> stop{false};
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&] {
        while (!stop) {
          const auto said = redis_.ask({"INCR", "counter"}, 2s);
          if (said) {
            ++counted;
          } else if (is(said, errc::outcome_unknown)) {
            ++unknown;
          }
        }
      });
    }
    for (int round = 0; round < 20; ++round) {
      const int before = counted;
      ASSERT_TRUE(eventually([&] { return counted >= before + 50; }));
      proxy_.close_all(round % 2 == 0 ? kit::ending::reset : kit::ending::finish);
    }
    stop = true;
  }

  const int stored = std::stoi(value("counter"));
  EXPECT_GE(stored, counted);
  EXPECT_LE(stored, counted + unknown);
}

// Scripts.

TEST_F(ConnectionLive, SurvivesAServerThatForgetsScripts) {
  const std::string text = "return redis.call('INCR', KEYS[1])";
  const std::string sha1 = server().command({"SCRIPT", "LOAD", text}).text;
  const script_source script{.name = "count", .text = text, .sha1 = sha1};
  driven_connection redis(at(server().port()));
  std::atomic<int> counted{0};
  std::atomic<int> refused{0};
  std::atomic<int> wrong{0};
  std::atomic<bool> stop{false};
  {
    std::vector<std::jthread> callers;
    for (std::uint64_t caller = 1; caller <= 8; ++caller) {
      callers.emplace_back([&, caller] {
        while (!stop) {
          wire_command call = call_of(script, 1);
          call.add("counter");
          const auto said = redis.ask(std::move(call), 10s, {caller, caller});
          if (said && said->is_integer()) {
            ++counted;
          } else if (is(said, errc::unavailable)) {
            ++refused;
          } else {
            ++wrong;
          }
        }
      });
    }
    auto probe = server().probe();
    for (int round = 0; round < 50; ++round) {
      const int before = counted;
      ASSERT_TRUE(eventually([&] { return counted >= before + 20; }));
      probe.expect({"SCRIPT", "FLUSH"});
    }
    stop = true;
  }

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(refused, 0) << "each caller has one request under way: none is overtaken";
  EXPECT_EQ(server().command({"GET", "counter"}).text, std::to_string(counted));
}

// TLS.

class ConnectionOverTls : public testing::Test {
 protected:
  static const kit::certificates& papers() {
    static const kit::certificates all;
    return all;
  }
  static kit::redis_options served_with(
      const kit::certificate_files& files,
      kit::redis_client_certificates clients = kit::redis_client_certificates::not_asked) {
    kit::redis_options options;
    options.tls = kit::redis_tls{.certificate = files.certificate,
                                 .key = files.key,
                                 .authority = papers().authority,
                                 .clients = clients};
    return options;
  }
  static connection::settings trusting(const std::filesystem::path& authority, std::uint16_t port) {
    connection::settings how = at(port);
    how.tls.on = true;
    how.tls.ca_file = authority;
    return how;
  }
};

TEST_F(ConnectionOverTls, ChecksAddressesAndNames) {
  const kit::redis_server server{served_with(papers().server)};
  connection::settings by_address = trusting(papers().authority, server.tls_port());
  connection::settings by_name = by_address;
  by_name.where.host = "localhost";
  connection::settings by_other_name = by_address;
  by_other_name.tls.server_name = "localhost";

  EXPECT_TRUE(ok(driven_connection(by_address).ask({"SET", "a", "1"})));
  EXPECT_TRUE(ok(driven_connection(by_name).ask({"SET", "a", "1"})));
  EXPECT_TRUE(ok(driven_connection(by_other_name).ask({"SET", "a", "1"})));
}

TEST_F(ConnectionOverTls, CarriesMuchInBothDirections) {
  const kit::redis_server server{served_with(papers().server)};
  driven_connection redis(trusting(papers().authority, server.tls_port()));
  const std::string large(3'000'000, 'x');
  ASSERT_TRUE(ok(redis.ask({"SET", "large", large})));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&, caller] {
        for (int i = 0; i < 50; ++i) {
          const std::string text(static_cast<std::size_t>(1 + caller * 5000 + i), 'y');
          const auto said = redis.ask({"ECHO", text});
          if (!said || said->text != text) ++wrong;
        }
      });
    }
  }

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(redis.ask({"GET", "large"})->text, large);
  EXPECT_EQ(redis.connections(), 1);
}

TEST_F(ConnectionOverTls, RefusesACertificateOfAnotherAuthority) {
  const kit::redis_server server{served_with(papers().other_server)};

  const auto said =
      driven_connection(trusting(papers().authority, server.tls_port())).ask({"SET", "a", "1"});

  EXPECT_TRUE(is(said, errc::unavailable));
  EXPECT_TRUE(says(said, "certificate was refused")) << words(said);
}

TEST_F(ConnectionOverTls, RefusesACertificateForAnotherHost) {
  const kit::redis_server server{served_with(papers().wrong_host)};
  connection::settings by_name = trusting(papers().authority, server.tls_port());
  by_name.where.host = "localhost";

  const auto by_address =
      driven_connection(trusting(papers().authority, server.tls_port())).ask({"SET", "a", "1"});
  const auto named = driven_connection(by_name).ask({"SET", "a", "1"});

  EXPECT_TRUE(says(by_address, "IP address mismatch (expected '127.0.0.1')")) << words(by_address);
  EXPECT_TRUE(says(named, "ostname mismatch (expected 'localhost')")) << words(named);
}

TEST_F(ConnectionOverTls, RefusesACertificateThatHasExpired) {
  const kit::redis_server server{served_with(papers().expired)};

  const auto said =
      driven_connection(trusting(papers().authority, server.tls_port())).ask({"SET", "a", "1"});

  EXPECT_TRUE(says(said, "expired")) << words(said);
}

TEST_F(ConnectionOverTls, TakesAnyCertificateOnlyWhenToldTo) {
  const kit::redis_server server{served_with(papers().other_wrong_host)};
  connection::settings blind = at(server.tls_port());
  blind.tls.on = true;
  blind.tls.verify = false;

  EXPECT_TRUE(ok(driven_connection(blind).ask({"SET", "a", "1"})));
}

TEST_F(ConnectionOverTls, ShowsItsOwnCertificate) {
  const kit::redis_server server{
      served_with(papers().server, kit::redis_client_certificates::required)};
  connection::settings with = trusting(papers().authority, server.tls_port());
  with.tls.certificate_file = papers().client.certificate;
  with.tls.key_file = papers().client.key;

  EXPECT_TRUE(ok(driven_connection(with).ask({"SET", "a", "1"})));
  const auto without =
      driven_connection(trusting(papers().authority, server.tls_port())).ask({"SET", "a", "1"});
  EXPECT_TRUE(is(without, errc::unavailable)) << words(without);
}

TEST_F(ConnectionOverTls, FailsWhereOnlyOneSideSpeaksIt) {
  const kit::redis_server server{served_with(papers().server)};

  connection::settings hasty = trusting(papers().authority, server.port());
  hasty.connect_timeout = 200ms;  // the server waits for the end of what it takes for a line
  const auto tls_to_plain = driven_connection(hasty).ask({"SET", "a", "1"});
  const auto plain_to_tls = driven_connection(at(server.tls_port())).ask({"SET", "a", "1"});

  EXPECT_TRUE(is(tls_to_plain, errc::unavailable)) << words(tls_to_plain);
  EXPECT_TRUE(is(plain_to_tls, errc::unavailable)) << words(plain_to_tls);
}

TEST_F(ConnectionOverTls, IsCutAtAnyByteWithoutALie) {
  const kit::redis_server server{served_with(papers().server)};
  kit::fault_proxy proxy{server.tls_port()};
  driven_connection redis(trusting(papers().authority, proxy.port()));
  for (std::uint64_t bytes = 0; bytes < 90; bytes += 7) {
    ASSERT_TRUE(eventually([&] { return ok(redis.ask({"SET", "warm", "1"})); }));
    const std::string key = "key-" + std::to_string(bytes);
    proxy.set(flow::to_server, fault::cut_after(bytes));

    const auto said = redis.ask({"SET", key, "1"});

    proxy.heal();
    const bool stored = !server.command({"GET", key}).is_nil();
    EXPECT_TRUE(stored || !said);
    EXPECT_FALSE(stored && is(said, errc::unavailable));
  }
}

}  // namespace
}  // namespace sallyport::backends::redis
