#include "tests/contract/kit/contract_test.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sallyport::contract {
namespace {

class Election : public contract_test {
 protected:
  [[nodiscard]] bool claimed() {
    if (claims().elections) return true;
    EXPECT_EQ(error_of([&] { election{open(), "leader"}; }), errc::not_supported);
    return false;
  }
};

/// What an observer was told: values, "-" for "nobody leads".
class log_of_leaders {
 public:
  void add(const std::optional<leader_info>& leader) {
    const std::scoped_lock lock(mutex_);
    seen_.push_back(leader ? leader->value : "-");
  }
  [[nodiscard]] std::vector<std::string> read() const {
    const std::scoped_lock lock(mutex_);
    return seen_;
  }
  [[nodiscard]] std::string last() const {
    const std::scoped_lock lock(mutex_);
    return seen_.empty() ? "" : seen_.back();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> seen_;
};

TEST_F(Election, HasOneLeaderWhoseValueEverybodySees) {
  if (!claimed()) return;
  election mine{open("one"), "leader", lasting()};
  election theirs{open("two"), "leader", lasting()};
  EXPECT_FALSE(theirs.leader());

  const auto leads = mine.campaign("http://one:80");

  EXPECT_TRUE(leads.valid());
  EXPECT_FALSE(theirs.try_campaign("http://two:80"));
  EXPECT_FALSE(theirs.try_campaign_for("http://two:80", 20ms));
  const auto seen = theirs.leader();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->value, "http://one:80");
  EXPECT_EQ(seen->label, "one");
  EXPECT_EQ(seen->pid, ::getpid());
  EXPECT_NE(seen->host, "");
  EXPECT_TRUE(!claims().fencing || seen->token == leads.token());
}

TEST_F(Election, ResigningPassesTheLeadToTheNextCandidate) {
  if (!claimed()) return;
  const auto watching = open("watching");
  election mine{open("one"), "leader", lasting()};
  election theirs{open("two"), "leader", lasting()};
  auto leads = mine.campaign("one");
  background candidate([&] { return theirs.try_campaign_for("two", patience); });
  ASSERT_TRUE(waiters_become(watching, "leader", 1));

  leads.release();
  const auto next = candidate.get();

  ASSERT_TRUE(next);
  EXPECT_EQ(mine.leader().value().value, "two");
  EXPECT_TRUE(!claims().fencing || next->token() > leads.token());
}

TEST_F(Election, TheLeaderMayChangeWhatItSays) {
  if (!claimed()) return;
  const auto client = open();
  election mine{client, "leader", lasting()};
  const auto leads = mine.campaign("starting");

  mine.proclaim(leads, "ready");

  EXPECT_EQ(mine.leader().value().value, "ready");
  EXPECT_EQ(client.who("leader").value().holders.at(0).value, "ready");
  EXPECT_TRUE(!claims().fencing || mine.leader().value().token == leads.token());
}

TEST_F(Election, WhoNoLongerLeadsCannotProclaim) {
  if (!claimed()) return;
  election mine{open("one"), "leader", ending()};
  election theirs{open("two"), "leader", lasting()};
  const auto lapsed = mine.campaign("one");
  const auto leads = theirs.try_campaign_for("two", patience);
  ASSERT_TRUE(leads);

  EXPECT_EQ(error_of([&] { mine.proclaim(lapsed, "still me"); }), errc::lease_lost);

  EXPECT_EQ(theirs.leader().value().value, "two");
}

TEST_F(Election, ACandidateCanBeCancelled) {
  if (!claimed()) return;
  const auto watching = open("watching");
  election mine{open("one"), "leader", lasting()};
  election theirs{open("two"), "leader", lasting()};
  const auto leads = mine.campaign("one");
  std::stop_source stop;
  background candidate([&] { return theirs.campaign("two", stop.get_token()).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "leader", 1));

  stop.request_stop();

  EXPECT_FALSE(candidate.get());
  EXPECT_TRUE(waiters_become(watching, "leader", 0));
}

TEST_F(Election, CandidatesOfOneClientFollowEachOtherEachWithItsValue) {
  if (!claimed()) return;
  const auto client = open();
  election race{client, "leader", lasting()};
  auto first = race.campaign("first");
  background second([&] { return race.try_campaign_for("second", patience); });

  EXPECT_EQ(race.leader().value().value, "first");
  first.release();
  const auto next = second.get();

  ASSERT_TRUE(next);
  EXPECT_EQ(race.leader().value().value, "second");
}

TEST_F(Election, AnObserverHearsThePresentLeaderAndEveryLaterOne) {
  if (!claimed()) return;
  election mine{open("one"), "leader", lasting()};
  const auto watching = open("watching");
  election watched{watching, "leader", lasting()};
  log_of_leaders heard;
  const auto observing = watched.observe([&](const auto& leader) { heard.add(leader); });

  ASSERT_TRUE(eventually([&] { return heard.last() == "-"; }));
  auto leads = mine.campaign("a");
  ASSERT_TRUE(eventually([&] { return heard.last() == "a"; }));
  mine.proclaim(leads, "b");
  ASSERT_TRUE(eventually([&] { return heard.last() == "b"; }));
  leads.release();
  ASSERT_TRUE(eventually([&] { return heard.last() == "-"; }));

  EXPECT_EQ(heard.read(), (std::vector<std::string>{"-", "a", "b", "-"}));
}

TEST_F(Election, AnObserverHearsOfALeaderThatLapsed) {
  if (!claimed()) return;
  client_options quick;
  quick.heartbeat = 100ms;
  election mine{open("one"), "leader", ending()};
  election watched{open("watching", quick), "leader", lasting()};
  const auto leads = mine.campaign("a");
  log_of_leaders heard;
  const auto observing = watched.observe([&](const auto& leader) { heard.add(leader); });
  ASSERT_TRUE(eventually([&] { return heard.last() == "a"; }));

  EXPECT_TRUE(eventually([&] { return heard.last() == "-"; }));
}

TEST_F(Election, NoCallbackRunsAfterTheObservationEnded) {
  if (!claimed()) return;
  election mine{open("one"), "leader", lasting()};
  election watched{open("watching"), "leader", lasting()};
  log_of_leaders heard;
  std::optional<observation> observing =
      watched.observe([&](const auto& leader) { heard.add(leader); });
  ASSERT_TRUE(eventually([&] { return heard.last() == "-"; }));

  observing.reset();
  const auto leads = mine.campaign("a");
  log_of_leaders later;
  const auto another = watched.observe([&](const auto& leader) { later.add(leader); });
  ASSERT_TRUE(eventually([&] { return later.last() == "a"; }));

  EXPECT_EQ(heard.last(), "-");
}

TEST_F(Election, TwinsReportWhatTheOthersThrow) {
  if (!claimed()) return;
  election mine{open("one"), "leader", lasting()};
  election theirs{open("two"), "leader", lasting()};
  std::error_code error = make_error_code(errc::unavailable);
  EXPECT_FALSE(theirs.leader(error));
  EXPECT_FALSE(error) << "nobody leads, and that is no error";

  auto leads = mine.campaign("one", error);
  ASSERT_TRUE(leads) << error.message();
  mine.proclaim(*leads, "still one", error);
  EXPECT_FALSE(error);
  EXPECT_EQ(theirs.leader(error).value().value, "still one");
  EXPECT_FALSE(theirs.try_campaign("two", error));
  EXPECT_FALSE(theirs.try_campaign_for("two", 10ms, {}, error));
  EXPECT_FALSE(theirs.try_campaign_until("two", lease_clock::now() + 10ms, {}, error));
  EXPECT_FALSE(theirs.try_campaign_until("two", lease_clock::now() + 10ms));
  EXPECT_FALSE(error) << "somebody else leads, and that is no error";
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(theirs.campaign("two", stop.get_token(), error));
  EXPECT_FALSE(error);

  const std::string too_long(election::max_value_bytes + 1, 'x');
  EXPECT_FALSE(theirs.campaign(too_long, error));
  EXPECT_EQ(error, errc::bad_option);
  mine.proclaim(*leads, too_long, error);
  EXPECT_EQ(error, errc::bad_option);
  leads->release();
  mine.proclaim(*leads, "gone", error);
  EXPECT_EQ(error, errc::lease_lost);
  EXPECT_NE(std::string(to_lock_error(error).what()).find("released"), std::string::npos);
}

TEST_F(Election, WhoCannotReachTheStoreIsToldThatNobodyKnowsWhoLeads) {
  if (!claimed()) return;
  client_options quick;
  quick.heartbeat = 50ms;
  quick.request_timeout = 300ms;
  const auto watching =
      client::open(store().unreachable_address.value_or(address()), std::move(quick));
  election watched{watching, "leader", lasting()};
  std::atomic<int> known{0};
  std::atomic<int> unknown{0};
  std::error_code error;

  const auto observing = watched.observe(
      [&](const auto&) { ++known; },
      [&](const lock_error& why) {
        EXPECT_TRUE(why.code() == errc::unavailable || why.code() == errc::outcome_unknown)
            << why.what();
        ++unknown;
      },
      error);

  ASSERT_TRUE(observing) << error.message();
  if (!store().unreachable_address) {
    EXPECT_TRUE(eventually([&] { return known == 1; }));
    return;
  }
  ASSERT_TRUE(eventually([&] { return unknown == 1; }));
  EXPECT_FALSE(watched.leader(error));
  EXPECT_TRUE(error == errc::unavailable || error == errc::outcome_unknown) << error;
  wait_until(lease_clock::now() + 200ms);  // some heartbeats
  EXPECT_EQ(unknown, 1) << "it is told once";
  EXPECT_EQ(known, 0);
}

TEST_F(Election, AnObservationMayEndItself) {
  if (!claimed()) return;
  election watched{open(), "leader", lasting()};
  std::mutex guard;
  std::optional<observation> observing;
  signal_flag ended;
  {
    const std::scoped_lock lock(guard);
    observing = watched.observe([&](const auto&) {
      const std::scoped_lock inner(guard);
      observing.reset();
      ended.raise();
    });
  }

  EXPECT_TRUE(ended.wait());
}

TEST_F(Election, TheEndOfAnObservationWaitsForNobodyElsesCallback) {
  if (!claimed()) return;
  struct blocked final : observer {
    void acquired(const lock_event&) override {
      inside.raise();
      leave.wait();
    }
    signal_flag inside;
    signal_flag leave;
  };
  const auto watcher = std::make_shared<blocked>();
  client_options options;
  options.watcher = watcher;
  const auto client = open("watched", options);
  election watched{client, "leader", lasting()};
  mutex door{client, "door", lasting()};
  log_of_leaders heard;
  std::optional<observation> observing =
      watched.observe([&](const auto& leader) { heard.add(leader); });
  ASSERT_TRUE(eventually([&] { return heard.last() == "-"; }));
  const auto held = door.acquire();
  ASSERT_TRUE(watcher->inside.wait());

  signal_flag ended;
  std::thread ending_it([&] {
    observing.reset();
    ended.raise();
  });
  const bool in_time = ended.wait();
  watcher->leave.raise();
  ending_it.join();

  EXPECT_TRUE(in_time);
}

TEST_F(Election, ValuesUpToTheirBoundAreKeptByteByByte) {
  if (!claimed()) return;
  election mine{open(), "leader", lasting()};
  std::string longest(election::max_value_bytes, 'x');
  longest[1] = '\0';
  longest[2] = '\n';
  longest[3] = '\xff';

  {
    const auto leads = mine.campaign(longest);
    EXPECT_EQ(mine.leader().value().value, longest);
    EXPECT_EQ(error_of([&] { mine.proclaim(leads, longest + "y"); }), errc::bad_option);
    mine.proclaim(leads, "");
    EXPECT_EQ(mine.leader().value().value, "");
  }

  EXPECT_EQ(error_of([&] { (void)mine.try_campaign(longest + "y"); }), errc::bad_option);
}

/// Odd ones: every byte there is, and short ones, which may travel another way than long ones do.
std::vector<std::string> values_of_odd_bytes() {
  using namespace std::string_literals;
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  return {every_byte, "ab\0cd"s, "\0"s, "\xff\n\0%41%s"s, " two  words "s};
}

TEST_F(Election, ValuesMayHaveAnyBytes) {
  if (!claimed()) return;
  const auto watching = open("watching");
  election mine{open("one"), "leader", lasting()};
  election theirs{open("two"), "leader", lasting()};
  for (const std::string& value : values_of_odd_bytes()) {
    SCOPED_TRACE(testing::PrintToString(value));

    auto leads = mine.campaign(value);
    EXPECT_EQ(theirs.leader().value().value, value);
    EXPECT_EQ(watching.who("leader").value().holders.at(0).value, value);

    background candidate([&] { return theirs.try_campaign_for("next: " + value, patience); });
    ASSERT_TRUE(waiters_become(watching, "leader", 1));
    leads.release();
    auto next = candidate.get();
    ASSERT_TRUE(next);
    EXPECT_EQ(mine.leader().value().value, "next: " + value);

    theirs.proclaim(*next, value);
    EXPECT_EQ(mine.leader().value().value, value);
    next->release();
  }
}

}  // namespace
}  // namespace sallyport::contract
