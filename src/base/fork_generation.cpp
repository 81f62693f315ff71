#include "base/fork_generation.hpp"

#include <pthread.h>

namespace sallyport::base {
namespace {

constinit std::atomic<std::uint32_t> generation{0};
constinit std::atomic<const std::atomic<std::uint32_t>*> counter{&generation};

const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });

}  // namespace

std::uint32_t fork_generation() noexcept {
  static_cast<void>(registered);
  return fork_counter().load(std::memory_order_relaxed);
}

const std::atomic<std::uint32_t>& fork_counter() noexcept {
  return *counter.load(std::memory_order_relaxed);
}

void share_fork_counter(const std::atomic<std::uint32_t>& of_the_program) noexcept {
  counter.store(&of_the_program);
}

}  // namespace sallyport::base
