#pragma once

#include "runtime/lease_record.hpp"

#include <memory>
#include <utility>

namespace sallyport::runtime {

/// Turns that were lost, in order, whose lost() tokens are still to be fired. The links are in the
/// records, so that a loss never needs memory; a turn is lost once, so there are never more than
/// there are leases.
/// Thread safety: none.
class lost_turns {
 public:
  lost_turns() = default;
  lost_turns(lost_turns&& other) noexcept
      : first_(std::move(other.first_)), last_(std::exchange(other.last_, nullptr)) {}
  lost_turns& operator=(lost_turns&&) = delete;
  ~lost_turns() {
    while (pop()) continue;  // one by one: a long chain would end itself by recursion
  }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  void push(std::shared_ptr<lease_record> turn) noexcept {
    lease_record* const added = turn.get();
    (last_ == nullptr ? first_ : last_->next_lost) = std::move(turn);
    last_ = added;
  }
  void append(lost_turns more) noexcept {
    if (more.empty()) return;
    (last_ == nullptr ? first_ : last_->next_lost) = std::move(more.first_);
    last_ = std::exchange(more.last_, nullptr);
  }
  /// The first; null when there is none.
  std::shared_ptr<lease_record> pop() noexcept {
    std::shared_ptr<lease_record> turn = std::move(first_);
    if (turn) first_ = std::move(turn->next_lost);
    if (!first_) last_ = nullptr;
    return turn;
  }

 private:
  std::shared_ptr<lease_record> first_;
  lease_record* last_ = nullptr;
};

}  // namespace sallyport::runtime
