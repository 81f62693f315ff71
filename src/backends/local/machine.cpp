#include "backends/local/machine.hpp"

#include "backends/local/attachment.hpp"
#include "backends/local/descriptor.hpp"
#include "backends/local/gate.hpp"
#include "backends/local/inbox.hpp"
#include "backends/local/presence.hpp"
#include "backends/local/process.hpp"
#include "backends/local/token_file.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <grp.h>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::backends::local {
namespace {

constexpr std::string_view remedy = "sudo sallyport init local:machine";

base::failure refusal(const std::string& why) {
  return {make_error_code(errc::store_refused), why};
}

base::failure not_done(int error, const std::string& doing) {
  return folder_failure(error, doing + " for local:machine");
}

/// Who may use the store.
struct access {
  gid_t group = 0;
  bool for_all = true;

  [[nodiscard]] mode_t folder_mode() const noexcept { return for_all ? 0755 : 0750; }
  [[nodiscard]] mode_t file_mode() const noexcept { return for_all ? 0666 : 0660; }
};

/// The same rights, but for those of the group and of others to write.
mode_t closed_to_others(mode_t mode) {
  constexpr mode_t to_write = S_IWGRP | S_IWOTH;
  return mode & 07777U & ~to_write;
}

constexpr std::size_t group_room = 65536;

std::optional<gid_t> group_number(const std::string& name) {
  std::vector<char> room(group_room);
  group entry{};
  group* found = nullptr;
  ::getgrnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
  return found != nullptr ? std::optional(entry.gr_gid) : std::nullopt;
}

std::string group_name(gid_t number) {
  std::vector<char> room(group_room);
  group entry{};
  group* found = nullptr;
  ::getgrgid_r(number, &entry, room.data(), room.size(), &found);
  return found != nullptr ? "'" + std::string(entry.gr_name) + "'" : std::to_string(number);
}

bool for_group_only(const struct stat& folder) {
  return (folder.st_mode & S_IXOTH) == 0 && (folder.st_mode & S_IXGRP) != 0;
}

/// Whether only root can put files there.
bool of_root_alone(const struct stat& folder) {
  return S_ISDIR(folder.st_mode) && folder.st_uid == 0 &&
         (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// The folder above. Root's own store may be in it, for nobody else: so it may be entered, not listed.
base::result<std::monostate> make_parent() {
  if (::mkdir(machine_parent, 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(not_done(errno, "make the folder '" + std::string(machine_parent) + "'"));
  }
  struct stat about {};
  if (::stat(machine_parent, &about) != 0) {
    return tl::unexpected(not_done(errno, "look at '" + std::string(machine_parent) + "'"));
  }
  if (!of_root_alone(about)) {
    return tl::unexpected(refusal("'" + std::string(machine_parent) +
                                  "' must be a folder of root's that nobody else may write to "
                                  "(chown root, chmod go-w)"));
  }
  if (::chmod(machine_parent, (about.st_mode & 07777U) | S_IXGRP | S_IXOTH) != 0) {
    return tl::unexpected(not_done(errno, "open '" + std::string(machine_parent) + "' to users"));
  }
  return std::monostate{};
}

/// One init.
class maker {
 public:
  explicit maker(const store_address& address) : address_(address) {}

  base::result<std::monostate> run() {
    if (auto done = open_folder(); !done) return done;
    if (auto done = look_at_what_is_there(); !done) return done;
    if (auto done = wait_for_turn(); !done) return done;
    if (auto done = make_gate(); !done) return done;
    if (auto done = make_tokens(); !done) return done;
    if (auto done = make_state(); !done) return done;
    if (auto done = make_pipes(); !done) return done;
    return let_in();
  }

 private:
  base::result<std::monostate> open_folder() {
    if (auto made = make_parent(); !made) return made;
    if (::mkdir(machine_path, 0700) != 0 && errno != EEXIST) return failed("make its folder");
    folder_ = descriptor(::open(machine_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!folder_.open() || ::fstat(folder_.number(), &about) != 0) return failed("open its folder");
    if (about.st_uid != 0) {
      return tl::unexpected(refusal("'" + std::string(machine_path) + "' belongs to user " +
                                    std::to_string(about.st_uid) +
                                    "; move it away, then init again"));
    }
    if (!address_.group.empty()) {
      const auto number = group_number(address_.group);
      if (!number) {
        return base::fail(errc::bad_option, "there is no group '" + address_.group + "'");
      }
      access_ = {.group = *number, .for_all = false};
    } else if (for_group_only(about)) {
      access_ = {.group = about.st_gid, .for_all = false};
    }
    // What lies there was put there by whoever could. From here on only root can: what is looked at stays
    // what it is. Users who are at work are not disturbed.
    if (::fchmod(folder_.number(), closed_to_others(about.st_mode)) != 0) {
      return failed("shut its folder");
    }
    return std::monostate{};
  }

  /// A look at an entry, which does nothing to it; closed: there is none. Fails unless it is of this kind,
  /// root's, and in no other place: nothing else may be reached through it.
  static base::result<descriptor> look(int folder, const std::string& name,
                                       const std::string& shown_name, mode_t kind) {
    descriptor entry(::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!entry.open() && errno == ENOENT) return entry;
    struct stat about {};
    if (!entry.open() || ::fstat(entry.number(), &about) != 0) {
      return tl::unexpected(not_done(errno, "look at '" + shown_name + "'"));
    }
    const bool in_one_place = kind == S_IFDIR || about.st_nlink == 1;
    if ((about.st_mode & S_IFMT) == kind && about.st_uid == 0 && in_one_place) return entry;
    return tl::unexpected(
        refusal("'" + shown_name + "' in '" + std::string(machine_path) +
                "' is not what init makes there: a link, another user's, or of "
                "another kind; look who put it there, remove it, then init again"));
  }

  /// Before anything is opened.
  base::result<std::monostate> look_at_what_is_there() {
    for (const char* const name : files) {
      if (auto seen = look(folder_.number(), name, name, S_IFREG); !seen) {
        return tl::unexpected(seen.error());
      }
    }
    if (auto seen = look(folder_.number(), pipes_folder, pipes_folder, S_IFDIR); !seen) {
      return tl::unexpected(seen.error());
    }
    return std::monostate{};
  }

  /// While the turn lasts nobody looks at the files.
  base::result<std::monostate> wait_for_turn() {
    presence_ = descriptor(
        ::openat(folder_.number(), "presence", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!presence_.open()) return failed("make the file 'presence'");
    locks_.emplace(presence_.number());
    turn_.emplace(*locks_);
    for (;;) {
      const auto taken = turn_->take(presence_locks::turn::make);
      if (!taken) return tl::unexpected(taken.error());
      if (*taken) return std::monostate{};
    }
  }

  base::result<std::monostate> make_gate() {
    gate_ = descriptor(::openat(folder_.number(), machine_gate_file,
                                O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat about {};
    if (!gate_.open() || ::fstat(gate_.number(), &about) != 0)
      return failed("make the file 'gate'");
    if (about.st_size != 0) return std::monostate{};
    return gate::erase(gate_.number());
  }

  /// Whoever would go on with the records is gone: processes that are attached, and those that keep a lock
  /// without being so.
  base::result<std::monostate> need_nobody(const std::string& aim) {
    std::int64_t other = 0;
    if (locks_->be_alone()) {
      const auto living = find_living_process();
      if (!living) return tl::unexpected(living.error());
      if (!*living) return std::monostate{};
      other = **living;
    } else {
      other = locks_->somebody_present();
    }
    return tl::unexpected(refusal(
        "local:machine cannot " + aim + " while " +
        (other != 0 ? "process " + describe_process(other) : std::string("another process")) +
        " uses it; stop all programs that use it, then try again"));
  }

  /// Null: there is none that is usable.
  base::result<std::unique_ptr<gate>> usable_gate() {
    const auto here = this_machine();
    if (!here) return tl::unexpected(here.error());
    return gate::attach(folder_.number(), machine_gate_file, *here).way_in;
  }

  base::result<std::optional<std::int64_t>> find_living_process() {
    const auto way_in = usable_gate();
    if (!way_in) return tl::unexpected(way_in.error());
    if (!*way_in) return std::nullopt;
    const gate::agreement& terms = (*way_in)->terms();
    const auto file =
        lmdb_file::open(folder_.number(), machine_state_file, terms.map_bytes, terms.write_map);
    if (file) return living_process(**file);
    if (file.error().code == errc::unavailable) return tl::unexpected(file.error());
    return std::nullopt;
  }

  /// Whether it is of another size than wanted. An init that was killed may have made the file larger and
  /// left a gate that knows nothing of it: then the gate's counts.
  base::result<bool> wants_other_size(off_t file_bytes) {
    if (!address_.size_given) return false;
    const auto way_in = usable_gate();
    if (!way_in) return tl::unexpected(way_in.error());
    return std::cmp_not_equal(file_bytes, address_.map_bytes) ||
           (*way_in && (*way_in)->terms().map_bytes != address_.map_bytes);
  }

  /// A new token file begins the store anew: the records know numbers that it does not.
  base::result<std::monostate> make_tokens() {
    auto tokens = token_file::open(folder_.number());
    if (!tokens) return tl::unexpected(tokens.error());
    if (*tokens) return std::monostate{};
    if (auto alone = need_nobody("get new tokens"); !alone) return alone;
    struct stat state {};
    const bool lost =
        ::fstatat(folder_.number(), machine_state_file, &state, AT_SYMLINK_NOFOLLOW) == 0 &&
        state.st_size != 0;
    if (auto erased = gate::erase(gate_.number()); !erased) return erased;
    tokens = token_file::make(folder_.number(), 0600);
    if (!tokens) return tl::unexpected(tokens.error());
    if (lost) tell_of_new_tokens("local:machine");
    return std::monostate{};
  }

  base::result<std::monostate> make_state() {
    const descriptor state(::openat(folder_.number(), machine_state_file,
                                    O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    struct stat about {};
    if (!state.open() || ::fstat(state.number(), &about) != 0) {
      return failed("make the file 'state.mdb'");
    }
    const auto other_size = wants_other_size(about.st_size);
    if (!other_size) return tl::unexpected(other_size.error());
    if (about.st_size != 0 && !*other_size) return std::monostate{};
    if (auto alone = need_nobody("get another size"); !alone) return alone;
    // First the room, while the store is still whole.
    const auto bytes = static_cast<off_t>(address_.map_bytes);
    if (const int error = ::posix_fallocate(state.number(), 0, bytes)) {
      const bool kept = ::ftruncate(state.number(), about.st_size) == 0 && about.st_size != 0;
      errno = error;
      return failed("allocate " + std::to_string(address_.map_bytes >> 20U) +
                    " MiB (make room, or take less: local:machine?size=4M" +
                    (kept ? "; it keeps the size that it has)" : ")"));
    }
    if (auto erased = gate::erase(gate_.number()); !erased) return erased;
    if (::ftruncate(state.number(), bytes) != 0) return failed("cut the file 'state.mdb'");
    return std::monostate{};
  }

  base::result<std::monostate> make_pipes() {
    if (::mkdirat(folder_.number(), pipes_folder, 0700) != 0 && errno != EEXIST) {
      return failed("make the folder of pipes");
    }
    const descriptor inboxes(
        ::openat(folder_.number(), pipes_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat about {};
    if (!inboxes.open() || ::fstat(inboxes.number(), &about) != 0 ||
        ::fchmod(inboxes.number(), closed_to_others(about.st_mode)) != 0) {
      return failed("open the folder of pipes");
    }
    for (std::uint64_t number = 0; number < ready_made_pipes; ++number) {
      const std::string path = inbox_name(number, pipes::ready_made);
      const std::string name = path.substr(path.rfind('/') + 1);
      const bool fresh = ::mkfifoat(inboxes.number(), name.c_str(), 0600) == 0;
      if (!fresh && errno != EEXIST) return failed("make the pipe '" + path + "'");
      if (auto done = give(inboxes.number(), name, path, S_IFIFO); !done) return done;
    }
    return give(folder_.number(), pipes_folder, pipes_folder, S_IFDIR);
  }

  /// Last of all: before that only root comes in.
  base::result<std::monostate> let_in() {
    for (const char* const name : files) {
      if (auto done = give(folder_.number(), name, name, S_IFREG); !done) return done;
    }
    if (::fchown(folder_.number(), 0, access_.group) != 0 ||
        ::fchmod(folder_.number(), access_.folder_mode()) != 0) {
      return failed("open its folder to users");
    }
    ::fsync(folder_.number());
    return std::monostate{};
  }

  /// Gives the very entry that was looked at to the users.
  base::result<std::monostate> give(int folder, const std::string& name,
                                    const std::string& shown_name, mode_t kind) {
    const auto entry = look(folder, name, shown_name, kind);
    if (!entry) return tl::unexpected(entry.error());
    const mode_t mode = kind == S_IFDIR ? access_.folder_mode() : access_.file_mode();
    // A descriptor that only names something is not taken by fchmod.
    const std::string itself = "/proc/self/fd/" + std::to_string(entry->number());
    if (!entry->open() || ::fchownat(entry->number(), "", 0, access_.group, AT_EMPTY_PATH) != 0 ||
        ::chmod(itself.c_str(), mode) != 0) {
      return failed("open '" + shown_name + "' to users");
    }
    return std::monostate{};
  }

  static base::result<std::monostate> failed(const std::string& doing) {
    return tl::unexpected(not_done(errno, doing));
  }

  static constexpr std::array<const char*, 4> files{"presence", "tokens", machine_gate_file,
                                                    machine_state_file};

  const store_address& address_;
  access access_;
  descriptor folder_;
  descriptor presence_;
  descriptor gate_;
  std::optional<presence_locks> locks_;
  std::optional<attaching_turn> turn_;
};

}  // namespace

base::failure machine_store_incomplete(std::string_view name) {
  return refusal("the store of all users of this machine lacks '" + std::string(name) +
                 "'; root makes it again: " + std::string(remedy));
}

base::result<place> open_machine_place() {
  place found;
  found.path = machine_path;
  found.ready_made = true;
  found.folder = descriptor(::open(machine_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!found.folder.open()) {
    const int error = errno;
    const bool there = ::lstat(machine_path, &about) == 0;
    if (error == EACCES && there && for_group_only(about)) {
      return tl::unexpected(refusal("local:machine is for root and the users of group " +
                                    group_name(about.st_gid) +
                                    "; root adds one with usermod -aG, and it counts from the next "
                                    "login on"));
    }
    const bool never_made = error == ENOENT || error == EACCES || error == ENOTDIR;
    if (!never_made) return tl::unexpected(not_done(error, "open its folder"));
    return tl::unexpected(
        refusal("the store of all users of this machine is not there yet; root "
                "makes it once: " +
                std::string(remedy)));
  }
  if (::fstat(found.folder.number(), &about) != 0 || !of_root_alone(about)) {
    return tl::unexpected(refusal("'" + std::string(machine_path) +
                                  "' must be root's, and nobody else may write to it; root mends "
                                  "that: " +
                                  std::string(remedy)));
  }
  if (auto looked = look_at_file_system(found); !looked) return tl::unexpected(looked.error());
  return found;
}

std::string users_of_machine_store(int folder) {
  struct stat about {};
  if (::fstat(folder, &about) == 0 && for_group_only(about)) {
    return "root and the users of group " + group_name(about.st_gid);
  }
  return "all users";
}

base::result<std::monostate> make_machine_store(const store_address& address) {
  if (::geteuid() != 0) {
    return tl::unexpected(
        refusal("the store of all users of this machine is made by root: " + std::string(remedy)));
  }
  return maker(address).run();
}

}  // namespace sallyport::backends::local
