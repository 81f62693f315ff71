#pragma once

#include "backend_api/backend.hpp"
#include "base/result.hpp"
#include "client/module_loader.hpp"

#include <span>
#include <string_view>

namespace sallyport::client_detail {

// Generated from src/backends/CMakeLists.txt.

/// The backends that are part of the library.
std::span<const backend_api::backend_descriptor* const> registered_backends();
/// Those that lie in files of their own, or are linked into the program; known without loading them, and
/// whether or not they are installed.
std::span<const backend_module> registered_modules();
/// Where the latter are.
const module_home& home_of_modules();

/// The backend that serves this scheme; a module that was not linked into the program is loaded when it
/// is first asked for, from the folder `modules` if that is not empty. Fails with unknown_scheme or
/// module_unusable.
/// Thread safety: any thread.
base::result<const backend_api::backend_descriptor*> find_backend(std::string_view scheme,
                                                                  std::string_view modules = {});

}  // namespace sallyport::client_detail
