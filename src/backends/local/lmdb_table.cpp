#include "backends/local/lmdb_table.hpp"

#include "backends/local/descriptor.hpp"
#include <sallyport/error.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

namespace sallyport::backends::local {
namespace {

constexpr unsigned plain_flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS;

/// LMDB takes a path; this one leads to the very folder that was checked, wherever it was moved.
std::string path_in(int folder, const std::string& name) {
  return "/proc/self/fd/" + std::to_string(folder) + "/" + name;
}

base::failure lmdb_failure(int error, const std::string& doing) {
  if (error > 0) return system_failure(error, doing);
  return {make_error_code(errc::store_refused),
          "cannot " + doing + ": " + std::string(mdb_strerror(error))};
}

MDB_val bytes(std::string_view text) noexcept {
  // LMDB does not change what it is given; its interface is older than const.
  return {text.size(),
          const_cast<char*>(text.data())};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

std::string_view view(const MDB_val& value) noexcept {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

/// LMDB leaves its descriptors open to programs that this one executes: a child could write to the
/// store through them. Of two (without the write map) only the first is told; the other is looked
/// for.
void close_on_exec(MDB_env* environment, bool two) {
  mdb_filehandle_t first = -1;
  struct stat wanted {};
  if (mdb_env_get_fd(environment, &first) != 0 || ::fstat(first, &wanted) != 0) return;
  ::fcntl(first, F_SETFD, FD_CLOEXEC);
  DIR* const all = two ? ::opendir("/proc/self/fd") : nullptr;
  if (all == nullptr) return;
  while (const dirent* const entry = ::readdir(all)) {
    const int number = std::atoi(entry->d_name);
    struct stat found {};
    if (::fstat(number, &found) == 0 && found.st_dev == wanted.st_dev &&
        found.st_ino == wanted.st_ino) {
      ::fcntl(number, F_SETFD, FD_CLOEXEC);
    }
  }
  ::closedir(all);
}

base::result<MDB_env*> open_environment(int folder, const std::string& name,
                                        std::uint64_t map_bytes, unsigned flags, mode_t mode) {
  MDB_env* environment = nullptr;
  int error = mdb_env_create(&environment);
  if (error == 0) error = mdb_env_set_mapsize(environment, map_bytes);
  if (error == 0) error = mdb_env_open(environment, path_in(folder, name).c_str(), flags, mode);
  if (error == 0) return environment;
  if (environment != nullptr) mdb_env_close(environment);
  return tl::unexpected(lmdb_failure(error, "open the store's file '" + name + "'"));
}

}  // namespace

base::result<std::monostate> lmdb_file::make(int folder, const std::string& name, mode_t mode,
                                             std::uint64_t map_bytes) {
  ::unlinkat(folder, name.c_str(), 0);
  // LMDB writes its first pages only into an empty file, so the room is allocated behind them. One
  // that was never closed orderly is not found later: the gate is put in place after this.
  auto fresh = open_environment(folder, name, map_bytes, plain_flags, mode);
  if (!fresh) return tl::unexpected(fresh.error());
  close_on_exec(*fresh, false);  // open for a moment only
  mdb_env_close(*fresh);
  const descriptor file(::openat(folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.open()) return tl::unexpected(system_failure(errno, "open the store's new file"));
  ::fchmod(file.number(), mode);
  if (const int error = ::posix_fallocate(file.number(), 0, static_cast<off_t>(map_bytes))) {
    ::unlinkat(folder, name.c_str(), 0);
    return tl::unexpected(system_failure(
        error, "allocate " + std::to_string(map_bytes >> 20U) +
                   " MiB for the store (make room, or begin it smaller with ?size=4M)"));
  }
  return std::monostate{};
}

base::result<std::unique_ptr<lmdb_file>> lmdb_file::open(int folder, const std::string& name,
                                                         std::uint64_t map_bytes, bool write_map) {
  const auto torn = [&](const std::string& why) {
    return base::fail(errc::store_refused, "the store's file '" + name + "' " + why);
  };
  struct stat about {};
  if (::fstatat(folder, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
    return torn("is missing");
  }
  if (!S_ISREG(about.st_mode)) return torn("is no plain file");
  // Touching what is missing through the map would end the process.
  if (static_cast<std::uint64_t>(about.st_size) < map_bytes) return torn("is cut off");

  const unsigned flags = plain_flags | (write_map ? MDB_WRITEMAP : 0U);
  auto environment = open_environment(folder, name, map_bytes, flags, 0600);
  if (!environment) return tl::unexpected(environment.error());
  close_on_exec(*environment, !write_map);
  std::unique_ptr<lmdb_file> file(new lmdb_file(*environment));
  MDB_txn* transaction = nullptr;
  int error = mdb_txn_begin(file->environment_, nullptr, 0, &transaction);
  if (error == 0) {
    error = mdb_dbi_open(transaction, nullptr, 0, &file->records_);
    if (error == 0) {
      error = mdb_txn_commit(transaction);
    } else {
      mdb_txn_abort(transaction);
    }
  }
  if (error != 0)
    return tl::unexpected(lmdb_failure(error, "read the store's file '" + name + "'"));
  return file;
}

lmdb_file::~lmdb_file() { mdb_env_close(environment_); }

lmdb_table::lmdb_table(lmdb_file& file) : file_(file) {
  const int error = mdb_txn_begin(file.environment(), nullptr, 0, &transaction_);
  if (error != 0) fail(error, "begin a transaction");
}

lmdb_table::~lmdb_table() {
  if (cursor_ != nullptr) mdb_cursor_close(cursor_);
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
}

void lmdb_table::fail(base::failure why) {
  if (!failure_) failure_ = std::move(why);
}

void lmdb_table::fail(int error, const char* doing) {
  if (failure_) return;
  switch (error) {
    case MDB_MAP_FULL:
      out_of_room_ = true;
      failure_ = {make_error_code(errc::store_refused),
                  "the store is full: it has room for as many locks as fit into its file. Release "
                  "some, or stop all programs that use it, remove its folder's state-* and gate-* "
                  "files and open it with ?size=, for example local:?size=256M"};
      return;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_PANIC:
    case MDB_INVALID:
    case MDB_BAD_TXN:
      file_spoiled_ = true;
      break;
    default:
      break;
  }
  failure_ = lmdb_failure(error, std::string(doing) + " in the store");
}

MDB_cursor* lmdb_table::cursor() {
  if (cursor_ == nullptr) {
    if (const int error = mdb_cursor_open(transaction_, file_.records(), &cursor_)) {
      fail(error, "look");
    }
  }
  return cursor_;
}

std::optional<std::string_view> lmdb_table::get(std::string_view key) {
  if (failure_) return std::nullopt;
  MDB_val name = bytes(key);
  MDB_val value{};
  const int error = mdb_get(transaction_, file_.records(), &name, &value);
  if (error == 0) return view(value);
  if (error != MDB_NOTFOUND) fail(error, "read");
  return std::nullopt;
}

std::optional<table::entry> lmdb_table::at_or_after(std::string_view key) {
  if (failure_ || cursor() == nullptr) return std::nullopt;
  MDB_val name = bytes(key);
  MDB_val value{};
  const int error = mdb_cursor_get(cursor_, &name, &value, MDB_SET_RANGE);
  if (error == 0) return entry{view(name), view(value)};
  if (error != MDB_NOTFOUND) fail(error, "read");
  return std::nullopt;
}

std::optional<table::entry> lmdb_table::before(std::string_view key) {
  if (failure_ || cursor() == nullptr) return std::nullopt;
  MDB_val name = bytes(key);
  MDB_val value{};
  int error = mdb_cursor_get(cursor_, &name, &value, MDB_SET_RANGE);
  error = mdb_cursor_get(cursor_, &name, &value, error == MDB_NOTFOUND ? MDB_LAST : MDB_PREV);
  if (error == 0) return entry{view(name), view(value)};
  if (error != MDB_NOTFOUND) fail(error, "read");
  return std::nullopt;
}

void lmdb_table::put(std::string_view key, std::initializer_list<std::string_view> parts) {
  if (failure_) return;
  MDB_val name = bytes(key);
  MDB_val value{};
  for (const std::string_view part : parts) value.mv_size += part.size();
  const int error = mdb_put(transaction_, file_.records(), &name, &value, MDB_RESERVE);
  if (error != 0) {
    fail(error, "write");
    return;
  }
  char* to = static_cast<char*>(value.mv_data);
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
}

void lmdb_table::remove(std::string_view key) {
  if (failure_) return;
  MDB_val name = bytes(key);
  const int error = mdb_del(transaction_, file_.records(), &name, nullptr);
  if (error != 0 && error != MDB_NOTFOUND) fail(error, "remove");
}

base::result<std::monostate> lmdb_table::commit() {
  if (failure_) return tl::unexpected(*failure_);
  if (cursor_ != nullptr) mdb_cursor_close(cursor_);
  cursor_ = nullptr;
  // Whatever it says, the transaction is over.
  const int error = mdb_txn_commit(std::exchange(transaction_, nullptr));
  if (error == 0) return std::monostate{};
  fail(error, "commit");
  return tl::unexpected(*failure_);
}

}  // namespace sallyport::backends::local
