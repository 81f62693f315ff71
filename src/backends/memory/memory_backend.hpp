#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// Locks inside one process: `memory:` is a store of its own for each client, `memory:NAME` is one
/// store for all clients of this process that use that NAME, and lives while any of them is open.
/// README.md says what it promises. Every request is answered inside its own call; notices to
/// others come from the thread whose request caused them.
const backend_api::backend_descriptor& memory_backend();

}  // namespace sallyport::backends
