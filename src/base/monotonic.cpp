#include "base/monotonic.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace sallyport::base {

timespec monotonic_after(std::chrono::nanoseconds span) noexcept {
  using std::chrono::nanoseconds;
  constexpr nanoseconds second = std::chrono::seconds{1};
  timespec when{};
  SALLYPORT_CHECK(clock_gettime(CLOCK_MONOTONIC, &when) == 0);
  const nanoseconds ahead =
      nanoseconds{when.tv_nsec} +
      std::clamp(span, nanoseconds::zero(), nanoseconds{std::chrono::hours{1}});
  when.tv_sec += ahead / second;
  when.tv_nsec = (ahead % second).count();
  return when;
}

}  // namespace sallyport::base
