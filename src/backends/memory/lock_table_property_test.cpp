#include "backends/memory/lock_table.hpp"
#include "backends/memory/lock_table_fixture.hpp"
#include "base/random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::memory {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::break_mode;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::waiting;

using told =
    std::tuple<std::uint64_t, notice_kind, std::uint64_t, std::uint64_t>;  // who, what, tokens

/// The rules once more, as plainly as possible: vectors, searched from the front, everything lapsed
/// removed at once.
class naive_store {
 public:
  struct holder {
    std::uint64_t who;
    lock_mode mode;
    time_point expiry;
    std::uint64_t first, last;
    bool provisional = false;
    bool tombstone = false;
  };
  struct waiter {
    std::uint64_t who;
    lock_mode mode;
    time_point lapses;
    duration claim_window;
    std::uint32_t token_count;
  };
  struct name_state {
    lock_kind kind = lock_kind::mutex;
    std::uint32_t permits = 1;
    std::vector<holder> holders;
    std::vector<waiter> queue;
    [[nodiscard]] bool free() const { return holders.empty() && queue.empty(); }
  };

  std::map<std::string, name_state> names;
  std::vector<told> notices;
  std::uint64_t counter = 0;

  name_state& settle(const std::string& name, time_point now) {
    name_state& state = names[name];
    std::erase_if(state.holders, [&](const holder& h) { return h.expiry <= now; });
    std::erase_if(state.queue, [&](const waiter& w) { return w.lapses <= now; });
    while (!state.queue.empty() && fits(state, state.queue.front().mode)) {
      const waiter next = state.queue.front();
      state.queue.erase(state.queue.begin());
      state.holders.push_back({next.who, next.mode, now + next.claim_window, counter + 1,
                               counter + next.token_count, true});
      counter += next.token_count;
      notices.emplace_back(next.who, notice_kind::granted, state.holders.back().first,
                           state.holders.back().last);
    }
    return state;
  }
  static bool fits(const name_state& state, lock_mode mode) {
    if (state.kind == lock_kind::semaphore) return state.holders.size() < state.permits;
    if (state.kind == lock_kind::shared_mutex && mode == lock_mode::shared) {
      return std::ranges::all_of(state.holders, [](const holder& h) {
        return h.mode == lock_mode::shared && !h.tombstone;
      });
    }
    return state.holders.empty();
  }
  static holder* holder_of(name_state& state, std::uint64_t who) {
    for (holder& each : state.holders) {
      if (each.who == who && !each.tombstone) return &each;
    }
    return nullptr;
  }

  std::optional<acquire_answer> acquire(std::uint64_t who, const std::string& name, const wish& w,
                                        time_point now) {
    name_state& state = settle(name, now);
    if (!state.free() && state.kind != w.kind) return std::nullopt;
    if (const holder* mine = holder_of(state, who)) {
      return granted{{fencing_token(mine->first), fencing_token(mine->last)},
                     mine->expiry - now,
                     mine->provisional,
                     state.permits};
    }
    for (waiter& each : state.queue) {
      if (each.who != who) continue;
      each.lapses = now + w.ticket_length;
      each.claim_window = w.claim_window;
      each.token_count = w.token_count;
      return waiting{{}, state.permits};
    }
    if (state.free()) {
      state.kind = w.kind;
      state.permits = w.kind == lock_kind::semaphore ? w.permits : 1;
    }
    if (state.queue.empty() && fits(state, w.mode)) {
      state.holders.push_back(
          {who, w.mode, now + w.lease_length, counter + 1, counter + w.token_count});
      counter += w.token_count;
      return granted{{fencing_token(counter - w.token_count + 1), fencing_token(counter)},
                     w.lease_length,
                     false,
                     state.permits};
    }
    if (!w.may_wait) return held{};
    state.queue.push_back({who, w.mode, now + w.ticket_length, w.claim_window, w.token_count});
    return waiting{{}, state.permits};
  }

  renew_answer renew(std::uint64_t who, const std::string& name, duration length,
                     std::uint32_t token_count, time_point now, bool downgrade = false) {
    name_state& state = settle(name, now);
    if (holder* mine = holder_of(state, who)) {
      if (downgrade && state.kind != lock_kind::shared_mutex) return gone{};
      mine->expiry = now + length;
      mine->provisional = false;
      if (token_count > 0) {
        mine->first = counter + 1;
        mine->last = counter += token_count;
      }
      const renewed answer{{fencing_token(mine->first), fencing_token(mine->last)}, length};
      if (downgrade) {
        mine->mode = lock_mode::shared;
        settle(name, now);
      }
      return answer;
    }
    const bool queued = std::ranges::any_of(state.queue, [&](auto& w) { return w.who == who; });
    if (queued && !downgrade) return waiting{};
    return gone{};
  }

  leave_answer leave(std::uint64_t who, const std::string& name, bool also_queue, time_point now) {
    if (also_queue) {
      auto& queue = names[name].queue;
      std::erase_if(queue, [&](const waiter& w) { return w.lapses <= now; });
      if (std::erase_if(queue, [&](const waiter& w) { return w.who == who; }) > 0) {
        settle(name, now);
        return leave_answer::left;
      }
    }
    name_state& state = settle(name, now);
    const auto removed =
        std::erase_if(state.holders, [&](const holder& h) { return h.who == who && !h.tombstone; });
    settle(name, now);
    return removed > 0 ? leave_answer::left : leave_answer::not_there;
  }

  bool break_lock(const std::string& name, std::uint64_t token, break_mode mode, time_point now) {
    name_state& state = settle(name, now);
    for (auto each = state.holders.begin(); each != state.holders.end(); ++each) {
      if (token < each->first || token > each->last) continue;
      if (each->tombstone && mode == break_mode::safe) continue;
      if (!each->tombstone) notices.emplace_back(each->who, notice_kind::lost, 0, 0);
      if (mode == break_mode::safe) {
        each->tombstone = true;
      } else {
        state.holders.erase(each);
        settle(name, now);
      }
      return true;
    }
    return false;
  }
};

std::vector<told> flatten(const std::vector<notice>& notices) {
  std::vector<told> flat;
  for (const notice& each : notices) {
    const token_block block = each.grant ? each.grant->tokens : token_block{};
    flat.emplace_back(each.holder.low, each.kind, block.first.value(), block.last.value());
  }
  return flat;
}

/// How long to ask again is not the model's business; its bounds are checked here.
template <class Answer>
Answer without_hint(Answer answer, duration ticket_length) {
  if (auto* wait = std::get_if<waiting>(&answer)) {
    EXPECT_GE(wait->ask_again_after, 1ms);
    EXPECT_LE(wait->ask_again_after, std::max<duration>(1ms, ticket_length / 3));
    wait->ask_again_after = {};
    wait->newest_token = {};
  }
  return answer;
}

constexpr std::array kinds{lock_kind::mutex, lock_kind::shared_mutex, lock_kind::semaphore,
                           lock_kind::election};

/// Random operations of a few contenders on a few names.
class random_life {
 public:
  explicit random_life(std::uint64_t seed) : random_(seed) {
    for (lock_kind& kind : usual_kind_) kind = kinds.at(random_.below(kinds.size()));
    contenders_ = 2 + random_.below(12);
  }

  void advance() {
    if (random_.chance(0.6)) table_.pass(random_.below(700) * 1ms);
    if (random_.chance(0.02)) table_.pass(20s);
  }
  void step_clock_back() { table_.pass(-static_cast<std::int64_t>(random_.below(3000)) * 1ms); }

  /// One operation on the table and on the model; both must say the same.
  void compare_one() {
    const auto [name, who] = draw_target();
    const wish w = draw_wish(name);
    model_.notices.clear();
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        compare_acquire(who, name, w);
        break;
      case 5:
      case 6:
        compare_renew(who, name, w);
        break;
      case 7:
      case 8:
        EXPECT_EQ(table_.release(who, name, w), model_.leave(who, name, false, table_.now));
        break;
      case 9:
        EXPECT_EQ(table_.withdraw(who, name, w), model_.leave(who, name, true, table_.now));
        break;
      case 10:
        compare_downgrade(who, name, w);
        break;
      default:
        compare_break(name);
    }
    EXPECT_EQ(flatten(table_.notices), model_.notices);
    EXPECT_EQ(table_.table.last_token().value(), model_.counter);
    compare_view(name);
  }

  /// One operation on the table alone; the audit inside is the check.
  void act_one() {
    const auto [name, who] = draw_target();
    const wish w = draw_wish(name);
    switch (random_.below(6)) {
      case 0:
      case 1:
        (void)table_.acquire(who, name, w);
        break;
      case 2:
        table_.renew(who, name, w, static_cast<std::uint32_t>(random_.below(3)));
        break;
      case 3:
        table_.release(who, name, w);
        break;
      case 4:
        table_.withdraw(who, name, w);
        break;
      default:
        (void)table_.break_lock(name, some_token(), break_mode::safe);
    }
  }

  void everybody_leaves() {
    for (const char* name : names) {
      for (std::uint64_t who = 1; who <= contenders_; ++who) table_.withdraw(who, name);
    }
    // Tombstones outlive the leaving.
    table_.pass(60s);
    table_.table.sweep(table_.now, table_.notices);
    EXPECT_EQ(table_.table.entry_count(), 0U);
  }

 private:
  static constexpr std::array<const char*, 3> names{"a", "b", "c"};

  std::pair<std::string, std::uint64_t> draw_target() {
    return {names.at(random_.below(names.size())), 1 + random_.below(contenders_)};
  }
  wish draw_wish(const std::string& name) {
    wish w;
    w.kind = random_.chance(0.03) ? kinds.at(random_.below(kinds.size()))
                                  : usual_kind_.at(static_cast<std::size_t>(name[0] - 'a'));
    const bool shares = w.kind == lock_kind::shared_mutex && random_.chance(0.6);
    w.mode = shares ? lock_mode::shared : lock_mode::exclusive;
    w.lease_length = (1 + random_.below(9000)) * 1ms;
    w.claim_window = (1 + random_.below(2000)) * 1ms;
    w.ticket_length = (1 + random_.below(4000)) * 1ms;
    w.may_wait = random_.chance(0.8);
    w.permits = static_cast<std::uint32_t>(1 + random_.below(4));
    w.token_count = static_cast<std::uint32_t>(1 + random_.below(3));
    return w;
  }
  fencing_token some_token() {
    const std::uint64_t last = table_.table.last_token().value();
    return fencing_token(last - std::min(last, random_.below(8)));
  }

  void compare_acquire(std::uint64_t who, const std::string& name, const wish& w) {
    const auto got = table_.acquire(who, name, w);
    const auto expected = model_.acquire(who, name, w, table_.now);
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (!got) {
      EXPECT_EQ(got.error().code, errc::wrong_kind);
      return;
    }
    EXPECT_EQ(without_hint(*got, w.ticket_length), *expected);
  }
  void compare_renew(std::uint64_t who, const std::string& name, const wish& w) {
    const auto count = static_cast<std::uint32_t>(random_.chance(0.2) ? 1 + random_.below(3) : 0);
    const auto got = table_.renew(who, name, w, count);
    const auto expected = model_.renew(who, name, w.lease_length, count, table_.now);
    ASSERT_EQ(got.index(), expected.index());
    if (std::holds_alternative<renewed>(expected)) {
      EXPECT_EQ(got, expected);
    }
  }
  void compare_downgrade(std::uint64_t who, const std::string& name, const wish& w) {
    const auto got = table_.downgrade(who, name, w);
    if (w.kind != lock_kind::shared_mutex) {
      EXPECT_EQ(got.error().code, errc::not_supported);
      return;
    }
    EXPECT_EQ(*got, model_.renew(who, name, w.lease_length, 0, table_.now, true));
  }
  void compare_break(const std::string& name) {
    const fencing_token token = some_token();
    const break_mode mode = random_.chance(0.5) ? break_mode::safe : break_mode::at_once;
    EXPECT_EQ(table_.break_lock(name, token, mode).has_value(),
              model_.break_lock(name, token.value(), mode, table_.now));
  }
  void compare_view(const std::string& name) {
    const auto info = table_.who(name);
    const auto& state = model_.settle(name, table_.now);
    ASSERT_EQ(info.has_value(), !state.free());
    if (!info) return;
    EXPECT_EQ(info->kind, state.kind);
    EXPECT_EQ(info->permits, state.permits);
    std::vector<std::pair<std::uint64_t, lock_mode>> holders;
    for (const auto& each : state.holders) {
      if (!each.tombstone) holders.emplace_back(each.first, each.mode);
    }
    ASSERT_EQ(info->holders.size(), holders.size());
    for (std::size_t i = 0; i < holders.size(); ++i) {
      EXPECT_EQ(info->holders[i].token.value(), holders[i].first);
      EXPECT_EQ(info->holders[i].mode, holders[i].second);
    }
    ASSERT_EQ(info->waiters.size(), state.queue.size());
    for (std::size_t i = 0; i < state.queue.size(); ++i) {
      EXPECT_EQ(info->waiters[i].pid, static_cast<std::int64_t>(state.queue[i].who));
    }
  }

  base::random random_;
  std::array<lock_kind, names.size()> usual_kind_{};
  std::uint64_t contenders_ = 0;
  hand_driven_table table_;
  naive_store model_;
};

TEST(LockTableProperty, DoesWhatTheNaiveStoreDoes) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_life life(seed);

    for (int step = 0; step < 1200 && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      life.advance();
      life.compare_one();
    }

    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

TEST(LockTableProperty, KeepsNothingWhenEverybodyLeft) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_life life(seed);

    for (int step = 0; step < 500; ++step) {
      life.advance();
      life.act_one();
    }

    life.everybody_leaves();
  }
}

TEST(LockTableProperty, KeepsItsInvariantsWhenTheClockIsSetBack) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_life life(seed);

    for (int step = 0; step < 1000; ++step) {
      life.advance();
      if (step % 17 == 0) life.step_clock_back();
      life.act_one();
    }
  }
}

/// Exclusion and fencing as a holder sees them, over everything that was ever granted.
TEST(LockTableProperty, GrowsTokensFromOneExclusiveGrantToTheNextAndAroundSharedOnes) {
  base::random random(7);
  hand_driven_table driven;
  std::uint64_t top_exclusive = 0;
  std::uint64_t top_shared = 0;
  std::map<std::uint64_t, token_block> seen;  // by contender
  const auto check = [&](std::uint64_t who, const granted& grant, lock_mode mode) {
    const auto known = seen.find(who);
    if (known != seen.end() && known->second == grant.tokens) return;
    EXPECT_GT(grant.tokens.first.value(), top_exclusive);
    if (mode == lock_mode::exclusive) {
      EXPECT_GT(grant.tokens.first.value(), top_shared);
    }
    (mode == lock_mode::exclusive ? top_exclusive : top_shared) = grant.tokens.last.value();
    seen[who] = grant.tokens;
  };

  // Odd contenders write, even ones read; each comes under a new id every time.
  std::uint64_t next = 1;
  std::vector<std::uint64_t> alive;
  for (int step = 0; step < 20'000; ++step) {
    driven.pass(random.below(400) * 1ms);
    if (alive.size() < 8) alive.push_back(next++);
    const std::uint64_t who = alive[random.below(alive.size())];
    const lock_mode mode = who % 2 == 1 ? lock_mode::exclusive : lock_mode::shared;
    const wish w{
        .kind = lock_kind::shared_mutex, .mode = mode, .lease_length = 2s, .token_count = 2};
    if (random.chance(0.3)) {
      driven.withdraw(who, "a", w);
      std::erase(alive, who);
    } else if (const auto answer = driven.acquire(who, "a", w);
               std::holds_alternative<granted>(*answer)) {
      // Notices first: they may tell of grants made before this one.
      for (const notice& each : driven.notices) {
        check(each.client, *each.grant,
              each.client % 2 == 1 ? lock_mode::exclusive : lock_mode::shared);
      }
      check(who, std::get<granted>(*answer), mode);
      continue;
    }
    for (const notice& each : driven.notices) {
      check(each.client, *each.grant,
            each.client % 2 == 1 ? lock_mode::exclusive : lock_mode::shared);
    }
  }
  EXPECT_GT(top_exclusive, 1000U);
  EXPECT_GT(top_shared, 1000U);
}

}  // namespace
}  // namespace sallyport::backends::memory
