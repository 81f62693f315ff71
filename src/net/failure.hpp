#pragma once

#include "base/result.hpp"

#include <string>
#include <string_view>

namespace sallyport::net {

/// "WHAT: Connection refused", with the errno as its code.
[[nodiscard]] base::failure system_failure(int error, std::string_view what);
/// A sentence of our own; its code is EPROTO.
[[nodiscard]] base::failure protocol_failure(std::string sentence);

}  // namespace sallyport::net
