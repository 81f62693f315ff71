#pragma once

#include "client/module_loader.hpp"

#include <string_view>

namespace sallyport::modules_testing {

/// The registered module of that name. REQUIRES: there is one.
const client_detail::backend_module& module_named(std::string_view name);

/// The folder in which the tests' modules are.
inline constexpr const char* made = SALLYPORT_TEST_MODULES;

}  // namespace sallyport::modules_testing
