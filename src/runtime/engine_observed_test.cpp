#include "runtime/test_engine_fixture.hpp"
#include <sallyport/observer.hpp>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// What observers hear of locks and of the store.
namespace sallyport::runtime {
namespace {

class diary final : public observer {
 public:
  void acquired(const lock_event& event) override { add("acquired", event); }
  void not_acquired(const lock_event& event) override { add("not_acquired", event); }
  void failed(const lock_event& event) override { add("failed", event); }
  void suspect(const lock_event& event) override { add("suspect", event); }
  void lost(const lock_event& event) override { add("lost", event); }
  void released(const lock_event& event) override { add("released", event); }
  void release_unknown(const lock_event& event) override { add("release_unknown", event); }
  void store_away(const store_event& event) override {
    words.emplace_back("away");
    outage = event;
  }
  void store_back(const store_event& event) override {
    words.emplace_back("back");
    outage = event;
  }

  std::vector<std::string> words;
  lock_event last;
  store_event outage;

 private:
  void add(const char* word, const lock_event& event) {
    words.emplace_back(word);
    last = event;
  }
};

using words = std::vector<std::string>;

class EngineObserved : public EngineTest {
 protected:
  EngineObserved() { watched.attach(store); }

  /// What was told since the last call.
  words heard() {
    world.run_news();
    return std::exchange(told->words, {});
  }
  backend_api::holder_id ask(caller& who, std::uint32_t turns = 1) {
    watched.acquire(who, spec_of("door", turns), time_point::max());
    return store.take("acquire").holder;
  }
  backend_api::holder_id hold(caller& who, std::uint32_t turns = 1) {
    const auto holder = ask(who, turns);
    watched.acquire_answered(holder, granted);
    return holder;
  }
  void fail_renewal(const backend_api::holder_id& who, base::failure why) {
    std::vector<backend_api::renew_outcome> outcomes;
    outcomes.push_back({who, tl::unexpected(std::move(why))});
    watched.renewals_answered(outcomes);
  }
  void serve_after(duration by) {
    world.advance(by);
    watched.run_due();
  }

  const backend_api::granted granted{{fencing_token{7}, fencing_token{10}}, 3s};
  const base::failure refused{errc::unavailable, "redis at here: Connection refused"};
  const std::shared_ptr<diary> told = std::make_shared<diary>();
  engine watched{world, {.observers = heard_by({told})}};
};

TEST_F(EngineObserved, HearsWhyACallFailed) {
  caller me;
  const auto holder = ask(me);

  watched.acquire_answered(holder, base::fail(errc::wrong_kind, "it is a semaphore"));

  EXPECT_EQ(heard(), words{"failed"});
  EXPECT_EQ(told->last.error, errc::wrong_kind);
  EXPECT_EQ(told->last.detail, "it is a semaphore");
}

TEST_F(EngineObserved, HearsOnceThatTheStoreIsAwayAndForHowLongItWas) {
  caller me;
  const auto holder = ask(me);

  watched.acquire_answered(holder, tl::unexpected(refused));
  EXPECT_EQ(heard(), words{"away"});
  EXPECT_EQ(told->outage.error, errc::unavailable);
  EXPECT_EQ(told->outage.detail, refused.detail);
  serve_after(500ms);
  watched.acquire_answered(store.take("acquire").holder, base::fail(errc::outcome_unknown));
  EXPECT_EQ(heard(), words{});
  serve_after(1s);
  watched.acquire_answered(store.take("acquire").holder, granted);

  EXPECT_EQ(heard(), (words{"back", "acquired"}));
  EXPECT_EQ(told->outage.away, 1500ms);
  EXPECT_EQ(told->outage.detail, refused.detail);
}

TEST_F(EngineObserved, HearsOfABrokenConnectionAndOfANewOne) {
  caller me;
  hold(me);
  static_cast<void>(heard());

  watched.disconnected();
  EXPECT_EQ(heard(), (words{"away", "suspect"}));
  EXPECT_EQ(told->last.reason, event_reason::disconnected);
  EXPECT_EQ(told->last.error, errc::unavailable);
  watched.disconnected();
  EXPECT_EQ(heard(), words{});
  world.advance(250ms);
  watched.reconnected();

  EXPECT_EQ(heard(), words{"back"});
  EXPECT_EQ(told->outage.away, 250ms);
}

TEST_F(EngineObserved, HearsThatALeaseIsSuspectAndLostBecauseTheStoreIsAway) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());

  serve_after(1s);
  ASSERT_EQ(store.take("renew").holder, holder);
  fail_renewal(holder, refused);
  EXPECT_EQ(heard(), words{"away"});
  serve_after(1s);
  EXPECT_EQ(heard(), words{"suspect"});
  EXPECT_EQ(told->last.reason, event_reason::not_renewed);
  EXPECT_EQ(told->last.detail, refused.detail);
  serve_after(1s);

  EXPECT_EQ(heard(), words{"lost"});
  EXPECT_EQ(told->last.reason, event_reason::not_renewed);
  EXPECT_EQ(told->last.error, errc::unavailable);
  EXPECT_EQ(told->last.detail, refused.detail);
  EXPECT_EQ(told->last.token, fencing_token{7});
}

TEST_F(EngineObserved, HearsThatALeaseWasNotRenewedThoughTheStoreWasThere) {
  caller me;
  hold(me);
  static_cast<void>(heard());

  serve_after(3s);  // this process did not run

  EXPECT_EQ(heard(), words{"lost"});
  EXPECT_EQ(told->last.reason, event_reason::not_renewed);
  EXPECT_FALSE(told->last.error);
}

TEST_F(EngineObserved, HearsThatALeaseWasTakenAway) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());

  watched.lost_notice(holder);

  EXPECT_EQ(heard(), words{"lost"});
  EXPECT_EQ(told->last.reason, event_reason::taken_away);
}

TEST_F(EngineObserved, HearsThatAFixedLeaseHasEnded) {
  lock_spec fixed = *spec_of("door", 1);
  fixed.times.renew = renewal::never;
  caller me;
  watched.acquire(me, std::make_shared<const lock_spec>(fixed), time_point::max());
  watched.acquire_answered(store.take("acquire").holder, granted);
  static_cast<void>(heard());

  serve_after(3s);

  EXPECT_EQ(heard(), words{"lost"});
  EXPECT_EQ(told->last.reason, event_reason::ended);
}

TEST_F(EngineObserved, HearsOfAReleaseWhenTheStoreHasAnswered) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());
  listener leaves;

  world.advance(100ms);
  watched.release(*me.lease(), &leaves);
  EXPECT_EQ(heard(), words{});
  world.advance(50ms);
  watched.leave_answered(holder, backend_api::leave_answer::left);

  EXPECT_EQ(heard(), words{"released"});
  EXPECT_EQ(told->last.token, fencing_token{7});
  EXPECT_EQ(told->last.took, 100ms);
}

TEST_F(EngineObserved, HearsThatTheOutcomeOfAReleaseIsUnknownOnce) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());
  listener leaves;

  watched.release(*me.lease(), &leaves);
  watched.leave_answered(holder, base::fail(errc::outcome_unknown, "no answer"));
  EXPECT_EQ(heard(), (words{"away", "release_unknown"}));
  EXPECT_EQ(told->last.error, errc::outcome_unknown);
  EXPECT_EQ(told->last.detail, "no answer");
  serve_after(1s);
  watched.leave_answered(holder, backend_api::leave_answer::left);

  EXPECT_EQ(heard(), words{"back"});
}

TEST_F(EngineObserved, HearsOfALossThatShowsAtTheRelease) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());
  listener leaves;

  watched.release(*me.lease(), &leaves);
  watched.leave_answered(holder, backend_api::leave_answer::not_there);

  EXPECT_EQ(heard(), words{"lost"});
  EXPECT_EQ(told->last.reason, event_reason::taken_away);
}

TEST_F(EngineObserved, HearsOfATurnThatPassesInsideTheProcessAtOnceAndInOrder) {
  caller first;
  caller second;
  hold(first, 4);
  watched.acquire(second, spec_of("door", 4), time_point::max());
  static_cast<void>(heard());
  listener leaves;

  watched.release(*first.lease(), &leaves);

  EXPECT_EQ(heard(), (words{"released", "acquired"}));
}

TEST_F(EngineObserved, AnErrorOfTheStoresOwnIsAnAnswer) {
  caller me;
  const auto holder = ask(me);
  watched.acquire_answered(holder, tl::unexpected(refused));
  static_cast<void>(heard());
  serve_after(500ms);

  watched.acquire_answered(store.take("acquire").holder, base::fail(errc::store_refused, "NOPERM"));

  EXPECT_EQ(heard(), (words{"back", "failed"}));
}

TEST_F(EngineObserved, WantOfMemoryAndTheEndOfTheClientAreNoOutage) {
  const base::failure no_memory{errc::not_enough_memory, {}};
  const base::failure closed{errc::closed, {}};

  watched.store_heard(&no_memory);
  watched.store_heard(&closed);
  EXPECT_EQ(heard(), words{});
  watched.store_heard(&refused);
  watched.store_heard(&no_memory);
  watched.store_heard(&closed);
  EXPECT_EQ(heard(), words{"away"});
  watched.store_heard(nullptr);

  EXPECT_EQ(heard(), words{"back"});
}

TEST_F(EngineObserved, WhatWasAnsweredWithoutTheStoreSaysNothingOfIt) {
  watched.store_heard(&refused);
  static_cast<void>(heard());

  for (const errc each :
       {errc::not_supported, errc::no_thread, errc::forked, errc::bad_option, errc::bad_name,
        errc::bad_uri, errc::lease_lost, errc::not_held, errc::too_many_waiters}) {
    const base::failure local{each, {}};
    watched.store_heard(&local);
    EXPECT_EQ(heard(), words{}) << local.code.message();
  }
  const base::failure its_own{errc::wrong_kind, {}};
  watched.store_heard(&its_own);

  EXPECT_EQ(heard(), words{"back"});
}

TEST_F(EngineObserved, TroubleThatIsNoOutageIsNeitherOneNorItsEnd) {
  const base::failure left{errc::unavailable, "its contender has left", true};

  watched.store_heard(&left);
  EXPECT_EQ(heard(), words{});
  watched.store_heard(&refused);
  watched.store_heard(&left);

  EXPECT_EQ(heard(), words{"away"});
}

TEST_F(EngineObserved, ARequestThatFoundNoMemoryIsNoOutage) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());
  listener leaves;

  store.without_memory = true;
  serve_after(1s);
  EXPECT_EQ(heard(), words{});
  EXPECT_NE(me.lease()->state.load(), lease_record::phase::lost);
  watched.release(*me.lease(), &leaves);
  EXPECT_EQ(heard(), words{"release_unknown"});
  EXPECT_EQ(told->last.error, errc::outcome_unknown);
  store.without_memory = false;
  serve_after(1s);

  EXPECT_EQ(store.take("withdraw").holder, holder);
}

TEST_F(EngineObserved, HearsWhyTheOutcomeOfAReleaseIsUnknownAlsoWhereTheStoreIsThere) {
  caller me;
  const auto holder = hold(me);
  static_cast<void>(heard());
  listener leaves;

  watched.release(*me.lease(), &leaves);
  watched.leave_answered(holder, base::fail(errc::store_refused, "NOPERM"));

  EXPECT_EQ(heard(), words{"release_unknown"});
  EXPECT_EQ(told->last.error, errc::store_refused);
  EXPECT_EQ(told->last.detail, "NOPERM");
}

TEST_F(EngineObserved, OneThatThrowsKeepsNoOtherFromHearing) {
  struct broken final : observer {
    void acquired(const lock_event&) override { throw std::runtime_error("broken"); }
  };
  const auto second = std::make_shared<diary>();
  engine loud{world, {.observers = heard_by({told, std::make_shared<broken>(), second})}};
  loud.attach(store);
  caller me;

  loud.acquire(me, spec_of("door", 1), time_point::max());
  loud.acquire_answered(store.take("acquire").holder, granted);
  world.run_news();

  EXPECT_EQ(told->words, words{"acquired"});
  EXPECT_EQ(second->words, words{"acquired"});
}

}  // namespace
}  // namespace sallyport::runtime
