#include "backends/local/lock_rules.hpp"
#include "backends/local/lock_rules_fixture.hpp"
#include "backends/memory/lock_table.hpp"
#include "backends/memory/lock_table_fixture.hpp"
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::break_mode;
using backend_api::granted;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::token_block;
using backend_api::waiting;

constexpr std::array kinds{lock_kind::mutex, lock_kind::shared_mutex, lock_kind::semaphore,
                           lock_kind::election};
constexpr std::array<const char*, 3> names{"a", "a/b", "b"};

memory::wish for_memory(const wish& w) {
  return {w.kind,     w.mode,    w.lease_length, w.claim_window,  w.ticket_length,
          w.may_wait, w.permits, w.token_count,  w.local_waiters, w.value};
}

/// Random operations of a few contenders on a few names, on the rules and on the reference store
/// `lock_table` at the same time. Both must say the same.
///
/// With deaths, the reference is told at once: the dead's tickets are withdrawn and its grants
/// released. The rules find out by themselves: only contenders that were told to look, or that
/// watch the dead one's client, ask again, as a session lets them, without time passing. After that
/// both stores must look alike. Then tokens differ legitimately, because the rules may hand a lock
/// to somebody dead first, and the reference never does; they still only grow. Notices of changes
/// are not compared for the same reason.
class twin_stores {
 public:
  twin_stores(std::uint64_t seed, bool with_deaths) : random_(seed), deaths_(with_deaths) {
    for (lock_kind& kind : usual_kind_) kind = kinds.at(random_.below(kinds.size()));
    reserve_blocks();
    const std::uint64_t clients = 2 + random_.below(5);
    for (std::uint64_t i = 0; i < clients; ++i) add_process();
  }

  void step() {
    advance();
    if (deaths_ && random_.chance(0.06)) kill_somebody();
    compare_one();
    settle_everything();
    compare_views();
  }

  /// Everybody dies; whoever comes next gets each name at once.
  void end() {
    while (!processes_.empty()) kill(0);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (local_.who(names[i]) && local_.who(names[i])->closed_for > 0ms) continue;
      const std::uint64_t fresh = next_contender_++;
      const auto got = local_.acquire(fresh, names[i], {.kind = usual_kind_[i], .may_wait = false});
      ASSERT_TRUE(got);
      EXPECT_TRUE(std::holds_alternative<granted>(*got));
      ASSERT_TRUE(local_.release(fresh, names[i]));
    }
    local_.pass(60s);  // tombstones
    local_.sweep();
    EXPECT_EQ(local_.count('L') + local_.count('H') + local_.count('Q'), 0U);
  }

 private:
  struct process {
    std::vector<std::uint64_t> contenders;
  };
  /// What a contender did last, for asking again.
  struct attempt {
    std::string name;
    wish last;
    bool waits = false;
    token_block local_tokens;
    token_block reference_tokens;
  };

  void reserve_blocks() { local_.reserve.block = 1 + random_.below(50); }

  void add_process() {
    process fresh;
    const std::uint64_t size = 1 + random_.below(3);
    for (std::uint64_t i = 0; i < size; ++i) {
      fresh.contenders.push_back(next_contender_++);
      if (i > 0) local_.enrol(fresh.contenders.back(), fresh.contenders.front());
      local_.of(fresh.contenders.back());
    }
    processes_.push_back(std::move(fresh));
  }

  void advance() {
    duration span{};
    if (random_.chance(0.6)) span = random_.below(700) * 1ms;
    if (random_.chance(0.02)) span = 20s;
    local_.pass(span);
    reference_.now = local_.now;
  }

  void kill_somebody() {
    kill(random_.below(processes_.size()));
    if (random_.chance(0.3) && !processes_.empty()) kill(random_.below(processes_.size()));
    while (processes_.size() < 2) add_process();
    settle_everything();
  }
  void kill(std::size_t which) {
    const process victim = processes_[which];
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(which));
    // What had lapsed by now is settled while it lives: what the dead were granted in vain would
    // differ.
    for (const char* name : names) {
      local_.who(name);
      hear(local_.notices);
      reference_.who(name);
    }
    local_.kill(victim.contenders.front());
    dead_.insert(local_.client_of(victim.contenders.front()));
    for (const std::uint64_t who : victim.contenders) {
      attempts_.erase(who);
      // Tickets first: the dead are not to be granted anything.
      for (const char* name : names) drop_ticket(who, name);
    }
    for (const std::uint64_t who : victim.contenders) {
      for (const char* name : names) reference_.withdraw(who, name);
    }
    for (auto& [who, mine] : attempts_) {
      if (mine.waits && watches_a_dead_one(who)) to_ask_.push_back(who);
    }
  }
  void drop_ticket(std::uint64_t who, const char* name) {
    const auto answer = reference_.renew(who, name);
    if (std::holds_alternative<waiting>(answer)) reference_.withdraw(who, name);
  }
  bool watches_a_dead_one(std::uint64_t who) {
    return std::ranges::any_of(local_.of(who).in_the_way,
                               [&](client_number each) { return dead_.contains(each); });
  }

  std::uint64_t some_contender() {
    const process& chosen = processes_[random_.below(processes_.size())];
    return chosen.contenders[random_.below(chosen.contenders.size())];
  }
  wish draw_wish(std::size_t name) {
    wish w;
    w.kind = random_.chance(0.03) ? kinds.at(random_.below(kinds.size())) : usual_kind_.at(name);
    const bool shares = w.kind == lock_kind::shared_mutex && random_.chance(0.6);
    w.mode = shares ? lock_mode::shared : lock_mode::exclusive;
    w.lease_length = (1 + random_.below(9000)) * 1ms;
    w.claim_window = (1 + random_.below(2000)) * 1ms;
    w.ticket_length = (1 + random_.below(4000)) * 1ms;
    w.may_wait = random_.chance(0.8);
    w.permits = static_cast<std::uint32_t>(1 + random_.below(4));
    w.token_count = static_cast<std::uint32_t>(1 + random_.below(3));
    w.local_waiters = static_cast<std::uint32_t>(random_.below(3));
    return w;
  }

  void compare_one() {
    local_.notices.clear();
    reference_.notices.clear();
    const std::uint64_t who = some_contender();
    // A contender is one attempt at one name, as in the product.
    const auto known = attempts_.find(who);
    const std::size_t name =
        known != attempts_.end()
            ? static_cast<std::size_t>(std::ranges::find(names, known->second.name) - names.begin())
            : random_.below(names.size());
    const wish w = draw_wish(name);
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        compare_acquire(who, names[name], w);
        break;
      case 5:
      case 6:
        compare_renew(who, names[name], w);
        break;
      case 7:
      case 8:
        compare_leave(who, names[name], w, false);
        break;
      case 9:
        compare_leave(who, names[name], w, true);
        break;
      case 10:
        compare_downgrade(who, names[name], w);
        break;
      default:
        compare_break(names[name]);
    }
    compare_notices();
  }

  /// With deaths tokens are compared by their length only.
  template <class Answer>
  Answer comparable(Answer answer) const {
    if constexpr (std::is_same_v<Answer, acquire_answer>) {
      if (auto* grant = std::get_if<granted>(&answer)) grant->tokens = comparable(grant->tokens);
    } else {
      if (auto* mine = std::get_if<renewed>(&answer)) mine->tokens = comparable(mine->tokens);
    }
    if (auto* wait = std::get_if<waiting>(&answer)) {
      if (deaths_) wait->newest_token = {};
    }
    return answer;
  }
  [[nodiscard]] token_block comparable(token_block tokens) const {
    if (!deaths_) return tokens;
    return {fencing_token(0), fencing_token(tokens.last.value() - tokens.first.value())};
  }

  void compare_acquire(std::uint64_t who, const std::string& name, const wish& w) {
    const auto got = local_.acquire(who, name, w);
    hear(local_.notices);
    const auto expected = reference_.acquire(who, name, for_memory(w));
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (!got) {
      EXPECT_EQ(got.error().code, expected.error().code);
      return;
    }
    EXPECT_EQ(comparable(*got), comparable(*expected)) << name << " of contender " << who;
    attempt& mine = attempts_[who];
    mine.name = name;
    mine.last = w;
    mine.waits = std::holds_alternative<waiting>(*got);
    if (const auto* wait = std::get_if<waiting>(&*got)) {
      EXPECT_GE(wait->newest_token.value(), largest_token_);
    }
    const auto* grant = std::get_if<granted>(&*got);
    const auto* same = std::get_if<granted>(&*expected);
    if (grant != nullptr && same != nullptr) holds(mine, grant->tokens, same->tokens);
  }
  void compare_renew(std::uint64_t who, const std::string& name, const wish& w) {
    const auto count = static_cast<std::uint32_t>(random_.chance(0.2) ? 1 + random_.below(3) : 0);
    const auto got = local_.renew(who, name, w, count);
    hear(local_.notices);
    const auto expected = reference_.renew(who, name, for_memory(w), count);
    EXPECT_EQ(comparable(*got), comparable(expected)) << name << " of contender " << who;
    const auto* grant = std::get_if<renewed>(&*got);
    const auto* same = std::get_if<renewed>(&expected);
    if (grant == nullptr || same == nullptr) return;
    attempt& mine = attempts_[who];
    mine.waits = false;
    holds(mine, grant->tokens, same->tokens);
  }
  void compare_downgrade(std::uint64_t who, const std::string& name, const wish& w) {
    const auto got = local_.downgrade(who, name, w);
    hear(local_.notices);
    const auto expected = reference_.downgrade(who, name, for_memory(w));
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (got) {
      EXPECT_EQ(comparable(*got), comparable(*expected));
    }
  }
  void compare_leave(std::uint64_t who, const std::string& name, const wish& w, bool also_queue) {
    // A session forgets the place of one that released, so a waiter never does.
    if (attempts_.contains(who) && attempts_[who].waits) also_queue = true;
    const auto got = also_queue ? local_.withdraw(who, name, w) : local_.release(who, name, w);
    hear(local_.notices);
    const auto expected = also_queue ? reference_.withdraw(who, name, for_memory(w))
                                     : reference_.release(who, name, for_memory(w));
    EXPECT_EQ(*got, expected) << name << " of contender " << who;
    attempts_.erase(who);
  }
  void compare_break(const std::string& name) {
    // Some grant of somebody who may hold this name now, or did before.
    if (attempts_.empty()) return;
    auto some = attempts_.begin();
    std::advance(some, static_cast<std::ptrdiff_t>(random_.below(attempts_.size())));
    if (some->second.local_tokens == token_block{}) return;
    const break_mode mode = random_.chance(0.5) ? break_mode::safe : break_mode::at_once;
    const auto got = local_.break_lock(name, some->second.local_tokens.last, mode);
    hear(local_.notices);
    const auto expected = reference_.break_lock(name, some->second.reference_tokens.last, mode);
    ASSERT_EQ(got.has_value(), expected.has_value());
    if (!got) {
      EXPECT_EQ(got.error().code, expected.error().code);
    }
  }
  void holds(attempt& mine, const token_block& local, const token_block& reference) {
    if (mine.local_tokens != local) {
      EXPECT_GT(local.first.value(), mine.local_tokens.last.value());
    }
    largest_token_ = std::max(largest_token_, local.last.value());
    mine.local_tokens = local;
    mine.reference_tokens = reference;
  }

  using told = std::tuple<std::uint64_t, bool, token_block, duration>;

  void compare_notices() {
    std::vector<told> mine;
    std::vector<told> theirs;
    for (const notice& each : local_.notices) {
      if (each.kind != notice_kind::granted && each.kind != notice_kind::lost) continue;
      if (dead_.contains(each.client)) continue;
      const token_block tokens = each.grant ? comparable(each.grant->tokens) : token_block{};
      mine.emplace_back(each.holder.low, each.grant.has_value(), tokens,
                        each.grant ? each.grant->remaining : duration{});
    }
    for (const memory::notice& each : reference_.notices) {
      if (each.kind == memory::notice_kind::changed) continue;
      const token_block tokens = each.grant ? comparable(each.grant->tokens) : token_block{};
      theirs.emplace_back(each.holder.low, each.grant.has_value(), tokens,
                          each.grant ? each.grant->remaining : duration{});
    }
    // With deaths the reference may have told of a grant before, when it heard of the death.
    if (!deaths_) {
      EXPECT_EQ(mine, theirs);
    }
  }
  void hear(const std::vector<notice>& notices) {
    for (const notice& each : notices) {
      const std::uint64_t who = each.holder.low;
      if (each.kind == notice_kind::granted) {
        EXPECT_GT(each.grant->tokens.first.value(), largest_token_);
        largest_token_ = each.grant->tokens.last.value();
      }
      if (each.kind == notice_kind::look) to_ask_.push_back(who);
    }
  }

  /// Whoever was told to look does.
  void settle_everything() {
    int asked = 0;
    while (!to_ask_.empty() && !::testing::Test::HasFailure()) {
      const std::uint64_t who = to_ask_.front();
      to_ask_.pop_front();
      const auto found = attempts_.find(who);
      if (found == attempts_.end() || !found->second.waits) continue;
      wish again = found->second.last;
      again.may_wait = true;
      found->second.waits = false;  // unless it is told so again
      compare_acquire(who, found->second.name, again);
      if (found->second.waits && watches_a_dead_one(who)) to_ask_.push_back(who);
      ASSERT_LT(++asked, 1000) << "somebody asks for ever";
    }
  }

  void compare_views() {
    const std::string name = names[random_.below(names.size())];
    // Looking settles the name, and may tell somebody to look in turn.
    local_.who(name);
    hear(local_.notices);
    settle_everything();
    const auto mine = local_.who(name);
    const auto theirs = reference_.who(name);
    ASSERT_EQ(mine.has_value(), theirs.has_value()) << name;
    if (mine) compare(*mine, *theirs);
    if (random_.chance(0.1)) compare_lists();
  }
  void compare_lists() {
    const std::vector<std::string> mine = local_.list("a", "", 10);
    hear(local_.notices);
    EXPECT_EQ(mine, reference_.list("a", "", 10));
  }
  void compare(const lock_info& mine, const lock_info& theirs) {
    EXPECT_EQ(mine.kind, theirs.kind);
    EXPECT_EQ(mine.permits, theirs.permits);
    EXPECT_EQ(mine.closed_for, theirs.closed_for);
    ASSERT_EQ(mine.holders.size(), theirs.holders.size()) << mine.name;
    ASSERT_EQ(mine.waiters.size(), theirs.waiters.size()) << mine.name;
    const auto facts = [&](const auto& each) {
      return std::tuple(each.mode, each.remaining, each.held_for, each.local_waiters, each.claimed);
    };
    // Holders of one name stand in different orders; only their set counts.
    std::multiset<decltype(facts(mine.holders[0]))> mine_facts;
    std::multiset<decltype(facts(mine.holders[0]))> their_facts;
    for (const holder_info& each : mine.holders) mine_facts.insert(facts(each));
    for (const holder_info& each : theirs.holders) their_facts.insert(facts(each));
    EXPECT_EQ(mine_facts, their_facts) << mine.name;
    for (std::size_t i = 0; i < mine.waiters.size(); ++i) {
      EXPECT_EQ(mine.waiters[i].mode, theirs.waiters[i].mode);
      EXPECT_EQ(mine.waiters[i].waited, theirs.waiters[i].waited);
      EXPECT_EQ(mine.waiters[i].local_waiters, theirs.waiters[i].local_waiters);
    }
  }

  base::random random_;
  const bool deaths_;
  std::array<lock_kind, names.size()> usual_kind_{};
  hand_driven_rules local_;
  memory::hand_driven_table reference_;
  std::vector<process> processes_;
  std::map<std::uint64_t, attempt> attempts_;
  std::set<client_number> dead_;
  std::deque<std::uint64_t> to_ask_;
  std::uint64_t next_contender_ = 1;
  std::uint64_t largest_token_ = 0;
};

void run_seeds(std::uint64_t first, std::uint64_t seeds, int steps, bool with_deaths) {
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    twin_stores twins(seed, with_deaths);

    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      twins.step();
    }

    if (!::testing::Test::HasFailure()) twins.end();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(LockRulesProperty, DoWhatTheReferenceDoes) { run_seeds(1, 1000, 30, false); }

TEST(LockRulesProperty, DoWhatTheReferenceDoesInLongRuns) { run_seeds(50'001, 4, 1000, false); }

TEST(LockRulesProperty, DoWhatTheReferenceDoesThatIsToldOfEveryDeath) {
  run_seeds(100'001, 2500, 30, true);
}

}  // namespace
}  // namespace sallyport::backends::local
