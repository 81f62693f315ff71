#include "backends/local/attachment.hpp"

#include "backends/local/lock_rules.hpp"
#include "backends/local/machine.hpp"
#include "backends/local/presence.hpp"
#include "backends/local/process.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::backends::local {
namespace {

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

/// Removes what processes of whatever boot left, but for the tokens. Returns what this user may not
/// remove: in a sticky folder the files of others.
std::vector<std::string> remove_state(int folder) {
  std::vector<std::string> left;
  for (const std::string& name : files_in(folder)) {
    if (!name.starts_with("gate-") && !name.starts_with("state-") && !name.starts_with("inbox-")) {
      continue;
    }
    if (::unlinkat(folder, name.c_str(), 0) != 0 && errno != ENOENT) left.push_back(name);
  }
  return left;
}

/// Opens a file for who can't remove it and is to write over it; closed: there is none, and it is to be
/// made. It has to be a plain file in no other place: nobody's file is to be reached through a link.
base::result<descriptor> file_to_overwrite(const place& where, const std::string& name) {
  descriptor file(
      ::openat(where.folder.number(), name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!file.open() && errno == ENOENT) {
    if (where.ready_made) return tl::unexpected(machine_store_incomplete(name));
    return file;
  }
  struct stat about {};
  if (file.open() && ::fstat(file.number(), &about) == 0 && S_ISREG(about.st_mode) &&
      about.st_nlink == 1) {
    return file;
  }
  return base::fail(errc::store_refused, "the store in '" + where.path +
                                             "' cannot be begun: this user may neither remove nor "
                                             "write what is in its way; as root, remove '" +
                                             name + "' there");
}

/// Keeps the damaged file for whoever wants to look at it; the last few of them, not all. Empty: this
/// user may not rename it.
std::string set_aside(int folder, const std::string& name) {
  constexpr int most_kept = 3;
  std::string aside;
  for (int number = 1; number <= most_kept; ++number) {
    aside = "damaged-" + std::to_string(number) + ".mdb";
    if (::faccessat(folder, aside.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) break;
  }
  return ::renameat(folder, name.c_str(), folder, aside.c_str()) == 0 ? aside : std::string{};
}

struct file_names {
  file_names(const place& where, const std::string& boot_id)
      : gate(where.ready_made ? machine_gate_file : "gate-" + boot_id),
        state(where.ready_made ? machine_state_file : "state-" + boot_id + ".mdb") {}
  std::string gate;
  std::string state;
};

auto in_use(const std::string& path, const std::string& why, std::int64_t pid) {
  return base::fail(errc::store_refused,
                    "the store in '" + path + "' " + why + " while " +
                        (pid != 0 ? "process " + describe_process(pid) : "another process") +
                        " uses it; stop all programs that use it, then try again");
}

bool takes_room(int folder, const std::string& name) {
  struct stat about {};
  return ::fstatat(folder, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && about.st_blocks != 0;
}

/// What others left of earlier boots and this user may not remove: the room is given back, the names
/// stay. Those of this boot are written over.
void empty_leftovers(const place& where, const std::vector<std::string>& left,
                     const file_names& names) {
  std::string first;
  std::size_t count = 0;
  std::size_t not_emptied = 0;
  for (const std::string& name : left) {
    if (name == names.gate || name == names.state) continue;
    if (count++ == 0 || name.starts_with("state-")) first = name;
    const auto file = file_to_overwrite(where, name);
    const bool emptied = file && file->open() && ::ftruncate(file->number(), 0) == 0;
    if (!emptied && takes_room(where.folder.number(), name)) ++not_emptied;
  }
  if (count == 0) return;
  base::log(base::log_level::warning,
            "the folder '" + where.path + "' has " + std::to_string(count) +
                " files that other users left ('" + first + "'); " +
                (not_emptied == 0 ? "they take no room, and "
                                  : std::to_string(not_emptied) +
                                        " of them could not be emptied and take room; ") +
                "only their owners and root can remove them");
}

/// How large a ready-made store is: as it was made, unless its file was cut off.
std::uint64_t size_for(int state) {
  struct stat about {};
  const auto bytes =
      ::fstat(state, &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : std::uint64_t{0};
  const bool sensible = bytes >= store_address::smallest_map_bytes &&
                        bytes <= store_address::largest_map_bytes &&
                        bytes % store_address::page_bytes == 0;
  return sensible ? bytes : store_address::default_map_bytes;
}

/// Makes the store anew, and its tokens where there are none. What can be removed is made again; what is
/// another user's is written over. REQUIRES: alone.
base::result<std::unique_ptr<gate>> rebuild(const place& where, const store_address& address,
                                            const machine_identity& here,
                                            std::unique_ptr<token_file>& tokens,
                                            const file_names& names) {
  const int folder = where.folder.number();
  if (!where.ready_made) empty_leftovers(where, remove_state(folder), names);
  const auto old_gate = file_to_overwrite(where, names.gate);
  if (!old_gate) return tl::unexpected(old_gate.error());
  const auto old_state = file_to_overwrite(where, names.state);
  if (!old_state) return tl::unexpected(old_state.error());
  if (old_gate->open()) {
    if (auto erased = gate::erase(old_gate->number()); !erased) {
      return tl::unexpected(erased.error());
    }
  }
  // Only now that the old gate is gone: whoever is killed here leaves nothing that goes on with old numbers.
  if (!tokens) {
    auto fresh = token_file::make(folder, where.file_mode);
    if (!fresh) return tl::unexpected(fresh.error());
    tokens = std::move(*fresh);
  }

  const bool write_map = address.write_map && where.keeps_blocks;
  const std::uint64_t map_bytes =
      where.ready_made ? size_for(old_state->number()) : address.map_bytes;
  const auto begun = old_state->open()
                         ? lmdb_file::begin(old_state->number(), map_bytes)
                         : lmdb_file::make(folder, names.state, where.file_mode, map_bytes);
  if (!begun) return tl::unexpected(begun.error());
  auto file = lmdb_file::open(folder, names.state, map_bytes, write_map);
  if (!file) return tl::unexpected(file.error());
  {
    lmdb_table records(**file);
    lock_rules::initialise(records, tokens->mark().high_water);
    if (auto written = records.commit(); !written) return tl::unexpected(written.error());
  }
  const gate::agreement terms{.machine = here, .map_bytes = map_bytes, .write_map = write_map};
  return old_gate->open() ? gate::begin(old_gate->number(), terms)
                          : gate::make(folder, names.gate, where.file_mode, terms);
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
  const bool lost_tokens = !all.tokens && all.found != gate::finding::missing;
  if (!all.tokens && where.ready_made) return tl::unexpected(machine_store_incomplete("tokens"));
  if (all.tokens && all.found == gate::finding::usable) return std::monostate{};
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
  if (const auto other = all.file ? living_process(*all.file) : std::nullopt) {
    return in_use(where.path, "had its files removed", *other);
  }
  all.file.reset();
  all.way_in.reset();
  std::string aside;
  if (all.found == gate::finding::damaged && !where.ready_made) {
    aside = set_aside(folder, names.state);
  }
  auto made = rebuild(where, address, here, all.tokens, names);
  if (!made) {
    if (!where.ready_made) remove_state(folder);
    return tl::unexpected(made.error());
  }
  if (all.found == gate::finding::damaged) {
    base::log(base::log_level::warning,
              "the store in '" + where.path + "' was damaged (" + all.damage +
                  "); nobody used it. It was " +
                  (aside.empty() ? "" : "set aside as '" + aside + "' and ") +
                  "begun anew; tokens go on growing");
  }
  if (lost_tokens) tell_of_new_tokens("the store in '" + where.path + "'");
  all.way_in = std::move(*made);
  auto opened = lmdb_file::open(folder, names.state, all.way_in->terms().map_bytes,
                                all.way_in->terms().write_map);
  if (!opened) return tl::unexpected(opened.error());
  all.file = std::move(*opened);
  return std::monostate{};
}

/// Opens `presence`, making it only where there is none: in a sticky folder nobody may open another
/// user's file as if to make it (fs.protected_regular).
descriptor open_presence(const place& where) {
  const auto open = [&](int flags) {
    return descriptor(::openat(where.folder.number(), "presence",
                               O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, where.file_mode));
  };
  descriptor file = open(0);
  if (file.open() || errno != ENOENT || where.ready_made) return file;
  file = open(O_CREAT | O_EXCL);
  if (file.open()) ::fchmod(file.number(), where.file_mode);
  return file.open() || errno != EEXIST ? std::move(file) : open(0);
}

}  // namespace

void tell_of_new_tokens(const std::string& store) {
  base::log(
      base::log_level::warning,
      store +
          " had lost its file 'tokens' and was begun anew, with another name and new numbers. "
          "Gates refuse them until they are bound anew: sallyport fence rebind --restart");
}

std::optional<std::int64_t> living_process(lmdb_file& file) {
  lmdb_table records(file);
  client_number next = 0;
  for (auto at = records.at_or_after(record_key::client(next)); at && at->key.starts_with('C');
       at = records.at_or_after(record_key::client(next))) {
    next = number_of(at->key) + 1;
    const auto record = read_record<client_record>(at->value);
    if (!record) continue;
    for (const process_identity& one : {record->process, record->companion}) {
      if (watched_process(one).state() != process_state::dead) return one.pid;
    }
  }
  return std::nullopt;
}

base::result<attachment> attach(place where, const store_address& address) {
  using turn = presence_locks::turn;
  const auto here = this_machine();
  if (!here) return tl::unexpected(here.error());
  const int folder = where.folder.number();
  descriptor presence = open_presence(where);
  if (!presence.open() && errno == ENOENT && where.ready_made) {
    return tl::unexpected(machine_store_incomplete("presence"));
  }
  if (!presence.open()) {
    return tl::unexpected(
        folder_failure(errno, "write to the store's folder '" + where.path +
                                  "' (make it writable, or name another place with local:/path)"));
  }

  const file_names names(where, here->boot_id);
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
