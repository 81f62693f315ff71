#include "tests/kit/shifted_clock.hpp"

#include "tests/kit/shifted_clock/clock_page.hpp"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

namespace sallyport::kit {

namespace {

/// Where the build has put it.
constexpr const char* library = SALLYPORT_SHIFTED_CLOCK_LIBRARY;

}  // namespace

shifted_clock::shifted_clock() {
  // Servers that run as another user look at it, too.
  std::filesystem::permissions(folder_.path(), std::filesystem::perms{0755});
  const std::string path = folder_.path() / "page";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  void* mapped = MAP_FAILED;
  if (file >= 0 && ::ftruncate(file, sizeof(clock_page)) == 0) {
    mapped = ::mmap(nullptr, sizeof(clock_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int why = errno;
  if (file >= 0) ::close(file);
  if (mapped == MAP_FAILED) throw kit_error("cannot map " + path + ": " + error_text(why));
  page_ = static_cast<clock_page*>(mapped);
}

shifted_clock::~shifted_clock() { ::munmap(page_, sizeof(clock_page)); }

void shifted_clock::write(std::int64_t mode, std::int64_t microseconds) {
  const std::uint64_t next = page_->changes.load() + 1;
  page_->slots[next % 2].mode.store(mode);
  page_->slots[next % 2].microseconds.store(microseconds);
  page_->changes.store(next);
}

void shifted_clock::step(std::chrono::microseconds by) {
  const clock_page::slot& now = page_->slots[page_->changes.load() % 2];
  write(now.mode.load(), now.microseconds.load() + by.count());
}

void shifted_clock::freeze(wall_time time) {
  write(clock_page::frozen, time.time_since_epoch().count());
}

shifted_clock::wall_time shifted_clock::freeze() {
  const wall_time here = now();
  freeze(here);
  return here;
}

void shifted_clock::release() { write(clock_page::offset, 0); }

shifted_clock::wall_time shifted_clock::now() const {
  const clock_page::slot& now = page_->slots[page_->changes.load() % 2];
  std::chrono::microseconds time{now.microseconds.load()};
  if (now.mode.load() == clock_page::offset) {
    time += std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
  }
  return wall_time{time};
}

std::vector<std::string> shifted_clock::environment() const {
  return {std::string{"LD_PRELOAD="} + library,
          std::string{clock_page_variable} + "=" + (folder_.path() / "page").string()};
}

}  // namespace sallyport::kit
