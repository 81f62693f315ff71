#include "backends/local/place.hpp"

#include "backends/local/test_children.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/resource.h>
#include <thread>

namespace sallyport::backends::local {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uid_t nobody = 65534;

// --- Addresses --------------------------------------------------------------------------------------

TEST(LocalAddress, TakesAPathASizeAndTheMap) {
  const auto all = parse_address("local:/var/x/?size=4M&map=no");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->path, "/var/x");
  EXPECT_EQ(all->map_bytes, 4U << 20U);
  EXPECT_FALSE(all->write_map);
  EXPECT_EQ(parse_address("local:")->path, "");
  EXPECT_EQ(parse_address("local:?size=1048576")->map_bytes, 1U << 20U);
  EXPECT_EQ(parse_address("local:?size=16G")->map_bytes, std::uint64_t{16} << 30U);
}

TEST(LocalAddress, RefusesWhatItDoesNotUnderstand) {
  for (const std::string bad :
       {"local:relative", "local:./x", "local://host/x", "local:/", "local:///", "local:?size=0",
        "local:?size=1023K", "local:?size=17G", "local:?size=18446744073709551615G",
        "local:?size=-1M", "local:?size=4T", "local:?size=", "local:?siz=4M", "local:?map=maybe",
        "local:/x?&", "redis:/x"}) {
    const auto read = parse_address(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code, errc::bad_uri) << bad;
  }
  EXPECT_FALSE(parse_address("local:/" + std::string(4000, 'x')));
  EXPECT_FALSE(parse_address(std::string_view("local:/x\0y", 10)));
}

// --- The default place ------------------------------------------------------------------------------

TEST(LocalPlace, OfRootIsTheSameInEveryEnvironment) {
  const std::string bare = in_child([] {
    ::clearenv();
    return default_path().value_or("none");
  });
  const std::string nonsense = in_child([] {
    ::setenv("HOME", "/nonsense", 1);
    ::setenv("XDG_STATE_HOME", "/more/nonsense", 1);
    ::setenv("TMPDIR", "/tmp/nonsense", 1);
    return default_path().value_or("none");
  });

  EXPECT_EQ(bare, "/var/lib/sallyport");
  EXPECT_EQ(nonsense, "/var/lib/sallyport");
}

TEST(LocalPlace, OfAUserComesFromThePasswordFileAlone) {
  const passwd* const entry = ::getpwuid(nobody);
  ASSERT_NE(entry, nullptr);
  const std::string expected = std::string(entry->pw_dir) + "/.local/state/sallyport";

  const std::string found = in_child([] {
    ::setenv("HOME", "/nonsense", 1);
    become_user(nobody);
    return default_path().value_or("none");
  });

  EXPECT_EQ(found, expected);
}

TEST(LocalPlace, OfAUserWithoutAHomeIsAskedFor) {
  const std::string unknown = in_child([] {
    become_user(54321);
    return try_open("local:");
  });
  EXPECT_THAT(unknown, HasSubstr("name a place with local:/path"));

  if (!std::filesystem::exists("/nonexistent")) {
    const std::string homeless = in_child([] {
      become_user(nobody);
      return try_open("local:");
    });
    EXPECT_THAT(homeless, HasSubstr("/nonexistent")) << homeless;
  }
}

// --- The folder -------------------------------------------------------------------------------------

class LocalFolder : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return root_.path() + name; }
  static mode_t mode_of(const std::string& file) {
    struct stat about {};
    return ::stat(file.c_str(), &about) == 0 ? about.st_mode & 07777U : 0;
  }
  temporary_folder root_;
};

TEST_F(LocalFolder, IsMadeForItsOwnerOnly) {
  ASSERT_EQ(try_open("local:" + path("/store?size=1M")), "ok");

  EXPECT_EQ(mode_of(path("/store")), 0700U);
  for (const std::string& name : names_in(path("/store"), "")) {
    EXPECT_EQ(mode_of(path("/store/" + name)), 0600U) << name;
  }
}

TEST_F(LocalFolder, LetsIntoItsFilesWhomItLetsIn) {
  for (const auto& [folder_mode, file_mode] : {std::pair{0770, 0660}, {0777, 0666}}) {
    const std::string folder = path("/" + std::to_string(folder_mode));
    ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
    ASSERT_EQ(::chmod(folder.c_str(), static_cast<mode_t>(folder_mode)), 0);
    const mode_t before = ::umask(077);
    const auto store = client::open("local:" + folder + "?size=1M");
    ::umask(before);

    for (const std::string& name : names_in(folder, "")) {
      EXPECT_EQ(mode_of(folder + "/" + name), static_cast<mode_t>(file_mode)) << name;
    }
    EXPECT_EQ(names_in(folder, "inbox-").size(), 1U);
  }
}

TEST_F(LocalFolder, OfRootThatIsOpenToAllIsSharedByUsers) {
  ASSERT_EQ(::mkdir(path("/all").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path("/all").c_str(), 01777), 0);
  const std::string address = "local:/mnt/all?size=1M";

  const std::string together = in_child([&]() -> std::string {
    leave_namespaces(CLONE_NEWNS);
    if (::mount(root_.path().c_str(), "/mnt", nullptr, MS_BIND, nullptr) != 0) return "no bind";
    ::chmod("/mnt", 0755);
    const auto store = client::open(address);
    mutex lock{store, "door"};
    const auto held = lock.acquire();
    const std::string other = in_child([&]() -> std::string {
      become_user(nobody);
      const auto own = client::open(address);
      mutex same{own, "door"};
      mutex another{own, "another"};
      return std::string(same.try_acquire() ? "in" : "busy") +
             (another.try_acquire() ? " in" : " busy");
    });
    return other;
  });

  EXPECT_EQ(together, "busy in");
}

TEST_F(LocalFolder, ThatIsASymbolicLinkIsRefused) {
  ASSERT_EQ(::mkdir(path("/real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("real", path("/link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", path("/broken").c_str()), 0);
  std::ofstream(path("/file")) << "x";

  for (const std::string name : {"/link", "/broken", "/file"}) {
    EXPECT_THAT(try_open("local:" + path(name)), HasSubstr("symbolic link or no folder")) << name;
  }
  EXPECT_THAT(names_in(path("/real"), ""), IsEmpty());
}

TEST_F(LocalFolder, OfSomebodyElseIsRefused) {
  ASSERT_EQ(::mkdir(path("/theirs").c_str(), 0777), 0);
  ASSERT_EQ(::chown(path("/theirs").c_str(), nobody, nobody), 0);

  EXPECT_THAT(try_open("local:" + path("/theirs")), HasSubstr("belongs to user 65534"));
  EXPECT_THAT(names_in(path("/theirs"), ""), IsEmpty());
}

TEST_F(LocalFolder, WhoseParentIsMissingIsNotMade) {
  EXPECT_THAT(try_open("local:" + path("/a/b")), HasSubstr("make it yourself"));
  EXPECT_FALSE(std::filesystem::exists(path("/a")));
}

TEST_F(LocalFolder, OnAReadOnlyFileSystemIsReported) {
  ASSERT_EQ(::mkdir(path("/store").c_str(), 0700), 0);

  const std::string said = in_child([&] {
    leave_namespaces(CLONE_NEWNS);
    mount_tmpfs(path("/store"), "size=4M,mode=0700");
    if (::mount("none", path("/store").c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return std::string("no remount");
    }
    return try_open("local:" + path("/store"));
  });

  EXPECT_THAT(said, HasSubstr("make it writable"));
  EXPECT_THAT(said, HasSubstr("Read-only file system"));
}

TEST(LocalFolderOnANetwork, IsRecognisedByTheFileSystemsType) {
  EXPECT_EQ(network_file_system(NFS_SUPER_MAGIC), "NFS");
  EXPECT_EQ(network_file_system(0xff534d42), "SMB");
  EXPECT_EQ(network_file_system(0xfe534d42), "SMB");
  EXPECT_EQ(network_file_system(FUSE_SUPER_MAGIC), "FUSE");
  EXPECT_EQ(network_file_system(0x0BD00BD0), "Lustre");
  for (const auto here :
       std::initializer_list<std::uint64_t>{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC}) {
    EXPECT_EQ(network_file_system(here), "");
  }
  EXPECT_EQ(network_file_system(BTRFS_SUPER_MAGIC), "");
}

// --- Full ------------------------------------------------------------------------------------------

void fill_disk(const std::string& folder) {
  std::ofstream big(folder + "/filler", std::ios::binary);
  const std::string block(4096, 'x');
  for (int i = 0; i < 100'000 && big; ++i) big.write(block.data(), 4096).flush();
}

TEST_F(LocalFolder, OnAFullDiskIsRefusedAndLeavesNothing) {
  ASSERT_EQ(::mkdir(path("/disk").c_str(), 0700), 0);
  const std::string said = in_child([&]() -> std::string {
    leave_namespaces(CLONE_NEWNS);
    mount_tmpfs(path("/disk"), "size=512k,mode=0700");
    std::string text = try_open("local:" + path("/disk/store?size=1M"));
    for (const std::string& name : names_in(path("/disk/store"), "")) text += " " + name;
    return text;
  });

  EXPECT_THAT(said, HasSubstr("allocate 1 MiB"));
  EXPECT_THAT(said, HasSubstr("?size="));
  EXPECT_THAT(said, testing::Not(HasSubstr("state-")));
  EXPECT_THAT(said, testing::Not(HasSubstr("gate-")));
  EXPECT_THAT(said, testing::Not(HasSubstr(".new")));
}

TEST_F(LocalFolder, OnADiskThatFillsUpLaterGoesOn) {
  ASSERT_EQ(::mkdir(path("/disk").c_str(), 0700), 0);
  for (const std::string map : {"yes", "no"}) {
    const std::string said = in_child([&]() -> std::string {
      leave_namespaces(CLONE_NEWNS);
      mount_tmpfs(path("/disk"), "size=3M,mode=0700");
      const std::string address = "local:" + path("/disk/store?size=1M&map=" + map);
      const auto store = client::open(address);
      fill_disk(path("/disk"));
      std::vector<lease> held;
      for (int i = 0; i < 1000; ++i) {
        mutex lock{store, "a lock with a long name, to use more of the file " + std::to_string(i)};
        auto one = lock.try_acquire();
        if (!one) return "busy";
        held.push_back(std::move(*one));
      }
      held.clear();
      // One more client, also from another process: a pipe needs no block.
      return try_open(address) + " " + in_child([&] { return try_open(address); });
    });
    EXPECT_EQ(said, "ok ok") << "map=" << map;
  }
}

TEST_F(LocalFolder, ThatCannotBeWrittenForAWhileGivesErrorsAndGoesOn) {
  const std::string said = in_child([&]() -> std::string {
    ::signal(SIGXFSZ, SIG_IGN);
    const auto store = client::open("local:" + path("/store?size=1M&map=no"));
    mutex first{store, "first"};
    auto kept = first.acquire();
    const auto let_write = [](rlim_t bytes) {
      const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("setrlimit");
    };

    let_write(0);
    std::string text;
    mutex second{store, "second"};
    for (int i = 0; i < 3; ++i) {
      try {
        text += second.try_acquire() ? "in " : "busy ";
      } catch (const lock_error& error) {
        text += error.code() == errc::unavailable ? "unavailable " : error.what();
      }
    }
    let_write(RLIM_INFINITY);

    text += second.try_acquire() ? "in " : "busy ";
    text += kept.valid() ? "valid " : "lost ";
    text += to_string(kept.release());
    return text;
  });

  EXPECT_EQ(said, "unavailable unavailable unavailable in valid released");
}

TEST_F(LocalFolder, ThatIsFullOfLocksSaysSoAndTakesReleases) {
  const std::string address = "local:" + path("/store?size=1M");
  const auto store = client::open(address);
  std::vector<lease> held;
  // Long names first, then short ones into what is left.
  for (const std::size_t length : {200U, 100U, 8U}) {
    std::string said;
    for (int i = 0; i < 20'000 && said.empty(); ++i) {
      std::string name = std::to_string(i);
      mutex lock{store, name + std::string(length - name.size(), '.')};
      try {
        auto one = lock.try_acquire();
        ASSERT_TRUE(one);
        held.push_back(std::move(*one));
      } catch (const lock_error& error) {
        EXPECT_EQ(error.code(), errc::store_refused);
        said = error.what();
      }
    }
    EXPECT_THAT(said, HasSubstr("full"));
    EXPECT_THAT(said, HasSubstr("?size="));
  }
  EXPECT_GT(held.size(), 500U);

  // What is held can be given back, whatever the room and in whatever order.
  const std::size_t count = held.size();
  std::size_t released = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (held[i * 7919 % count].release() == release_result::released) ++released;
  }
  EXPECT_EQ(released, count);
  mutex again{store, "again"};
  EXPECT_TRUE(again.try_acquire());
  EXPECT_EQ(try_open(address), "ok");
}

TEST_F(LocalFolder, ThatIsFullOfLocksKeepsWhatIsHeld) {
  const auto store = client::open("local:" + path("/store?size=1M"));
  mutex mine{store, "mine", {.lease_length = std::chrono::milliseconds{300}}};
  auto kept = mine.try_acquire();
  ASSERT_TRUE(kept);
  std::vector<lease> held;
  bool full = false;
  for (int i = 0; i < 20'000 && !full; ++i) {
    mutex lock{store, "lock " + std::to_string(i)};
    std::error_code error;
    auto one = lock.try_acquire(error);
    full = static_cast<bool>(error);
    if (one) held.push_back(std::move(*one));
  }
  ASSERT_TRUE(full);

  std::this_thread::sleep_for(std::chrono::milliseconds{700});

  EXPECT_TRUE(kept->valid()) << "it is renewed";
}

}  // namespace
}  // namespace sallyport::backends::local
