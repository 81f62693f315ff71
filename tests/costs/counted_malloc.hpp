#pragma once

#include <cstdint>

namespace sallyport::costs {

/// How often this process has asked for memory, on any thread and from any library: malloc, calloc,
/// realloc and aligned_alloc, which `new` calls as well.
[[nodiscard]] std::uint64_t allocations() noexcept;

}  // namespace sallyport::costs
