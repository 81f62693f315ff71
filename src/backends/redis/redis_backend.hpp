#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// redis://host:6379 and its kin: locks on a Redis server that others use as well.
const backend_api::backend_descriptor& redis_backend();

}  // namespace sallyport::backends
