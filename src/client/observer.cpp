#include <sallyport/observer.hpp>

namespace sallyport {

std::string_view to_string(event_reason reason) noexcept {
  switch (reason) {
    case event_reason::none:
      return "none";
    case event_reason::not_renewed:
      return "not renewed";
    case event_reason::disconnected:
      return "disconnected";
    case event_reason::ended:
      return "ended";
    case event_reason::taken_away:
      return "taken away";
  }
  return "none";
}

metrics::snapshot metrics::read() const {
  return {.waiting = waiting_,
          .acquired = acquired_,
          .not_acquired = not_acquired_,
          .failed = failed_,
          .renewed = renewed_,
          .suspect = suspect_,
          .lost = lost_,
          .released = released_,
          .release_unknown = release_unknown_,
          .release_wanted = release_wanted_,
          .store_away = store_away_,
          .store_back = store_back_,
          .missed = missed_,
          .waited = std::chrono::nanoseconds{waited_ns_},
          .held = std::chrono::nanoseconds{held_ns_},
          .away = std::chrono::nanoseconds{away_ns_}};
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

void metrics::release_unknown(const lock_event& event) {
  ++release_unknown_;
  held_ns_ += event.took.count();
}

void metrics::release_wanted(const lock_event&) { ++release_wanted_; }
void metrics::store_away(const store_event&) { ++store_away_; }

void metrics::store_back(const store_event& event) {
  ++store_back_;
  away_ns_ += event.away.count();
}

void metrics::missed(std::uint64_t events) { missed_ += events; }

}  // namespace sallyport
