#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// The registry's entry: a majority of independent Redis masters (session.hpp).
[[nodiscard]] const backend_api::backend_descriptor& redlock_backend();

}  // namespace sallyport::backends
