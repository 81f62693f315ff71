#include "backends/redlock/token_round.hpp"

#include "base/planted.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::backends::redlock {

using base::defect;
using base::planted;

unsigned majority_of(unsigned nodes) noexcept {
  if (planted(defect::half_is_enough) && nodes > 1) return nodes / 2;
  return nodes / 2 + 1;
}

token_round::token_round(unsigned members, unsigned listed, node_set asked, bool draws) noexcept
    : members_(members),
      majority_(majority_of(members)),
      asked_(asked),
      draws_(draws),
      open_(asked),
      failed_(((1U << listed) - 1) & ~asked),
      counters_(listed, 0) {}

void token_round::closed(node_number node, node_set& where) noexcept {
  if ((open_ & only(node)) == 0) return;
  open_ &= ~only(node);
  where |= only(node);
}

void token_round::voted(node_number node, std::uint64_t counter) {
  if ((open_ & only(node)) == 0) return;
  open_ &= ~only(node);
  counters_[node] = counter;
  if (fixed_) {
    late_ |= only(node);
    if (draws_ && counter < token_) to_raise_ |= only(node);
    if (planted(defect::late_voter_counts)) (counter < token_ ? raising_ : agreed_) |= only(node);
    return;
  }
  voters_ |= only(node);
  if (count(voters_) >= majority_) fix();
}

void token_round::fix() {
  fixed_ = true;
  if (!draws_) {
    agreed_ = voters_;
    return;
  }
  token_ = *std::max_element(counters_.begin(), counters_.end());
  for (node_number node = 0; node < counters_.size(); ++node) {
    if ((voters_ & only(node)) == 0) continue;
    if (counters_[node] == token_) {
      agreed_ |= only(node);
    } else if (planted(defect::raise_not_awaited)) {
      to_raise_ |= only(node);
      agreed_ |= only(node);
    } else {
      to_raise_ |= only(node);
      raising_ |= only(node);
    }
  }
}

void token_round::raised(node_number node) {
  if ((raising_ & only(node)) == 0) return;
  raising_ &= ~only(node);
  agreed_ |= only(node);
}

void token_round::not_raised(node_number node) {
  overtaken_ = overtaken_ || (raising_ & only(node)) != 0;
  raising_ &= ~only(node);
}

void token_round::raise_failed(node_number node) {
  if (((voters_ | late_) & only(node)) != 0) failed_ |= only(node);
  raising_ &= ~only(node);
}

node_set token_round::take_raises() noexcept { return std::exchange(to_raise_, 0); }

token_round::verdict token_round::result() const noexcept {
  if (!fixed_) {
    return count(voters_ | open_) >= majority_ ? verdict::open : verdict::lost;
  }
  if (count(agreed_) >= majority_) return verdict::won;
  return count(agreed_ | raising_) >= majority_ ? verdict::open : verdict::lost;
}

}  // namespace sallyport::backends::redlock
