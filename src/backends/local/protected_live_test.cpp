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

int protection_of_files() {
  int number = -1;
  std::ifstream(setting) >> number;
  return number;
}

/// Reads until the other end is closed everywhere.
void wait_for_end(int pipe) {
  char byte = 0;
  while (::read(pipe, &byte, 1) < 0 && errno == EINTR) {
  }
}

/// Protects them for as long as it lives. A keeper sets back what was there before, also when this process
/// is killed with all its children and their session: it is a child of nobody here, in a session of its own.
class protection {
 public:
  protection() {
    std::array<int, 2> mine{-1, -1};
    std::array<int, 2> keepers{-1, -1};
    if (::pipe2(mine.data(), O_CLOEXEC) != 0 || ::pipe2(keepers.data(), O_CLOEXEC) != 0) return;
    const pid_t between = ::fork();
    if (between == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
      ::close(mine[1]);
      ::close(keepers[0]);
      wait_for_end(mine[0]);
      std::ofstream(setting) << before_ << std::flush;
      ::_exit(0);
    }
    ::waitpid(between, nullptr, 0);
    ::close(mine[0]);
    ::close(keepers[1]);
    end_ = mine[1];
    kept_ = keepers[0];
    std::ofstream(setting) << 2 << std::flush;
  }
  protection(const protection&) = delete;
  protection& operator=(const protection&) = delete;
  ~protection() {
    ::close(end_);
    wait_for_end(kept_);
    ::close(kept_);
    EXPECT_EQ(protection_of_files(), before_);
  }

  [[nodiscard]] bool on() const { return protection_of_files() == 2; }

 private:
  const int before_ = protection_of_files();
  int end_ = -1;
  int kept_ = -1;
};

TEST(ProtectedFolder, IsSetBackWhenTheWholeTestIsKilled) {
  const int before = protection_of_files();
  std::array<int, 2> ready{-1, -1};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t test = ::fork();
  if (test == 0) {
    ::setpgid(0, 0);
    const protection protect;
    static_cast<void>(::write(ready[1], protect.on() ? "+" : "-", 1));
    ::pause();
  }
  char word = 0;
  ASSERT_EQ(::read(ready[0], &word, 1), 1);
  EXPECT_EQ(word, '+');
  ::kill(-test, SIGKILL);
  ::waitpid(test, nullptr, 0);

  for (int i = 0; i < 500 && protection_of_files() != before; ++i) ::usleep(10'000);
  EXPECT_EQ(protection_of_files(), before);
  ::close(ready[0]);
  ::close(ready[1]);
}

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
  ASSERT_TRUE(protect.on());
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
  ASSERT_TRUE(protect.on());
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
