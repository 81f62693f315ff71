#pragma once

#include <ctime>
#include <span>
#include <sys/epoll.h>

namespace sallyport::base {

/// epoll_pwait2, and where the kernel (before Linux 5.11, or an emulator) does not have it,
/// epoll_wait with the patience rounded up to milliseconds. Null: for ever. How many events there
/// are; below 1: none, look again.
int wait_for_events(int set, std::span<epoll_event> events, const timespec* patience) noexcept;

}  // namespace sallyport::base
