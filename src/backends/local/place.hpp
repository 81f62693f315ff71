#pragma once

#include "backends/local/descriptor.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <variant>

/// Where a store lives: a folder that only those may use who are meant to.
namespace sallyport::backends::local {

/// What stands behind `local:` in an address.
struct store_address {
  std::string path;      ///< empty: the default place of this user
  bool machine = false;  ///< the one store of all users of this machine; without a path
  std::uint64_t map_bytes = default_map_bytes;
  bool size_given = false;  ///< map_bytes is somebody's wish
  bool write_map = true;    ///< false: as on file systems that allocate anew when they overwrite
  /// What `sallyport init` adds: make the machine's store, for this group; empty: for all.
  bool initialise = false;
  std::string group;
  std::string store{};  ///< names the token space by hand; empty: the name that its file keeps

  static constexpr std::uint64_t page_bytes = 4096;  ///< sizes are rounded up to whole pages
  static constexpr std::uint64_t default_map_bytes = std::uint64_t{64} << 20U;
  static constexpr std::uint64_t smallest_map_bytes = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t largest_map_bytes = std::uint64_t{16} << 30U;
};
/// local: | local:machine | local:/absolute/path [?size=64M][&map=no][&store=NAME]; local:machine also takes
/// initialise=yes and group=NAME. Fails with bad_uri.
[[nodiscard]] base::result<store_address> parse_address(std::string_view uri);

/// The user's own place, derived from the user id alone: an environment that differs (cron, a unit, a
/// shell) must not lead to another store. Other users, root under sudo included, have others.
[[nodiscard]] base::result<std::string> default_path();

/// The name under which this user makes a file before it is put in place. It has the user in it: in a
/// sticky folder what another user left half made can't be removed, and must not be in the way.
[[nodiscard]] std::string draft_of(const std::string& file);

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
  /// All files are there and are root's: nobody makes, renames or removes any.
  bool ready_made = false;
};
/// Opens the folder, making it (0700) where it is missing. Fails with store_refused, naming the
/// remedy, for a symbolic link, a folder of somebody else, the machine's store, a network file system, a
/// path that is not there or may not be used; with unavailable when the system has no more of something.
[[nodiscard]] base::result<place> open_place(const std::string& path);

/// What the folder's file system says: refuses those of a network, and sets keeps_blocks.
[[nodiscard]] base::result<std::monostate> look_at_file_system(place& found);

}  // namespace sallyport::backends::local
