#pragma once

#include "backend_api/backend.hpp"

namespace sallyport::backends {

/// Locks in tables of a MariaDB database: mariadb://user@host/database.
[[nodiscard]] const backend_api::backend_descriptor& mariadb_backend();

}  // namespace sallyport::backends
