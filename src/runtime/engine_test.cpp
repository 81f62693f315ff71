#include "runtime/test_engine_fixture.hpp"

namespace sallyport::runtime {
namespace {

using phase = lease_record::phase;

TEST_F(EngineTest, AsksAtOnceAndGivesTheLeaseWithTheGrant) {
  caller me;

  machine.acquire(me, spec_of("a"), time_point::max());
  const auto request = store.take("acquire");
  EXPECT_FALSE(me.done());
  answer_granted(request.holder, 10, 13);

  ASSERT_TRUE(me.done());
  ASSERT_NE(me.lease(), nullptr);
  EXPECT_EQ(me.lease()->token, fencing_token{10});
  EXPECT_EQ(request.token_count, 4U);
  EXPECT_TRUE(store.log.empty());
}

TEST_F(EngineTest, CountsTheDeadlineFromBeforeTheRequestLeft) {
  caller me;
  const time_point sent = world.now();

  machine.acquire(me, spec_of("a"), time_point::max());
  world.advance(400ms);
  answer_granted(store.take("acquire").holder, 10, 13);

  EXPECT_EQ(me.lease()->deadline.load(), sent + 3s - 30ms);
}

TEST_F(EngineTest, SaysBusyWhenTheStoreSaysHeld) {
  caller me;

  machine.acquire(me, spec_of("a"), time_point::min());
  const auto request = store.take("acquire");
  EXPECT_FALSE(request.may_wait);
  machine.acquire_answered(request.holder, backend_api::held{});

  ASSERT_TRUE(me.done());
  EXPECT_TRUE(std::holds_alternative<not_acquired>(me.outcome()));
  EXPECT_TRUE(machine.quiet());
}

TEST_F(EngineTest, PassesLocallyWithALargerTokenAndWithoutTheStore) {
  caller first;
  caller second;
  const auto spec = spec_of("a");
  const auto lease = hold(first, spec);
  machine.acquire(second, spec, time_point::max());
  listener word;

  machine.release(*lease, &word);

  ASSERT_TRUE(second.done());
  EXPECT_EQ(second.lease()->token, fencing_token{11});
  EXPECT_EQ(second.lease()->deadline.load(), lease->deadline.load());
  EXPECT_EQ(word.released, core::release_outcome::released);
  EXPECT_EQ(lease->state.load(), phase::released);
  EXPECT_TRUE(store.log.empty());
}

TEST_F(EngineTest, GoesBackThroughTheStoreAfterItsTurns) {
  caller first;
  caller second;
  caller third;
  const auto spec = spec_of("a", 2);
  const auto lease = hold(first, spec, 10, 11);
  machine.acquire(second, spec, time_point::max());
  machine.acquire(third, spec, time_point::max());
  machine.release(*lease, nullptr);
  ASSERT_TRUE(second.done());

  machine.release(*second.lease(), nullptr);

  const auto released = store.take("release");
  const auto asked = store.take("acquire");
  EXPECT_NE(released.holder, asked.holder);
  EXPECT_FALSE(third.done());
}

TEST_F(EngineTest, PutsEachCallerIntoTheStoresQueueWhenThereIsOneTurn) {
  caller first;
  caller second;
  const auto spec = spec_of("a", 1);

  machine.acquire(first, spec, time_point::max());
  machine.acquire(second, spec, time_point::max());

  EXPECT_NE(store.take("acquire").holder, store.take("acquire").holder);
}

TEST_F(EngineTest, KnowsWhichNamesItHolds) {
  caller lane;
  caller alone;
  hold(lane, spec_of("a", 4));
  hold(alone, spec_of("b", 1), 20, 20);

  EXPECT_TRUE(machine.holds(lock_kind::mutex, "a"));
  EXPECT_TRUE(machine.holds(lock_kind::mutex, "b"));
  EXPECT_FALSE(machine.holds(lock_kind::mutex, "c"));
  EXPECT_FALSE(machine.holds(lock_kind::election, "a"));
}

TEST_F(EngineTest, WithdrawsBeforeItTellsAWaiterThatItsTimeIsUp) {
  struct looking final : acquire_waiter {
    explicit looking(scripted_store& where) : store(where) {}
    void finished() noexcept override { withdrawn_first = !store.log.empty(); }
    scripted_store& store;
    bool withdrawn_first = false;
  } me{store};
  machine.acquire(me, spec_of("a"), world.now() + 500ms);
  answer_waiting(store.take("acquire").holder);

  pass(500ms);

  EXPECT_TRUE(me.withdrawn_first);
}

TEST_F(EngineTest, DrawsTokensWhenTheBlockIsUsedUp) {
  caller first;
  caller second;
  const auto spec = spec_of("a", 4);
  const auto lease = hold(first, spec, 10, 10);
  machine.acquire(second, spec, time_point::max());

  machine.release(*lease, nullptr);
  const auto draw = store.take("renew");
  EXPECT_EQ(draw.token_count, 4U);
  EXPECT_FALSE(second.done());
  answer_renewed(draw.holder, 21, 24);

  ASSERT_TRUE(second.done());
  EXPECT_EQ(second.lease()->token, fencing_token{21});
}

TEST_F(EngineTest, GivesTheGrantBackWhenADrawHasNoAnswer) {
  caller first;
  caller second;
  const auto spec = spec_of("a", 4);
  const auto lease = hold(first, spec, 10, 10);
  machine.acquire(second, spec, time_point::max());
  machine.release(*lease, nullptr);
  const auto draw = store.take("renew");

  std::vector<backend_api::renew_outcome> unknown;
  unknown.push_back({draw.holder, base::fail(errc::outcome_unknown)});
  machine.renewals_answered(unknown);

  EXPECT_EQ(store.take("release").holder, draw.holder);
  EXPECT_NE(store.take("acquire").holder, draw.holder);
}

TEST_F(EngineTest, LeavesTheQueueWhenItsWaitEnds) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now() + 700ms);
  const auto request = store.take("acquire");
  answer_waiting(request.holder);

  pass(700ms);

  ASSERT_TRUE(me.done());
  EXPECT_TRUE(std::holds_alternative<not_acquired>(me.outcome()));
  EXPECT_EQ(store.take("withdraw").holder, request.holder);
  answer_left(request.holder);
  EXPECT_TRUE(machine.quiet());
}

TEST_F(EngineTest, ReportsTroubleAndNotHeldWhenTheStoreWasSilent) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now() + 100ms);
  fail_acquire(store.take("acquire").holder, errc::unavailable);

  pass(100ms);

  ASSERT_TRUE(me.done());
  EXPECT_EQ(me.error(), errc::unavailable);
}

TEST_F(EngineTest, ReportsUnknownAndNotHeldWhenTheStoreNeverAnswered) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now() + 700ms);
  static_cast<void>(store.take("acquire"));

  pass(700ms);

  ASSERT_TRUE(me.done());
  EXPECT_EQ(me.error(), errc::outcome_unknown);
}

TEST_F(EngineTest, SaysNothingOfAStoreThatHadNoTimeToAnswer) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now() + 20ms);
  static_cast<void>(store.take("acquire"));

  pass(20ms);

  ASSERT_TRUE(me.done());
  EXPECT_TRUE(std::holds_alternative<not_acquired>(me.outcome()));
}

TEST_F(EngineTest, WithdrawsAnUnknownAcquireUntilItsLeaseLengthHasPassed) {
  caller me;
  machine.acquire(me, spec_of("a"), time_point::min());
  const auto request = store.take("acquire");

  fail_acquire(request.holder, errc::outcome_unknown);

  ASSERT_TRUE(me.done());
  EXPECT_EQ(me.error(), errc::outcome_unknown);
  int withdrawals = 0;
  for (int step = 0; step < 40 && !machine.quiet(); ++step) {
    while (!store.log.empty()) {
      EXPECT_EQ(store.take("withdraw").holder, request.holder);
      ++withdrawals;
      answer_left(request.holder);
    }
    pass(100ms);
  }
  EXPECT_TRUE(machine.quiet());
  EXPECT_GE(withdrawals, 4);
}

TEST_F(EngineTest, WaitsForTheAnswerBeforeItWithdrawsAQuestionUnderWay) {
  caller me;
  machine.acquire(me, spec_of("a"), time_point::max());
  const auto request = store.take("acquire");

  machine.cancel(me);
  ASSERT_TRUE(me.done());
  EXPECT_TRUE(store.log.empty());
  answer_granted(request.holder, 10, 13);

  EXPECT_EQ(store.take("withdraw").holder, request.holder);
}

TEST_F(EngineTest, RenewsAtAThirdAndExtendsTheDeadline) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  const time_point before = lease->deadline.load();

  pass(1s);
  const auto renewal = store.take("renew");
  answer_renewed(renewal.holder, 10, 13);

  EXPECT_GT(lease->deadline.load(), before);
  EXPECT_EQ(lease->state.load(), phase::held);
}

TEST_F(EngineTest, WantsNoAnswerToARenewalAfterTheDeadline) {
  caller me;
  const auto lease = hold(me, spec_of("a"));

  pass(1s);
  const auto renewal = store.take("renew");

  EXPECT_GT(renewal.answer_by, world.now());
  EXPECT_LE(renewal.answer_by, lease->deadline.load());
}

TEST_F(EngineTest, TellsSuspectAndThenLostWhenRenewalsAreNotAnswered) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  const std::stop_token gone = machine.lost_token(*lease);

  pass(2s);
  EXPECT_EQ(lease->state.load(), phase::suspect);
  pass(1s);

  EXPECT_EQ(lease->state.load(), phase::lost);
  EXPECT_EQ(world.fire_losses(), 1);
  EXPECT_TRUE(gone.stop_requested());
}

TEST_F(EngineTest, AnnouncesEveryLossApartFromWhatObserversAreTold) {
  engine watched{world, {.observers = heard_by({std::make_shared<observer>()})}};
  watched.attach(store);
  std::deque<caller> callers(10);
  std::vector<std::stop_token> gone;
  std::uint64_t token = 0;
  for (caller& each : callers) {
    const std::string name = "a" + std::to_string(++token);
    watched.acquire(each, spec_of(name.c_str()), time_point::max());
    watched.acquire_answered(
        store.take("acquire").holder,
        backend_api::granted{{fencing_token{token}, fencing_token{token}}, 3s});
    gone.push_back(watched.lost_token(*each.lease()));
  }

  world.advance(3s);
  watched.run_due();

  EXPECT_EQ(world.fire_losses(), 10);
  for (const auto& each : gone) EXPECT_TRUE(each.stop_requested());
  EXPECT_GE(world.news.size(), 20U);  // acquired and lost, none of which was told yet
}

TEST_F(EngineTest, AnnouncesNoLossWhoseTokenNobodyAskedFor) {
  caller me;
  const auto lease = hold(me, spec_of("a"));

  pass(3s);

  EXPECT_EQ(world.fire_losses(), 0);
  EXPECT_TRUE(machine.lost_token(*lease).stop_requested());
}

TEST_F(EngineTest, TellsSuspectAtOnceWhenTheConnectionBreaksAndHeldWhenARenewalIsConfirmed) {
  caller me;
  const auto lease = hold(me, spec_of("a"));

  machine.disconnected();
  EXPECT_EQ(lease->state.load(), phase::suspect);
  const auto renewal = store.take("renew");
  answer_renewed(renewal.holder, 10, 13);

  EXPECT_EQ(lease->state.load(), phase::held);
}

TEST_F(EngineTest, NeverRevivesALostLease) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  pass(1s);
  const auto renewal = store.take("renew");
  pass(2s);

  answer_renewed(renewal.holder, 10, 13);

  EXPECT_EQ(lease->state.load(), phase::lost);
}

TEST_F(EngineTest, SettlesALeasePastItsDeadlineOnceForAll) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  world.advance(3s);

  machine.settle(*lease);
  EXPECT_EQ(lease->state.load(), phase::lost);
  listener word;
  machine.release(*lease, &word);

  EXPECT_EQ(word.released, core::release_outcome::already_lost);
}

TEST_F(EngineTest, TakesARenewalUnderAnotherTokenForALoss) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  pass(1s);

  answer_renewed(store.take("renew").holder, 30, 33);

  EXPECT_EQ(lease->state.load(), phase::lost);
}

TEST_F(EngineTest, CleansUpAfterALossNotBeforeTheLeaseHasLapsedInTheStoreToo) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  const auto holder = backend_api::holder_id{1, 1};
  const time_point lapses = lease->deadline.load() + 30ms;

  pass(lapses - world.now() - 1ms);
  for (const auto& each : store.log) EXPECT_NE(each.what, "withdraw");
  store.log.clear();
  pass(2ms);

  EXPECT_EQ(store.take("withdraw").holder, holder);
}

TEST_F(EngineTest, GoesOnCleaningUpALossUntilAnUnansweredRenewalHasLapsed) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  pass(2900ms);  // a renewal was sent and is never answered: it may extend the grant by a lease
  store.log.clear();
  const auto refuse_withdrawals = [&] {
    while (!store.log.empty()) {
      const auto request = store.take("withdraw");
      machine.leave_answered(request.holder, base::fail(errc::unavailable));
    }
  };

  for (int step = 0; step < 20; ++step) {  // two seconds, far more than a request's time-out
    pass(100ms);
    refuse_withdrawals();
  }
  EXPECT_EQ(lease->state.load(), phase::lost);
  EXPECT_FALSE(machine.quiet());

  for (int step = 0; step < 100; ++step) {
    pass(100ms);
    refuse_withdrawals();
  }
  EXPECT_TRUE(machine.quiet());
}

TEST_F(EngineTest, AsksAnewForLocalWaitersWhenTheGrantIsLost) {
  caller first;
  caller second;
  const auto spec = spec_of("a");
  const auto lease = hold(first, spec);
  machine.acquire(second, spec, time_point::max());

  machine.lost_notice({1, 1});

  EXPECT_EQ(lease->state.load(), phase::lost);
  const auto asked = store.take("acquire");
  answer_granted(asked.holder, 50, 53);
  EXPECT_EQ(second.lease()->token, fencing_token{50});
}

TEST_F(EngineTest, AWishForTheLockIsSeenInTheTurnAndInLocalOnesAfterIt) {
  caller first;
  caller second;
  const auto spec = spec_of("a");
  const auto lease = hold(first, spec);
  machine.acquire(second, spec, time_point::max());
  EXPECT_FALSE(lease->release_wanted.load());

  machine.release_wanted_notice({9, 9});  // of nobody
  EXPECT_FALSE(lease->release_wanted.load());
  machine.release_wanted_notice({1, 1});
  EXPECT_TRUE(lease->release_wanted.load());
  EXPECT_EQ(lease->state.load(), phase::held);
  machine.release(*lease, nullptr);

  ASSERT_TRUE(second.lease());
  EXPECT_TRUE(second.lease()->release_wanted.load());
}

TEST_F(EngineTest, AWishForTheLockIsToldToTheObserverOfWhoHoldsIt) {
  struct listening final : observer {
    void release_wanted(const lock_event& event) override { heard.push_back(event); }
    std::vector<lock_event> heard;
  };
  const auto told = std::make_shared<listening>();
  engine watched{world, {.observers = heard_by({told})}};
  watched.attach(store);
  caller me;
  watched.acquire(me, spec_of("a"), time_point::max());
  const auto holder = store.take("acquire").holder;

  watched.release_wanted_notice(holder);  // it holds nothing yet
  watched.acquire_answered(holder, backend_api::granted{{fencing_token{1}, fencing_token{4}}, 3s});
  world.run_news();
  EXPECT_TRUE(told->heard.empty());
  world.advance(1s);
  watched.release_wanted_notice(holder);
  world.run_news();

  ASSERT_EQ(told->heard.size(), 1U);
  EXPECT_EQ(told->heard[0].name, "a");
  EXPECT_EQ(told->heard[0].token, fencing_token{1});
  EXPECT_EQ(told->heard[0].took, 1s);
}

TEST_F(EngineTest, SendsRenewalsOfAllLeasesInOneBatch) {
  std::vector<std::unique_ptr<caller>> callers;
  for (int i = 0; i < 100; ++i) {
    callers.push_back(std::make_unique<caller>());
    hold(*callers.back(), spec_of(("n" + std::to_string(i)).c_str()));
  }

  pass(1s);

  ASSERT_EQ(store.batches.size(), 1U);
  EXPECT_EQ(store.batches[0], 100U);
}

TEST_F(EngineTest, BoundsTheSizeOfABatch) {
  std::vector<std::unique_ptr<caller>> callers;
  for (std::size_t i = 0; i < backend_api::max_renewals_per_batch + 10; ++i) {
    callers.push_back(std::make_unique<caller>());
    hold(*callers.back(), spec_of(("n" + std::to_string(i)).c_str()));
  }

  pass(1s);

  std::size_t all = 0;
  for (const std::size_t size : store.batches) {
    EXPECT_LE(size, backend_api::max_renewals_per_batch);
    all += size;
  }
  EXPECT_EQ(all, backend_api::max_renewals_per_batch + 10);
}

TEST_F(EngineTest, EntersByANoticeAndClaimsAtOnce) {
  caller me;
  machine.acquire(me, spec_of("a"), time_point::max());
  const auto request = store.take("acquire");
  answer_waiting(request.holder);
  const time_point asked = world.now();
  world.advance(200ms);

  machine.granted_notice(request.holder,
                         backend_api::granted{{fencing_token{7}, fencing_token{10}}, 3s, true});

  ASSERT_TRUE(me.done());
  EXPECT_EQ(me.lease()->token, fencing_token{7});
  EXPECT_EQ(me.lease()->deadline.load(),
            asked + 3s - 30ms);  // claim window = min(lease, 3 heartbeats) = 3 s
  EXPECT_EQ(store.take("renew").holder, request.holder);
}

TEST_F(EngineTest, GoesOnWithdrawingWhenAHeartbeatWonByANoticeHasNoAnswer) {
  caller me;
  machine.acquire(me, spec_of("a"), time_point::max());
  const auto request = store.take("acquire");
  answer_waiting(request.holder);
  pass(1s);
  store.take("acquire");  // the heartbeat, whose answer never comes
  machine.granted_notice(request.holder,
                         backend_api::granted{{fencing_token{7}, fencing_token{10}}, 3s, true});
  ASSERT_TRUE(me.done());
  answer_renewed(store.take("renew").holder, 7, 10);
  machine.release(*me.lease(), nullptr);
  store.take("release");
  answer_left(request.holder);
  EXPECT_FALSE(machine.quiet());

  fail_acquire(request.holder, errc::outcome_unknown);
  pass(1s);

  EXPECT_EQ(store.take("withdraw").holder, request.holder);
}

TEST_F(EngineTest, WithdrawsAgainWhenAHeartbeatWasHeardAfterTheFarewell) {
  caller one;
  machine.acquire(one, spec_of("a", 1), time_point::max());
  const auto who = store.take("acquire").holder;
  answer_waiting(who);
  pass(1s);
  EXPECT_EQ(store.take("acquire").holder, who);
  machine.granted_notice(who, backend_api::granted{{fencing_token{5}, fencing_token{5}}, 3s, true});
  ASSERT_TRUE(one.lease());
  store.log.clear();
  listener word;
  machine.release(*one.lease(), &word);
  EXPECT_EQ(store.take("release").holder, who);
  answer_left(who);

  answer_waiting(who);
  pass(1ms);

  EXPECT_EQ(store.take("withdraw").holder, who);
  answer_left(who);
  EXPECT_TRUE(machine.quiet());
}

TEST_F(EngineTest, DepartsAtOnceWhenNothingIsLeft) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  const auto holder = backend_api::holder_id{1, 1};
  machine.release(*lease, nullptr);
  answer_left(holder);
  listener departure;

  machine.depart(departure);

  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, DepartsWhenTheStoreHasHeardOfAReleaseUnderWay) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  machine.release(*lease, nullptr);
  const auto request = store.take("release");
  listener departure;

  machine.depart(departure);
  EXPECT_EQ(departure.times_finished, 0);
  EXPECT_TRUE(store.log.empty());
  answer_left(request.holder);

  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, DepartsAfterWithdrawingAQuestionThatItsReleaseHadOvertaken) {
  caller one;
  machine.acquire(one, spec_of("a", 1), time_point::max());
  const auto who = store.take("acquire").holder;
  answer_waiting(who);
  pass(1s);
  EXPECT_EQ(store.take("acquire").holder, who);
  machine.granted_notice(who, backend_api::granted{{fencing_token{5}, fencing_token{5}}, 3s, true});
  ASSERT_TRUE(one.lease());
  store.log.clear();
  machine.release(*one.lease(), nullptr);
  store.take("release");
  answer_left(who);
  listener departure;

  machine.depart(departure);
  answer_granted(who, 6, 6);  // the heartbeat came after the release, to a lock that was free
  pass(1ms);
  EXPECT_EQ(departure.times_finished, 0);
  EXPECT_EQ(store.take("withdraw").holder, who);
  answer_left(who);

  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, DepartsAfterWithdrawingAQuestionThatACancelledCallerHadUnderWay) {
  caller me;
  machine.acquire(me, spec_of("a"), time_point::max());
  const auto request = store.take("acquire");
  machine.cancel(me);
  listener departure;

  machine.depart(departure);
  EXPECT_EQ(departure.times_finished, 0);
  answer_granted(request.holder, 10, 13);
  EXPECT_EQ(departure.times_finished, 0);
  EXPECT_EQ(store.take("withdraw").holder, request.holder);
  answer_left(request.holder);

  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, GivesBackAtOnceWhatAContenderIsGrantedWhileItLeaves) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now());
  const auto holder = store.take("acquire").holder;
  fail_acquire(holder, errc::outcome_unknown);
  store.take("withdraw");
  machine.leave_answered(holder, backend_api::leave_answer::not_there);
  ASSERT_TRUE(store.log.empty());  // it waits, in case the question comes through after all

  machine.granted_notice(holder, backend_api::granted{{fencing_token{5}, fencing_token{8}}, 1s});

  EXPECT_EQ(store.take("withdraw").holder, holder);
}

TEST_F(EngineTest, GivesBackAtOnceWhatAContenderIsGrantedThatHasEnded) {
  caller me;
  machine.acquire(me, spec_of("a"), world.now());
  const auto holder = store.take("acquire").holder;
  fail_acquire(holder, errc::outcome_unknown);
  for (int i = 0; i < 20 && !machine.quiet(); ++i) {
    pass(200ms);
    if (store.log.empty()) continue;
    store.take("withdraw");
    machine.leave_answered(holder, backend_api::leave_answer::not_there);
  }
  ASSERT_TRUE(machine.quiet());

  // The question was executed later than any is, and then it was granted.
  machine.granted_notice(holder, backend_api::granted{{fencing_token{5}, fencing_token{8}}, 1s});

  const auto given_back = store.take("withdraw");
  EXPECT_EQ(given_back.holder, holder);
  EXPECT_EQ(given_back.name, "a");
  answer_left(holder);
  EXPECT_TRUE(machine.quiet());
  // Once: what was given back is not given back again.
  machine.granted_notice(holder, std::nullopt);
  EXPECT_TRUE(store.log.empty());
}

TEST_F(EngineTest, DepartingSaysNowWhatWasToBeRepeatedLater) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  machine.release(*lease, nullptr);
  const auto request = store.take("release");
  machine.leave_answered(request.holder, base::fail(errc::unavailable));
  listener departure;

  machine.depart(departure);

  EXPECT_EQ(departure.times_finished, 0);
  EXPECT_EQ(store.take("release").holder, request.holder);
  answer_left(request.holder);
  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, DepartsFromAStoreThatDoesNotAnswerAfterTwoTries) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  machine.release(*lease, nullptr);
  const auto request = store.take("release");
  listener departure;

  machine.depart(departure);
  machine.leave_answered(request.holder, base::fail(errc::unavailable));
  EXPECT_EQ(departure.times_finished, 0);
  pass(100ms);
  EXPECT_EQ(store.take("release").holder, request.holder);
  machine.leave_answered(request.holder, base::fail(errc::unavailable));

  EXPECT_EQ(departure.times_finished, 1);
}

TEST_F(EngineTest, ReReadsEveryWaiterAfterAReconnect) {
  caller a;
  caller b;
  machine.acquire(a, spec_of("a"), time_point::max());
  answer_waiting(store.take("acquire").holder);
  machine.acquire(b, spec_of("b"), time_point::max());
  answer_waiting(store.take("acquire").holder);

  machine.reconnected();

  EXPECT_EQ(store.take("acquire").name, "a");
  EXPECT_EQ(store.take("acquire").name, "b");
}

TEST_F(EngineTest, BoundsReadersThatWaitToo) {
  std::vector<std::unique_ptr<caller>> callers;
  const auto spec = spec_of("a", 1, lock_kind::shared_mutex, lock_mode::shared);
  for (int i = 0; i < 5; ++i) {
    callers.push_back(std::make_unique<caller>());
    machine.acquire(*callers.back(), spec, time_point::max());
  }
  EXPECT_EQ(callers.back()->error(), errc::too_many_waiters);
  machine.cancel(*callers.front());

  caller next;
  machine.acquire(next, spec, time_point::max());

  EXPECT_FALSE(next.done());
}

TEST_F(EngineTest, RefusesMoreWaitersThanItsBound) {
  std::vector<std::unique_ptr<caller>> callers;
  const auto spec = spec_of("a");
  for (int i = 0; i < 5; ++i) {
    callers.push_back(std::make_unique<caller>());
    machine.acquire(*callers.back(), spec, time_point::max());
  }

  ASSERT_TRUE(callers.back()->done());
  EXPECT_EQ(callers.back()->error(), errc::too_many_waiters);
}

TEST_F(EngineTest, TellsTheStoreHowManyWaitLocally) {
  caller first;
  caller second;
  const auto spec = spec_of("a");
  hold(first, spec);
  machine.acquire(second, spec, time_point::max());

  pass(1s);

  EXPECT_EQ(store.take("renew").local_waiters, 1U);
}

TEST_F(EngineTest, LetsTheNextWriterAskWhenAWriterBecomesAReader) {
  caller writer;
  caller next;
  const auto spec = spec_of("a", 4, lock_kind::shared_mutex);
  const auto lease = hold(writer, spec);
  machine.acquire(next, spec, time_point::max());
  listener word;

  machine.downgrade(*lease, word);
  const auto request = store.take("downgrade");
  machine.downgrade_answered(request.holder,
                             backend_api::renewed{{fencing_token{10}, fencing_token{13}}, 3s});

  EXPECT_EQ(word.times_finished, 1);
  EXPECT_FALSE(word.failed.has_value());
  EXPECT_EQ(lease->mode.load(), lock_mode::shared);
  EXPECT_EQ(store.take("acquire").name, "a");
  machine.release(*lease, nullptr);
  EXPECT_EQ(store.take("release").holder, request.holder);
}

TEST_F(EngineTest, TrustsNoWriterWhenADowngradeHasNoAnswer) {
  caller writer;
  caller next;
  const auto spec = spec_of("a", 4, lock_kind::shared_mutex);
  const auto lease = hold(writer, spec);
  machine.acquire(next, spec, time_point::max());
  listener word;

  machine.downgrade(*lease, word);
  EXPECT_EQ(lease->mode.load(), lock_mode::shared);  // readers may be inside from now on
  machine.downgrade_answered(store.take("downgrade").holder, base::fail(errc::outcome_unknown));

  EXPECT_EQ(word.failed->code, errc::outcome_unknown);
  EXPECT_EQ(lease->mode.load(), lock_mode::shared);
  machine.release(*lease, nullptr);
  EXPECT_EQ(next.times_finished, 0);  // the turn does not pass on inside the process
}

TEST_F(EngineTest, StaysAWriterWhenADowngradeWasNotSent) {
  caller writer;
  const auto lease = hold(writer, spec_of("a", 4, lock_kind::shared_mutex));
  listener word;

  machine.downgrade(*lease, word);
  machine.downgrade_answered(store.take("downgrade").holder, base::fail(errc::unavailable));

  EXPECT_EQ(word.failed->code, errc::unavailable);
  EXPECT_EQ(lease->mode.load(), lock_mode::exclusive);
}

TEST_F(EngineTest, TrustsNoWriterWhoseDowngradeHadNoAnswerAndIsRefusedWhenItIsAskedForAgain) {
  for (const errc refusal : {errc::unavailable, errc::store_refused}) {
    caller writer;
    const auto lease = hold(writer, spec_of("a", 4, lock_kind::shared_mutex));
    listener word;
    machine.downgrade(*lease, word);
    machine.downgrade_answered(store.take("downgrade").holder, base::fail(errc::outcome_unknown));
    listener again;

    machine.downgrade(*lease, again);
    machine.downgrade_answered(store.take("downgrade").holder, base::fail(refusal));

    EXPECT_EQ(again.failed->code, refusal);
    EXPECT_EQ(lease->mode.load(), lock_mode::shared) << "readers may be in since the first try";
    machine.release(*lease, nullptr);
    machine.leave_answered(store.take("release").holder, backend_api::leave_answer::left);
  }
}

TEST_F(EngineTest, GivesEachCandidateItsOwnEntryAndValue) {
  caller first;
  caller second;
  const auto spec = spec_of("a", 1, lock_kind::election);

  machine.acquire(first, spec, time_point::max(), "one");
  machine.acquire(second, spec, time_point::max(), "two");

  EXPECT_EQ(store.take("acquire").value, "one");
  EXPECT_EQ(store.take("acquire").value, "two");
}

TEST_F(EngineTest, TellsAReleaserThatTheStoreDidNotAnswer) {
  caller me;
  const auto lease = hold(me, spec_of("a"));
  listener word;

  machine.release(*lease, &word);
  machine.leave_answered(store.take("release").holder, base::fail(errc::outcome_unknown));

  EXPECT_EQ(word.released, core::release_outcome::unknown);
  pass(100ms);
  EXPECT_EQ(store.take("withdraw").name, "a");  // said again in the background
}

TEST_F(EngineTest, KeepsReadersApart) {
  caller one;
  caller two;
  const auto spec = spec_of("a", 1, lock_kind::shared_mutex, lock_mode::shared);

  machine.acquire(one, spec, time_point::max());
  machine.acquire(two, spec, time_point::max());

  const auto first = store.take("acquire");
  const auto second = store.take("acquire");
  EXPECT_NE(first.holder, second.holder);
  answer_granted(first.holder, 5, 5);
  answer_granted(second.holder, 6, 6);
  EXPECT_TRUE(one.done() && two.done());
}

}  // namespace
}  // namespace sallyport::runtime
