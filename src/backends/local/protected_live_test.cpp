#include "backends/local/test_children.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>

// Where the kernel protects files in sticky folders (fs.protected_regular; 1 or 2 on most
// distributions). The setting is the whole machine's: these tests run alone.
namespace sallyport::backends::local {
namespace {

namespace fs = std::filesystem;

constexpr uid_t ann = 65534;
constexpr uid_t bob = 54321;

constexpr const char* setting = "/proc/sys/fs/protected_regular";

/// Protects them for as long as it lives. A child of its own sets back what was there before, also
/// when this process is killed.
class protection {
 public:
  protection() {
    std::ifstream(setting) >> before_;
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) return;
    keeper_ = ::fork();
    if (keeper_ == 0) {
      ::close(ends_[1]);
      char byte = 0;
      while (::read(ends_[0], &byte, 1) < 0 && errno == EINTR) {
      }
      std::ofstream(setting) << before_ << std::flush;
      ::_exit(0);
    }
    ::close(ends_[0]);
    std::ofstream(setting) << 2 << std::flush;
  }
  protection(const protection&) = delete;
  protection& operator=(const protection&) = delete;
  ~protection() {
    ::close(ends_[1]);
    ::waitpid(keeper_, nullptr, 0);
    int after = -1;
    std::ifstream(setting) >> after;
    EXPECT_EQ(after, before_);
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  pid_t keeper_ = -1;
  int before_ = 0;
};

/// Holds `door`, and says whether this user gets in beside it, and through another door.
std::string two_doors(const std::string& address) {
  const auto store = client::open(address);
  mutex door{store, "door"};
  mutex another{store, "another"};
  return std::string(door.try_acquire() ? "in" : "busy") +
         (another.try_acquire() ? " in" : " busy");
}

/// What holds `door` as this user.
auto holding(uid_t user, const std::string& address) {
  return [=] {
    become_user(user);
    auto store = std::make_unique<client>(client::open(address));
    auto door = std::make_unique<mutex>(*store, "door");
    auto held = door->acquire();
    return std::tuple(std::move(store), std::move(door), std::move(held));
  };
}

std::string two_doors_as(uid_t user, const std::string& address) {
  return in_child([&] {
    if (user != 0) become_user(user);
    return two_doors(address);
  });
}

TEST(ProtectedFolder, IsSharedByUsers) {
  const protection protect;
  const std::string folder = "/mnt/all";

  for (const std::string map : {"", "&map=no"}) {
    const std::string address = "local:" + folder + "?size=1M" + map;
    const std::string said = in_child([&]() -> std::string {
      leave_namespaces(CLONE_NEWNS);
      mount_tmpfs("/mnt", "size=32M,mode=0755");
      fs::create_directory(folder);
      if (::chmod(folder.c_str(), 03777) != 0) return "no folder";
      const living_child holder(holding(ann, address));
      const std::string refused = in_child([&]() -> std::string {
        become_user(bob);
        const int file = ::open((folder + "/presence").c_str(), O_RDWR | O_CREAT, 0666);
        return file < 0 && errno == EACCES ? "protected" : "not protected";
      });
      return refused + ", " + two_doors_as(bob, address) + ", " + two_doors_as(0, address);
    });

    EXPECT_EQ(said, "protected, busy in, busy in") << map;
  }
}

TEST(ProtectedFolder, DoesNotMatterForTheMachinesStore) {
  const protection protect;
  const std::string address = "local:machine";

  const std::string said = in_child([&]() -> std::string {
    leave_namespaces(CLONE_NEWNS);
    mount_tmpfs("/var/lib", "size=32M,mode=0755");
    in_child([&] { return try_open(address + "?size=1M&initialise=yes"); });
    const living_child holder(holding(ann, address));
    return two_doors_as(bob, address) + ", " + two_doors_as(0, address);
  });

  EXPECT_EQ(said, "busy in, busy in");
}

}  // namespace
}  // namespace sallyport::backends::local
