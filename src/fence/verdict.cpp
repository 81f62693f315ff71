#include <sallyport/fence.hpp>

namespace sallyport::fence {

std::string_view to_string(verdict answer) noexcept {
  switch (answer) {
    case verdict::passed:
      return "passed";
    case verdict::stale:
      return "stale";
    case verdict::wrong_lock:
      return "wrong_lock";
  }
  return "unknown";
}

}  // namespace sallyport::fence
