#pragma once

#include "backend_api/backend.hpp"

#include <span>
#include <string_view>

namespace sallyport::client_detail {

/// The backends of this build; generated from src/backends/CMakeLists.txt.
std::span<const backend_api::backend_descriptor* const> registered_backends();

/// The backend that serves this scheme, or nullptr.
const backend_api::backend_descriptor* find_backend(std::string_view scheme);

}  // namespace sallyport::client_detail
