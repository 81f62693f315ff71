#include "backends/local/attachment.hpp"

#include "backends/local/lock_rules.hpp"
#include "backends/local/process.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>

#include <cerrno>
#include <chrono>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <variant>
#include <vector>

namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;

/// Opening takes milliseconds; somebody who takes longer than this was stopped in the middle.
constexpr std::chrono::milliseconds patience_with_others = 10s;

/// Record locks on two bytes of a file. They belong to the process, so a forked child does not
/// keep them, and end with it, however it ends.
class presence_locks {
 public:
  explicit presence_locks(int file) : file_(file) {}

  /// One process at a time finds out what there is, and makes what is missing. False: another one
  /// did not finish in time.
  bool begin_attaching() const {
    for (auto waited = 0ms; waited < patience_with_others; waited += 1ms) {
      if (set(F_WRLCK, attaching)) return true;
      ::poll(nullptr, 0, 1);
    }
    return false;
  }
  void end_attaching() const { set(F_UNLCK, attaching); }
  bool be_present() const { return set(F_RDLCK, present); }
  /// False: somebody else is present.
  bool be_alone() const { return set(F_WRLCK, present); }
  std::int64_t somebody_attaching() const {
    struct flock lock = range(F_WRLCK, attaching);
    return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  }
  std::int64_t somebody_present() const {
    struct flock lock = range(F_WRLCK, present);
    return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  }

 private:
  static constexpr off_t present = 0;
  static constexpr off_t attaching = 1;

  static struct flock range(short type, off_t byte) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return lock;
  }
  bool set(short type, off_t byte) const {
    struct flock lock = range(type, byte);
    return ::fcntl(file_, F_SETLK, &lock) == 0;
  }

  int file_;
};

class attaching_turn {
 public:
  explicit attaching_turn(const presence_locks& locks) : locks_(locks) {}
  attaching_turn(const attaching_turn&) = delete;
  attaching_turn& operator=(const attaching_turn&) = delete;
  ~attaching_turn() { locks_.end_attaching(); }

 private:
  const presence_locks& locks_;
};

std::vector<std::string> files_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* const entry = ::readdir(entries)) names.emplace_back(entry->d_name);
  ::closedir(entries);
  return names;
}

/// What processes of whatever boot left, but for the tokens.
void remove_state(int folder) {
  for (const std::string& name : files_in(folder)) {
    if (name.starts_with("gate-") || name.starts_with("state-") || name.starts_with("inbox-")) {
      ::unlinkat(folder, name.c_str(), 0);
    }
  }
}

/// Keeps the damaged file for whoever wants to look at it; the last few of them, not all.
std::string set_aside(int folder, const std::string& name) {
  constexpr int most_kept = 3;
  std::string aside;
  for (int number = 1; number <= most_kept; ++number) {
    aside = "damaged-" + std::to_string(number) + ".mdb";
    if (::faccessat(folder, aside.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) break;
  }
  ::renameat(folder, name.c_str(), folder, aside.c_str());
  return aside;
}

struct file_names {
  explicit file_names(const std::string& boot_id)
      : gate("gate-" + boot_id), state("state-" + boot_id + ".mdb") {}
  std::string gate;
  std::string state;
};

auto in_use(const std::string& path, const std::string& why, std::int64_t pid) {
  return base::fail(errc::store_refused,
                    "the store in '" + path + "' " + why + " while process " +
                        describe_process(pid) +
                        " uses it; stop all programs that use it, then try again");
}

/// Makes the store anew. REQUIRES: alone.
base::result<std::unique_ptr<gate>> rebuild(const place& where, const store_address& address,
                                            const machine_identity& here, const token_file& tokens,
                                            const file_names& names) {
  const int folder = where.folder.number();
  remove_state(folder);
  const bool write_map = address.write_map && where.keeps_blocks;
  if (auto made = lmdb_file::make(folder, names.state, where.file_mode, address.map_bytes); !made) {
    return tl::unexpected(made.error());
  }
  auto file = lmdb_file::open(folder, names.state, address.map_bytes, write_map);
  if (!file) return tl::unexpected(file.error());
  {
    lmdb_table records(**file);
    lock_rules::initialise(records, tokens.mark().high_water);
    if (auto written = records.commit(); !written) return tl::unexpected(written.error());
  }
  return gate::make(folder, names.gate, where.file_mode,
                    {.machine = here, .map_bytes = address.map_bytes, .write_map = write_map});
}

}  // namespace

base::result<attachment> attach(place where, const store_address& address) {
  const auto here = this_machine();
  if (!here) return tl::unexpected(here.error());
  const int folder = where.folder.number();
  descriptor presence(
      ::openat(folder, "presence", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, where.file_mode));
  if (!presence.open()) {
    return tl::unexpected(
        folder_failure(errno, "write to the store's folder '" + where.path +
                                  "' (make it writable, or name another place with local:/path)"));
  }
  ::fchmod(presence.number(), where.file_mode);

  const presence_locks locks(presence.number());
  if (!locks.begin_attaching()) {
    return base::fail(errc::unavailable, "process " + describe_process(locks.somebody_attaching()) +
                                             " began to open the store and does not finish; "
                                             "continue it (kill -CONT) or end it");
  }
  const attaching_turn turn(locks);
  if (!locks.be_present()) {
    return tl::unexpected(system_failure(errno, "lock the file 'presence' of the store"));
  }
  auto tokens = token_file::open(folder, where.file_mode);
  if (!tokens) return tl::unexpected(tokens.error());

  const file_names names(here->boot_id);
  auto [found, way_in] = gate::attach(folder, names.gate, *here);
  std::unique_ptr<lmdb_file> file;
  std::string damage = "a gate that is none of ours";
  if (found == gate::finding::usable) {
    auto opened =
        lmdb_file::open(folder, names.state, way_in->terms().map_bytes, way_in->terms().write_map);
    if (opened) {
      file = std::move(*opened);
    } else if (opened.error().code == errc::unavailable) {
      return tl::unexpected(opened.error());
    } else {
      found = gate::finding::damaged;
      damage = opened.error().detail;
      way_in.reset();
    }
  }
  if (found != gate::finding::usable) {
    if (!locks.be_alone()) {
      const std::int64_t other = locks.somebody_present();
      switch (found) {
        case gate::finding::foreign:
          return base::fail(errc::store_refused,
                            "the store in '" + where.path +
                                "' is in use from another pid or time namespace (another "
                                "container?), where pids and times mean something else; use a "
                                "folder of its own in each, or a store with a server");
        case gate::finding::damaged:
          return in_use(where.path, "is damaged (" + damage + ")", other);
        case gate::finding::missing:
        case gate::finding::usable:
          return in_use(where.path, "had its files removed", other);
      }
    }
    if (found == gate::finding::damaged) {
      const std::string aside = set_aside(folder, names.state);
      base::log(base::log_level::warning, "sallyport: the store in '" + where.path +
                                              "' was damaged (" + damage +
                                              "); nobody used it. It was set aside as '" + aside +
                                              "' and begun anew; tokens go on growing");
    }
    auto made = rebuild(where, address, *here, **tokens, names);
    if (!made) {
      remove_state(folder);
      return tl::unexpected(made.error());
    }
    way_in = std::move(*made);
    auto opened =
        lmdb_file::open(folder, names.state, way_in->terms().map_bytes, way_in->terms().write_map);
    if (!opened) return tl::unexpected(opened.error());
    file = std::move(*opened);
    locks.be_present();
  }
  return attachment{std::move(where), std::move(presence), std::move(*tokens), std::move(way_in),
                    std::move(file)};
}

}  // namespace sallyport::backends::local
