#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// `local:` — all processes of this user on this machine, or of those who share a folder; README.md
/// says how.
const backend_api::backend_descriptor& local_backend();

}  // namespace sallyport::backends
