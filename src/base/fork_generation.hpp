#pragma once

#include <atomic>
#include <cstdint>

namespace sallyport::base {

/// A number that differs in every forked child from that of its parent. Handles remember the number
/// they were made under and are dead when it has changed: after fork() the child has neither the
/// threads nor the locks' state. (vfork, and clone without glibc's fork handlers, are not seen.)
std::uint32_t fork_generation() noexcept;

/// What fork_generation() reads.
const std::atomic<std::uint32_t>& fork_counter() noexcept;

/// For a loadable module, which has a copy of this code: from now on fork_generation() reads
/// `of_the_program`, the counter of the program that loaded it, which must live as long as the
/// process. Call it before any handle remembers a number.
void share_fork_counter(const std::atomic<std::uint32_t>& of_the_program) noexcept;

}  // namespace sallyport::base
