#include "backends/redlock/token_round.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::redlock {

void PrintTo(token_round::verdict what, std::ostream* out) {
  switch (what) {
    case token_round::verdict::open:
      *out << "open";
      return;
    case token_round::verdict::won:
      *out << "won";
      return;
    case token_round::verdict::lost:
      *out << "lost";
      return;
  }
}

namespace {

using verdict = token_round::verdict;

constexpr node_set first_nodes(unsigned count) { return (1U << count) - 1; }

TEST(TokenRound, IsOpenUntilAMajorityHasVoted) {
  token_round round(5, 5, first_nodes(5), true);
  EXPECT_EQ(round.result(), verdict::open);

  round.voted(0, 7);
  round.voted(1, 7);
  EXPECT_EQ(round.result(), verdict::open);
  EXPECT_EQ(round.take_raises(), 0U);
  round.voted(4, 7);

  EXPECT_EQ(round.result(), verdict::won);
  EXPECT_EQ(round.token(), 7U);
  EXPECT_EQ(round.voters(), only(0) | only(1) | only(4));
  EXPECT_EQ(round.unheard(), only(2) | only(3));
}

TEST(TokenRound, TakesTheLargestCounterAndRaisesTheLowerOnes) {
  token_round round(5, 5, first_nodes(5), true);
  round.voted(0, 7);
  round.voted(1, 9);
  round.voted(2, 8);

  EXPECT_EQ(round.token(), 9U);
  EXPECT_EQ(round.result(), verdict::open);
  EXPECT_EQ(round.take_raises(), only(0) | only(2));
  EXPECT_EQ(round.take_raises(), 0U) << "each is told once";
}

TEST(TokenRound, WinsWhenAMajorityOfTheVotersAgrees) {
  token_round round(3, 3, first_nodes(3), true);
  round.voted(0, 7);
  round.voted(1, 9);
  ASSERT_EQ(round.take_raises(), only(0));
  ASSERT_EQ(round.result(), verdict::open);

  round.raised(0);

  EXPECT_EQ(round.result(), verdict::won);
}

TEST(TokenRound, RaisesALateVoterButDoesNotCountIt) {
  token_round round(3, 3, first_nodes(3), true);
  round.voted(0, 7);
  round.voted(1, 9);
  ASSERT_EQ(round.take_raises(), only(0));

  round.voted(2, 5);
  EXPECT_EQ(round.take_raises(), only(2));
  round.raised(2);

  EXPECT_EQ(round.result(), verdict::open) << "only a voter's raise counts";
  EXPECT_EQ(round.voters(), first_nodes(3));
  round.not_raised(0);
  EXPECT_EQ(round.result(), verdict::lost);
}

TEST(TokenRound, DoesNotMoveTheTokenForALateVoter) {
  token_round round(3, 3, first_nodes(3), true);
  round.voted(0, 7);
  round.voted(1, 7);

  round.voted(2, 100);

  EXPECT_EQ(round.token(), 7U);
  EXPECT_EQ(round.result(), verdict::won);
  EXPECT_EQ(round.take_raises(), 0U);
}

TEST(TokenRound, IsLostWhenTooManyAreNotRaised) {
  token_round round(5, 5, first_nodes(5), true);
  for (node_number node = 0; node < 3; ++node) round.voted(node, 10 + node);
  ASSERT_EQ(round.take_raises(), only(0) | only(1));

  round.not_raised(1);

  EXPECT_EQ(round.result(), verdict::lost);
}

TEST(TokenRound, DoesNotTakeBackAWin) {
  token_round round(3, 3, first_nodes(3), true);
  round.voted(0, 7);
  round.voted(1, 7);
  round.failed(2);
  round.not_raised(0);
  round.refused(0);
  round.failed(1);

  EXPECT_EQ(round.result(), verdict::won);
  EXPECT_EQ(round.voters(), only(0) | only(1));
  EXPECT_EQ(round.failures(), only(2));
}

TEST(TokenRound, HearsEachNodeOnce) {
  token_round round(3, 3, first_nodes(3), true);
  round.voted(0, 7);
  round.voted(0, 70);
  round.refused(0);
  round.refused(1);
  round.voted(1, 90);

  EXPECT_EQ(round.voters(), only(0));
  EXPECT_EQ(round.refusals(), only(1));
  EXPECT_EQ(round.heard(), only(0) | only(1));
  round.voted(2, 8);
  EXPECT_EQ(round.token(), 8U);
}

TEST(TokenRound, CountsARaiseOnlyFromWhoeverWasAsked) {
  token_round round(3, 3, first_nodes(3), true);
  round.raised(0);
  round.raised(2);
  round.voted(0, 7);
  round.voted(1, 9);
  ASSERT_EQ(round.take_raises(), only(0));

  round.raised(2);
  EXPECT_EQ(round.result(), verdict::open);
  round.not_raised(0);
  round.raised(0);

  EXPECT_EQ(round.result(), verdict::lost);
}

TEST(TokenRound, TakesThoseWhoWereNotAskedForFailed) {
  token_round round(5, 5, only(0) | only(3), true);

  EXPECT_EQ(round.result(), verdict::lost);
  EXPECT_EQ(round.failures(), only(1) | only(2) | only(4));
  round.voted(1, 5);
  EXPECT_EQ(round.voters(), 0U);
}

TEST(TokenRound, LetsVotesAloneDecideWithoutDraws) {
  token_round round(3, 3, first_nodes(3), false);
  round.voted(0, 0);
  round.voted(2, 9);

  EXPECT_EQ(round.result(), verdict::won);
  EXPECT_EQ(round.take_raises(), 0U);
  round.voted(1, 0);
  EXPECT_EQ(round.take_raises(), 0U);
}

struct arithmetic {
  unsigned nodes;
  unsigned needed;  // votes
  unsigned spare;   // so many may say no, or nothing
};

class TokenRoundOf : public ::testing::TestWithParam<arithmetic> {};

TEST_P(TokenRoundOf, NeedsAMajorityOfAllNodes) {
  const auto [nodes, needed, spare] = GetParam();
  token_round round(nodes, nodes, first_nodes(nodes), true);
  for (node_number node = 0; node < needed; ++node) {
    EXPECT_EQ(round.result(), verdict::open) << node;
    round.voted(node, 3);
  }
  EXPECT_EQ(round.result(), verdict::won);
}

TEST_P(TokenRoundOf, IsLostWithTheFirstNoTooMany) {
  const auto [nodes, needed, spare] = GetParam();
  for (const bool silent : {false, true}) {
    token_round round(nodes, nodes, first_nodes(nodes), true);
    for (node_number node = 0; node <= spare; ++node) {
      EXPECT_EQ(round.result(), verdict::open) << node;
      if (silent) {
        round.failed(node);
      } else {
        round.refused(node);
      }
    }
    EXPECT_EQ(round.result(), verdict::lost);
    EXPECT_EQ(count(silent ? round.failures() : round.refusals()), spare + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TokenRoundOf,
                         ::testing::Values(arithmetic{1, 1, 0}, arithmetic{2, 2, 0},
                                           arithmetic{3, 2, 1}, arithmetic{4, 3, 1},
                                           arithmetic{5, 3, 2}, arithmetic{7, 4, 3},
                                           arithmetic{15, 8, 7}),
                         [](const auto& each) { return std::to_string(each.param.nodes); });

/// The rules once more, over the whole history and without a thought for speed.
class plain_rules {
 public:
  plain_rules(unsigned nodes, node_set asked, bool draws)
      : nodes_(nodes), asked_(asked), draws_(draws) {}

  void vote(node_number node, std::uint64_t counter) {
    if (first_word(node)) votes_.emplace_back(node, counter);
  }
  void silence(node_number node) { first_word(node); }
  void raise(node_number node, bool done) {
    if (was_asked_to_raise(node) && !has(raise_heard_, node)) {
      raise_heard_.push_back(node);
      if (done) raised_.push_back(node);
    }
  }

  [[nodiscard]] std::uint64_t token() const {
    std::uint64_t largest = 0;
    for (unsigned i = 0; draws_ && i < majority() && fixed(); ++i) {
      largest = std::max(largest, votes_[i].second);
    }
    return largest;
  }
  [[nodiscard]] node_set to_raise() const {
    node_set all = 0;
    for (const auto& [node, counter] : votes_) {
      if (fixed() && draws_ && counter < token()) all |= only(node);
    }
    return all;
  }
  [[nodiscard]] verdict result() const {
    unsigned sure = 0;
    unsigned possible = 0;
    if (!fixed()) {
      for (node_number node = 0; node < nodes_; ++node) {
        const bool silent = (asked_ & only(node)) != 0 && !has(spoken_, node);
        possible += silent ? 1U : 0U;
      }
      possible += static_cast<unsigned>(votes_.size());
    } else {
      for (unsigned i = 0; i < majority(); ++i) {
        const auto& [node, counter] = votes_[i];
        const bool at_token = !draws_ || counter == token() || has(raised_, node);
        sure += at_token ? 1U : 0U;
        possible += at_token || !has(raise_heard_, node) ? 1U : 0U;
      }
    }
    if (sure >= majority()) return verdict::won;
    return possible >= majority() ? verdict::open : verdict::lost;
  }

 private:
  static bool has(const std::vector<node_number>& all, node_number which) {
    return std::find(all.begin(), all.end(), which) != all.end();
  }
  [[nodiscard]] unsigned majority() const { return nodes_ / 2 + 1; }
  [[nodiscard]] bool fixed() const { return votes_.size() >= majority(); }
  [[nodiscard]] bool was_asked_to_raise(node_number node) const {
    for (unsigned i = 0; i < majority() && fixed(); ++i) {
      if (votes_[i].first == node && draws_ && votes_[i].second < token()) return true;
    }
    return false;
  }
  bool first_word(node_number node) {
    if ((asked_ & only(node)) == 0 || has(spoken_, node)) return false;
    spoken_.push_back(node);
    return true;
  }

  const unsigned nodes_;
  const node_set asked_;
  const bool draws_;
  std::vector<std::pair<node_number, std::uint64_t>> votes_;  // in the order of their coming
  std::vector<node_number> spoken_;
  std::vector<node_number> raise_heard_;
  std::vector<node_number> raised_;
};

TEST(TokenRound, AgreesWithThePlainRulesWhateverHappens) {
  base::random source(20'240'817);
  for (int run = 0; run < 20'000; ++run) {
    const auto nodes = static_cast<unsigned>(1 + source.below(7));
    node_set asked = first_nodes(nodes);
    if (source.chance(0.3)) asked &= static_cast<node_set>(source.below(1U << nodes));
    const bool draws = source.chance(0.8);
    token_round round(nodes, nodes, asked, draws);
    plain_rules rules(nodes, asked, draws);
    node_set told_to_raise = 0;
    for (int step = 0; step < 25; ++step) {
      const auto node = static_cast<node_number>(source.below(nodes));
      const std::uint64_t counter = 1 + source.below(4);
      switch (source.below(6)) {
        case 0:
        case 1:
          round.voted(node, counter);
          rules.vote(node, counter);
          break;
        case 2:
          round.refused(node);
          rules.silence(node);
          break;
        case 3:
          round.failed(node);
          rules.silence(node);
          break;
        case 4:
          round.raised(node);
          rules.raise(node, true);
          break;
        default:
          round.not_raised(node);
          rules.raise(node, false);
          break;
      }
      const node_set raises = round.take_raises();
      ASSERT_EQ(raises & told_to_raise, 0U) << "run " << run;
      told_to_raise |= raises;
      ASSERT_EQ(round.result(), rules.result()) << "run " << run << ", step " << step;
      ASSERT_EQ(round.token(), rules.token()) << "run " << run << ", step " << step;
      ASSERT_EQ(told_to_raise, rules.to_raise()) << "run " << run << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace sallyport::backends::redlock
