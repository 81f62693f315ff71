#pragma once

#include <chrono>
#include <ctime>

namespace sallyport::base {

/// The moment `span` from now by CLOCK_MONOTONIC, for the few waits that the system counts by that
/// clock only. At most an hour ahead; a negative span is now.
timespec monotonic_after(std::chrono::nanoseconds span) noexcept;

}  // namespace sallyport::base
