#pragma once

#include <cstdlib>
#include <string>

namespace sallyport::cli {

/// SALLYPORT_STORE, or the embedded store of this user.
[[nodiscard]] inline std::string default_store() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* const given = std::getenv("SALLYPORT_STORE");
  return given == nullptr ? "" : given;
}

}  // namespace sallyport::cli
