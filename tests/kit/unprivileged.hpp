#pragma once

#include "tests/kit/child_process.hpp"

#include <filesystem>
#include <optional>

namespace sallyport::kit {

/// Who a server runs as that refuses to run as root: nobody, when the test is root, else the test's
/// own user.
[[nodiscard]] std::optional<user_and_group> not_root();

/// Gives a file or folder to that user.
void give_away(const std::filesystem::path& what);

/// Where the data of a test's server are, so that fsync costs nothing.
[[nodiscard]] std::filesystem::path in_memory();

}  // namespace sallyport::kit
