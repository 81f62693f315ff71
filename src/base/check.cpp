#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace sallyport::base {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "sallyport: broken invariant `%s` at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace sallyport::base
