#pragma once

#include <cstdint>

namespace sallyport::base {

/// Milliseconds since 1970 by this machine's wall clock. For people alone: nothing is decided by it.
[[nodiscard]] std::int64_t wall_clock_ms() noexcept;

}  // namespace sallyport::base
