#include "runtime/timer_queue.hpp"

#include <algorithm>

namespace sallyport::runtime {

void timer_queue::reserve(std::size_t timers) {
  if (timers > heap_.capacity()) heap_.reserve(std::max(timers, 2 * heap_.capacity()));
}

void timer_queue::arm(timer& which, time_point when) {
  if (when == time_point::max()) {
    disarm(which);
    return;
  }
  if (!which.armed()) {
    which.when_ = when;
    heap_.push_back(&which);
    which.slot_ = static_cast<std::uint32_t>(heap_.size() - 1);
    sift_up(which.slot_);
    return;
  }
  const bool earlier = when < which.when_;
  which.when_ = when;
  if (earlier) {
    sift_up(which.slot_);
  } else {
    sift_down(which.slot_);
  }
}

void timer_queue::disarm(timer& which) noexcept {
  if (!which.armed()) return;
  const std::size_t slot = which.slot_;
  which.slot_ = timer::unarmed;
  timer* const last = heap_.back();
  heap_.pop_back();
  if (last == &which) return;
  place(slot, last);
  sift_up(slot);
  sift_down(last->slot_);
}

timer* timer_queue::pop_due(time_point now) noexcept {
  if (heap_.empty() || heap_.front()->when_ > now) return nullptr;
  timer* const due = heap_.front();
  disarm(*due);
  return due;
}

time_point timer_queue::next() const noexcept {
  return heap_.empty() ? time_point::max() : heap_.front()->when_;
}

void timer_queue::place(std::size_t slot, timer* which) noexcept {
  heap_[slot] = which;
  which->slot_ = static_cast<std::uint32_t>(slot);
}

void timer_queue::sift_up(std::size_t slot) noexcept {
  timer* const moving = heap_[slot];
  while (slot > 0) {
    const std::size_t parent = (slot - 1) / 2;
    if (heap_[parent]->when_ <= moving->when_) break;
    place(slot, heap_[parent]);
    slot = parent;
  }
  place(slot, moving);
}

void timer_queue::sift_down(std::size_t slot) noexcept {
  timer* const moving = heap_[slot];
  for (;;) {
    std::size_t child = 2 * slot + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->when_ < heap_[child]->when_) ++child;
    if (moving->when_ <= heap_[child]->when_) break;
    place(slot, heap_[child]);
    slot = child;
  }
  place(slot, moving);
}

}  // namespace sallyport::runtime
