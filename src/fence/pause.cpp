#include "fence/pause.hpp"

#include <condition_variable>
#include <mutex>

namespace sallyport::fence {

bool pause_for(lease_clock::duration span, const std::stop_token& stop) {
  if (span > lease_clock::duration::zero() && !stop.stop_requested()) {
    std::mutex mutex;
    std::condition_variable_any never_notified;
    std::unique_lock held{mutex};
    never_notified.wait_for(held, stop, span, [] { return false; });
  }
  return !stop.stop_requested();
}

}  // namespace sallyport::fence
