#pragma once

#include "base/descriptor.hpp"
#include "base/result.hpp"

#include <string_view>

namespace sallyport::backends::local {

using base::descriptor;

/// "cannot WHAT: No space left on device", as a failure: the store is out of reach, nothing
/// happened.
[[nodiscard]] base::failure system_failure(int error, std::string_view what);

}  // namespace sallyport::backends::local
