#include "sim/redis/values.hpp"

#include <algorithm>

namespace sallyport::sim::redis {
namespace {

template <class Pairs>
auto first_not_before(Pairs& pairs, std::string_view field) {
  return std::lower_bound(pairs.begin(), pairs.end(), field,
                          [](const auto& pair, std::string_view wanted) {
                            return std::string_view(pair.field) < wanted;
                          });
}

}  // namespace

const std::string* hash_value::find(std::string_view field) const {
  const auto found = first_not_before(pairs_, field);
  return found != pairs_.end() && found->field == field ? &found->value : nullptr;
}

std::string* hash_value::find(std::string_view field) {
  return const_cast<std::string*>(std::as_const(*this).find(field));
}

bool hash_value::set(std::string_view field, std::string_view value) {
  const auto found = first_not_before(pairs_, field);
  if (found != pairs_.end() && found->field == field) {
    found->value = value;
    return false;
  }
  pairs_.insert(found, pair{std::string(field), std::string(value)});
  return true;
}

bool hash_value::erase(std::string_view field) {
  const auto found = first_not_before(pairs_, field);
  if (found == pairs_.end() || found->field != field) return false;
  pairs_.erase(found);
  return true;
}

std::optional<std::size_t> sorted_set_value::rank_of(std::string_view member) const {
  const auto found =
      std::find_if(elements_.begin(), elements_.end(),
                   [&](const element& candidate) { return candidate.member == member; });
  if (found == elements_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - elements_.begin());
}

sorted_set_value::ranks sorted_set_value::between(const score_limit& low,
                                                  const score_limit& high) const {
  const auto first =
      std::partition_point(elements_.begin(), elements_.end(), [&](const element& each) {
        return low.exclusive ? each.score <= low.value : each.score < low.value;
      });
  const auto last = std::partition_point(first, elements_.end(), [&](const element& each) {
    return high.exclusive ? each.score < high.value : each.score <= high.value;
  });
  return {static_cast<std::size_t>(first - elements_.begin()),
          static_cast<std::size_t>(last - elements_.begin())};
}

void sorted_set_value::insert(std::string_view member, double score) {
  // A negative zero is stored as an integer, and so comes out as 0.
  element made{score == 0 ? 0 : score, std::string(member)};
  const auto place = std::upper_bound(elements_.begin(), elements_.end(), made,
                                      [](const element& left, const element& right) {
                                        if (left.score != right.score)
                                          return left.score < right.score;
                                        return left.member < right.member;
                                      });
  elements_.insert(place, std::move(made));
}

void sorted_set_value::erase(ranks which) {
  elements_.erase(elements_.begin() + static_cast<std::ptrdiff_t>(which.first),
                  elements_.begin() + static_cast<std::ptrdiff_t>(which.last));
}

}  // namespace sallyport::sim::redis
