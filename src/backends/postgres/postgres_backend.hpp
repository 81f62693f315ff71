#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// Locks in tables of a PostgreSQL database: postgres://user@host/database.
[[nodiscard]] const backend_api::backend_descriptor& postgres_backend();

}  // namespace sallyport::backends
