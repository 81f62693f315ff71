#include "backends/local/lmdb_table.hpp"

#include "backend_api/backend.hpp"
#include "backends/local/descriptor.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <iterator>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::backends::local {
namespace {

// LMDB writes a changed page to another place, and takes the old one again in the next transaction but
// one. So who only renews or releases needs room, too: for what one transaction changes, twice.
constexpr std::size_t most_pages_changed = backend_api::max_renewals_per_batch + 256;
constexpr std::size_t own_pages = 32;  // LMDB's first pages and its list of free ones

constexpr unsigned plain_flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS;

/// LMDB takes a path, and would make a file that is missing. This one leads to the very file that was
/// opened and checked, and there is nothing to make: so it may lie in a sticky folder and be another
/// user's, where the kernel refuses to open it as if to make it (fs.protected_regular).
std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

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
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone.
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

base::result<MDB_env*> open_environment(int file, std::uint64_t map_bytes, unsigned flags) {
  MDB_env* environment = nullptr;
  int error = mdb_env_create(&environment);
  if (error == 0) error = mdb_env_set_mapsize(environment, map_bytes);
  if (error == 0) error = mdb_env_open(environment, path_of(file).c_str(), flags, 0600);
  if (error == 0) return environment;
  if (environment != nullptr) mdb_env_close(environment);
  return tl::unexpected(lmdb_failure(error, "open the store's records"));
}

/// The pages with which LMDB begins. It writes them only into an empty file, and a store's own is never
/// emptied: its blocks might be gone afterwards.
base::result<std::vector<char>> first_pages(std::uint64_t map_bytes) {
  const descriptor draft(::memfd_create("sallyport", MFD_CLOEXEC));
  if (!draft.open()) return tl::unexpected(system_failure(errno, "get memory for a new store"));
  auto fresh = open_environment(draft.number(), map_bytes, plain_flags);
  if (!fresh) return tl::unexpected(fresh.error());
  close_on_exec(*fresh, false);  // open for a moment only
  mdb_env_close(*fresh);
  struct stat about {};
  if (::fstat(draft.number(), &about) != 0) {
    return tl::unexpected(system_failure(errno, "read a new store"));
  }
  std::vector<char> pages(static_cast<std::size_t>(about.st_size));
  if (::pread(draft.number(), pages.data(), pages.size(), 0) != std::ssize(pages)) {
    return tl::unexpected(system_failure(EIO, "read a new store"));
  }
  return pages;
}

}  // namespace

base::result<std::monostate> lmdb_file::begin(int file, std::uint64_t map_bytes) {
  const auto pages = first_pages(map_bytes);
  if (!pages) return tl::unexpected(pages.error());
  if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(map_bytes))) {
    return tl::unexpected(system_failure(
        error, "allocate " + std::to_string(map_bytes >> 20U) +
                   " MiB for the store (make room, or begin it smaller with ?size=4M)"));
  }
  if (::pwrite(file, pages->data(), pages->size(), 0) != std::ssize(*pages)) {
    return tl::unexpected(system_failure(errno, "write the first pages of the store"));
  }
  return std::monostate{};
}

base::result<std::monostate> lmdb_file::make(int folder, const std::string& name, mode_t mode,
                                             std::uint64_t map_bytes) {
  const descriptor file(
      ::openat(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.open()) {
    return tl::unexpected(system_failure(errno, "make the store's file '" + name + "'"));
  }
  ::fchmod(file.number(), mode);
  auto begun = begin(file.number(), map_bytes);
  if (!begun) ::unlinkat(folder, name.c_str(), 0);
  return begun;
}

base::result<std::unique_ptr<lmdb_file>> lmdb_file::open(int folder, const std::string& name,
                                                         std::uint64_t map_bytes, bool write_map) {
  const auto torn = [&](const std::string& why) {
    return base::fail(errc::store_refused, "the store's file '" + name + "' " + why);
  };
  const descriptor opened(
      ::openat(folder, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!opened.open() && errno == ENOENT) return torn("is missing");
  if (!opened.open() && (errno == ELOOP || errno == EISDIR)) return torn("is no plain file");
  struct stat about {};
  if (!opened.open() || ::fstat(opened.number(), &about) != 0) {
    return tl::unexpected(system_failure(errno, "open the store's file '" + name + "'"));
  }
  if (!S_ISREG(about.st_mode)) return torn("is no plain file");
  // Touching what is missing through the map would end the process.
  if (static_cast<std::uint64_t>(about.st_size) < map_bytes) return torn("is cut off");

  const unsigned flags = plain_flags | (write_map ? MDB_WRITEMAP : 0U);
  auto environment = open_environment(opened.number(), map_bytes, flags);
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

void lmdb_table::claim_room() {
  if (failure_) return;
  MDB_stat records{};
  MDB_envinfo map{};
  int error = mdb_stat(transaction_, file_.records(), &records);
  if (error == 0) error = mdb_env_info(file_.environment(), &map);
  if (error != 0) {
    fail(error, "look");
    return;
  }
  const std::size_t used =
      records.ms_branch_pages + records.ms_leaf_pages + records.ms_overflow_pages;
  const std::size_t spare = std::min(2 * used, 2 * most_pages_changed) + own_pages;
  if (used + spare > map.me_mapsize / records.ms_psize) fail(MDB_MAP_FULL, "write");
}

void lmdb_table::fail(int error, const char* doing) {
  if (failure_) return;
  switch (error) {
    case MDB_MAP_FULL:
      out_of_room_ = true;
      failure_ = {make_error_code(errc::store_refused),
                  "the store is full: it has room for as many locks as fit into its file. Release "
                  "some, or stop all programs that use it, remove its folder's state-* and gate-* "
                  "files and open it with ?size=, for example local:?size=256M (for local:machine: "
                  "sudo sallyport init 'local:machine?size=256M')"};
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
