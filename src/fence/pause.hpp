#pragma once

#include <sallyport/lease_clock.hpp>

#include <stop_token>

namespace sallyport::fence {

/// Waits on the calling thread. False as soon as `stop` is requested: then the rest is not waited for.
[[nodiscard]] bool pause_for(lease_clock::duration span, const std::stop_token& stop);

}  // namespace sallyport::fence
