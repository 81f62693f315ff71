#include "client/module_loader.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace sallyport::client_detail {
namespace {

using found_backend = base::result<const backend_api::backend_descriptor*>;

auto unusable(std::string sentence) {
  return base::fail(make_error_code(errc::module_unusable), std::move(sentence));
}

std::string file_of(const backend_module& wanted) {
  return "sallyport_" + std::string(wanted.name) + ".so";
}

/// A program without a dynamic loader (linked with -static) would load a second C library together
/// with the module.
bool can_load() {
  const auto look_at_program = [](dl_phdr_info* program, std::size_t, void* answer) {
    const std::span headers{program->dlpi_phdr, program->dlpi_phnum};
    *static_cast<bool*>(answer) =
        std::ranges::any_of(headers, [](const auto& each) { return each.p_type == PT_INTERP; });
    return 1;  // the program comes first, and nothing else is of interest
  };
  bool answer = false;
  static_cast<void>(dl_iterate_phdr(look_at_program, &answer));
  return answer;
}

struct code_place {
  std::string file;  ///< empty: unknown
  bool program = true;
};

std::string resolved(const char* path) {
  std::array<char, PATH_MAX> real{};
  return ::realpath(path, real.data()) != nullptr ? std::string(real.data()) : std::string();
}

/// The program or shared library that this code was linked into.
code_place own_place() {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&load_module), &info, reinterpret_cast<void**>(&map),
              RTLD_DL_LINKMAP) != 0 &&
      map != nullptr && map->l_name != nullptr && *map->l_name != '\0') {
    return {resolved(map->l_name), false};
  }
  return {resolved("/proc/self/exe"), true};
}

/// Where `relative` leads from the folder of that file.
std::string beside(const std::string& file, std::string_view relative) {
  constexpr std::string_view up = "../";
  std::string_view folder = file;
  folder = folder.substr(0, folder.rfind('/'));
  while (relative.starts_with(up) && !folder.empty()) {
    folder = folder.substr(0, folder.rfind('/'));
    relative.remove_prefix(up.size());
  }
  return std::string(folder) + "/" + std::string(relative);
}

ownership ownership_of(const std::string& path) {
  struct stat seen {};
  // What is not there is nobody's.
  if (::stat(path.c_str(), &seen) != 0) return {.owner = 0, .mode = 0};
  return {.owner = seen.st_uid, .mode = seen.st_mode};
}

bool is_there(const std::string& path) {
  // What cannot be looked at may be there: loading it says more.
  return ::access(path.c_str(), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

std::string what_it_needs(const backend_module& wanted) {
  return wanted.packages.empty() ? "" : "; on Debian it needs " + std::string(wanted.packages);
}

found_backend load_file(const backend_module& wanted, const backend_api::module_build& ours,
                        const std::string& path) {
  if (!can_load()) {
    return unusable("a program that is linked with -static cannot load " + path +
                    "; link it with shared libraries");
  }
  // Never closed: its backends, threads and callbacks live as long as they like. Two threads that
  // load one file at once get one module.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const why = dlerror();
    return unusable(path + " could not be loaded: " + (why != nullptr ? why : "no reason given") +
                    what_it_needs(wanted));
  }
  const auto* const record =
      static_cast<const backend_api::module_record*>(dlsym(loaded, backend_api::module_symbol));
  if (record == nullptr || record->magic != backend_api::module_magic) {
    return unusable(path + " is no module of Sallyport; install it again");
  }
  const std::string_view version = record->build.version;
  if (version != ours.version) {
    return unusable(path + " is of Sallyport " + std::string(version) + " and this program of " +
                    ours.version + "; use both of one version");
  }
  if (std::string_view{record->build.interfaces} != ours.interfaces) {
    return unusable(path + " and this program were built from different sources of Sallyport " +
                    ours.version + "; build both again");
  }
  const auto& backend = record->attach(backend_api::host_of_modules());
  for (const auto scheme : wanted.schemes) {
    if (std::ranges::find(backend.schemes, scheme) == backend.schemes.end()) {
      return unusable(path + " does not serve '" + std::string(scheme) + ":'; install it again");
    }
  }
  return &backend;
}

}  // namespace

std::string why_not_trusted(const ownership& folder, const ownership& code) {
  if (folder.owner != 0 && folder.owner != code.owner) {
    return "it belongs neither to root nor to the owner of the program";
  }
  return (folder.mode & S_IWOTH) != 0 ? "everybody may write there" : "";
}

std::vector<module_folder> module_folders(const module_home& home) {
  const char* const chosen = secure_getenv("SALLYPORT_MODULES");
  if (chosen != nullptr && *chosen != '\0') return {{chosen, {}}};
  std::vector<module_folder> folders;
  const code_place here = own_place();
  if (getauxval(AT_SECURE) == 0 && !here.file.empty()) {
    std::string folder = beside(here.file, here.program ? home.from_program : home.from_library);
    if (folder != home.installed) {
      std::string why_not = why_not_trusted(ownership_of(folder), ownership_of(here.file));
      folders.push_back({std::move(folder), std::move(why_not)});
    }
  }
  folders.push_back({home.installed, {}});
  return folders;
}

found_backend load_module(const backend_module& wanted, const backend_api::module_build& ours,
                          std::span<const module_folder> folders) {
  const std::string file = file_of(wanted);
  std::string searched;
  for (const module_folder& each : folders) {
    const std::string path = each.path + "/" + file;
    if (each.why_not.empty() && is_there(path)) {
      auto found = load_file(wanted, ours, path);
      // Whoever comes at the same time has found the same. No mutex: a forked child might inherit
      // it locked.
      if (found) wanted.loaded.store(*found);
      return found;
    }
    searched += (searched.empty() ? "" : ", ") + each.path;
    if (!each.why_not.empty()) searched += " (not used: " + each.why_not + ")";
  }
  return unusable(file + " was not found in " + searched +
                  "; install it, or name its folder in SALLYPORT_MODULES");
}

}  // namespace sallyport::client_detail
