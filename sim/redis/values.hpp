#pragma once

#include "sim/redis/numbers.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::sim::redis {

/// A hash, ordered by field: real Redis promises no order, so this one is at least always the same.
/// A sorted vector, because locks have few fields and make and drop hashes all the time.
class hash_value {
 public:
  struct pair {
    std::string field;
    std::string value;
    friend bool operator==(const pair&, const pair&) = default;
  };

  [[nodiscard]] const std::string* find(std::string_view field) const;
  [[nodiscard]] std::string* find(std::string_view field);
  /// Whether the field is new.
  bool set(std::string_view field, std::string_view value);
  bool erase(std::string_view field);
  [[nodiscard]] const std::vector<pair>& pairs() const noexcept { return pairs_; }
  [[nodiscard]] bool empty() const noexcept { return pairs_.empty(); }

  friend bool operator==(const hash_value&, const hash_value&) = default;

 private:
  std::vector<pair> pairs_;
};

/// A sorted set: by score, then by the member's bytes. A sorted vector whose members are searched one
/// by one: queues of locks are short.
class sorted_set_value {
 public:
  struct element {
    double score = 0;
    std::string member;
    friend bool operator==(const element&, const element&) = default;
  };
  /// Ranks [first, last).
  struct ranks {
    std::size_t first = 0;
    std::size_t last = 0;
  };

  [[nodiscard]] std::optional<std::size_t> rank_of(std::string_view member) const;
  [[nodiscard]] const std::vector<element>& elements() const noexcept { return elements_; }
  [[nodiscard]] std::size_t size() const noexcept { return elements_.size(); }
  [[nodiscard]] bool empty() const noexcept { return elements_.empty(); }
  [[nodiscard]] ranks between(const score_limit& low, const score_limit& high) const;

  /// REQUIRES: `member` is not in it, and `score` is no NaN.
  void insert(std::string_view member, double score);
  void erase(ranks which);
  void erase(std::size_t rank) { erase(ranks{rank, rank + 1}); }

  friend bool operator==(const sorted_set_value&, const sorted_set_value&) = default;

 private:
  std::vector<element> elements_;
};

}  // namespace sallyport::sim::redis
