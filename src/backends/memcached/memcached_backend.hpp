#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// A memcached server: memcached://host:11211.
const backend_api::backend_descriptor& memcached_backend();

}  // namespace sallyport::backends
