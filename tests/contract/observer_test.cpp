#include "tests/contract/kit/contract_test.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::contract {
namespace {

/// Writes down what it hears.
class diary final : public observer {
 public:
  void waiting(const lock_event& event) override { add("waiting", event); }
  void acquired(const lock_event& event) override { add("acquired", event); }
  void not_acquired(const lock_event& event) override { add("not_acquired", event); }
  void failed(const lock_event& event) override { add("failed", event); }
  void renewed(const lock_event& event) override { add("renewed", event); }
  void suspect(const lock_event& event) override { add("suspect", event); }
  void lost(const lock_event& event) override { add("lost", event); }
  void released(const lock_event& event) override { add("released", event); }
  void release_unknown(const lock_event& event) override { add("release_unknown", event); }
  void store_away(const store_event& event) override {
    add("store_away", {.error = event.error, .detail = event.detail});
  }
  void store_back(const store_event& event) override {
    add("store_back", {.error = event.error, .detail = event.detail});
  }

  [[nodiscard]] std::vector<std::string> words() const {
    const std::scoped_lock lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [word, event] : entries_) all.push_back(word);
    return all;
  }
  [[nodiscard]] std::vector<std::pair<std::string, lock_event>> entries() const {
    const std::scoped_lock lock(mutex_);
    return entries_;
  }

 private:
  void add(std::string word, const lock_event& event) {
    const std::scoped_lock lock(mutex_);
    entries_.emplace_back(std::move(word), event);
  }

  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, lock_event>> entries_;
};

class Observer : public contract_test {
 protected:
  [[nodiscard]] static client_options watched_by(std::shared_ptr<observer> watcher) {
    client_options options;
    options.watcher = std::move(watcher);
    return options;
  }
};

TEST_F(Observer, HearsOfAcquiringAndReleasingInOrder) {
  const auto watcher = std::make_shared<diary>();
  mutex lock{open("watched", watched_by(watcher)), "door", lasting()};

  auto held = lock.acquire();
  held.release();

  ASSERT_TRUE(eventually([&] { return watcher->words().size() >= 2; }));
  EXPECT_EQ(watcher->words(), (std::vector<std::string>{"acquired", "released"}));
  const auto entries = watcher->entries();
  EXPECT_EQ(entries[0].second.name, "door");
  EXPECT_EQ(entries[0].second.kind, lock_kind::mutex);
  EXPECT_TRUE(!claims().fencing || entries[0].second.token == held.token());
  EXPECT_GT(entries[1].second.took, 0ns);
}

TEST_F(Observer, HearsOfWaitingAndOfGivingUp) {
  const auto watcher = std::make_shared<diary>();
  mutex gate{open("holder"), "door", lasting()};
  const auto held = gate.acquire();
  mutex wanted{open("watched", watched_by(watcher)), "door", lasting()};

  EXPECT_FALSE(wanted.try_acquire_for(200ms));

  ASSERT_TRUE(eventually([&] { return watcher->words().size() >= 2; }));
  EXPECT_EQ(watcher->words(), (std::vector<std::string>{"waiting", "not_acquired"}));
}

TEST_F(Observer, HearsOfLoss) {
  const auto watcher = std::make_shared<diary>();
  mutex lock{open("watched", watched_by(watcher)), "door", ending()};
  const auto held = lock.acquire();

  ASSERT_TRUE(eventually([&] { return watcher->words().size() >= 2; }));

  EXPECT_EQ(watcher->words(), (std::vector<std::string>{"acquired", "lost"}));
  EXPECT_GE(watcher->entries()[1].second.took, short_lease() / 2);
  EXPECT_EQ(watcher->entries()[1].second.reason, event_reason::ended);
}

TEST_F(Observer, HearsThatALockWasTakenAway) {
  const auto watcher = std::make_shared<diary>();
  mutex lock{open("watched", watched_by(watcher)), "door", {.lease_length = 2 * short_lease()}};
  const auto breaking = open("breaking");
  const auto held = lock.acquire();

  breaking.break_lock("door", observed_token(breaking, "door"), break_style::at_once);
  ASSERT_TRUE(eventually([&] {
    const auto words = watcher->words();
    return !words.empty() && words.back() == "lost";
  }));

  EXPECT_EQ(watcher->entries().back().second.reason, event_reason::taken_away);
  EXPECT_EQ(to_string(watcher->entries().back().second.reason), "taken away");
}

TEST_F(Observer, SeveralHearTheSame) {
  const auto first = std::make_shared<diary>();
  const auto second = std::make_shared<diary>();
  const auto counted = std::make_shared<metrics>();
  client_options options = watched_by(first);
  options.watchers = {second, nullptr, counted};
  mutex lock{open("watched", options), "door", lasting()};

  lock.acquire().release();

  ASSERT_TRUE(eventually([&] { return counted->read().released == 1; }));
  EXPECT_EQ(first->words(), (std::vector<std::string>{"acquired", "released"}));
  EXPECT_EQ(second->words(), first->words());
}

TEST_F(Observer, HearsThatTheStoreIsAwayOnceAndWhy) {
  const auto watcher = std::make_shared<diary>();
  const auto counted = std::make_shared<metrics>();
  client_options options;
  options.request_timeout = 300ms;
  options.store_patience = 300ms;
  options.watchers = {watcher, counted};
  if (!store().unreachable_address) {
    mutex reachable{open("watched", options), "door", lasting()};
    reachable.acquire().release();
    ASSERT_TRUE(eventually([&] { return counted->read().released == 1; }));
    EXPECT_EQ(counted->read().store_away, 0U);
    return;
  }
  mutex lock{client::open(*store().unreachable_address, options), "door", lasting()};

  std::error_code error;
  EXPECT_FALSE(lock.try_acquire(error));
  EXPECT_FALSE(lock.acquire(error));

  ASSERT_TRUE(eventually([&] { return counted->read().failed == 2; }));
  EXPECT_EQ(watcher->words(), (std::vector<std::string>{"store_away", "failed", "failed"}));
  for (const auto& [word, event] : watcher->entries()) {
    EXPECT_TRUE(event.error == errc::unavailable || event.error == errc::outcome_unknown)
        << word << ": " << event.error;
    EXPECT_NE(event.detail, "") << word;
  }
  EXPECT_EQ(counted->read().store_away, 1U);
  EXPECT_EQ(counted->read().store_back, 0U);
}

TEST_F(Observer, HearsThatAStoreWhoseServerWasStoppedIsAwayAndThenBack) {
  if (!store().server) return;
  const auto watcher = std::make_shared<diary>();
  const auto counted = std::make_shared<metrics>();
  client_options options;
  options.request_timeout = 1s;
  options.store_patience = 500ms;
  options.watchers = {watcher, counted};
  mutex lock{open("watched", options), "door", {.lease_length = 2 * short_lease()}};
  lock.acquire().release();
  struct started_again {
    ~started_again() { store().server->start(); }
  };

  std::error_code error;
  {
    store().server->stop();
    const started_again in_the_end;
    EXPECT_FALSE(lock.try_acquire(error));
    EXPECT_TRUE(error == errc::unavailable || error == errc::outcome_unknown) << error;
    EXPECT_TRUE(eventually([&] { return counted->read().store_away == 1; }));
    EXPECT_EQ(counted->read().store_back, 0U);
  }
  EXPECT_TRUE(eventually([&] { return lock.try_acquire(error).has_value(); })) << error;

  EXPECT_TRUE(eventually([&] { return counted->read().store_back > 0; }));
  const auto seen = counted->read();
  EXPECT_EQ(seen.store_away, seen.store_back);
  EXPECT_GT(seen.away, 0ns);
  std::vector<std::string> news = watcher->words();
  std::erase_if(news, [](const std::string& word) { return !word.starts_with("store_"); });
  for (std::size_t i = 0; i < news.size(); ++i) {
    EXPECT_EQ(news[i], i % 2 == 0 ? "store_away" : "store_back");
  }
}

TEST_F(Observer, HearsOfRenewals) {
  const auto watcher = std::make_shared<diary>();
  mutex lock{open("watched", watched_by(watcher)), "door", {.lease_length = 2 * short_lease()}};
  const auto held = lock.acquire();

  EXPECT_TRUE(eventually([&] {
    const auto words = watcher->words();
    return words.size() >= 2 && words[1] == "renewed";
  }));
}

TEST_F(Observer, ASlowOneDelaysNoRenewal) {
  struct slow final : observer {
    void acquired(const lock_event&) override {
      inside.raise();
      leave.wait();
    }
    signal_flag inside;
    signal_flag leave;
  };
  const auto watcher = std::make_shared<slow>();
  mutex lock{open("watched", watched_by(watcher)), "door", {.lease_length = 3 * short_lease()}};
  const auto held = lock.acquire();
  ASSERT_TRUE(watcher->inside.wait());

  const auto deadline = held.deadline();
  wait_until(deadline);
  const bool survived = held.valid();
  watcher->leave.raise();

  EXPECT_TRUE(survived);
}

TEST_F(Observer, ASlowOneAmongSeveralDelaysNeitherRenewalsNorLossesAndNoOtherMissesAnything) {
  struct slow final : observer {
    void acquired(const lock_event&) override {
      inside.raise();
      leave.wait();
    }
    signal_flag inside;
    signal_flag leave;
  };
  const auto before = std::make_shared<diary>();
  const auto watcher = std::make_shared<slow>();
  const auto after = std::make_shared<diary>();
  client_options options;
  options.watchers = {before, watcher, after};
  const auto client = open("watched", options);
  mutex kept{client, "kept", {.lease_length = 3 * short_lease()}};
  mutex ends{client, "ends", ending()};
  const auto held = kept.acquire();
  ASSERT_TRUE(watcher->inside.wait());
  const auto lapsing = ends.acquire();
  signal_flag gone;
  const std::stop_callback told{lapsing.lost(), [&] { gone.raise(); }};
  const auto first_deadline = held.deadline();

  const bool told_in_time =
      eventually([&] { return gone.raised(); }, lapsing.deadline() - lease_clock::now() + slack);
  wait_until(first_deadline);
  const bool survived = held.valid();
  const auto heard_meanwhile = after->words();
  watcher->leave.raise();

  EXPECT_TRUE(told_in_time);
  EXPECT_TRUE(survived);
  EXPECT_TRUE(heard_meanwhile.empty()) << "one thread tells all observers, one after the other";
  const auto hears_of_the_loss = [](const diary& one) {
    const auto words = one.words();
    return std::ranges::count(words, "acquired") == 2 && std::ranges::count(words, "lost") == 1;
  };
  EXPECT_TRUE(eventually([&] { return hears_of_the_loss(*before) && hears_of_the_loss(*after); }));
}

TEST_F(Observer, MetricsCount) {
  const auto counted = std::make_shared<metrics>();
  const auto client = open("counted", watched_by(counted));
  mutex door{client, "door", lasting()};
  mutex others{open("other"), "taken", lasting()};
  const auto taken = others.acquire();
  mutex wanted{client, "taken", lasting()};
  mutex ends{client, "ends", ending()};

  for (int i = 0; i < 3; ++i) door.acquire().release();
  EXPECT_FALSE(wanted.try_acquire());
  EXPECT_FALSE(wanted.try_acquire_for(100ms));
  const auto lapsing = ends.acquire();

  ASSERT_TRUE(eventually([&] { return counted->read().lost == 1; }));
  const auto seen = counted->read();
  EXPECT_EQ(seen.acquired, 4U);
  EXPECT_EQ(seen.released, 3U);
  EXPECT_EQ(seen.not_acquired, 2U);
  EXPECT_EQ(seen.waiting, 1U);
  EXPECT_EQ(seen.failed, 0U);
  EXPECT_EQ(seen.lost, 1U);
  EXPECT_GT(seen.held, 0ns);
  EXPECT_GT(seen.waited, 0ns);
}

}  // namespace
}  // namespace sallyport::contract
