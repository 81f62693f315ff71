#pragma once

#include <chrono>
#include <sys/types.h>

namespace sallyport::cli {

/// Whether a process of the group lives. Zombies do not count: nobody may ever reap them. When
/// /proc cannot be read, a group that kill(2) finds counts as alive.
[[nodiscard]] bool group_alive(pid_t group) noexcept;

/// Sends SIGKILL to the group until nothing of it lives, or `limit` has passed. Returns whether it
/// is gone.
bool kill_group(pid_t group, std::chrono::milliseconds limit) noexcept;

}  // namespace sallyport::cli
