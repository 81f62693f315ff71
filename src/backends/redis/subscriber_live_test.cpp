#include "backends/redis/subscriber.hpp"

#include "tests/kit/certificates.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/waiting.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

class news final : public subscriber::listener {
 public:
  void subscribed(std::string_view channel) override {
    heard.push_back("subscribed " + std::string(channel));
  }
  void message(std::string_view channel, std::string_view payload) override {
    heard.push_back(std::string(channel) + ": " + std::string(payload));
  }
  void lost(const base::failure& /*why*/) override { heard.emplace_back("lost"); }
  void refused(std::string_view channel, std::string_view words) override {
    heard.push_back("refused " + std::string(channel) + ": " + std::string(words));
  }

  [[nodiscard]] auto count(std::string_view what) const {
    return std::count(heard.begin(), heard.end(), what);
  }
  std::vector<std::string> heard;
};

class SubscriberLive : public testing::Test {
 protected:
  ~SubscriberLive() override {
    if (subscriber_) subscriber_->close();
  }

  void open(std::uint16_t port) {
    settings_.where = {.host = "127.0.0.1", .port = port};
    subscriber_ = subscriber::make(pump_, settings_, news_).value();
  }
  /// Runs the pump until the news hold this so many times.
  [[nodiscard]] bool hears(std::string_view what, std::ptrdiff_t times = 1) {
    return kit::eventually([&] {
      pump_->run_once(lease_clock::now() + 1ms);
      return news_->count(what) >= times;
    });
  }

  std::shared_ptr<net::pump> pump_ = net::pump::make().value();
  std::shared_ptr<news> news_ = std::make_shared<news>();
  subscriber::settings settings_;
  std::shared_ptr<subscriber> subscriber_;
};

TEST_F(SubscriberLive, HearsWhatIsPublishedOnceItIsConfirmed) {
  const kit::redis_server server;
  open(server.port());
  subscriber_->subscribe("plain", false);
  subscriber_->subscribe("sharded", true);
  ASSERT_TRUE(hears("subscribed plain"));
  ASSERT_TRUE(hears("subscribed sharded"));

  server.command({"PUBLISH", "plain", "one"});
  server.command({"SPUBLISH", "sharded", "two"});

  EXPECT_TRUE(hears("plain: one"));
  EXPECT_TRUE(hears("sharded: two"));
}

TEST_F(SubscriberLive, HearsNoMoreAfterUnsubscribing) {
  const kit::redis_server server;
  open(server.port());
  subscriber_->subscribe("a", false);
  subscriber_->subscribe("b", false);
  ASSERT_TRUE(hears("subscribed a"));
  ASSERT_TRUE(hears("subscribed b"));

  subscriber_->unsubscribe("a");
  server.command({"PUBLISH", "a", "one"});
  server.command({"PUBLISH", "b", "two"});

  EXPECT_TRUE(hears("b: two"));
  EXPECT_EQ(news_->count("a: one"), 0);
  subscriber_->subscribe("a", false);
  EXPECT_TRUE(hears("subscribed a", 2));
}

TEST_F(SubscriberLive, SubscribesAgainAfterItWasThrownOut) {
  const kit::redis_server server;
  open(server.port());
  subscriber_->subscribe("a", false);
  ASSERT_TRUE(hears("subscribed a"));

  server.command({"CLIENT", "KILL", "TYPE", "pubsub"});

  ASSERT_TRUE(hears("lost"));
  ASSERT_TRUE(hears("subscribed a", 2));
  server.command({"PUBLISH", "a", "one"});
  EXPECT_TRUE(hears("a: one"));
}

TEST_F(SubscriberLive, ComesBackWithTheServer) {
  kit::redis_server server;
  open(server.port());
  subscriber_->subscribe("a", false);
  ASSERT_TRUE(hears("subscribed a"));

  server.kill();
  ASSERT_TRUE(hears("lost"));
  server.start();

  EXPECT_TRUE(hears("subscribed a", 2));
}

TEST_F(SubscriberLive, StaysWithAQuietServer) {
  const kit::redis_server server;
  settings_.ping_interval = 5ms;
  settings_.ping_patience = 10s;
  open(server.port());
  subscriber_->subscribe("a", false);
  ASSERT_TRUE(hears("subscribed a"));

  const auto enough = lease_clock::now() + 200ms;
  while (lease_clock::now() < enough) pump_->run_once(enough);
  server.command({"PUBLISH", "a", "one"});

  EXPECT_TRUE(hears("a: one"));
  EXPECT_EQ(news_->count("lost"), 0);
}

TEST_F(SubscriberLive, LeavesAConnectionOverWhichNothingComes) {
  const kit::redis_server server;
  kit::fault_proxy proxy{server.port()};
  settings_.ping_interval = 20ms;
  settings_.ping_patience = 100ms;
  open(proxy.port());
  subscriber_->subscribe("a", false);
  ASSERT_TRUE(hears("subscribed a"));

  proxy.set(1, kit::flow::to_client, kit::fault::silence());

  ASSERT_TRUE(hears("lost"));
  EXPECT_TRUE(hears("subscribed a", 2));
}

TEST_F(SubscriberLive, TellsWhichChannelItMayNotHear) {
  const kit::redis_server server{
      {.users = {"user alice on >secret ~* &allowed resetchannels &allowed +@all"}}};
  settings_.user = "alice";
  settings_.password = "secret";
  open(server.port());

  subscriber_->subscribe("forbidden", false);
  subscriber_->subscribe("allowed", false);

  ASSERT_TRUE(hears("subscribed allowed"));
  EXPECT_TRUE(std::any_of(news_->heard.begin(), news_->heard.end(), [](const std::string& each) {
    return each.starts_with("refused forbidden: NOPERM");
  }));
}

TEST_F(SubscriberLive, WorksOverTls) {
  const kit::certificates papers;
  kit::redis_options options;
  options.tls = kit::redis_tls{.certificate = papers.server.certificate,
                               .key = papers.server.key,
                               .authority = papers.authority};
  const kit::redis_server server{options};
  settings_.tls.on = true;
  settings_.tls.ca_file = papers.authority;
  open(server.tls_port());
  subscriber_->subscribe("a", false);
  ASSERT_TRUE(hears("subscribed a"));

  for (int i = 0; i < 100; ++i) server.command({"PUBLISH", "a", std::string(1000, 'x')});

  EXPECT_TRUE(hears("a: " + std::string(1000, 'x'), 100));
}

}  // namespace
}  // namespace sallyport::backends::redis
