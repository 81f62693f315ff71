#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace sallyport::base {

/// Sleeps while the word has this value; may also return for no reason: look at the word again.
void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept;

/// The same, for at most this long.
void futex_sleep_for(std::atomic<std::uint32_t>& word, std::uint32_t value,
                     std::chrono::nanoseconds longest) noexcept;

/// Wakes one thread that sleeps on the word. Looks only at the address: the word may be gone by
/// now, and then at worst somebody else is woken for nothing, which every futex wait must bear.
void futex_wake_one(std::atomic<std::uint32_t>* address) noexcept;

}  // namespace sallyport::base
