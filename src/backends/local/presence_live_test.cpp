#include "backends/local/presence.hpp"

#include "backends/local/descriptor.hpp"
#include "backends/local/process.hpp"
#include "backends/local/test_children.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

// Who is attached to a store is known whatever else the process does with the file `presence`.
namespace sallyport::backends::local {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class LocalPresence : public testing::Test {
 protected:
  [[nodiscard]] std::string folder() const { return root_.path() + "/store"; }
  [[nodiscard]] std::string address() const { return "local:" + folder() + "?size=1M"; }
  void remove_gate() const {
    ASSERT_TRUE(fs::remove(folder() + "/gate-" + this_machine().value().boot_id));
  }

  temporary_folder root_;
};

/// A backup, a plugin with a second copy of the library: record locks of the process go with the
/// first descriptor that is closed.
TEST_F(LocalPresence, OutlivesOtherDescriptorsOfItsFile) {
  const living_child other([&] {
    auto store = client::open(address());
    ::close(::open((folder() + "/presence").c_str(), O_RDWR | O_CLOEXEC));
    return store;
  });
  remove_gate();

  EXPECT_THAT(in_child([&] { return try_open(address()); }),
              HasSubstr("had its files removed while"));
}

TEST_F(LocalPresence, IsSeenByASecondCopyOfTheLibraryInTheSameProcess) {
  const std::string path = root_.path() + "/presence";
  const descriptor one(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const descriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const presence_locks here(one.number());
  const presence_locks there(other.number());
  using turn = presence_locks::turn;

  ASSERT_TRUE(here.begin_attaching(turn::look));
  EXPECT_TRUE(there.begin_attaching(turn::look));
  there.end_attaching();
  EXPECT_FALSE(there.begin_attaching(turn::make));
  ASSERT_TRUE(here.be_present());
  here.end_attaching();
  EXPECT_TRUE(there.begin_attaching(turn::make));
  EXPECT_FALSE(there.be_alone());
  const std::string seen = in_child([&] {
    const descriptor elsewhere(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return std::to_string(presence_locks(elsewhere.number()).somebody_present());
  });
  EXPECT_EQ(seen, std::to_string(::getpid())) << "what was refused took the other's lock along";
  EXPECT_TRUE(there.be_present());
}

TEST_F(LocalPresence, OfAForkedChildKeepsNobodyOutOfAStoreThatIsWhole) {
  std::array<int, 2> end{-1, -1};
  ASSERT_EQ(::pipe2(end.data(), O_CLOEXEC), 0);
  // Opens, forks, and ends; the child has its descriptors and lives on.
  const pid_t parent = ::fork();
  if (parent == 0) {
    const auto store = client::open(address());
    if (::fork() == 0) {
      ::close(end[1]);
      char byte = 0;
      static_cast<void>(::read(end[0], &byte, 1));
    }
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);

  EXPECT_EQ(in_child([&] { return try_open(address()); }), "ok");
  ::close(end[1]);
  ::close(end[0]);
}

}  // namespace
}  // namespace sallyport::backends::local
