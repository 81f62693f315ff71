#pragma once

#include <atomic>
#include <cstdint>

namespace sallyport::kit {

/// What the file of a shifted clock holds: mapped by the test, which writes, and by every process
/// with the preloaded library, which reads at each look at the clock. A file of zeros is the real
/// time. The slot that is not in use is written, then taken into use: a reader never sees half of a
/// change, and a writer that dies leaves nobody waiting.
struct clock_page {
  static constexpr std::int64_t offset = 0;
  static constexpr std::int64_t frozen = 1;

  struct slot {
    std::atomic<std::int64_t> mode;
    std::atomic<std::int64_t> microseconds;  // to be added, or since 1970
  };

  std::atomic<std::uint64_t> changes;  // slots[changes % 2] is in use
  slot slots[2];
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "shared between processes");
static_assert(sizeof(clock_page) == 40);

/// The variable that names the file.
inline constexpr const char* clock_page_variable = "SALLYPORT_SHIFTED_CLOCK";

}  // namespace sallyport::kit
