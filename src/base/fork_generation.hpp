#pragma once

#include <cstdint>

namespace sallyport::base {

/// A number that differs in every forked child from that of its parent. Handles remember the number
/// they were made under and are dead when it has changed: after fork() the child has neither the
/// threads nor the locks' state. (vfork, and clone without glibc's fork handlers, are not seen.)
std::uint32_t fork_generation() noexcept;

}  // namespace sallyport::base
