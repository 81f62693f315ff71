#include "backends/local/place.hpp"

#include "backend_api/store_identity.hpp"
#include "backends/local/machine.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <variant>
#include <vector>

namespace sallyport::backends::local {
namespace {

constexpr std::string_view scheme = "local:";
constexpr std::size_t longest_path = 3072;

auto bad_address(const std::string& why) {
  return base::fail(errc::bad_uri, why +
                                       "; a local store's address is local:, local:machine or "
                                       "local:/absolute/path, and ?size=64M may follow");
}

auto refused(const std::string& path, const std::string& why) {
  return base::fail(errc::store_refused, "'" + path + "' " + why);
}

base::result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (unit == "K") shift = 10;
  if (unit == "M") shift = 20;
  if (unit == "G") shift = 30;
  const bool unit_known = unit.empty() || shift != 0;
  const std::uint64_t most = store_address::largest_map_bytes;
  if (error != std::errc{} || !unit_known || number > (most >> shift) ||
      (number << shift) < store_address::smallest_map_bytes) {
    return bad_address("size must be 1M to 16G");
  }
  constexpr std::uint64_t page = store_address::page_bytes;
  return ((number << shift) + page - 1) / page * page;
}

/// File systems that write in place: a block that was allocated stays writable when the disk is
/// full.
bool writes_in_place(std::uint64_t type) {
  switch (type) {
    case EXT4_SUPER_MAGIC:  // also ext2 and ext3
    case XFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
      return true;
    default:
      return false;
  }
}

/// Whether the folder is, under whatever name, the machine's: there the files of a plain store would be a
/// second one beside it. Where it is mounted elsewhere, in a container say, its files tell.
bool is_machine_store(int folder, const struct stat& about) {
  struct stat machine {};
  if (::stat(machine_path, &machine) == 0 && machine.st_dev == about.st_dev &&
      machine.st_ino == about.st_ino) {
    return true;
  }
  const auto there = [&](const char* name) {
    return ::faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  };
  return there(machine_gate_file) && there(machine_state_file);
}

/// mkdir -p. Parents only where the path is our own choice: a typing error in the user's path
/// should not grow a tree.
base::result<std::monostate> make_folder(const std::string& path, bool with_parents) {
  if (with_parents) {
    for (auto slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const std::string parent = path.substr(0, slash);
      if (::mkdir(parent.c_str(), 0700) != 0 && errno != EEXIST) {
        return tl::unexpected(
            folder_failure(errno, "make the folder '" + parent +
                                      "' for the store (name another place with local:/path)"));
      }
    }
  }
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(
        folder_failure(errno, "make the folder '" + path +
                                  "' for the store (make it yourself, or name another place with "
                                  "local:/path)"));
  }
  return std::monostate{};
}

}  // namespace

std::string draft_of(const std::string& file) {
  return file + ".new-" + std::to_string(::geteuid());
}

base::failure folder_failure(int error, std::string_view what) {
  base::failure why = system_failure(error, what);
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
      why.code = errc::store_refused;
      break;
    default:
      break;
  }
  return why;
}

std::string_view network_file_system(std::uint64_t type) {
  switch (type) {
    case NFS_SUPER_MAGIC:
      return "NFS";
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
      return "SMB";
    case CEPH_SUPER_MAGIC:
      return "Ceph";
    case AFS_SUPER_MAGIC:
    case AFS_FS_MAGIC:
      return "AFS";
    case CODA_SUPER_MAGIC:
      return "Coda";
    case V9FS_MAGIC:
      return "9p";
    case FUSE_SUPER_MAGIC:
      return "FUSE";
    case OCFS2_SUPER_MAGIC:
      return "OCFS2";
    case 0x01161970:
      return "GFS2";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    default:
      return {};
  }
}

base::result<store_address> parse_address(std::string_view uri) {
  if (!uri.starts_with(scheme)) return bad_address("not a local store");
  uri.remove_prefix(scheme.size());
  store_address address;
  const auto question = uri.find('?');
  std::string_view options = question == std::string_view::npos ? "" : uri.substr(question + 1);
  std::string_view path = uri.substr(0, question);
  if (path.find('\0') != std::string_view::npos || path.size() > longest_path) {
    return bad_address("the path is too long or has a zero byte in it");
  }
  if (path == "machine") {
    address.machine = true;
    path = {};
  }
  if (!path.empty() && !path.starts_with('/')) {
    return bad_address(
        "the path must be absolute, for a relative one names another store in every "
        "folder");
  }
  if (path.starts_with("//")) return bad_address("a local store has no host");
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path == "/") return bad_address("the root folder can't be a store");
  address.path = path;
  while (!options.empty()) {
    const auto end = std::min(options.find('&'), options.size());
    const std::string_view option = options.substr(0, end);
    options.remove_prefix(std::min(end + 1, options.size()));
    if (option.starts_with("size=")) {
      const auto size = parse_size(option.substr(5));
      if (!size) return tl::unexpected(size.error());
      address.map_bytes = *size;
      address.size_given = true;
    } else if (address.machine && option == "initialise=yes") {
      address.initialise = true;
    } else if (address.machine && option.starts_with("group=") && option.size() > 6) {
      address.group = option.substr(6);
    } else if (option == "map=no" || option == "map=yes") {
      address.write_map = option == "map=yes";
    } else if (option.starts_with("store=")) {
      address.store = option.substr(std::string_view("store=").size());
      if (!backend_api::acceptable_store_name(address.store)) {
        return bad_address(std::string(backend_api::store_names_are));
      }
    } else {
      return bad_address("unknown option '" + std::string(option) + "'");
    }
  }
  return address;
}

base::result<std::string> default_path() {
  const uid_t user = ::geteuid();
  if (user == 0) return std::string("/var/lib/sallyport");
  std::vector<char> room(16384);
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(user, &entry, room.data(), room.size(), &found);
  if (found == nullptr || entry.pw_dir == nullptr || entry.pw_dir[0] != '/') {
    return base::fail(
        errc::store_refused,
        "user " + std::to_string(user) + " has no home folder in the password file" +
            (error != 0 ? ": " + std::error_code(error, std::generic_category()).message()
                        : std::string{}) +
            "; name a place with local:/path");
  }
  std::string home = entry.pw_dir;
  while (home.size() > 1 && home.ends_with('/')) home.pop_back();
  return home + "/.local/state/sallyport";
}

base::result<std::monostate> look_at_file_system(place& found) {
  struct statfs system {};
  if (::fstatfs(found.folder.number(), &system) != 0) {
    return tl::unexpected(system_failure(errno, "look at the store's folder '" + found.path + "'"));
  }
  const auto type = static_cast<std::uint64_t>(static_cast<std::uint32_t>(system.f_type));
  if (const std::string_view network = network_file_system(type); !network.empty()) {
    return refused(found.path, "is on " + std::string(network) +
                                   ": local: is for the processes of one machine and needs a "
                                   "local file system; name another place with local:/path, or "
                                   "use a store for several machines");
  }
  found.keeps_blocks = writes_in_place(type);
  return std::monostate{};
}

base::result<place> open_place(const std::string& path) {
  place found;
  found.path = path;
  const bool default_place = path.empty();
  if (default_place) {
    const auto own = default_path();
    if (!own) return tl::unexpected(own.error());
    found.path = *own;
  }
  const auto open_folder = [&] {
    return descriptor(::open(found.path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  };
  found.folder = open_folder();
  if (!found.folder.open() && errno == ENOENT) {
    if (auto made = make_folder(found.path, default_place); !made) {
      return tl::unexpected(made.error());
    }
    found.folder = open_folder();
  }
  if (!found.folder.open()) {
    // With O_DIRECTORY a symbolic link is reported as "not a directory" too.
    if (errno == ELOOP || errno == ENOTDIR) {
      return refused(found.path,
                     "is a symbolic link or no folder; name the folder itself, so that nobody can "
                     "turn the link elsewhere");
    }
    return tl::unexpected(folder_failure(errno, "open the store's folder '" + found.path + "'"));
  }

  struct stat about {};
  if (::fstat(found.folder.number(), &about) != 0) {
    return tl::unexpected(system_failure(errno, "look at the store's folder '" + found.path + "'"));
  }
  if (about.st_uid != ::geteuid() && about.st_uid != 0) {
    return refused(found.path, "belongs to user " + std::to_string(about.st_uid) +
                                   ", who could change it at will; a folder that several users "
                                   "share must belong to root (chown root, chmod 2770 or 3777)");
  }
  if (is_machine_store(found.folder.number(), about)) {
    return refused(found.path, "is the store of all users of this machine: it is local:machine");
  }
  if (auto looked = look_at_file_system(found); !looked) return tl::unexpected(looked.error());
  if ((about.st_mode & S_IWGRP) != 0) found.file_mode |= 0060;
  if ((about.st_mode & S_IWOTH) != 0) found.file_mode |= 0066;
  return found;
}

}  // namespace sallyport::backends::local
