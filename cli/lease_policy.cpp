#include "cli/lease_policy.hpp"

#include <algorithm>

namespace sallyport::cli {

using std::chrono::milliseconds;

lease_policy::lease_policy(milliseconds lease_length, milliseconds grace, bool fixed)
    : kill_ahead_(std::clamp(lease_length / 100, milliseconds{10}, milliseconds{250})),
      grace_(fixed ? grace : std::min(grace, lease_length * 3 / 10)),
      // Often enough that the guard learns of every renewal well before the deadline it knows.
      look_every_(std::max(lease_length / 12, milliseconds{1})),
      fixed_(fixed) {
  grace_ = std::max(grace_, kill_ahead_);
}

lease_policy::decision lease_policy::decide(lease_state state, lease_clock::time_point deadline,
                                            lease_clock::time_point now) const {
  const auto regular = now + look_every_;
  if (state == lease_state::lost || now >= deadline - kill_ahead_) return {step::kill, regular};
  if (now < deadline - grace_) return {step::none, std::min(regular, deadline - grace_)};
  if (fixed_ || state == lease_state::suspect) {
    return {step::terminate, std::min(regular, deadline - kill_ahead_)};
  }
  const auto soon = now + std::max(grace_ / 16, milliseconds{1});
  return {step::none, std::min(soon, deadline - kill_ahead_)};
}

}  // namespace sallyport::cli
