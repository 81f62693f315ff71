#include "base/fork_generation.hpp"

#include <atomic>
#include <pthread.h>

namespace sallyport::base {
namespace {

std::atomic<std::uint32_t> generation{0};

const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });

}  // namespace

std::uint32_t fork_generation() noexcept {
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace sallyport::base
