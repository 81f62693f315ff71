#include "base/wall_clock.hpp"

#include <chrono>

namespace sallyport::base {

std::int64_t wall_clock_ms() noexcept {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
}

}  // namespace sallyport::base
