#pragma once

#include "backends/local/descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>

/// Where a store lives: a folder that only those may use who are meant to.
namespace sallyport::backends::local {

/// What stands behind `local:` in an address.
struct store_address {
  std::string path;  ///< empty: the default place of this user
  std::uint64_t map_bytes = default_map_bytes;
  bool write_map = true;  ///< false: as on file systems that allocate anew when they overwrite

  static constexpr std::uint64_t default_map_bytes = std::uint64_t{64} << 20U;
  static constexpr std::uint64_t smallest_map_bytes = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t largest_map_bytes = std::uint64_t{16} << 30U;
};
/// local: | local:/absolute/path [?size=64M][&map=no]. Fails with bad_uri.
[[nodiscard]] base::result<store_address> parse_address(std::string_view uri);

/// The user's own place, derived from the user id alone: an environment that differs (cron, a unit, a
/// shell) must not lead to another store. Other users, root under sudo included, have others.
[[nodiscard]] base::result<std::string> default_path();

/// As system_failure; but store_refused, which nobody waits for, where somebody has to change something
/// first: a path that is not there, a folder that may not be written.
[[nodiscard]] base::failure folder_failure(int error, std::string_view what);

/// What a network file system of this type (statfs) is called; empty: it is none. Shared memory
/// maps do not work across machines, nor does the kernel's word on processes.
[[nodiscard]] std::string_view network_file_system(std::uint64_t type);

struct place {
  std::string path;
  descriptor folder;
  mode_t file_mode = 0600;   ///< lets in whom the folder lets in
  bool keeps_blocks = true;  ///< blocks that were allocated once can always be overwritten
};
/// Opens the folder, making it (0700) where it is missing. Fails with store_refused, naming the
/// remedy, for a symbolic link, a folder of somebody else, a network file system, a path that is not
/// there or may not be used; with unavailable when the system has no more of something.
[[nodiscard]] base::result<place> open_place(const std::string& path);

}  // namespace sallyport::backends::local
