#pragma once

#include <string>
#include <string_view>

namespace sallyport::sim::redis {

/// The SHA-1 of a text as 40 lower-case hexadecimal digits: how Redis names a script.
std::string sha1_hex(std::string_view text);

}  // namespace sallyport::sim::redis
