#include "core/timing.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace sallyport::core {

timing make_timing(const timing_inputs& inputs) {
  SALLYPORT_CHECK(inputs.lease_length > duration::zero());
  SALLYPORT_CHECK(inputs.heartbeat > duration::zero());
  timing out;
  out.lease_length = inputs.lease_length;
  if (inputs.lease_granularity > duration::zero()) {
    const auto steps =
        (inputs.lease_length + inputs.lease_granularity - duration{1}) / inputs.lease_granularity;
    out.lease_length = inputs.lease_granularity * steps;
  }
  const auto drifted = static_cast<double>(out.lease_length.count()) * inputs.clock_drift;
  out.margin = duration{static_cast<duration::rep>(drifted)} + inputs.expiry_granularity;
  // The margin is taken off the window too; without it a long lease's margin would eat the window
  // up.
  out.claim_window =
      std::min(out.lease_length, heartbeats_per_claim_window * inputs.heartbeat + out.margin);
  out.claim_delay = std::min(inputs.claim_delay, out.claim_window / claim_delays_per_window);
  // Short leases have short windows; the heartbeat follows, so that a grant's notice always finds a
  // young proof.
  out.heartbeat = std::min(inputs.heartbeat, out.claim_window / heartbeats_per_claim_window);
  out.ticket_length = heartbeats_per_ticket * out.heartbeat + inputs.request_timeout;
  out.request_timeout = inputs.request_timeout;
  out.store_patience = inputs.store_patience;
  out.renew = inputs.renew;
  return out;
}

std::uint32_t ticket_stretch_of(const backend_api::waiting& answer) {
  return std::clamp<std::uint32_t>(answer.ticket_stretch, 1, max_ticket_stretch);
}

duration pause_of_waiter(const timing& times, const backend_api::waiting& answer, time_point sent,
                         const last_question& before) {
  const duration allowed = times.heartbeat * ticket_stretch_of(answer);
  duration pause = std::min(allowed, before.pause * pause_growth);
  if (answer.ahead < before.ahead) {
    const double places_left = answer.ahead;
    const double places_gained = before.ahead - answer.ahead;
    const auto took = static_cast<double>((sent - before.sent).count());
    const double until_first = took * places_left / places_gained;
    pause = duration{static_cast<duration::rep>(
        std::min(static_cast<double>(pause.count()), until_first / questions_until_first))};
  }
  return std::max(pause, times.heartbeat);
}

duration backoff(std::uint32_t failures, duration first, duration cap, double draw) {
  const std::uint32_t doublings = std::min<std::uint32_t>(failures, 16);
  const duration full = std::min(cap, first * (1 << doublings));
  const duration half = full / 2;
  return half + duration{static_cast<duration::rep>(static_cast<double>(half.count()) * draw)};
}

}  // namespace sallyport::core
