#pragma once

#include <cstdint>
#include <vector>

namespace sallyport::backends::redlock {

using node_number = std::uint32_t;
/// A set of nodes, one bit each.
using node_set = std::uint32_t;
inline constexpr node_number most_nodes = 15;

[[nodiscard]] inline constexpr node_set only(node_number node) noexcept { return 1U << node; }
[[nodiscard]] inline unsigned count(node_set nodes) noexcept {
  return static_cast<unsigned>(__builtin_popcount(nodes));
}

template <class Visit>
void for_each(node_set nodes, Visit visit) {
  for (node_number node = 0; node < most_nodes; ++node) {
    if ((nodes & only(node)) != 0) visit(node);
  }
}

[[nodiscard]] unsigned majority_of(unsigned nodes) noexcept;

/// One round of votes and the token that comes out of it. The rules, each of which a model in models/
/// shows to be needed:
///   - the token is fixed once, as the largest counter among those that had voted by then, who are
///     at least a majority;
///   - it counts when a majority *of those voters* has a counter of at least that much while it still
///     gives its vote to this contender (the raise is conditional on that, and acknowledged);
///   - whoever votes later is the holder's too, but does not count for the token.
/// Pure; thread safety: none.
class token_round {
 public:
  enum class verdict : std::uint8_t { open, won, lost };

  /// `members`: how many nodes the store has. `asked`: who may vote, of the `listed` nodes that have a
  /// number; the others count as failed. Without `draws` votes alone decide.
  token_round(unsigned members, unsigned listed, node_set asked, bool draws) noexcept;

  /// A vote, with the node's counter.
  void voted(node_number node, std::uint64_t counter);
  /// It votes for somebody else, or for nobody.
  void refused(node_number node) { closed(node, refused_); }
  /// No answer will come.
  void failed(node_number node) { closed(node, failed_); }
  /// The raise was done while the node still voted for this contender.
  void raised(node_number node);
  /// It was not: somebody else has the node's vote.
  void not_raised(node_number node);
  /// Whether it was done will not be known.
  void raise_failed(node_number node);

  [[nodiscard]] verdict result() const noexcept;
  /// Whom to ask to raise its counter to token(); each is told once. Late voters are among them:
  /// their answers do not matter.
  [[nodiscard]] node_set take_raises() noexcept;

  [[nodiscard]] std::uint64_t token() const noexcept { return token_; }
  [[nodiscard]] node_set voters() const noexcept { return voters_ | late_; }
  [[nodiscard]] node_set refusals() const noexcept { return refused_; }
  /// Some node gave its vote to somebody else.
  [[nodiscard]] bool met_another() const noexcept { return refused_ != 0 || overtaken_; }
  [[nodiscard]] node_set failures() const noexcept { return failed_; }
  /// How many members failed; those that were not asked did.
  [[nodiscard]] unsigned failed_members() const noexcept {
    return members_ - count(asked_) + count(failed_ & asked_);
  }
  /// Who has said something.
  [[nodiscard]] node_set heard() const noexcept { return voters_ | late_ | refused_; }
  [[nodiscard]] node_set unheard() const noexcept { return open_; }

 private:
  void closed(node_number node, node_set& where) noexcept;
  void fix();
  [[nodiscard]] bool fixed() const noexcept { return fixed_; }

  const unsigned members_;
  const unsigned majority_;
  const node_set asked_;
  const bool draws_;
  node_set open_;  // asked, and not heard of
  node_set voters_ = 0;
  node_set late_ = 0;  // voted after the token was fixed
  node_set refused_ = 0;
  node_set failed_;
  node_set agreed_ = 0;   // of the voters, those whose counter is at the token
  node_set raising_ = 0;  // of the voters, those whose raise is under way
  node_set to_raise_ = 0;
  bool fixed_ = false;
  bool overtaken_ = false;
  std::uint64_t token_ = 0;
  std::vector<std::uint64_t> counters_;
};

}  // namespace sallyport::backends::redlock
