#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

const backend_api::backend_descriptor& zookeeper_backend();

}  // namespace sallyport::backends
