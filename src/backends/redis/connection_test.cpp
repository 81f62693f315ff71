#include "backends/redis/connection.hpp"

#include "backends/redis/test_scripted_server.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::redis {
namespace {

using namespace std::chrono_literals;

const script_source& script() {
  static const std::string sha1(40, 'a');
  static const script_source one{.name = "one", .text = "return 1", .sha1 = sha1};
  return one;
}

/// What became of an exchange.
struct ending {
  int times = 0;
  base::result<reply> said;

  [[nodiscard]] bool unavailable() const { return failed(errc::unavailable); }
  [[nodiscard]] bool unknown() const { return failed(errc::outcome_unknown); }
  [[nodiscard]] bool closed() const { return failed(errc::closed); }
  [[nodiscard]] bool replied(std::string_view text) const {
    return times == 1 && said && said->text == text;
  }

 private:
  [[nodiscard]] bool failed(errc code) const {
    return times == 1 && !said && said.error().code == code;
  }
};

class recorded_exchange final : public exchange {
 public:
  explicit recorded_exchange(std::shared_ptr<ending> into) : into_(std::move(into)) {}
  void answered(base::result<reply> said) override {
    ++into_->times;
    into_->said = std::move(said);
    if (afterwards) afterwards();
  }
  bool still_meant() override { return !when_asked || when_asked(); }
  bool again(const reply& said) const override { return said.text == "again"; }
  std::function<void()> afterwards;
  std::function<bool()> when_asked;

 private:
  std::shared_ptr<ending> into_;
};

class recording_owner final : public connection::owner {
 public:
  std::vector<wire_command> greeting() override {
    std::vector<wire_command> all;
    if (asks_role) all.push_back(plain_command({"ROLE"}));
    return all;
  }
  base::result<std::monostate> greeted(const std::vector<reply>& said) override {
    greetings.push_back(said);
    if (when_greeted) when_greeted();
    if (!verdict.empty()) return base::fail(errc::unavailable, verdict);
    return std::monostate{};
  }
  void connected() override {
    ++connections;
    if (when_connected) when_connected();
  }
  void disconnected(const base::failure& why) override { losses.push_back(why.detail); }

  bool asks_role = false;
  std::string verdict;
  std::function<void()> when_greeted;
  std::function<void()> when_connected;
  std::vector<std::vector<reply>> greetings;
  int connections = 0;
  std::vector<std::string> losses;
};

class Connection : public testing::Test {
 protected:
  ~Connection() override {
    if (connection_) connection_->close();
  }

  void open() {
    settings_.where = server_.where();
    connection_ = connection::make(pump_, settings_, owner_).value();
  }
  /// Up, after the server has said yes to the PING with which an empty greeting begins.
  void connect() {
    if (!connection_) open();
    connection_->want();
    welcome(server_);
  }
  void welcome(scripted_server& server) {
    const int before = owner_->connections;
    ASSERT_TRUE(run([&] { return server.accept(); }));
    ASSERT_TRUE(run([&] { return server.received() == ping; }));
    server.take();
    server.say("+PONG\r\n");
    ASSERT_TRUE(run([&] { return owner_->connections == before + 1; }));
  }
  template <class Condition>
  [[nodiscard]] bool run(Condition holds) {
    return run_until(*pump_, holds);
  }

  std::unique_ptr<recorded_exchange> exchange_with(wire_command command,
                                                   const std::shared_ptr<ending>& into,
                                                   duration patience = 1min) {
    auto made = std::make_unique<recorded_exchange>(into);
    made->command = std::move(command);
    made->answer_by = lease_clock::now() + patience;
    return made;
  }
  std::shared_ptr<ending> send(std::string_view word, duration patience = 1min) {
    auto into = std::make_shared<ending>();
    connection_->send(exchange_with(plain_command({word}), into, patience));
    return into;
  }
  std::shared_ptr<ending> send_script(std::uint64_t key) {
    auto into = std::make_shared<ending>();
    auto made = exchange_with(call_of(script(), 0), into);
    made->order_key = {key, key};
    connection_->send(std::move(made));
    return into;
  }
  static std::string wire(std::initializer_list<std::string_view> words) {
    std::string bytes;
    append_command(bytes, std::span(words.begin(), words.size()));
    return bytes;
  }
  static std::string wire(std::string_view word) { return wire({word}); }

  const std::string ping = wire("PING");
  const std::string by_name =
      "*3\r\n$7\r\nEVALSHA\r\n$40\r\n" + std::string(40, 'a') + "\r\n$1\r\n0\r\n";
  const std::string in_full = "*3\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0\r\n";
  scripted_server server_;
  std::shared_ptr<net::pump> pump_ = net::pump::make().value();
  std::shared_ptr<recording_owner> owner_ = std::make_shared<recording_owner>();
  connection::settings settings_;
  std::shared_ptr<connection> connection_;
};

// Connecting.

TEST_F(Connection, LogsInAndNamesItselfAndGreetsInOneGo) {
  settings_.user = "alice";
  settings_.password = "secret";
  settings_.database = 3;
  settings_.client_name = "me";
  owner_->asks_role = true;
  open();
  connection_->want();

  ASSERT_TRUE(run([&] { return server_.accept(); }));
  const std::string all = wire({"AUTH", "alice", "secret"}) + wire({"SELECT", "3"}) +
                          wire({"CLIENT", "SETNAME", "me"}) + wire("ROLE");
  ASSERT_TRUE(run([&] { return server_.received() == all; })) << server_.received();
  server_.say("+OK\r\n+OK\r\n+OK\r\n*1\r\n$6\r\nmaster\r\n");

  ASSERT_TRUE(run([&] { return owner_->connections == 1; }));
  ASSERT_EQ(owner_->greetings.size(), 1U);
  ASSERT_EQ(owner_->greetings[0].size(), 1U);
  EXPECT_EQ(owner_->greetings[0][0].elements.at(0).text, "master");
}

TEST_F(Connection, TellsTheServersWordsWhenTheLoginIsRefusedAndNeverThePassword) {
  settings_.password = "hunter2";
  open();
  const auto one = send("GET");
  ASSERT_TRUE(run([&] { return server_.accept(); }));
  ASSERT_TRUE(run([&] { return !server_.received().empty(); }));

  server_.say("-WRONGPASS invalid username-password pair\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_TRUE(one->unavailable());
  const std::string& why = one->said.error().detail;
  EXPECT_NE(why.find("WRONGPASS"), std::string::npos) << why;
  EXPECT_NE(why.find(server_.where().describe()), std::string::npos) << why;
  EXPECT_EQ(why.find("hunter2"), std::string::npos) << why;
}

TEST_F(Connection, IsNotMadeWhenItsOwnerSaysNo) {
  owner_->asks_role = true;
  owner_->verdict = "this is a replica";
  open();
  const auto one = send("GET");
  ASSERT_TRUE(run([&] { return server_.accept(); }));

  server_.say("*1\r\n$5\r\nslave\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_TRUE(one->unavailable());
  EXPECT_NE(one->said.error().detail.find("this is a replica"), std::string::npos);
  EXPECT_EQ(owner_->connections, 0);
}

TEST_F(Connection, TellsWhatTheServerSaidBeforeItHungUp) {
  open();
  const auto one = send("GET");
  ASSERT_TRUE(run([&] { return server_.accept(); }));

  server_.say("-ERR max number of clients reached\r\n");
  server_.hang_up();

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_TRUE(one->unavailable());
  EXPECT_NE(one->said.error().detail.find("max number of clients"), std::string::npos);
}

TEST_F(Connection, KeepsWhatIsAskedUntilItIsConnected) {
  open();
  const auto one = send("ONE");
  const auto two = send("TWO");

  welcome(server_);

  ASSERT_TRUE(run([&] { return server_.received() == wire("ONE") + wire("TWO"); }));
  server_.say("+1\r\n+2\r\n");
  ASSERT_TRUE(run([&] { return one->replied("1") && two->replied("2"); }));
}

TEST_F(Connection, AnswersUnavailableWhenNobodyListens) {
  open();
  server_.stop_listening();
  const auto one = send("GET");

  ASSERT_TRUE(run([&] { return one->times == 1; }));

  EXPECT_TRUE(one->unavailable());
  EXPECT_NE(one->said.error().detail.find("Connection refused"), std::string::npos);
}

TEST_F(Connection, GivesUpAServerThatDoesNotGreet) {
  settings_.connect_timeout = 30ms;
  open();
  const auto one = send("GET");

  ASSERT_TRUE(run([&] { return one->times == 1; }));

  EXPECT_TRUE(one->unavailable());
}

TEST_F(Connection, AnswersInTimeAlthoughItIsStillConnecting) {
  open();
  const auto one = send("GET", 30ms);

  ASSERT_TRUE(run([&] { return one->times == 1; }));

  EXPECT_TRUE(one->unavailable());
  EXPECT_EQ(owner_->losses.size(), 0U) << "the attempt goes on";
}

TEST_F(Connection, TriesAgainWithPauses) {
  settings_.connect_timeout = 1s;
  open();
  connection_->want();
  const time_point began = lease_clock::now();

  while (lease_clock::now() < began + 500ms) {
    pump_->run_once(began + 500ms);
    if (server_.accept()) server_.hang_up();
  }

  // 10, 20, 40, 80, 160 and 320 ms at the least.
  EXPECT_GE(server_.accepted(), 2);
  EXPECT_LE(server_.accepted(), 8);
}

TEST_F(Connection, TriesAtOnceWhenSomebodyAsks) {
  open();
  connection_->want();
  for (int i = 0; i < 5; ++i) {
    const std::size_t before = owner_->losses.size();
    ASSERT_TRUE(run([&] {
      if (server_.accept()) server_.hang_up();
      return owner_->losses.size() > before;
    }));
  }

  // By now it pauses for 320 ms at the least.
  const auto one = send("GET", 300ms);
  ASSERT_TRUE(run([&] { return one->times == 1 || server_.accept(); }));

  EXPECT_EQ(one->times, 0);
}

// Asking.

TEST_F(Connection, TellsRepliesAndTheServersOwnErrors) {
  connect();

  const auto one = send("ONE");
  const auto two = send("TWO");
  EXPECT_EQ(server_.received(), wire("ONE") + wire("TWO")) << "sent by the caller itself";
  server_.say("+fine\r\n-WRONGTYPE Operation against a key\r\n");

  ASSERT_TRUE(run([&] { return one->replied("fine") && two->times == 1; }));
  EXPECT_EQ(two->said->error_word(), "WRONGTYPE");
  EXPECT_FALSE(connection_->unfinished());
}

TEST_F(Connection, SendsInOneGoWhatIsAskedWhileItTellsReplies) {
  connect();
  std::vector<std::shared_ptr<ending>> more;
  auto first = std::make_shared<ending>();
  auto one = exchange_with(plain_command({"ONE"}), first);
  one->afterwards = [&] {
    more.push_back(send("TWO"));
    more.push_back(send("THREE"));
    EXPECT_EQ(server_.received(), wire("ONE")) << "not before the batch is through";
  };
  connection_->send(std::move(one));

  server_.say("+1\r\n");

  ASSERT_TRUE(run([&] { return server_.received() == wire("ONE") + wire("TWO") + wire("THREE"); }));
  server_.say("+2\r\n+3\r\n");
  ASSERT_TRUE(run([&] { return more[0]->replied("2") && more[1]->replied("3"); }));
}

TEST_F(Connection, KeepsTenThousandInStep) {
  connect();
  constexpr std::size_t count = 10'000;
  std::vector<std::shared_ptr<ending>> all;
  std::string sent;
  std::string said;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string word = "N" + std::to_string(i);
    all.push_back(send(word));
    sent += wire(word);
    said += "+" + word + "\r\n";
  }

  ASSERT_TRUE(run([&] { return server_.received().size() == sent.size(); }));
  EXPECT_EQ(server_.received(), sent);
  server_.say(said);

  ASSERT_TRUE(run([&] { return all.back()->times == 1; }));
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(all[i]->replied("N" + std::to_string(i))) << i;
}

TEST_F(Connection, WritesWhatAPeerIsSlowToRead) {
  settings_.max_waiting_bytes = 64UL * 1024 * 1024;
  connect();
  const std::string large(1024UL * 1024, 'x');
  std::vector<std::shared_ptr<ending>> all;
  all.reserve(32);
  for (int i = 0; i < 32; ++i) all.push_back(send(large));

  std::string received;
  ASSERT_TRUE(run([&] {
    received += server_.take();
    return received.size() == 32 * wire(large).size();
  }));

  for (int i = 0; i < 32; ++i) server_.say("+1\r\n");
  ASSERT_TRUE(run([&] { return all.back()->replied("1"); }));
}

TEST_F(Connection, LetsNoMoreThanItsLimitBeUnderWay) {
  settings_.max_in_flight = 2;
  connect();
  std::vector<std::shared_ptr<ending>> all;
  for (const auto* word : {"A", "B", "C"}) all.push_back(send(word));

  ASSERT_TRUE(run([&] { return server_.received() == wire("A") + wire("B"); }));
  server_.say("+1\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == wire("A") + wire("B") + wire("C"); }));

  EXPECT_TRUE(all[0]->replied("1"));
}

TEST_F(Connection, RefusesWhatIsTooMuchToKeep) {
  settings_.max_waiting_bytes = 100;
  open();
  const auto one = send(std::string(60, 'x'));
  const auto two = send(std::string(60, 'y'));

  EXPECT_EQ(one->times, 0);
  EXPECT_TRUE(two->unavailable());
}

// Time.

TEST_F(Connection, AnswersUnknownInTimeAndDropsTheLateReply) {
  connect();
  const auto before = send("BEFORE");
  const auto slow = send("SLOW", 20ms);
  const auto next = send("NEXT");
  server_.say("+before\r\n");  // something was heard: it is slow, but there
  ASSERT_TRUE(run([&] { return before->times == 1 && slow->times == 1; }));
  EXPECT_TRUE(slow->unknown());

  server_.say("+late\r\n+next\r\n");

  ASSERT_TRUE(run([&] { return next->replied("next"); }));
  EXPECT_EQ(slow->times, 1);
  EXPECT_TRUE(owner_->losses.empty());
}

TEST_F(Connection, LeavesAPeerThatHasGoneSilent) {
  connect();
  const auto one = send("ONE", 20ms);
  const auto two = send("TWO");

  ASSERT_TRUE(run([&] { return one->times == 1 && two->times == 1; }));

  EXPECT_TRUE(one->unknown());
  EXPECT_TRUE(two->unknown());
  EXPECT_EQ(owner_->losses.size(), 1U);
  welcome(server_);
}

TEST_F(Connection, LeavesAPeerThatFallsSilentAfterItWasSlow) {
  connect();
  const auto before = send("BEFORE");
  const auto slow = send("SLOW", 20ms);
  server_.say("+before\r\n");
  ASSERT_TRUE(run([&] { return slow->times == 1; }));
  EXPECT_TRUE(owner_->losses.empty());

  ASSERT_TRUE(run([&] { return owner_->losses.size() == 1; }));
}

TEST_F(Connection, TakesAReplyThatCameInTimeAlthoughNobodyLooked) {
  connect();
  const auto one = send("ONE", 20ms);
  server_.say("+1\r\n");
  const time_point later = lease_clock::now() + 40ms;
  while (lease_clock::now() < later) {
  }

  ASSERT_TRUE(run([&] { return one->times == 1; }));

  EXPECT_TRUE(one->replied("1"));
}

// Losing the connection.

TEST_F(Connection, AnswersUnknownWhenTheConnectionIsLost) {
  connect();
  const auto one = send("ONE");

  server_.reset();

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_TRUE(one->unknown());
  EXPECT_FALSE(connection_->unfinished());
  welcome(server_);
}

TEST_F(Connection, TellsTheRepliesThatCameBeforeTheEnd) {
  connect();
  const auto one = send("ONE");
  const auto two = send("TWO");

  server_.say("+1\r\n");
  server_.hang_up();

  ASSERT_TRUE(run([&] { return two->times == 1; }));
  EXPECT_TRUE(one->replied("1"));
  EXPECT_TRUE(two->unknown());
}

TEST_F(Connection, KeepsWhatWasNotSentForTheNextConnection) {
  settings_.max_in_flight = 1;
  connect();
  const auto sent = send("SENT");
  const auto kept = send("KEPT");

  server_.reset();
  ASSERT_TRUE(run([&] { return sent->times == 1; }));
  EXPECT_TRUE(sent->unknown());
  EXPECT_EQ(kept->times, 0);
  welcome(server_);

  ASSERT_TRUE(run([&] { return server_.received() == wire("KEPT"); }));
}

TEST_F(Connection, KnowsWhatWasNotWrittenOfALongQueue) {
  settings_.max_waiting_bytes = 64UL * 1024 * 1024;
  connect();
  const std::string large(100UL * 1024, 'x');
  std::vector<std::shared_ptr<ending>> all;
  all.reserve(200);
  for (int i = 0; i < 200; ++i) all.push_back(send(large));

  server_.reset();  // it has read nothing; the kernels' buffers are full
  ASSERT_TRUE(run([&] { return all.front()->times == 1; }));

  EXPECT_TRUE(all.front()->unknown());
  EXPECT_EQ(all.back()->times, 0);
  welcome(server_);
  std::string received;
  std::size_t kept = 0;
  for (const auto& each : all) kept += each->times == 0 ? 1U : 0U;
  ASSERT_TRUE(run([&] {
    received += server_.take();
    return received.size() == kept * wire(large).size();
  }));
}

TEST_F(Connection, LeavesAServerThatMakesNoSense) {
  connect();
  const auto one = send("ONE");

  server_.say("HTTP/1.1 400 Bad Request\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_TRUE(one->unknown());
  ASSERT_TRUE(run([&] { return server_.accept(); }));
}

TEST_F(Connection, LeavesAServerThatAnswersWhatNobodyAsked) {
  connect();

  server_.say("+OK\r\n");

  ASSERT_TRUE(run([&] { return owner_->losses.size() == 1; }));
}

TEST_F(Connection, LeavesAServerThatHasBecomeAReplica) {
  connect();
  const auto one = send("ONE");
  const auto two = send("TWO");
  const auto three = send("THREE");

  server_.say("-READONLY You can't write against a read only replica.\r\n+fine\r\n");

  ASSERT_TRUE(run([&] { return three->times == 1; }));
  EXPECT_EQ(one->said->error_word(), "READONLY") << "the server's own words";
  EXPECT_TRUE(two->replied("fine"));
  EXPECT_TRUE(three->unknown());
  ASSERT_TRUE(run([&] { return server_.accept(); }));
}

TEST_F(Connection, GoesElsewhereWhenItIsToldTo) {
  scripted_server other;
  connect();
  const auto sent = send("SENT");

  connection_->retarget(other.where());
  const auto kept = send("KEPT");
  welcome(other);

  EXPECT_TRUE(sent->unknown());
  ASSERT_TRUE(run([&] { return other.received() == wire("KEPT"); }));
  EXPECT_TRUE(server_.abandoned());
  EXPECT_EQ(server_.received(), wire("SENT"));
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, GoesElsewhereAlsoBeforeItHasConnected) {
  scripted_server other;
  open();
  const auto kept = send("KEPT");
  ASSERT_TRUE(run([&] { return server_.accept(); }));

  connection_->retarget(other.where());
  welcome(other);

  ASSERT_TRUE(run([&] { return other.received() == wire("KEPT"); }));
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, SendsNothingToAServerThatItWasToldToLeaveDuringTheGreeting) {
  scripted_server other;
  open();
  const auto kept = send("KEPT");
  owner_->asks_role = true;
  owner_->when_greeted = [&] { connection_->retarget(other.where()); };
  ASSERT_TRUE(run([&] { return server_.accept(); }));
  server_.say("+master\r\n");
  ASSERT_TRUE(run([&] { return owner_->greetings.size() == 1; }));
  owner_->when_greeted = {};

  ASSERT_TRUE(run([&] { return other.accept(); }));
  other.say("+master\r\n");

  ASSERT_TRUE(run([&] { return other.received() == wire("ROLE") + wire("KEPT"); }));
  EXPECT_EQ(server_.received(), wire("ROLE"));
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, SendsNothingToAServerThatItsOwnerLeavesAtOnce) {
  scripted_server other;
  open();
  const auto kept = send("KEPT");
  owner_->when_connected = [&] {
    owner_->when_connected = {};
    connection_->retarget(other.where());
  };

  welcome(server_);
  welcome(other);

  ASSERT_TRUE(run([&] { return other.received() == wire("KEPT"); }));
  EXPECT_EQ(server_.received(), "");
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, SendsWhatHasWaitedBeforeWhatItsOwnerSaysFirst) {
  open();
  const auto one = send("ONE");
  owner_->when_connected = [&] { send("TWO"); };

  welcome(server_);

  ASSERT_TRUE(run([&] { return server_.received() == wire("ONE") + wire("TWO"); }));
}

TEST_F(Connection, SendsOnlyWhatIsStillMeantWhenItIsConnected) {
  open();
  auto into = std::make_shared<ending>();
  auto outdated = exchange_with(plain_command({"OUTDATED"}), into);
  outdated->when_asked = [] { return false; };
  connection_->send(std::move(outdated));
  const auto kept = send("KEPT");
  auto fresh_ending = std::make_shared<ending>();
  owner_->when_connected = [&] {
    auto fresh = exchange_with(plain_command({"FRESH"}), fresh_ending);
    fresh->when_asked = [] { return false; };
    connection_->send(std::move(fresh));
  };

  welcome(server_);

  EXPECT_TRUE(into->unavailable());
  EXPECT_EQ(kept->times, 0);
  EXPECT_EQ(fresh_ending->times, 0) << "it is meant for this very server, and not asked";
  ASSERT_TRUE(run([&] { return server_.received() == wire("KEPT") + wire("FRESH"); }));
}

TEST_F(Connection, AnswersWhatIsJustBeingAskedWhenItIsClosed) {
  open();
  auto into = std::make_shared<ending>();
  auto one = exchange_with(plain_command({"ONE"}), into);
  one->when_asked = [&] {
    connection_->close();
    return true;
  };
  connection_->send(std::move(one));

  welcome(server_);

  EXPECT_TRUE(into->closed());
}

TEST_F(Connection, SendsWhatIsBoundToAConnectionOnThatOneOnly) {
  settings_.max_in_flight = 1;
  connect();
  const std::uint64_t first = connection_->number();
  auto bound = [&](const std::shared_ptr<ending>& into) {
    auto made = exchange_with(plain_command({"BOUND"}), into);
    made->bound_to = first;
    connection_->send(std::move(made));
  };
  const auto sent = send("SENT");
  const auto waits = std::make_shared<ending>();
  bound(waits);
  const auto kept = send("KEPT");

  server_.hang_up();
  welcome(server_);
  const auto late = std::make_shared<ending>();
  bound(late);

  EXPECT_EQ(connection_->number(), first + 1);
  EXPECT_TRUE(sent->unknown());
  EXPECT_TRUE(waits->unavailable());
  EXPECT_TRUE(late->unavailable());
  ASSERT_TRUE(run([&] { return server_.received() == wire("KEPT"); }));
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, SendsNothingMoreOverAConnectionThatWasDropped) {
  connect();
  const auto sent = send("SENT");

  connection_->drop({make_error_code(errc::unavailable), "it is no master any more"});
  const auto kept = send("KEPT");
  ASSERT_TRUE(run([&] { return sent->times == 1; }));

  EXPECT_TRUE(sent->unknown());
  EXPECT_EQ(server_.received(), wire("SENT"));
  welcome(server_);
  ASSERT_TRUE(run([&] { return server_.received() == wire("KEPT"); }));
  EXPECT_EQ(kept->times, 0);
}

TEST_F(Connection, AnswersEverythingWhenItIsClosed) {
  settings_.max_in_flight = 1;
  connect();
  const auto sent = send("SENT");
  const auto kept = send("KEPT");

  connection_->close();
  const auto late = send("LATE");

  EXPECT_TRUE(sent->unknown());
  EXPECT_TRUE(kept->closed());
  EXPECT_TRUE(late->closed());
  ASSERT_TRUE(run([&] { return server_.abandoned(); }));
}

TEST_F(Connection, MayBeClosedFromInsideAnAnswer) {
  connect();
  auto into = std::make_shared<ending>();
  auto one = exchange_with(plain_command({"ONE"}), into);
  one->afterwards = [&] { connection_->close(); };
  connection_->send(std::move(one));
  const auto two = send("TWO");
  const auto three = send("THREE");

  server_.say("+1\r\n+2\r\n");

  ASSERT_TRUE(run([&] { return two->times == 1 && three->times == 1; }));
  EXPECT_TRUE(two->replied("2"));
  EXPECT_TRUE(three->unknown());
}

// Scripts.

TEST_F(Connection, SendsAScriptInFullWhenTheServerDoesNotKnowIt) {
  connect();
  const auto one = send_script(1);
  ASSERT_EQ(server_.take(), by_name);

  server_.say("-NOSCRIPT No matching script.\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == in_full; }));
  server_.say(":1\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1; }));
  EXPECT_EQ(one->said->integer, 1);
}

TEST_F(Connection, TakesNoReplyForAScriptBeforeItWasSentAgain) {
  connect();
  const auto one = send_script(1);
  ASSERT_EQ(server_.take(), by_name);

  server_.say("-NOSCRIPT No matching script.\r\n:7\r\n");
  welcome(server_);

  ASSERT_TRUE(run([&] { return server_.received() == by_name; }));
  EXPECT_EQ(one->times, 0) << "nobody had asked for the second reply";
}

TEST_F(Connection, AsksBeforeACommandWhoseSlotIsOnItsWay) {
  connect();
  auto into = std::make_shared<ending>();
  auto moved = exchange_with(plain_command({"ONE"}), into);
  moved->command.asking = true;
  connection_->send(std::move(moved));
  const auto two = send("TWO");
  EXPECT_EQ(server_.received(), wire("ASKING") + wire("ONE") + wire("TWO"));

  server_.say("+OK\r\n+1\r\n+2\r\n");

  ASSERT_TRUE(run([&] { return into->replied("1") && two->replied("2"); }));
  EXPECT_FALSE(connection_->unfinished());
}

TEST_F(Connection, AsksAgainBeforeAScriptThatIsSentInFull) {
  connect();
  auto into = std::make_shared<ending>();
  auto moved = exchange_with(call_of(script(), 0), into);
  moved->command.asking = true;
  connection_->send(std::move(moved));
  ASSERT_EQ(server_.take(), wire("ASKING") + by_name);

  server_.say("+OK\r\n-NOSCRIPT No matching script.\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == wire("ASKING") + in_full; }));
  server_.say("+OK\r\n:1\r\n");

  ASSERT_TRUE(run([&] { return into->times == 1; }));
  EXPECT_EQ(into->said->integer, 1);
}

TEST_F(Connection, RestsUntilSomethingIsSent) {
  connect();
  const auto lost = send("LOST");
  ASSERT_TRUE(run([&] { return !server_.received().empty(); }));
  server_.take();

  connection_->rest({make_error_code(errc::unavailable), "nobody needs it"});
  ASSERT_TRUE(run([&] { return lost->unknown(); }));
  const time_point until = lease_clock::now() + 100ms;
  while (lease_clock::now() < until) pump_->run_once(until);
  EXPECT_FALSE(server_.accept());

  const auto next = send("NEXT");
  welcome(server_);
  ASSERT_TRUE(run([&] { return server_.received() == wire("NEXT"); }));
  server_.say("+1\r\n");
  ASSERT_TRUE(run([&] { return next->replied("1"); }));
}

TEST_F(Connection, SendsTheTextOfAScriptOnlyOnce) {
  connect();
  const auto one = send_script(1);
  const auto two = send_script(2);
  ASSERT_EQ(server_.take(), by_name + by_name);

  server_.say("-NOSCRIPT No\r\n-NOSCRIPT No\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == in_full + by_name; }));
  server_.say(":1\r\n:2\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1 && two->times == 1; }));
  EXPECT_EQ(two->said->integer, 2);
}

TEST_F(Connection, NeverLetsARequestBeOvertakenByALaterOneOfItsKey) {
  connect();
  const auto one = send_script(1);
  const auto two = send_script(1);
  ASSERT_EQ(server_.take(), by_name + by_name);

  server_.say("-NOSCRIPT No\r\n-NOSCRIPT No\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == in_full; }));
  server_.say(":2\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1 && two->times == 1; }));
  EXPECT_TRUE(one->unavailable());
  EXPECT_EQ(two->said->integer, 2);
}

TEST_F(Connection, NeverLetsARequestBeOvertakenByOneThatIsStillUnderWay) {
  connect();
  const auto one = send_script(1);
  const auto two = send_script(1);
  ASSERT_EQ(server_.take(), by_name + by_name);

  server_.say("-NOSCRIPT No\r\n");
  ASSERT_TRUE(run([&] { return one->times == 1; }));
  server_.say(":2\r\n");

  ASSERT_TRUE(run([&] { return two->times == 1; }));
  EXPECT_TRUE(one->unavailable());
  EXPECT_EQ(server_.received(), "");
}

// Commands that are to be sent again.

TEST_F(Connection, SendsAgainAsOftenAsTheServerSaysSo) {
  connect();
  const auto one = send_script(1);
  ASSERT_EQ(server_.take(), by_name);

  for (int i = 0; i < 3; ++i) {
    server_.say("+again\r\n");
    ASSERT_TRUE(run([&] { return server_.received() == by_name; }));
    server_.take();
  }
  EXPECT_EQ(one->times, 0);
  server_.say("+1\r\n");

  ASSERT_TRUE(run([&] { return one->replied("1"); }));
}

TEST_F(Connection, SendsNothingAgainPastALaterRequestOfItsKey) {
  connect();
  const auto one = send_script(1);
  const auto two = send_script(1);
  ASSERT_EQ(server_.take(), by_name + by_name);

  server_.say("+again\r\n+2\r\n");

  ASSERT_TRUE(run([&] { return one->times == 1 && two->replied("2"); }));
  EXPECT_TRUE(one->unavailable());
  EXPECT_EQ(server_.received(), "");
}

TEST_F(Connection, SendsAgainOnlyUntilTheAnswerIsDue) {
  connect();
  const auto one = send("ONE", 50ms);
  ASSERT_TRUE(run([&] { return server_.received() == wire("ONE"); }));
  server_.take();
  server_.say("+again\r\n");
  ASSERT_TRUE(run([&] { return server_.received() == wire("ONE"); }));
  server_.take();

  EXPECT_TRUE(run([&] { return one->unknown(); }));
}

}  // namespace
}  // namespace sallyport::backends::redis
