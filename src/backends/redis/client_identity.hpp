#pragma once

#include "backend_api/backend.hpp"
#include "backends/redis/address.hpp"

#include <string>

namespace sallyport::backends::redis {

/// By which a client's notices find it: 16 hexadecimal digits, fresh for every client.
[[nodiscard]] std::string fresh_client_number();

/// What CLIENT LIST shows: what the address says, or the owner's label.
[[nodiscard]] std::string client_name_for(const address& where,
                                          const backend_api::owner_info& owner);

}  // namespace sallyport::backends::redis
