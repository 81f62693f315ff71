#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sallyport::base {

/// The password that an option of an address leads to: one that ends in `_file` names a file, whose
/// line's end is cut off, and one that ends in `_env` a variable of the environment. Nothing, and in
/// `why` what is wrong, in words without secrets: there is none, or it is empty. An empty password is
/// never meant, and a store that takes it for no log-in would let us in as somebody else.
[[nodiscard]] std::optional<std::string> read_secret(std::string_view option,
                                                     const std::string& place, std::string& why);

}  // namespace sallyport::base
