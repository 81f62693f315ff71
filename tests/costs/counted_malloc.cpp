#include "tests/costs/counted_malloc.hpp"

#include <atomic>
#include <cstddef>

// The program's own malloc stands before the C library's, for all libraries that it loads, too; the
// work is left to the C library's, under the names by which it is known inside.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t members, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

std::atomic<std::uint64_t> count{0};

void note() noexcept { count.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  note();
  return __libc_malloc(bytes);
}

void* calloc(std::size_t members, std::size_t bytes) {
  note();
  return __libc_calloc(members, bytes);
}

void* realloc(void* old, std::size_t bytes) {
  note();
  return __libc_realloc(old, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

}  // extern "C"

namespace sallyport::costs {

std::uint64_t allocations() noexcept { return count.load(std::memory_order_relaxed); }

}  // namespace sallyport::costs
