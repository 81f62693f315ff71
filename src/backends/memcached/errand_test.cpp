#include "backends/memcached/errand.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

// What is said for each request, and what each answer means.
namespace sallyport::backends::memcached {
namespace {

using namespace std::chrono_literals;
using backend_api::break_mode;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::waiting;

constexpr holder_id me{.high = 1, .low = 2};
constexpr holder_id another{.high = 3, .low = 4};

record of(const holder_id& who, std::uint64_t token = 0) {
  return {.kind = lock_kind::mutex, .holder = who, .token = token, .host = "h", .label = "l"};
}

reply item(const record& what, std::uint64_t cas, std::int64_t seconds = 32) {
  return {.found = meta_outcome::item, .cas = cas, .seconds = seconds, .value = to_value(what)};
}

reply and_stored(reply answer, store_outcome how) {
  answer.stored = how;
  return answer;
}

reply nothing(store_outcome how = store_outcome::none) { return {.stored = how}; }

reply deleting(meta_outcome how) { return {.found = how}; }

bool says(const errand_step& step, std::string_view store, std::string_view meta) {
  if (!step.say || !step.say->meta.starts_with(meta)) return false;
  std::string_view said = step.say->store;
  if (meta.starts_with("md") || store.starts_with("cas")) {
    const auto end = said.find(" h u\r\n");  // it asks for the mark
    if (!said.starts_with("mg ") || end == std::string_view::npos) return false;
    said.remove_prefix(end + 6);
  }
  return said.starts_with(store) && said.empty() == store.empty();
}

acquire_errand acquiring(bool may_wait = false, bool asked_before = false,
                         lock_kind kind = lock_kind::mutex) {
  record mine = of(me);
  mine.kind = kind;
  return acquire_errand({.key = "door",
                         .mine = mine,
                         .lease_length = 30s,
                         .may_wait = may_wait,
                         .asked_before = asked_before,
                         .pause = 10ms});
}

TEST(Lease, IsGivenTwoSecondsMoreThanItsWholeSeconds) {
  EXPECT_EQ(seconds_for(30s), 32);
  EXPECT_EQ(seconds_for(100ms), 3);
  EXPECT_EQ(seconds_for(24h), 24 * 3600 + 2);
  EXPECT_EQ(left_of(32), duration{30s});
  EXPECT_EQ(left_of(1), duration::zero());
  EXPECT_EQ(left_of(-1), duration::zero());
}

TEST(Poll, GrowsToItsLimitAndIsJittered) {
  EXPECT_GE(poll_pause(0, 0.0), duration{5ms});
  EXPECT_LE(poll_pause(0, 0.999), duration{10ms});
  EXPECT_GE(poll_pause(1000, 0.0), duration{longest_poll} / 2);
  EXPECT_LE(poll_pause(1000, 0.999), duration{longest_poll});
  EXPECT_NE(poll_pause(5, 0.1), poll_pause(5, 0.9));
}

TEST(Acquire, OfOneWhoIsNewAddsAndIsGrantedTheCasAsToken) {
  auto asks = acquiring();

  EXPECT_TRUE(says(asks.begin(), "add door 0 32 ", "mg door"));
  EXPECT_FALSE(asks.heard(and_stored(item(of(me), 7), store_outcome::stored)).say);

  ASSERT_TRUE(asks.verdict);
  const auto& grant = std::get<granted>(*asks.verdict);
  EXPECT_EQ(grant.tokens.first, fencing_token{7});
  EXPECT_EQ(grant.tokens.last, fencing_token{7});
  EXPECT_EQ(grant.remaining, duration{30s});
  ASSERT_TRUE(asks.granted);
  EXPECT_EQ(asks.granted->cas, 7U);
}

TEST(Acquire, OfWhatAnotherHasIsHeldOrWaited) {
  auto tries = acquiring(false);
  static_cast<void>(tries.begin());
  EXPECT_FALSE(tries.heard(and_stored(item(of(another), 7), store_outcome::not_stored)).say);
  EXPECT_TRUE(std::holds_alternative<held>(*tries.verdict));

  auto waits = acquiring(true);
  static_cast<void>(waits.begin());
  EXPECT_FALSE(waits.heard(and_stored(item(of(another), 7), store_outcome::not_stored)).say);
  EXPECT_EQ(std::get<waiting>(*waits.verdict).ask_again_after, duration{10ms});
  EXPECT_FALSE(waits.granted);
}

TEST(Acquire, AskedAgainLooksFirstAndFindsItsOwnGrant) {
  auto asks = acquiring(true, true);

  EXPECT_TRUE(says(asks.begin(), "", "mg door"));
  EXPECT_FALSE(asks.heard(item(of(me, 5), 9, 12)).say);

  const auto& grant = std::get<granted>(*asks.verdict);
  EXPECT_EQ(grant.tokens.first, fencing_token{5}) << "the stored one";
  EXPECT_EQ(grant.remaining, duration{10s}) << "what is left at least";
}

TEST(Acquire, AskedAgainOfAFreeLockAdds) {
  auto asks = acquiring(true, true);
  static_cast<void>(asks.begin());

  EXPECT_TRUE(says(asks.heard(nothing()), "add door", "mg door"));
}

TEST(Acquire, OfAStrangersItemIsHeld) {
  for (const char* const value : {"", "1", "sp1", "sp1 h m", "token", "sp1 h m 00 0 0 0 0 - - -"}) {
    auto asks = acquiring();
    static_cast<void>(asks.begin());
    reply theirs = item(of(another), 7);
    theirs.value = value;
    EXPECT_FALSE(asks.heard(and_stored(theirs, store_outcome::not_stored)).say);
    EXPECT_TRUE(std::holds_alternative<held>(*asks.verdict)) << value;
  }
}

TEST(Acquire, OfAnotherKindIsRefused) {
  auto asks = acquiring(true, false, lock_kind::election);
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(and_stored(item(of(another), 7), store_outcome::not_stored)).say);
  EXPECT_EQ(asks.verdict.error().code, errc::wrong_kind);
}

TEST(Acquire, OfATombstoneIsHeldAlsoForTheOldHolder) {
  record stone = of(me);
  stone.closed = true;
  auto asks = acquiring(false, true);
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(item(stone, 7)).say);
  EXPECT_TRUE(std::holds_alternative<held>(*asks.verdict));
}

TEST(Acquire, ThatVanishesIsTriedAgainAndNotForEver) {
  auto asks = acquiring();
  errand_step step = asks.begin();
  unsigned rounds = 0;
  while (step.say && rounds < 100) {
    ++rounds;
    step =
        asks.heard(nothing(step.say->store.empty() ? store_outcome::none : store_outcome::stored));
  }
  EXPECT_LT(rounds, 3 * most_rounds);
  EXPECT_EQ(asks.verdict.error().code, errc::unavailable);
}

TEST(Acquire, ThatTheServerHasNoMemoryForIsNotHeld) {
  auto asks = acquiring();
  static_cast<void>(asks.begin());
  reply refused = nothing(store_outcome::refused);
  refused.why = "SERVER_ERROR out of memory storing object";
  EXPECT_FALSE(asks.heard(refused).say);
  EXPECT_EQ(asks.verdict.error().code, errc::unavailable);
}

TEST(Acquire, OnAServerWithoutCasIsRefused) {
  auto asks = acquiring();
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(and_stored(item(of(me), 0), store_outcome::stored)).say);
  EXPECT_EQ(asks.verdict.error().code, errc::store_refused);
}

renew_errand renewing(std::optional<grant_memory> known, bool draw = false) {
  return renew_errand(
      {.key = "door", .holder = me, .lease_length = 30s, .draw_token = draw, .local_waiters = 2},
      std::move(known));
}

TEST(Renew, ByTheRememberedCasIsOneStepAndKeepsTheToken) {
  auto asks = renewing(grant_memory{.said = of(me), .cas = 7});

  const errand_step first = asks.begin();
  EXPECT_TRUE(says(first, "cas door 0 32 ", "mg door"));
  EXPECT_TRUE(first.by_cas);
  EXPECT_NE(first.say->store.find(" 7\r\n"), std::string::npos);
  EXPECT_NE(first.say->store.find(" 7 2 "), std::string::npos) << "the token is written down now";
  EXPECT_FALSE(asks.heard(and_stored(item(of(me, 7), 8), store_outcome::stored)).say);

  const auto& said = std::get<backend_api::renewed>(*asks.verdict);
  EXPECT_EQ(said.tokens.first, fencing_token{7});
  EXPECT_EQ(said.remaining, duration{30s});
  EXPECT_EQ(asks.renewed->cas, 8U);
}

TEST(Renew, ThatDrawsHasTheNewCasAsToken) {
  auto asks = renewing(grant_memory{.said = of(me, 7), .cas = 8}, true);
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(and_stored(item(of(me), 9), store_outcome::stored)).say);
  EXPECT_EQ(std::get<backend_api::renewed>(*asks.verdict).tokens.first, fencing_token{9});
}

TEST(Renew, LearnsWhetherOthersHaveAsked) {
  auto asks = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(asks.begin());
  reply said = and_stored(item(of(me, 7), 8), store_outcome::stored);
  said.fetched = true;
  EXPECT_FALSE(asks.heard(said).say);
  EXPECT_TRUE(asks.renewed->wanted);
}

TEST(Renew, WithoutMemoryOrOnAnotherConnectionLooksFirst) {
  auto without = renewing(std::nullopt);
  EXPECT_TRUE(says(without.begin(), "", "mg door"));

  auto moved = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(moved.begin());
  EXPECT_TRUE(says(moved.not_bound(), "", "mg door"));
  const errand_step next = moved.heard(item(of(me), 3));
  EXPECT_TRUE(says(next, "cas door", "mg door"));
  EXPECT_NE(next.say->store.find(" 3\r\n"), std::string::npos);
}

TEST(Renew, NeverCreatesAnything) {
  auto lapsed = renewing(std::nullopt);
  static_cast<void>(lapsed.begin());
  EXPECT_FALSE(lapsed.heard(nothing()).say);
  EXPECT_TRUE(std::holds_alternative<gone>(*lapsed.verdict));

  auto late = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(late.begin());
  EXPECT_FALSE(late.heard(nothing(store_outcome::not_found)).say);
  EXPECT_TRUE(std::holds_alternative<gone>(*late.verdict));
}

TEST(Renew, OfWhatIsAnothersTouchesNothing) {
  auto asks = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(and_stored(item(of(another), 9), store_outcome::exists)).say);
  EXPECT_TRUE(std::holds_alternative<gone>(*asks.verdict));
}

TEST(Renew, OfAnItemThatChangedButIsOursGoesOnWithTheFreshCas) {
  auto asks = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(asks.begin());
  const errand_step next = asks.heard(and_stored(item(of(me, 7), 9), store_outcome::exists));
  EXPECT_TRUE(says(next, "cas door", "mg door"));
  EXPECT_NE(next.say->store.find(" 9\r\n"), std::string::npos);
}

TEST(Renew, OfABrokenGrantIsGone) {
  record stone = of({});
  stone.closed = true;
  auto asks = renewing(grant_memory{.said = of(me), .cas = 7});
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard(and_stored(item(stone, 9), store_outcome::exists)).say);
  EXPECT_TRUE(std::holds_alternative<gone>(*asks.verdict));
}

TEST(Leave, ByTheRememberedCasIsOneStep) {
  leave_errand asks("door", me, 7);
  const errand_step first = asks.begin();
  EXPECT_TRUE(says(first, "", "md door C7"));
  EXPECT_TRUE(first.by_cas);
  EXPECT_FALSE(asks.heard(deleting(meta_outcome::done)).say);
  EXPECT_EQ(*asks.verdict, leave_answer::left);
  EXPECT_FALSE(asks.wanted);
}

TEST(Leave, LearnsWhetherOthersHaveAsked) {
  leave_errand asks("door", me, 7);
  static_cast<void>(asks.begin());
  EXPECT_FALSE(asks.heard({.found = meta_outcome::done, .fetched = true}).say);
  EXPECT_TRUE(asks.wanted);
}

TEST(Leave, WithoutMemoryLooksAndDeletesOnlyItsOwn) {
  leave_errand mine("door", me, 0);
  EXPECT_TRUE(says(mine.begin(), "", "mg door"));
  EXPECT_TRUE(says(mine.heard(item(of(me), 5)), "", "md door C5"));

  leave_errand theirs("door", me, 0);
  static_cast<void>(theirs.begin());
  EXPECT_FALSE(theirs.heard(item(of(another), 5)).say);
  EXPECT_EQ(*theirs.verdict, leave_answer::not_there);

  leave_errand nobodys("door", me, 0);
  static_cast<void>(nobodys.begin());
  EXPECT_FALSE(nobodys.heard(nothing()).say);
  EXPECT_EQ(*nobodys.verdict, leave_answer::not_there);
}

TEST(Leave, OfAnItemThatChangedLooksAgainAndNotForEver) {
  leave_errand asks("door", me, 7);
  errand_step step = asks.begin();
  unsigned rounds = 0;
  while (step.say && rounds < 100) {
    ++rounds;
    step = step.say->meta.starts_with("md") ? asks.heard(deleting(meta_outcome::exists))
                                            : asks.heard(item(of(me), 100 + rounds));
  }
  EXPECT_LT(rounds, 3 * most_rounds);
  EXPECT_EQ(asks.verdict.error().code, errc::outcome_unknown);
  EXPECT_TRUE(asks.verdict.error().no_outage);
}

TEST(Leave, OnAnotherConnectionLooksFirst) {
  leave_errand asks("door", me, 7);
  static_cast<void>(asks.begin());
  EXPECT_TRUE(says(asks.not_bound(), "", "mg door"));
}

TEST(Value, IsReplacedByItsLeaderOnlyAndKeepsTheTime) {
  record leads = of(me);
  leads.kind = lock_kind::election;
  value_errand asks("leader", me, "two words");
  EXPECT_TRUE(says(asks.begin(), "", "mg leader"));
  const errand_step next = asks.heard(item(leads, 5, 17));
  EXPECT_TRUE(says(next, "cas leader 0 17 ", "mg leader"));
  EXPECT_NE(next.say->store.find("two%20words"), std::string::npos);

  value_errand late("leader", me, "x");
  static_cast<void>(late.begin());
  EXPECT_FALSE(late.heard(item(of(another), 5)).say);
  EXPECT_FALSE(*late.verdict);
}

TEST(Break, ComparesTheTokenThatWasObserved) {
  break_errand other("door", fencing_token{6}, break_mode::at_once);
  static_cast<void>(other.begin());
  EXPECT_FALSE(other.heard(item(of(me), 7)).say);
  EXPECT_EQ(other.verdict.error().code, errc::token_mismatch);

  break_errand nobody("door", fencing_token{7}, break_mode::at_once);
  static_cast<void>(nobody.begin());
  EXPECT_FALSE(nobody.heard(nothing()).say);
  EXPECT_EQ(nobody.verdict.error().code, errc::no_such_lock);
}

TEST(Break, AtOnceDeletesAndSafelyLeavesATombstoneForTheSameTime) {
  break_errand now("door", fencing_token{7}, break_mode::at_once);
  static_cast<void>(now.begin());
  EXPECT_TRUE(says(now.heard(item(of(me), 7)), "", "md door C7"));

  break_errand safe("door", fencing_token{5}, break_mode::safe);
  static_cast<void>(safe.begin());
  const errand_step next = safe.heard(item(of(me, 5), 7, 20));
  EXPECT_TRUE(says(next, "cas door 0 20 ", "mg door"));
  EXPECT_NE(next.say->store.find("sp1 t m 00000000000000000000000000000000"), std::string::npos);

  break_errand last_moment("door", fencing_token{5}, break_mode::safe);
  static_cast<void>(last_moment.begin());
  EXPECT_TRUE(says(last_moment.heard(item(of(me, 5), 7, 0)), "cas door 0 1 ", "mg door"))
      << "0 would be for ever";
}

TEST(Who, TellsOfStrangersThatTheyAreNone) {
  who_errand asks("door", "door", 0);
  static_cast<void>(asks.begin());
  reply theirs = item(of(me), 7, 60);
  theirs.value = "someone";
  EXPECT_FALSE(asks.heard(theirs).say);
  const auto& seen = asks.verdict->value();
  EXPECT_EQ(seen.holders.at(0).label, "not a Sallyport client");
  EXPECT_EQ(seen.holders.at(0).token, fencing_token{});

  break_errand breaks("door", fencing_token{7}, break_mode::at_once);
  static_cast<void>(breaks.begin());
  EXPECT_FALSE(breaks.heard(theirs).say);
  EXPECT_EQ(breaks.verdict.error().code, errc::not_supported);
}

}  // namespace
}  // namespace sallyport::backends::memcached
