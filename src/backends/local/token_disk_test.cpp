#include "backends/local/token_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <stdlib.h>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

// What is on the disk when the power goes: not what the page cache says. A disk that fails once
// forgets the write, and the cache keeps it.
namespace {

using sallyport::backends::local::read_marks;
using sallyport::backends::local::token_file_bytes;
using sallyport::backends::local::token_slot_bytes;
using image = std::array<std::byte, token_file_bytes>;

struct disk {
  image durable{};
  std::array<bool, 2> dirty{};  // slots that the next sync writes; a failed one forgets them
  bool failing = false;
  bool gone_after_failure = false;  // then it takes no more writes, not even into the cache
  bool synced_in_vain = false;
  std::uint64_t promised = 0;  // the largest token that somebody may have used
  std::uint64_t worst = ~std::uint64_t{0};

  /// The power goes while this slot is written: it may hold anything, the other what was synced.
  void torn(std::size_t at) {
    image left = durable;
    std::fill_n(
        left.begin() + static_cast<std::ptrdiff_t>(at / token_slot_bytes * token_slot_bytes),
        token_slot_bytes, std::byte{0x5a});
    const auto mark = read_marks(left);
    worst = std::min(worst, mark ? mark->high_water : 0);
  }
};
disk* the_disk = nullptr;

image content_of(int file) {
  image all{};
  EXPECT_EQ(::pread(file, all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
  return all;
}

}  // namespace

// In place of libc's, for this program.
extern "C" ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) {
  if (the_disk != nullptr && the_disk->gone_after_failure && the_disk->synced_in_vain) {
    errno = EIO;
    return -1;
  }
  if (the_disk != nullptr) {
    the_disk->torn(static_cast<std::size_t>(at));
    the_disk->dirty.at(static_cast<std::size_t>(at) / token_slot_bytes) = true;
  }
  return ::syscall(SYS_pwrite64, file, bytes, size, at);
}
extern "C" int fdatasync(int file) {
  if (the_disk == nullptr) return static_cast<int>(::syscall(SYS_fdatasync, file));
  const auto written = std::exchange(the_disk->dirty, {});
  if (the_disk->failing) {
    the_disk->synced_in_vain = true;
    errno = EIO;
    return -1;
  }
  const image cached = content_of(file);
  for (std::size_t slot = 0; slot < written.size(); ++slot) {
    const auto at = static_cast<std::ptrdiff_t>(slot * token_slot_bytes);
    if (written.at(slot)) {
      std::copy_n(cached.begin() + at, token_slot_bytes, the_disk->durable.begin() + at);
    }
  }
  return 0;
}

namespace sallyport::backends::local {
namespace {

TEST(LocalTokenDisk, HasAMarkAboveEveryUsedTokenAlsoAfterAFailedSync) {
  std::string path = "/tmp/token-disk-XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  const descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto made = token_file::make(folder.number(), 0600);
  ASSERT_TRUE(made);
  const descriptor seen(::openat(folder.number(), "tokens", O_RDONLY | O_CLOEXEC));
  disk under;
  under.durable = content_of(seen.number());
  the_disk = &under;
  const auto first = (*made)->reserve(0);
  ASSERT_TRUE(first);
  under.promised = *first;
  const image before = under.durable;
  under.worst = ~std::uint64_t{0};

  under.failing = true;
  EXPECT_FALSE((*made)->reserve(under.promised));
  under.failing = false;
  EXPECT_EQ(under.durable, before);
  // Another process reads the file, and what the cache says of it.
  auto other = token_file::open(folder.number());
  ASSERT_TRUE(other && *other);
  const auto second = (*other)->reserve(under.promised);

  the_disk = nullptr;
  ASSERT_TRUE(second);
  EXPECT_GT(*second, under.promised);
  EXPECT_GE(under.worst, under.promised) << "a power cut would have used tokens twice";
  EXPECT_EQ(read_marks(under.durable)->high_water, *second);
  ::unlinkat(folder.number(), "tokens", 0);
  ::rmdir(path.c_str());
}

TEST(LocalTokenDisk, SaysWhenAFailedWriteCouldNotBeTakenBack) {
  std::string path = "/tmp/token-disk-XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  const descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto made = token_file::make(folder.number(), 0600);
  ASSERT_TRUE(made);
  for (const bool gone : {false, true}) {
    disk under;
    under.failing = true;
    under.gone_after_failure = gone;
    the_disk = &under;
    const auto refused = (*made)->reserve(0);
    the_disk = nullptr;
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail.find("taken back") != std::string::npos, gone);
  }
  ::unlinkat(folder.number(), "tokens", 0);
  ::rmdir(path.c_str());
}

}  // namespace
}  // namespace sallyport::backends::local
