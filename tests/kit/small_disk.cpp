#include "tests/kit/small_disk.hpp"

#include "base/descriptor.hpp"
#include "tests/kit/unprivileged.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace sallyport::kit {

namespace {

kit_error trouble(const std::string& action) {
  return kit_error(action + " failed: " + std::generic_category().message(errno));
}

}  // namespace

small_disk::small_disk(std::size_t bytes) : folder_("disk", in_memory()) {
  if (::unshare(CLONE_NEWNS) != 0) throw trouble("unshare, which needs root,");
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    throw trouble("making the mounts private");
  }
  const std::string options = "mode=0755,size=" + std::to_string(bytes);
  if (::mount("none", path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
    throw trouble("mounting a tmpfs");
  }
}

small_disk::~small_disk() { ::umount2(path().c_str(), MNT_DETACH); }

void small_disk::fill() {
  const base::descriptor file{
      ::open((path() / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
  if (file.number() < 0) throw trouble("open");
  const std::vector<char> page(4096, 'x');
  while (::write(file.number(), page.data(), page.size()) > 0) {
  }
  if (errno != ENOSPC) throw trouble("write");
}

void small_disk::make_room() { std::filesystem::remove(path() / "filler"); }

}  // namespace sallyport::kit
