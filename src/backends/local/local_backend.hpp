#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// `local:` — all processes of this user on this machine, of all its users (local:machine), or of
/// those who share a folder (local:/path); README.md says how.
const backend_api::backend_descriptor& local_backend();

}  // namespace sallyport::backends
