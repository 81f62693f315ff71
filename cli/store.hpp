#pragma once

#include <cstdlib>
#include <string>

namespace sallyport::cli {

/// SALLYPORT_STORE, or the embedded store of this machine.
[[nodiscard]] inline std::string default_store() {
  const char* const given = std::getenv("SALLYPORT_STORE");
  return given == nullptr ? "" : given;
}

}  // namespace sallyport::cli
