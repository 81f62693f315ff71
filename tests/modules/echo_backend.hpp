#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// A backend that is only ever a module. "echo:NAME" is the reference store, as the module has it;
/// other addresses tell what the module sees:
///   echo:?refuse      fails with store_refused
///   echo:?log         writes the line "from inside" to the log, and fails
///   echo:?generation  fails with the module's fork generation as its sentence
const backend_api::backend_descriptor& echo_backend();

}  // namespace sallyport::backends
