#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/module.hpp"
#include "base/result.hpp"

#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace sallyport::client_detail {

/// A backend that lies in a file of its own, sallyport_NAME.so.
struct backend_module {
  std::string_view name;
  std::span<const std::string_view> schemes;
  /// the Debian packages that it needs when it runs, with blanks between them; may be empty
  std::string_view packages;
  /// its backend, once it has been loaded
  std::atomic<const backend_api::backend_descriptor*>& loaded;
};

/// Where this build's modules are, and which fit.
struct module_home {
  backend_api::module_build build;
  const char* installed;     ///< the folder, absolute
  const char* from_program;  ///< the same, seen from the folder of an installed program
  const char* from_library;  ///< the same, seen from the folder of an installed shared library
};

/// One folder to look in.
struct module_folder {
  std::string path;
  std::string why_not;  ///< empty, or why nothing is loaded from it
};

/// Of a file or folder.
struct ownership {
  uid_t owner;
  mode_t mode;
};

/// Why nothing is loaded from a folder that was found by where the code lies; empty: it may be.
/// Whoever may replace the code may choose its modules, and nobody else: a program in /tmp/mine must
/// not load what somebody has put into /tmp/lib.
[[nodiscard]] std::string why_not_trusted(const ownership& folder, const ownership& code);

/// Where to look for modules, in this order: in the folder that SALLYPORT_MODULES names, and then
/// nowhere else; beside the program or shared library that this code is in, so that an installation
/// can be moved, unless somebody else could have made that folder; where modules are installed. A
/// program with privileges that its caller lacks looks in the last only.
[[nodiscard]] std::vector<module_folder> module_folders(const module_home& home);

/// The module's backend. The first call loads it, from the first folder that has it and for the life
/// of the process; what happens to the file afterwards is of no matter. Fails with module_unusable
/// and a sentence that names the file, the cause and the remedy; the next call tries again.
/// Thread safety: any thread, also several for one module: they get the same backend.
[[nodiscard]] base::result<const backend_api::backend_descriptor*> load_module(
    const backend_module& wanted, const backend_api::module_build& ours,
    std::span<const module_folder> folders);

}  // namespace sallyport::client_detail
