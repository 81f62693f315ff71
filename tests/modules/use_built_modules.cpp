// Linked into every test: unless the caller knows better, modules are those of this build. Children inherit it.

#include <cstdlib>

namespace {

[[maybe_unused]] const int chosen = setenv("SALLYPORT_MODULES", SALLYPORT_MODULES_BUILT, 0);

}  // namespace
