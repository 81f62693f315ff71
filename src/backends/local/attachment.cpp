#include "backends/local/attachment.hpp"

#include "backends/local/lock_rules.hpp"
#include "backends/local/process.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
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
/// Hundreds who wait must leave the processor to the one they wait for.
constexpr std::chrono::milliseconds shortest_pause = 1ms;
constexpr std::chrono::milliseconds longest_pause = 32ms;

/// Record locks on two bytes of a file. They belong to the process, so a forked child does not
/// keep them, and end with it, however it ends.
class presence_locks {
 public:
  enum class turn : short { look = F_RDLCK, make = F_WRLCK };

  explicit presence_locks(int file) : file_(file) {}

  /// Many may look at what there is at the same time. One makes what is missing, while nobody
  /// looks. False: not now.
  bool begin_attaching(turn which) const { return set(static_cast<short>(which), attaching); }
  void end_attaching() const { set(F_UNLCK, attaching); }
  /// Who keeps this process from that turn; 0: nobody any more.
  std::int64_t in_the_way(turn which) const {
    return somebody(static_cast<short>(which), attaching);
  }
  bool be_present() const { return set(F_RDLCK, present); }
  /// False: somebody else is present.
  bool be_alone() const { return set(F_WRLCK, present); }
  std::int64_t somebody_present() const { return somebody(F_WRLCK, present); }

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
  std::int64_t somebody(short type, off_t byte) const {
    struct flock lock = range(type, byte);
    return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
  }

  int file_;
};

/// A turn at attaching; ends with the object.
class attaching_turn {
 public:
  using turn = presence_locks::turn;

  explicit attaching_turn(const presence_locks& locks) : locks_(locks) {}
  attaching_turn(const attaching_turn&) = delete;
  attaching_turn& operator=(const attaching_turn&) = delete;
  ~attaching_turn() { locks_.end_attaching(); }

  /// Takes the turn, or pauses for a moment, longer each time. Nothing taken: look again, somebody
  /// else may have made what was missing. Fails with unavailable when patience is at its end.
  base::result<bool> take(turn which) {
    if (locks_.begin_attaching(which)) return true;
    const std::int64_t pid = locks_.in_the_way(which);
    if (waited_ == 0ms) blocker_ = pid;
    if (pid != blocker_) always_the_same_ = false;
    if (waited_ >= patience_with_others) return tl::unexpected(too_late(pid));
    ::poll(nullptr, 0, static_cast<int>(pause_.count()));
    waited_ += pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    return false;
  }
  void give_back() { locks_.end_attaching(); }

 private:
  base::failure too_late(std::int64_t pid) const {
    if (pid != 0 && (always_the_same_ || stopped(pid))) {
      return {make_error_code(errc::unavailable),
              "process " + describe_process(pid) +
                  " began to open the store and does not finish; continue it (kill -CONT) or end "
                  "it"};
    }
    return {make_error_code(errc::unavailable),
            "many processes open the store at this moment, and the turn of this one did not come "
            "in " +
                std::to_string(patience_with_others / 1s) +
                " s; nothing is wrong with the store, try again"};
  }

  const presence_locks& locks_;
  std::chrono::milliseconds pause_ = shortest_pause;
  std::chrono::milliseconds waited_{0};
  std::int64_t blocker_ = 0;
  bool always_the_same_ = true;
};

std::vector<std::string> files_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread has this stream
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

/// A store's files, as they were found.
struct findings {
  gate::finding found = gate::finding::missing;
  std::string damage = "a gate that is none of ours";
  std::unique_ptr<token_file> tokens{};  // null: there is no such file
  // Only when usable.
  std::unique_ptr<gate> way_in{};
  std::unique_ptr<lmdb_file> file{};
};

/// Opens what there is, and makes nothing. REQUIRES: a turn.
base::result<findings> look_at(int folder, const file_names& names, const machine_identity& here) {
  findings all;
  auto tokens = token_file::open(folder);
  if (!tokens) return tl::unexpected(tokens.error());
  all.tokens = std::move(*tokens);
  auto [found, way_in] = gate::attach(folder, names.gate, here);
  all.found = found;
  if (found != gate::finding::usable) return all;
  auto opened =
      lmdb_file::open(folder, names.state, way_in->terms().map_bytes, way_in->terms().write_map);
  if (opened) {
    all.way_in = std::move(way_in);
    all.file = std::move(*opened);
  } else if (opened.error().code == errc::unavailable) {
    return tl::unexpected(opened.error());
  } else {
    all.found = gate::finding::damaged;
    all.damage = opened.error().detail;
  }
  return all;
}

/// Makes what was missing or could not be used. REQUIRES: the turn of who makes; not present.
base::result<std::monostate> mend(findings& all, const place& where, const store_address& address,
                                  const machine_identity& here, const file_names& names,
                                  const presence_locks& locks) {
  const int folder = where.folder.number();
  if (!all.tokens) {
    auto tokens = token_file::make(folder, where.file_mode);
    if (!tokens) return tl::unexpected(tokens.error());
    all.tokens = std::move(*tokens);
  }
  if (all.found == gate::finding::usable) return std::monostate{};
  if (!locks.be_alone()) {
    const std::int64_t other = locks.somebody_present();
    switch (all.found) {
      case gate::finding::foreign:
        return base::fail(errc::store_refused,
                          "the store in '" + where.path +
                              "' is in use from another pid or time namespace (another "
                              "container?), where pids and times mean something else; use a "
                              "folder of its own in each, or a store with a server");
      case gate::finding::damaged:
        return in_use(where.path, "is damaged (" + all.damage + ")", other);
      case gate::finding::missing:
      case gate::finding::usable:
        return in_use(where.path, "had its files removed", other);
    }
  }
  if (all.found == gate::finding::damaged) {
    const std::string aside = set_aside(folder, names.state);
    base::log(base::log_level::warning, "sallyport: the store in '" + where.path +
                                            "' was damaged (" + all.damage +
                                            "); nobody used it. It was set aside as '" + aside +
                                            "' and begun anew; tokens go on growing");
  }
  auto made = rebuild(where, address, here, *all.tokens, names);
  if (!made) {
    remove_state(folder);
    return tl::unexpected(made.error());
  }
  all.way_in = std::move(*made);
  auto opened = lmdb_file::open(folder, names.state, all.way_in->terms().map_bytes,
                                all.way_in->terms().write_map);
  if (!opened) return tl::unexpected(opened.error());
  all.file = std::move(*opened);
  return std::monostate{};
}

}  // namespace

base::result<attachment> attach(place where, const store_address& address) {
  using turn = presence_locks::turn;
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

  const file_names names(here->boot_id);
  const presence_locks locks(presence.number());
  attaching_turn mine(locks);
  bool looked_in_vain = false;
  for (;;) {
    // Only a guess, which saves a look: where there is no gate nobody has made the store yet.
    const bool gate_there = ::faccessat(folder, names.gate.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    const turn which = gate_there && !looked_in_vain ? turn::look : turn::make;
    looked_in_vain = false;
    const auto taken = mine.take(which);
    if (!taken) return tl::unexpected(taken.error());
    if (!*taken) continue;

    auto all = look_at(folder, names, *here);
    if (!all) return tl::unexpected(all.error());
    if (!all->tokens || all->found != gate::finding::usable) {
      if (which == turn::look) {
        mine.give_back();
        looked_in_vain = true;
        continue;
      }
      if (auto mended = mend(*all, where, address, *here, names, locks); !mended) {
        return tl::unexpected(mended.error());
      }
    }
    // While the turn lasts nobody begins the store anew, and after it nobody does beside us.
    if (!locks.be_present()) {
      return tl::unexpected(system_failure(errno, "lock the file 'presence' of the store"));
    }
    return attachment{std::move(where), std::move(presence), std::move(all->tokens),
                      std::move(all->way_in), std::move(all->file)};
  }
}

}  // namespace sallyport::backends::local
