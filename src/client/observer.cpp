#include <sallyport/observer.hpp>

namespace sallyport {

metrics::snapshot metrics::read() const {
  return {.waiting = waiting_,
          .acquired = acquired_,
          .not_acquired = not_acquired_,
          .failed = failed_,
          .renewed = renewed_,
          .suspect = suspect_,
          .lost = lost_,
          .released = released_,
          .release_wanted = release_wanted_,
          .missed = missed_,
          .waited = std::chrono::nanoseconds{waited_ns_},
          .held = std::chrono::nanoseconds{held_ns_}};
}

void metrics::waiting(const lock_event&) { ++waiting_; }

void metrics::acquired(const lock_event& event) {
  ++acquired_;
  waited_ns_ += event.took.count();
}

void metrics::not_acquired(const lock_event&) { ++not_acquired_; }
void metrics::failed(const lock_event&) { ++failed_; }
void metrics::renewed(const lock_event&) { ++renewed_; }
void metrics::suspect(const lock_event&) { ++suspect_; }

void metrics::lost(const lock_event& event) {
  ++lost_;
  held_ns_ += event.took.count();
}

void metrics::released(const lock_event& event) {
  ++released_;
  held_ns_ += event.took.count();
}

void metrics::release_wanted(const lock_event&) { ++release_wanted_; }
void metrics::missed(std::uint64_t events) { missed_ += events; }

}  // namespace sallyport
