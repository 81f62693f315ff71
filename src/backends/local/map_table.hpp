#pragma once

#include "backends/local/table.hpp"

#include <deque>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sallyport::backends::local {

/// The records of a store in memory, for tests and the simulator.
using map_records = std::map<std::string, std::string, std::less<>>;

/// One transaction over them. What is not committed is undone.
///
/// Stricter than the table asks for: what was lent is overwritten at the next change, so that
/// somebody who still looks at it sees nonsense, and does not go on by luck.
/// Thread safety: none. One at a time.
class map_table final : public table {
 public:
  explicit map_table(map_records& records) : records_(records) {}
  ~map_table() override {
    for (; !before_.empty(); before_.pop_back()) {
      auto& [key, value] = before_.back();
      if (value) {
        records_[key] = std::move(*value);
      } else {
        records_.erase(key);
      }
    }
  }

  /// REQUIRES: nothing failed.
  void commit() noexcept { before_.clear(); }
  /// Whether there is anything to commit.
  [[nodiscard]] bool changed() const noexcept { return !before_.empty(); }
  [[nodiscard]] const std::optional<base::failure>& why_failed() const noexcept { return failed_; }

  std::optional<std::string_view> get(std::string_view key) override {
    if (failed_) return std::nullopt;
    const auto found = records_.find(key);
    if (found == records_.end()) return std::nullopt;
    return lend(found->second);
  }
  std::optional<entry> at_or_after(std::string_view key) override {
    if (failed_) return std::nullopt;
    const auto found = records_.lower_bound(key);
    if (found == records_.end()) return std::nullopt;
    return entry{lend(found->first), lend(found->second)};
  }
  std::optional<entry> before(std::string_view key) override {
    if (failed_) return std::nullopt;
    auto found = records_.lower_bound(key);
    if (found == records_.begin()) return std::nullopt;
    --found;
    return entry{lend(found->first), lend(found->second)};
  }
  void put(std::string_view key, std::initializer_list<std::string_view> parts) override {
    if (failed_) return;
    std::string value;
    spoil_what_was_lent();
    for (const std::string_view part : parts) value += part;
    const auto [place, fresh] = records_.try_emplace(std::string(key));
    before_.emplace_back(place->first, fresh ? std::nullopt : std::optional(place->second));
    place->second = std::move(value);
  }
  void remove(std::string_view key) override {
    if (failed_) return;
    const std::string own_key(key);
    spoil_what_was_lent();
    const auto found = records_.find(own_key);
    if (found == records_.end()) return;
    before_.emplace_back(own_key, std::move(found->second));
    records_.erase(found);
  }
  void fail(base::failure why) override {
    if (!failed_) failed_ = std::move(why);
  }
  [[nodiscard]] bool failed() const override { return failed_.has_value(); }

 private:
  std::string_view lend(const std::string& text) { return lent_.emplace_back(text); }
  void spoil_what_was_lent() {
    for (std::string& each : lent_) each.assign(each.size(), '\xdd');
    lent_.clear();
  }

  map_records& records_;
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;  // in order
  std::deque<std::string> lent_;
  std::optional<base::failure> failed_;
};

}  // namespace sallyport::backends::local
