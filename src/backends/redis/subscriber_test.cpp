#include "backends/redis/subscriber.hpp"

#include "backends/redis/test_scripted_server.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

class recording_listener final : public subscriber::listener {
 public:
  void subscribed(std::string_view channel) override { add("subscribed ", channel); }
  void message(std::string_view channel, std::string_view payload) override {
    add("message ", std::string(channel) + " " + std::string(payload));
  }
  void lost(const base::failure& why) override {
    add("lost", "");
    why_lost = why.detail;
  }
  void refused(std::string_view channel, std::string_view words) override {
    add("refused ", std::string(channel) + " " + std::string(words));
  }
  void ended(std::string_view channel) override { add("ended ", channel); }

  std::vector<std::string> heard;
  std::string why_lost;

 private:
  void add(std::string_view what, std::string_view about) {
    heard.push_back(std::string(what) + std::string(about));
  }
};

class Subscriber : public testing::Test {
 protected:
  ~Subscriber() override {
    if (subscriber_) subscriber_->close();
  }

  void open() {
    settings_.where = server_.where();
    subscriber_ = subscriber::make(pump_, settings_, listener_).value();
  }
  /// Takes the next connection and greets.
  void welcome() {
    ASSERT_TRUE(run([&] { return server_.accept(); }));
    ASSERT_TRUE(run([&] { return server_.received() == wire({"PING"}); }));
    server_.take();
    server_.say("+PONG\r\n");
  }
  /// Asks for a channel and is served.
  void listen_to(const std::string& channel) {
    open();
    subscriber_->subscribe(channel, false);
    welcome();
    ASSERT_TRUE(run([&] { return server_.received() == wire({"SUBSCRIBE", channel}); }));
    server_.take();
    server_.say(told("subscribe", channel, ":1\r\n"));
    ASSERT_TRUE(run([&] { return !listener_->heard.empty(); }));
    ASSERT_EQ(listener_->heard.back(), "subscribed " + channel);
  }
  template <class Condition>
  [[nodiscard]] bool run(Condition holds) {
    return run_until(*pump_, holds);
  }
  static std::string wire(std::initializer_list<std::string_view> words) {
    std::string bytes;
    append_command(bytes, std::span(words.begin(), words.size()));
    return bytes;
  }
  static std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }
  static std::string told(const std::string& what, const std::string& channel,
                          const std::string& rest) {
    return "*3\r\n" + bulk(what) + bulk(channel) + rest;
  }

  scripted_server server_;
  std::shared_ptr<net::pump> pump_ = net::pump::make().value();
  std::shared_ptr<recording_listener> listener_ = std::make_shared<recording_listener>();
  subscriber::settings settings_;
  std::shared_ptr<subscriber> subscriber_;
};

TEST_F(Subscriber, ConnectsOnlyWhenItIsNeeded) {
  open();
  pump_->run_once(lease_clock::now() + 10ms);
  EXPECT_FALSE(server_.accept());

  subscriber_->subscribe("c", false);

  ASSERT_TRUE(run([&] { return server_.accept(); }));
}

TEST_F(Subscriber, TellsConfirmationsAndMessages) {
  listen_to("c");

  server_.say(told("message", "c", bulk("one")) + told("message", "c", bulk("two")));

  ASSERT_TRUE(run([&] { return listener_->heard.size() == 3; }));
  EXPECT_EQ(listener_->heard[1], "message c one");
  EXPECT_EQ(listener_->heard[2], "message c two");
}

TEST_F(Subscriber, UsesShardedChannelsWhereTheyAreAskedFor) {
  open();
  subscriber_->subscribe("c", true);
  welcome();
  ASSERT_TRUE(run([&] { return server_.received() == wire({"SSUBSCRIBE", "c"}); }));

  server_.say(told("ssubscribe", "c", ":1\r\n") + told("smessage", "c", bulk("one")));

  ASSERT_TRUE(run([&] { return listener_->heard.size() == 2; }));
  EXPECT_EQ(listener_->heard[1], "message c one");
}

TEST_F(Subscriber, AsksOnceForAChannelThatIsAskedForTwice) {
  listen_to("c");

  subscriber_->subscribe("c", false);
  subscriber_->subscribe("d", false);

  ASSERT_TRUE(run([&] { return !server_.received().empty(); }));
  EXPECT_EQ(server_.received(), wire({"SUBSCRIBE", "d"}));
}

TEST_F(Subscriber, DeliversNothingAfterUnsubscribing) {
  listen_to("c");

  subscriber_->unsubscribe("c");
  ASSERT_TRUE(run([&] { return server_.received() == wire({"UNSUBSCRIBE", "c"}); }));
  server_.say(told("message", "c", bulk("late")) + told("unsubscribe", "c", ":0\r\n"));
  subscriber_->subscribe("d", false);
  server_.say(told("subscribe", "d", ":1\r\n"));

  ASSERT_TRUE(run([&] { return listener_->heard.back() == "subscribed d"; }));
  EXPECT_EQ(listener_->heard.size(), 2U);
}

TEST_F(Subscriber, SubscribesToAllAgainAfterALoss) {
  listen_to("c");
  server_.reset();
  ASSERT_TRUE(run([&] { return listener_->heard.back() == "lost"; }));

  welcome();
  ASSERT_TRUE(run([&] { return server_.received() == wire({"SUBSCRIBE", "c"}); }));
  server_.say(told("subscribe", "c", ":1\r\n"));

  ASSERT_TRUE(run([&] { return listener_->heard.back() == "subscribed c"; }));
}

TEST_F(Subscriber, TellsWhatTheServerRefuses) {
  listen_to("c");
  subscriber_->subscribe("d", false);
  subscriber_->subscribe("e", false);

  server_.say("-NOPERM no such channel for you\r\n" + told("subscribe", "e", ":2\r\n"));

  ASSERT_TRUE(run([&] { return listener_->heard.size() == 3; }));
  EXPECT_EQ(listener_->heard[1], "refused d NOPERM no such channel for you");
  EXPECT_EQ(listener_->heard[2], "subscribed e");
}

TEST_F(Subscriber, TellsThatTheServerHasEndedASubscription) {
  open();
  subscriber_->subscribe("c", true);
  welcome();
  ASSERT_TRUE(run([&] { return server_.take() == wire({"SSUBSCRIBE", "c"}); }));
  server_.say(told("ssubscribe", "c", ":1\r\n") + told("sunsubscribe", "c", ":0\r\n"));
  ASSERT_TRUE(run([&] { return listener_->heard.size() == 2; }));
  EXPECT_EQ(listener_->heard[1], "ended c");

  subscriber_->subscribe("c", true);

  ASSERT_TRUE(run([&] { return server_.take() == wire({"SSUBSCRIBE", "c"}); }));
  server_.say("-MOVED 7365 127.0.0.1:7001\r\n");
  ASSERT_TRUE(run([&] { return listener_->heard.size() == 3; }));
  EXPECT_EQ(listener_->heard[2], "refused c MOVED 7365 127.0.0.1:7001");
}

TEST_F(Subscriber, AsksWhetherAQuietServerIsThere) {
  settings_.ping_interval = 10ms;
  settings_.ping_patience = 10s;
  listen_to("c");

  ASSERT_TRUE(run([&] { return server_.received() == wire({"PING"}); }));
  server_.take();
  server_.say("*2\r\n$4\r\npong\r\n$0\r\n\r\n");

  ASSERT_TRUE(run([&] { return server_.received() == wire({"PING"}); }));
  EXPECT_EQ(listener_->heard.size(), 1U);
}

TEST_F(Subscriber, LeavesAServerThatDoesNotAnswer) {
  settings_.ping_interval = 10ms;
  settings_.ping_patience = 10ms;
  listen_to("c");

  ASSERT_TRUE(run([&] { return listener_->heard.back() == "lost"; }));

  EXPECT_NE(listener_->why_lost.find("silent"), std::string::npos) << listener_->why_lost;
  welcome();
}

TEST_F(Subscriber, LeavesAServerThatMakesNoSense) {
  listen_to("c");

  server_.say(":1\r\n");

  ASSERT_TRUE(run([&] { return listener_->heard.back() == "lost"; }));
}

TEST_F(Subscriber, GoesElsewhereWhenItIsToldTo) {
  scripted_server other;
  listen_to("c");

  subscriber_->retarget(other.where());

  ASSERT_TRUE(run([&] { return other.accept(); }));
  other.say("+PONG\r\n");
  ASSERT_TRUE(run([&] { return other.received() == wire({"PING"}) + wire({"SUBSCRIBE", "c"}); }));
}

TEST_F(Subscriber, SaysNothingAfterItWasClosed) {
  listen_to("c");

  subscriber_->close();

  ASSERT_TRUE(run([&] { return server_.abandoned(); }));
  EXPECT_EQ(listener_->heard.size(), 1U);
}

}  // namespace
}  // namespace sallyport::backends::redis
