#include "backends/local/token_file.hpp"

#include "backends/local/place.hpp"
#include "base/checksum.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <string_view>
#include <sys/stat.h>
#include <type_traits>
#include <utility>

namespace sallyport::backends::local {
namespace {

constexpr const char* file_name = "tokens";
constexpr std::string_view magic = "sallyport-token1";

struct slot_image {
  std::array<char, magic.size()> magic_text;
  std::uint64_t checksum;
  token_mark mark;
};
static_assert(std::has_unique_object_representations_v<slot_image>);

std::uint64_t checksum_of(const token_mark& mark) {
  return base::checksum(std::as_bytes(std::span{&mark, 1}));
}

bool write_fully(int file, std::span<const std::byte> bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(file, bytes.data(), bytes.size(), at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    at += wrote;
  }
  return true;
}

base::result<token_mark> read_file(int file) {
  std::array<std::byte, token_file_bytes> image{};
  const ssize_t got = ::pread(file, image.data(), image.size(), 0);
  if (got < 0) return tl::unexpected(system_failure(errno, "read the store's token file"));
  const auto mark = read_marks(std::span{image}.first(static_cast<std::size_t>(got)));
  if (mark) return *mark;
  return base::fail(errc::store_refused,
                    "the file 'tokens' of the store is damaged: nobody knows which tokens were "
                    "used. Restore it from a backup; or move the whole folder away to begin a new "
                    "store, whose tokens fences do not accept until they are made anew");
}

/// A file in its place has both slots, whole, whatever happens meanwhile. The draft has one name a
/// user, because one process at a time is here: so what a killed one left is taken away by the next.
base::result<std::monostate> make_file(int folder, mode_t mode) {
  const std::string draft = draft_of(file_name);
  ::unlinkat(folder, draft.c_str(), 0);
  const descriptor file(
      ::openat(folder, draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  const auto failed = [&](const char* what) {
    auto why = system_failure(errno, what);
    if (file.open()) ::unlinkat(folder, draft.c_str(), 0);
    return tl::unexpected(std::move(why));
  };
  if (!file.open()) return failed("create the store's token file");
  ::fchmod(file.number(), mode);

  token_mark first;
  base::fill_from_kernel(std::as_writable_bytes(std::span{first.store}));
  for (const std::uint64_t sequence : {0U, 1U}) {
    first.sequence = sequence;
    const token_slot bytes = encode(first);
    if (!write_fully(file.number(), bytes, static_cast<off_t>(sequence * token_slot_bytes))) {
      return failed("write the store's token file");
    }
  }
  if (::fsync(file.number()) != 0) return failed("write the store's token file to disk");
  if (::renameat(folder, draft.c_str(), folder, file_name) != 0) {
    return failed("put the store's token file in place");
  }
  ::fsync(folder);
  return std::monostate{};
}

}  // namespace

token_slot encode(const token_mark& mark) {
  slot_image image{};
  std::memcpy(image.magic_text.data(), magic.data(), magic.size());
  image.checksum = checksum_of(mark);
  image.mark = mark;
  token_slot bytes{};
  std::memcpy(bytes.data(), &image, sizeof image);
  return bytes;
}

std::optional<token_mark> decode(std::span<const std::byte, token_slot_bytes> bytes) {
  slot_image image{};
  std::memcpy(&image, bytes.data(), sizeof image);
  if (std::string_view(image.magic_text.data(), magic.size()) != magic) return std::nullopt;
  if (image.checksum != checksum_of(image.mark)) return std::nullopt;
  return image.mark;
}

std::optional<token_mark> read_marks(std::span<const std::byte> file) {
  std::optional<token_mark> newest;
  for (; file.size() >= token_slot_bytes; file = file.subspan(token_slot_bytes)) {
    const auto mark = decode(file.first<token_slot_bytes>());
    if (mark && (!newest || mark->sequence > newest->sequence)) newest = mark;
  }
  return newest;
}

base::result<std::unique_ptr<token_file>> token_file::open(int folder) {
  descriptor file(::openat(folder, file_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.open() && errno == ENOENT) return nullptr;
  if (!file.open()) return tl::unexpected(system_failure(errno, "open the store's token file"));
  const auto mark = read_file(file.number());
  if (!mark) return tl::unexpected(mark.error());
  return std::unique_ptr<token_file>(new token_file(std::move(file), *mark));
}

base::result<std::unique_ptr<token_file>> token_file::make(int folder, mode_t mode) {
  if (auto made = make_file(folder, mode); !made) return tl::unexpected(made.error());
  auto file = open(folder);
  if (file && !*file) return tl::unexpected(system_failure(ENOENT, "open the store's token file"));
  return file;
}

base::result<std::monostate> token_file::refresh() {
  const auto mark = read_file(file_.number());
  if (!mark) return tl::unexpected(mark.error());
  mark_ = *mark;
  return std::monostate{};
}

base::result<std::uint64_t> token_file::reserve(std::uint64_t beyond) {
  if (auto read = refresh(); !read) return tl::unexpected(read.error());
  token_mark next = mark_;
  ++next.sequence;
  next.high_water = std::max(mark_.high_water, beyond) + block;
  const token_slot bytes = encode(next);
  const auto at = static_cast<off_t>((next.sequence % 2) * token_slot_bytes);
  token_slot older;
  if (::pread(file_.number(), older.data(), older.size(), at) != std::ssize(older)) {
    return tl::unexpected(system_failure(EIO, "read the store's token file"));
  }
  if (!write_fully(file_.number(), bytes, at) || ::fdatasync(file_.number()) != 0) {
    auto why = system_failure(errno, "reserve tokens on disk");
    // The page cache keeps a write whose sync failed, and no later sync puts it on disk. Whoever read
    // it would take it for the newest mark and overwrite the one that is on disk.
    // Who is killed before this, or cannot write at all any more, leaves it so: then a power cut in the
    // next reserve, too, would bring tokens again. To write the newest mark again first, to be sure that it
    // is on disk, is no cure: where it is, a torn write would take the only good one along.
    if (!write_fully(file_.number(), older, at)) {
      why.detail +=
          "; what was written could not be taken back, so mend the disk before the next power cut";
    }
    return tl::unexpected(std::move(why));
  }
  mark_ = next;
  return next.high_water;
}

}  // namespace sallyport::backends::local
