#include "fence/retry.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace sallyport::fence {

retry::retry(const limits& within)
    : within_(within), span_(std::min(within.first_pause, within.longest_pause)) {
  SALLYPORT_CHECK(within.most_attempts >= 1);
  SALLYPORT_CHECK(within.first_pause >= lease_clock::duration::zero());
}

std::optional<lease_clock::duration> retry::after_failure(lease_clock::time_point now,
                                                          double draw) {
  SALLYPORT_CHECK(draw >= 0 && draw < 1);
  ++failures_;
  if (failures_ >= within_.most_attempts || now >= within_.deadline) return std::nullopt;
  const lease_clock::duration pause{
      static_cast<lease_clock::rep>(static_cast<double>(span_.count()) * draw)};
  span_ = span_ > within_.longest_pause / 2 ? within_.longest_pause : span_ * 2;
  // To wait for an attempt that must not be made would only hold up the caller.
  if (pause > within_.deadline - now) return std::nullopt;
  return pause;
}

}  // namespace sallyport::fence
