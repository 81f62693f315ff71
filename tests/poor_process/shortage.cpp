#include "tests/poor_process/shortage.hpp"

#include "base/check.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <new>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

std::atomic<int> thread_bans{0};

struct ration {
  bool on = false;
  bool for_good = false;
  bool struck = false;
  int left = 0;
};
constinit thread_local ration mine;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (mine.on && mine.left-- <= 0) {
    mine.struck = true;
    mine.on = mine.for_good;
    throw std::bad_alloc();
  }
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const got = alignment <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                           : std::aligned_alloc(alignment, rounded);
  if (got == nullptr) throw std::bad_alloc();
  return got;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* gone) noexcept { std::free(gone); }
void operator delete(void* gone, std::size_t) noexcept { std::free(gone); }
void operator delete(void* gone, std::align_val_t) noexcept { std::free(gone); }
void operator delete(void* gone, std::size_t, std::align_val_t) noexcept { std::free(gone); }

extern "C" int pthread_create(pthread_t* made, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  if (thread_bans > 0) return EAGAIN;
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(made, attributes, body, argument);
}

namespace sallyport::poor {

no_threads::no_threads() { ++thread_bans; }
no_threads::~no_threads() { --thread_bans; }

no_memory::no_memory(int before, bool for_good) {
  mine = {.on = true, .for_good = for_good, .struck = false, .left = before};
}
no_memory::~no_memory() { mine.on = false; }
bool no_memory::struck() const { return mine.struck; }

no_descriptors::no_descriptors(int left) {
  SALLYPORT_CHECK(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
  const int any = ::dup(STDERR_FILENO);
  SALLYPORT_CHECK(any >= 0);
  taken_.push_back(any);
  // As few as are needed: the others must be free again when the limit is back.
  constexpr rlim_t enough = 256;
  rlimit limit = before_;
  limit.rlim_cur = enough;
  SALLYPORT_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  for (int next = ::dup(any); next >= 0; next = ::dup(any)) taken_.push_back(next);
  for (int i = 0; i < left && !taken_.empty(); ++i) {
    ::close(taken_.back());
    taken_.pop_back();
  }
}

no_descriptors::~no_descriptors() {
  for (const int each : taken_) ::close(each);
  SALLYPORT_CHECK(::setrlimit(RLIMIT_NOFILE, &before_) == 0);
}

}  // namespace sallyport::poor
