#include "sim/store.hpp"

#include <utility>

namespace sallyport::sim {

void server::arrive(std::function<void()> serve) {
  if (down_) return;
  if (paused_) {
    backlog_.push_back(std::move(serve));
  } else {
    serve();
  }
}

void server::resume() {
  paused_ = false;
  for (auto& serve : std::exchange(backlog_, {})) serve();
}

void server::stop() {
  down_ = true;
  backlog_.clear();
}

sim_clock draw_store_clock(base::random& random, time_point start) {
  constexpr std::int64_t drift_in_model = 5000;  // parts per million
  return {start, static_cast<std::int64_t>(random.below(2 * drift_in_model + 1)) - drift_in_model};
}

}  // namespace sallyport::sim
