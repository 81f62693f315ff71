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

/// A backend that lies in a file of its own, sallyport_NAME.so, or was linked into the program.
struct backend_module {
  std::string_view name;
  std::span<const std::string_view> schemes;
  /// the Debian packages that it needs when it runs, with blanks between them; may be empty
  std::string_view packages;
  /// its backend, once it has been loaded
  std::atomic<const backend_api::backend_descriptor*>& loaded;
  /// the program's own copy, if it was linked with one: then no file is looked for
  const backend_api::module_record* linked = nullptr;
};

/// Where this build's modules are, and which fit.
struct module_home {
  backend_api::module_build build;
  const char* installed;     ///< the folder, absolute
  const char* from_program;  ///< the same, seen from the folder of an installed program
  const char* from_library;  ///< the same, seen from the folder of an installed shared library
};

/// One entry on the way from / to a module; the module itself is the last.
struct path_step {
  std::string path;
  uid_t owner;
  gid_t group;
  mode_t mode;
};

/// Those who may give this process code, because they can replace its program anyway.
struct code_givers {
  uid_t user;   ///< who the process runs as; with privileges, the program's owner
  gid_t group;  ///< the process's group
  /// to whom the program belongs, or the shared library that this code is in, or a folder on the way to it
  std::vector<uid_t> program_owners;
  /// groups that may write to it or to such a folder
  std::vector<gid_t> program_groups;
  /// root, or a program with privileges that its caller lacks: there a group counts for less
  bool strict;
};

/// Who may give this process code.
[[nodiscard]] code_givers own_code_givers();

/// Why a module is not loaded; empty: it may be. Nobody but root, `givers.user` and those who can
/// replace the program may be able to change it or any folder on the way to it. So each entry has to
/// belong to one of them, and others may not write to it; only above the module's own folder may they
/// write to a folder with the sticky bit, such as /tmp. A group may write if it is root's, if it may
/// replace the program, if root has given it the folder, or if it is the process's own. Where `strict`,
/// of the last two only the first counts, and below /usr/local alone.
[[nodiscard]] std::string why_not_trusted(std::span<const path_step> way,
                                          const code_givers& givers);

/// Where to look for modules, in this order: in `chosen`, if it is not empty, and then nowhere else; in
/// the folder that SALLYPORT_MODULES names, and then nowhere else; beside the program or shared library
/// that this code is in, so that an installation can be moved; where modules are installed. A program
/// with privileges that its caller lacks looks in `chosen`, or else in the last only.
[[nodiscard]] std::vector<std::string> module_folders(const module_home& home,
                                                      std::string_view chosen = {});

/// The backend of a module that was linked into the program. Fails with module_unusable if the two were
/// not built together.
[[nodiscard]] base::result<const backend_api::backend_descriptor*> use_linked(
    const backend_module& wanted, const backend_api::module_build& ours);

/// The module's backend. The first call loads it, from the first folder that has it and may be trusted
/// (see why_not_trusted()), for the life of the process; what happens to the file afterwards is of no
/// matter. Fails with module_unusable and a sentence that names the file, the cause and the remedy; the
/// next call tries again.
/// Thread safety: any thread, also several for one module: they get the same backend.
[[nodiscard]] base::result<const backend_api::backend_descriptor*> load_module(
    const backend_module& wanted, const backend_api::module_build& ours,
    std::span<const std::string> folders);

}  // namespace sallyport::client_detail
