#include "client/module_loader.hpp"

#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <system_error>
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

/// All from / to `file`, which is an absolute path without links; empty: one of them cannot be looked at.
std::vector<path_step> way_to(const std::string& file) {
  std::vector<path_step> way;
  std::size_t end = 0;
  while (true) {
    std::string path = end == 0 ? "/" : file.substr(0, end);
    struct stat seen {};
    if (::lstat(path.c_str(), &seen) != 0) return {};
    way.push_back({.path = std::move(path),
                   .owner = seen.st_uid,
                   .group = seen.st_gid,
                   .mode = seen.st_mode & ALLPERMS});
    if (end == file.size()) return way;
    end = std::min(file.find('/', end + 1), file.size());
  }
}

std::string described(const path_step& entry) {
  std::array<char, 16> octal{};
  const auto written =
      std::to_chars(octal.data(), octal.data() + octal.size(), std::uint32_t{entry.mode}, 8);
  return entry.path + " (mode 0" + std::string(octal.data(), written.ptr) + ", user " +
         std::to_string(entry.owner) + ", group " + std::to_string(entry.group) + ")";
}

template <typename Id>
bool contains(const std::vector<Id>& ids, Id wanted) {
  return std::ranges::find(ids, wanted) != ids.end();
}

/// In a folder with the sticky bit nobody can replace what belongs to another.
bool is_sticky(const path_step& entry) { return (entry.mode & S_ISVTX) != 0; }

bool is_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// Whether the group of an entry that it may write to can be trusted with it.
bool is_trusted_group(const path_step& entry, const code_givers& givers) {
  constexpr gid_t root_group = 0;
  if (entry.group == root_group || contains(givers.program_groups, entry.group)) return true;
  // Where Debian's administrators wish so, the group staff may write in root's /usr/local, from which
  // everybody, root included, runs programs and loads libraries as well.
  if (givers.strict) return entry.owner == 0 && is_below(entry.path, "/usr/local");
  return entry.owner == 0 || entry.group == givers.group;
}

bool is_there(const std::string& path) {
  // What cannot be looked at may be there: loading it says more.
  return ::access(path.c_str(), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

std::string what_it_needs(const backend_module& wanted) {
  return wanted.packages.empty() ? "" : "; on Debian it needs " + std::string(wanted.packages);
}

/// The backend of a module that calls itself `name`.
found_backend use(const backend_api::module_record& record, const std::string& name,
                  const backend_module& wanted, const backend_api::module_build& ours) {
  const std::string_view version = record.build.version;
  if (version != ours.version) {
    return unusable(name + " is of Sallyport " + std::string(version) + " and this program of " +
                    ours.version + "; use both of one version");
  }
  if (std::string_view{record.build.interfaces} != ours.interfaces) {
    return unusable(name + " and this program were built from different sources of Sallyport " +
                    ours.version + "; build both again");
  }
  const auto& backend = record.attach(backend_api::host_of_modules());
  for (const auto scheme : wanted.schemes) {
    if (std::ranges::find(backend.schemes, scheme) == backend.schemes.end()) {
      return unusable(name + " does not serve '" + std::string(scheme) + ":'; install it again");
    }
  }
  return &backend;
}

found_backend load_file(const backend_module& wanted, const backend_api::module_build& ours,
                        const std::string& path) {
  if (!can_load()) {
    return unusable("a program that is linked with -static cannot load " + path +
                    "; link the backend into it (docs/install.md), or use shared libraries");
  }
  // Never closed: its backends, threads and callbacks live as long as they like. Two threads that
  // load one file at once get one module.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc keeps the reason for each thread.
    const char* const why = dlerror();
    return unusable(path + " could not be loaded: " + (why != nullptr ? why : "no reason given") +
                    what_it_needs(wanted));
  }
  const auto* const record =
      static_cast<const backend_api::module_record*>(dlsym(loaded, backend_api::module_symbol));
  if (record == nullptr || record->magic != backend_api::module_magic) {
    return unusable(path + " is no module of Sallyport; install it again");
  }
  return use(*record, path, wanted, ours);
}

}  // namespace

code_givers own_code_givers() {
  const bool privileged = getauxval(AT_SECURE) != 0;
  const code_place here = own_place();
  code_givers givers{.user = ::geteuid(),
                     .group = ::getegid(),
                     .program_owners = {},
                     .program_groups = {},
                     .strict = privileged || ::geteuid() == 0};
  const auto way = here.file.empty() ? std::vector<path_step>{} : way_to(here.file);
  if (privileged) {
    // The caller may be the effective user (set-group-ID), and may have a hard link to the program in a
    // folder of its own. The owner of the file counts, and nobody else.
    givers.user = way.empty() ? 0 : way.back().owner;
    return givers;
  }
  // Whoever can rename a folder on the way to the program can put another program in its place.
  for (const path_step& entry : way) {
    givers.program_owners.push_back(entry.owner);
    if ((entry.mode & S_IWGRP) != 0 && !is_sticky(entry)) {
      givers.program_groups.push_back(entry.group);
    }
  }
  return givers;
}

std::string why_not_trusted(std::span<const path_step> way, const code_givers& givers) {
  for (std::size_t i = 0; i < way.size(); ++i) {
    const path_step& entry = way[i];
    if (entry.owner != 0 && entry.owner != givers.user &&
        !contains(givers.program_owners, entry.owner)) {
      return described(entry) + " belongs neither to root, nor to the user of the process (" +
             std::to_string(givers.user) +
             "), nor to anybody who can replace the program; chown it, or install the modules "
             "elsewhere";
    }
    // The sticky bit does not keep others from adding a module.
    const bool holds_the_module = i + 2 >= way.size();
    if (is_sticky(entry) && !holds_the_module) continue;
    if ((entry.mode & S_IWOTH) != 0) {
      return "everybody may write to " + described(entry) + "; chmod o-w it";
    }
    if ((entry.mode & S_IWGRP) != 0 && !is_trusted_group(entry, givers)) {
      return "its group may write to " + described(entry) + "; chmod g-w it";
    }
  }
  return "";
}

std::vector<std::string> module_folders(const module_home& home, std::string_view chosen) {
  if (!chosen.empty()) return {std::string(chosen)};
  const char* const named = secure_getenv("SALLYPORT_MODULES");
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> folders;
  const code_place here = own_place();
  if (getauxval(AT_SECURE) == 0 && !here.file.empty()) {
    std::string folder = beside(here.file, here.program ? home.from_program : home.from_library);
    if (folder != home.installed) folders.push_back(std::move(folder));
  }
  folders.emplace_back(home.installed);
  return folders;
}

found_backend use_linked(const backend_module& wanted, const backend_api::module_build& ours) {
  return use(*wanted.linked, "the linked backend " + std::string(wanted.name), wanted, ours);
}

found_backend load_module(const backend_module& wanted, const backend_api::module_build& ours,
                          std::span<const std::string> folders) {
  const std::string file = file_of(wanted);
  const std::string in_folder = "/" + file;
  std::string searched;
  for (const std::string& folder : folders) {
    const std::string path = folder + in_folder;
    searched += (searched.empty() ? "" : ", ") + folder;
    if (!is_there(path)) continue;
    // What was looked at is what is loaded, whatever happens to a link on the way.
    const std::string real = resolved(path.c_str());
    const auto way = real.empty() ? std::vector<path_step>{} : way_to(real);
    if (way.empty()) {
      return unusable(path + " cannot be looked at: " + std::generic_category().message(errno));
    }
    const std::string why_not = why_not_trusted(way, own_code_givers());
    if (!why_not.empty()) {
      searched += " (not used: " + why_not + ")";
      continue;
    }
    auto found = load_file(wanted, ours, real);
    // Whoever comes at the same time has found the same. No mutex: a forked child might inherit it
    // locked.
    if (found) wanted.loaded.store(*found);
    return found;
  }
  return unusable(file + " was not found in " + searched +
                  "; install Sallyport's modules, name their folder in client_options::modules or "
                  "SALLYPORT_MODULES, or link the backend: find_package(sallyport COMPONENTS " +
                  std::string(wanted.name) + ") (docs/install.md)");
}

}  // namespace sallyport::client_detail
