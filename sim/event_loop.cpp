#include "sim/event_loop.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::sim {

void event_loop::at(true_time when, std::function<void()> what) {
  if (when == never) return;
  heap_.push_back({std::max(when, now_), next_sequence_++, std::move(what)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

bool event_loop::step(true_time limit) {
  if (heap_.empty() || heap_.front().when > limit) {
    now_ = std::max(now_, limit);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), later);
  event next = std::move(heap_.back());
  heap_.pop_back();
  now_ = next.when;
  ++events_run_;
  next.what();
  return true;
}

}  // namespace sallyport::sim
