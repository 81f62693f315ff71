#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// etcd:// and etcds://
[[nodiscard]] const backend_api::backend_descriptor& etcd_backend();

}  // namespace sallyport::backends
