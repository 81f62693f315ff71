#include "backends/local/machine.hpp"

#include "backends/local/inbox.hpp"
#include "backends/local/process.hpp"
#include "backends/local/test_children.hpp"
#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <grp.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <tuple>
#include <vector>

// local:machine, the store of all users of a machine: in a mount namespace, where /var/lib is empty.
namespace sallyport::backends::local {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr uid_t ann = 65534;
constexpr uid_t bob = 54321;  // has no account: none is needed

/// Some group of this machine; ann and bob are in it only where a test says so.
struct named_group {
  std::string name;
  gid_t number = 0;
};
named_group find_group() {
  // NOLINTBEGIN(concurrency-mt-unsafe): before there are threads.
  named_group found;
  ::setgrent();
  while (const group* const each = ::getgrent()) {
    if (each->gr_gid == 0 || each->gr_gid == ann || each->gr_gid == bob) continue;
    found = {each->gr_name, each->gr_gid};
    break;
  }
  ::endgrent();
  // NOLINTEND(concurrency-mt-unsafe)
  return found;
}
const named_group staff = find_group();
const std::string quoted_staff = "'" + staff.name + "'";

const std::string address = "local:machine";
const std::string folder = machine_path;

std::string init(const std::string& options = "?size=1M") {
  const char* const more = options.empty() ? "?" : "&";
  return in_child([&]() -> std::string {
    try {
      return client::open(address + options + more + "initialise=yes")
          .capabilities()
          .caveats.front();
    } catch (const lock_error& error) {
      return error.what();
    }
  });
}

/// Runs work() on a machine of its own where nobody has made the store yet.
template <class Work>
std::string on_new_machine(Work work) {
  return in_child([&]() -> std::string {
    leave_namespaces(CLONE_NEWNS);
    mount_tmpfs("/var/lib", "size=200M,mode=0755");
    return work();
  });
}
/// The same where root has made it, for all users.
template <class Work>
std::string on_machine(Work work) {
  return on_new_machine([&] {
    init();
    return work();
  });
}

template <class Work>
std::string as(uid_t user, Work work) {
  return in_child([&]() -> std::string {
    if (user != 0) become_user(user);
    return work();
  });
}
/// What try_open says, and behind a bar what the log said.
std::string open_as(uid_t user) {
  return as(user, [&] {
    std::string warnings;
    base::set_log_sink([&](base::log_level level, std::string_view line) {
      if (level >= base::log_level::warning) warnings += std::string(line) + "\n";
    });
    const std::string outcome = try_open(address);
    base::set_log_sink({});
    return outcome + "|" + warnings;
  });
}

/// What init says, and what the log said meanwhile.
std::string init_with_log(const std::string& options) {
  const char* const more = options.empty() ? "?" : "&";
  return in_child([&] {
    std::string lines;
    base::set_log_sink(
        [&](base::log_level, std::string_view line) { lines += std::string(line) + "\n"; });
    const std::string outcome = try_open(address + options + more + "initialise=yes");
    base::set_log_sink({});
    return outcome + "|" + lines;
  });
}

auto holding(uid_t user, const std::string& name) {
  return [=] {
    if (user != 0) become_user(user);
    auto store = std::make_unique<client>(client::open(address, {.label = "the holder"}));
    auto lock = std::make_unique<mutex>(*store, name);
    auto held = lock->acquire();
    return std::tuple(std::move(store), std::move(lock), std::move(held));
  };
}

std::uint64_t draw() {
  const auto store = client::open(address);
  mutex lock{store, "door"};
  return lock.acquire().token().value();
}

void overwrite(const std::string& file, std::size_t bytes, std::size_t at = 0) {
  std::fstream out(folder + "/" + file, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(at));
  out << std::string(bytes, '#');
}

/// As after a reboot: the gate names another boot, and the rest may hold anything.
void pass_a_boot() {
  constexpr std::size_t behind_the_magic = 16;
  overwrite("gate", 36, behind_the_magic);
  overwrite("state.mdb", 1 << 20);
}

/// Everything in the folder, with its inode, owner and mode.
std::string inventory() {
  std::string all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    struct stat about {};
    ::lstat(entry.path().c_str(), &about);
    all += entry.path().string() + " " + std::to_string(about.st_ino) + " " +
           std::to_string(about.st_uid) + " " + std::to_string(about.st_mode) + "\n";
  }
  return all;
}

// --- Making it -------------------------------------------------------------------------------------

TEST(MachineStore, IsOfferedBeforeItIsMade) {
  const std::string said = on_new_machine([] { return open_as(ann) + open_as(0); });
  EXPECT_THAT(said, HasSubstr("root makes it once: sudo sallyport init local:machine"));
  EXPECT_THAT(said, Not(HasSubstr("ok")));
}

TEST(MachineStore, IsOfferedWhereRootHasAStoreOfItsOwn) {
  const std::string said = on_new_machine([] {
    const std::string own = as(0, [] { return try_open("local:?size=1M"); });
    const std::string before = open_as(ann);
    init();
    return own + "|" + before + open_as(ann) + as(0, [] { return try_open("local:"); });
  });
  EXPECT_THAT(said, StartsWith("ok|"));
  EXPECT_THAT(said, HasSubstr("sudo sallyport init local:machine"));
  EXPECT_THAT(said, EndsWith("ok|ok"));
}

TEST(MachineStore, IsMadeByRootOnly) {
  EXPECT_THAT(on_new_machine([] { return as(ann, [] { return init(); }); }),
              HasSubstr("is made by root: sudo sallyport init local:machine"));
}

TEST(MachineStore, IsForAllUsersUnlessAGroupIsNamed) {
  EXPECT_THAT(on_new_machine([] { return init(); }), HasSubstr("all users on this machine"));
  EXPECT_THAT(on_new_machine([] { return init("?size=1M&group=" + staff.name); }),
              HasSubstr("root and the users of group " + quoted_staff + " on this machine"));
  EXPECT_THAT(on_new_machine([] { return init("?size=1M&group=no-such-group"); }),
              HasSubstr("there is no group 'no-such-group'"));
}

TEST(MachineStore, HasFilesOfRootWithTheModeOfItsUsers) {
  struct expectation {
    std::string options;
    gid_t group;
    mode_t folders;
    mode_t files;
  };
  for (const auto& each : {expectation{"?size=1M", 0, 0755, 0666},
                           expectation{"?size=1M&group=" + staff.name, staff.number, 0750, 0660}}) {
    const std::string said = on_new_machine([&] {
      ::umask(0077);
      init(each.options);
      std::string all;
      const auto look_at = [&](const fs::path& path) {
        struct stat about {};
        ::lstat(path.c_str(), &about);
        const mode_t mode = S_ISDIR(about.st_mode) ? each.folders : each.files;
        if (about.st_uid != 0 || about.st_gid != each.group || (about.st_mode & 07777U) != mode) {
          all += path.string() + " ";
        }
      };
      look_at(folder);
      for (const auto& entry : fs::recursive_directory_iterator(folder)) look_at(entry.path());
      return all + "seen";
    });
    EXPECT_EQ(said, "seen") << each.options;
  }
}

TEST(MachineStore, CannotBeAddedToByUsers) {
  const std::string said = on_machine([] {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator("/var/lib/sallyport")) {
      struct stat about {};
      ::lstat(entry.path().c_str(), &about);
      if (about.st_uid != 0) all += entry.path().string() + " is not root's ";
      const bool writable = (about.st_mode & (S_IWGRP | S_IWOTH)) != 0;
      if (S_ISDIR(about.st_mode) == writable) all += entry.path().string() + " has a wrong mode ";
    }
    return all + as(ann, [] {
             return std::string(std::ofstream(folder + "/new") ? "made" : "refused") +
                    (std::ofstream(folder + "/inbox/new") ? " made" : " refused");
           });
  });
  EXPECT_EQ(said, "refused refused");
}

TEST(MachineStore, MadeAgainKeepsWhatIsThere) {
  const std::string said = on_new_machine([] {
    init("?size=1M&group=" + staff.name);
    const std::uint64_t token = std::stoull(as(0, [] { return std::to_string(draw()); }));
    fs::remove(folder + "/inbox/123");
    const std::string again = init("");
    const std::uint64_t next = std::stoull(as(0, [] { return std::to_string(draw()); }));
    return again + (next > token ? " grown" : "") +
           (fs::file_size(folder + "/state.mdb") == 1 << 20 ? " same size" : "") +
           (fs::exists(folder + "/inbox/123") ? " mended" : "");
  });
  EXPECT_THAT(said, HasSubstr(quoted_staff));
  EXPECT_THAT(said, EndsWith(" grown same size mended"));
}

TEST(MachineStore, GetsAnotherSizeWhenNobodyUsesIt) {
  const std::string said = on_machine([] {
    living_child other(holding(ann, "door"));
    const std::string refused = init("?size=2M");
    other.end();
    init("?size=2M");
    return refused + " | " + std::to_string(fs::file_size(folder + "/state.mdb") >> 20U) + " " +
           open_as(bob);
  });
  EXPECT_THAT(said, HasSubstr("cannot get another size while process"));
  EXPECT_THAT(said, EndsWith("| 2 ok|"));
}

TEST(MachineStore, IsNoPlainFolderUnderWhateverName) {
  const std::string another = "/var/lib/another";
  const std::string said = on_machine([&]() -> std::string {
    fs::create_directory(another);
    if (::mount(folder.c_str(), another.c_str(), nullptr, MS_BIND, nullptr) != 0) return "no mount";
    const std::string before = inventory();
    std::string all;
    for (const uid_t user : {uid_t{0}, ann}) {
      for (const std::string& path : {folder, another, folder + "/../machine"}) {
        all += as(user, [&] { return try_open("local:" + path + "?size=1M"); }) + "\n";
      }
    }
    return all + (inventory() == before ? "same files" : "other files");
  });
  EXPECT_THAT(said, EndsWith("same files"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 6);
  for (std::size_t at = 0; at < said.rfind('\n'); at = said.find('\n', at) + 1) {
    EXPECT_THAT(said.substr(at, said.find('\n', at) - at), HasSubstr("it is local:machine"));
  }
}

TEST(MachineStore, IsNotMadeByAProcessThatHasItOpen) {
  const std::string said = on_machine([] {
    const auto store = client::open(address);
    return try_open(address + "?initialise=yes");
  });
  EXPECT_THAT(said, HasSubstr("is open in this process; close it first"));
}

/// The client was killed, and its companion lives on: nobody is attached, and a lock is held.
TEST(MachineStore, GetsNoOtherSizeWhileACompanionKeepsALock) {
  const std::string said = on_machine([] {
    living_child companion([] { return 0; });
    living_child holder([&] {
      auto store =
          std::make_unique<client>(client::open(address, {.companion_pid = companion.pid()}));
      auto lock = std::make_unique<mutex>(*store, "door");
      auto held = lock->acquire();
      return std::tuple(std::move(store), std::move(lock), std::move(held));
    });
    holder.kill();
    const std::string refused = init("?size=2M");
    const std::string kept = as(bob, [] {
      const auto store = client::open(address);
      mutex door{store, "door"};
      return std::string(door.try_acquire() ? "in" : "busy");
    });
    const std::string pid = std::to_string(companion.pid());
    companion.kill();
    const std::string done = init("?size=2M");
    return refused.substr(0, refused.find(" uses it")) + "|" + kept + "|" + done + "|" +
           (refused.find("while process " + pid) != std::string::npos ? "named" : "not named");
  });
  EXPECT_THAT(said, StartsWith("local:machine cannot get another size while process "));
  EXPECT_THAT(said, HasSubstr("|busy|"));
  EXPECT_THAT(said, AllOf(HasSubstr("|The processes of all users"), EndsWith("|named")));
}

/// Somebody prepared the folder for root's next init: `plant` put something into it. What init says, and what became of
/// what it might have reached: a folder and a file of mode 0600 elsewhere.
template <class Plant>
std::string init_in_hostile_folder(Plant plant) {
  return on_new_machine([&] {
    const std::string victim = "/var/lib/victim";
    fs::create_directory(victim);
    std::ofstream(victim + "/000") << "secret";
    fs::permissions(victim, fs::perms(0700));
    fs::permissions(victim + "/000", fs::perms(0600));
    fs::create_directories(folder);
    ::chmod(machine_parent, 0755);
    ::chmod(folder.c_str(), 01777);
    plant(victim);
    const std::string said = init();
    std::string after;
    for (const std::string& path : {victim, victim + "/000"}) {
      struct stat about {};
      ::lstat(path.c_str(), &about);
      if ((about.st_mode & 0077U) != 0 || about.st_gid != 0) after += " reached " + path;
    }
    if (fs::file_size(victim + "/000") != 6) after += " changed";
    struct stat about {};
    ::stat(folder.c_str(), &about);
    if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) after += " left open";
    return said + after;
  });
}

/// Nothing was reached, and the remedy was named.
auto refuses(const std::string& name) {
  return AllOf(HasSubstr("'" + name + "'"), HasSubstr("remove it"), Not(HasSubstr("reached")),
               Not(HasSubstr("changed")), Not(HasSubstr("left open")));
}

TEST(MachineStore, IsNotMadeThroughPlantedLinks) {
  for (const std::string name : {"tokens", "presence", "gate", "state.mdb", "inbox/000"}) {
    const std::string said = init_in_hostile_folder([&](const std::string& victim) {
      if (name.starts_with("inbox/")) fs::create_directory(folder + "/inbox");
      fs::create_symlink(victim + "/000", folder + "/" + name);
    });
    EXPECT_THAT(said, refuses(name));
  }
  const std::string said = init_in_hostile_folder(
      [](const std::string& victim) { fs::create_symlink(victim, folder + "/inbox"); });
  EXPECT_THAT(said, refuses("inbox"));
}

TEST(MachineStore, IsNotMadeOfFilesThatAreReachedElsewhere) {
  for (const std::string name : {"tokens", "presence", "gate", "state.mdb", "inbox/000"}) {
    const std::string said = init_in_hostile_folder([&](const std::string& victim) {
      if (name.starts_with("inbox/")) fs::create_directory(folder + "/inbox");
      fs::create_hard_link(victim + "/000", folder + "/" + name);
    });
    EXPECT_THAT(said, refuses(name));
  }
}

TEST(MachineStore, IsNotMadeOfAnotherUsersFiles) {
  for (const std::string name : {"tokens", "presence", "gate", "state.mdb", "inbox", "inbox/fff"}) {
    const std::string said = init_in_hostile_folder([&](const std::string&) {
      const std::string path = folder + "/" + name;
      if (name.starts_with("inbox")) fs::create_directory(folder + "/inbox");
      if (name == "inbox/fff") ::mkfifo(path.c_str(), 0600);
      if (!name.starts_with("inbox")) std::ofstream(path).flush();
      ::chown(path.c_str(), ann, ann);
    });
    EXPECT_THAT(said, refuses(name));
  }
}

/// Nobody waits for a pipe's other end, and nothing is a pipe that is none.
TEST(MachineStore, IsNotMadeOfThingsOfAnotherKind) {
  for (const std::string name : {"tokens", "presence", "gate", "state.mdb", "inbox", "inbox/7ff"}) {
    const std::string said = init_in_hostile_folder([&](const std::string&) {
      if (name.starts_with("inbox/")) {
        fs::create_directory(folder + "/inbox");
        fs::create_directory(folder + "/" + name);
      } else {
        ::mkfifo((folder + "/" + name).c_str(), 0600);
      }
    });
    EXPECT_THAT(said, refuses(name));
  }
}

/// An init that gives up, or is killed, leaves the folder as shut as it was.
TEST(MachineStore, OfAGroupStaysTheGroupsWhenAnInitIsRefused) {
  const std::string said = on_new_machine([]() -> std::string {
    init("?size=1M&group=" + staff.name);
    fs::remove(folder + "/inbox/000");
    fs::create_directory(folder + "/inbox/000");
    const std::string refused = init("");
    fs::remove(folder + "/inbox/000");
    return refused + "|" + init("") + "|" + open_as(ann);
  });
  EXPECT_THAT(said, StartsWith("'inbox/000'"));
  EXPECT_THAT(said, HasSubstr("|The processes of root and the users of group"));
  EXPECT_THAT(said, HasSubstr("is for root and the users of group"));
}

TEST(MachineStore, HasASizeOfWholePages) {
  const std::string said = on_new_machine([] {
    init("?size=1500000");
    const living_child user(holding(ann, "door"));
    return std::to_string(fs::file_size(folder + "/state.mdb")) + "|" + init("?size=1500000");
  });
  EXPECT_THAT(said, StartsWith("1503232|"));
  EXPECT_THAT(said, HasSubstr("|The processes of all users")) << "it has that size already";
}

TEST(MachineStore, KeepsItsSizeWhereThereIsNoRoomForALargerOne) {
  const std::string said = on_machine([] {
    as(ann, [] { return std::to_string(draw()); });
    const std::string refused = init("?size=1G");
    return refused + "|" + std::to_string(fs::file_size(folder + "/state.mdb")) + "|" +
           as(bob, [] { return std::to_string(draw()); });
  });
  EXPECT_THAT(said, HasSubstr("allocate 1024 MiB"));
  EXPECT_THAT(said, HasSubstr("it keeps the size that it has"));
  EXPECT_THAT(said, HasSubstr("|1048576|"));
  EXPECT_LT(std::stoull(said.substr(said.rfind('|') + 1)), 1U << 20U) << "it was begun anew";
}

// --- Users -----------------------------------------------------------------------------------------

TEST(MachineStore, KeepsUsersApart) {
  const std::string said = on_machine([] {
    const living_child holder(holding(ann, "door"));
    const auto try_both = [] {
      const auto store = client::open(address);
      mutex door{store, "door"};
      mutex another{store, "another"};
      return std::string(door.try_acquire() ? "in" : "busy") +
             (another.try_acquire() ? " in " : " busy ");
    };
    return as(bob, try_both) + as(0, try_both);
  });
  EXPECT_EQ(said, "busy in busy in ");
}

/// Bob waits for the door that Ann has; then `end` happens. "in", and after how long.
template <class Hold, class End>
std::string hand_over(Hold hold, End end) {
  return on_machine([&]() -> std::string {
    living_child holder(hold);
    std::string outcome;
    std::thread waiting([&] {
      outcome = as(bob, []() -> std::string {
        // So that no heartbeat makes good what was not told.
        const auto store = client::open(address, {.heartbeat = 60s});
        mutex door{store, "door"};
        return door.acquire().valid() ? "in" : "lost";
      });
    });
    const auto store = client::open(address);
    for (bool waits = false; !waits; std::this_thread::yield()) {
      const auto door = store.who("door");
      waits = door && door->waiters.size() == 1;
    }
    const auto began = std::chrono::steady_clock::now();
    end(holder, store);
    waiting.join();
    const bool at_once = std::chrono::steady_clock::now() - began < 5s;
    return outcome + (at_once ? " at once" : " late");
  });
}

/// Releases when it is told to, and lives on: nothing but the notice tells Bob.
TEST(MachineStore, HandsOverFromUserToUser) {
  std::array<int, 2> order{-1, -1};
  ASSERT_EQ(::pipe2(order.data(), O_CLOEXEC), 0);
  const auto hold = [&] {
    become_user(ann);
    auto store = std::make_unique<client>(client::open(address));
    auto lock = std::make_unique<mutex>(*store, "door");
    auto held = std::make_unique<lease>(lock->acquire());
    auto releasing = std::make_unique<std::jthread>([&order, held = held.get()] {
      char byte = 0;
      if (::read(order[0], &byte, 1) == 1) held->release();
    });
    return std::tuple(std::move(store), std::move(lock), std::move(held), std::move(releasing));
  };
  const auto release = [&](living_child&, const client&) {
    ASSERT_EQ(::write(order[1], "x", 1), 1);
  };
  EXPECT_EQ(hand_over(hold, release), "in at once");
  ::close(order[0]);
  ::close(order[1]);
}

TEST(MachineStore, NoticesTheDeathOfAnotherUsersProcess) {
  const auto kill = [](living_child& holder, const client&) { holder.kill(); };
  EXPECT_EQ(hand_over(holding(ann, "door"), kill), "in at once");
}

TEST(MachineStore, IsBrokenByAnotherUser) {
  const std::string said = hand_over(holding(ann, "door"), [](living_child&, const client& store) {
    store.break_lock("door", store.who("door")->holders.front().token, break_style::at_once);
  });
  EXPECT_EQ(said, "in at once");
}

TEST(MachineStore, ShowsTheLocksOfAllUsers) {
  const std::string said = on_machine([] {
    const living_child one(holding(ann, "of ann"));
    const living_child other(holding(0, "of root"));
    return as(bob, [&] {
      const auto store = client::open(address);
      std::string all;
      for (const lock_info& each : store.list()) {
        const holder_info& holder = each.holders.front();
        const bool right = holder.pid == one.pid() || holder.pid == other.pid();
        all += each.name + ": " + holder.label + (right ? "; " : " of another process; ");
      }
      return all + (store.who("of ann") ? "held" : "free");
    });
  });
  EXPECT_EQ(said, "of ann: the holder; of root: the holder; held");
}

TEST(MachineStore, OfAGroupRefusesStrangersAndSaysWhy) {
  const std::string said = on_new_machine([] {
    init("?size=1M&group=" + staff.name);
    const std::string member = in_child([] {
      const gid_t also = staff.number;
      if (::setgroups(1, &also) != 0) return std::string("no groups");
      become_user(bob);
      return try_open(address);
    });
    return member + "|" + open_as(ann);
  });
  EXPECT_THAT(said, StartsWith("ok|"));
  EXPECT_THAT(said, HasSubstr("is for root and the users of group " + quoted_staff));
  EXPECT_THAT(said, HasSubstr("usermod"));
}

TEST(MachineStore, ChangesNoFileButInside) {
  const std::string said = on_machine([]() -> std::string {
    const std::string before = inventory();
    std::string all = open_as(ann) + open_as(bob) + open_as(0);
    pass_a_boot();
    all += open_as(bob);
    all += open_as(ann);
    overwrite("gate", 4096);
    all += open_as(ann);
    return all + (inventory() == before ? "same files" : "other files");
  });
  EXPECT_THAT(said, StartsWith("ok|ok|ok|ok|ok|ok|"));
  EXPECT_THAT(said, EndsWith("same files"));
}

TEST(MachineStore, GivesEveryClientAPipeOfItsOwn) {
  const std::string said = on_machine([] {
    return as(ann, []() -> std::string {
      const rlimit enough{.rlim_cur = ready_made_pipes + 100, .rlim_max = ready_made_pipes + 100};
      if (::setrlimit(RLIMIT_NOFILE, &enough) != 0) return "no descriptors";
      const descriptor place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      std::vector<descriptor> others;
      for (std::uint64_t number = 3; number < ready_made_pipes; ++number) {
        const std::string name = folder + "/" + inbox_name(number, pipes::ready_made);
        others.emplace_back(::open(name.c_str(), O_RDWR | O_CLOEXEC));
        if (::flock(others.back().number(), LOCK_EX | LOCK_NB) != 0) return "not free";
      }
      std::vector<inbox> taken;
      std::set<std::uint64_t> different;
      for (int i = 0; i < 3; ++i) {
        auto one = inbox::take(place.number());
        if (!one) return one.error().detail;
        different.insert(one->taken_pipe());
        taken.push_back(std::move(*one));
      }
      const std::string refusal = inbox::take(place.number()).error().detail;
      taken.pop_back();
      const bool again = inbox::take(place.number()).has_value();
      return std::to_string(different.size()) + (again ? " again " : " ") + refusal;
    });
  });
  EXPECT_THAT(said, StartsWith("3 again all 4096 pipes of the store are taken"));
}

// --- Reboots and damage -----------------------------------------------------------------------------

TEST(MachineStore, IsBegunAnewByAnyUserAfterAReboot) {
  const std::string said = on_machine([]() -> std::string {
    std::uint64_t last = 0;
    for (const uid_t user : {ann, bob, uid_t{0}, ann}) {
      // Ends without closing, as if killed right after the grant.
      const std::string token = as(user, [] {
        auto* const store = new client(client::open(address));
        auto* const lock = new mutex(*store, "door");
        auto* const held = new lease(lock->acquire());
        return std::to_string(held->token().value());
      });
      const std::uint64_t drawn = std::strtoull(token.c_str(), nullptr, 10);
      if (drawn <= last) return token + " after " + std::to_string(last);
      last = drawn;
      pass_a_boot();
    }
    return open_as(bob);
  });
  EXPECT_EQ(said, "ok|") << "a reboot is nothing to warn of";
}

TEST(MachineStore, IsBegunAnewOnceByACrowdAfterAReboot) {
  constexpr int crowd = 60;
  const std::string said = on_machine([]() -> std::string {
    pass_a_boot();
    std::array<int, 2> start{-1, -1};
    if (::pipe2(start.data(), O_CLOEXEC) != 0) return "no pipe";
    std::vector<pid_t> children;
    for (int i = 0; i < crowd; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(start[1]);
      become_user(i % 2 == 0 ? ann : bob);
      char byte = 0;
      static_cast<void>(::read(start[0], &byte, 1));
      try {
        const auto store = client::open(address);
        ::_exit(0);
      } catch (const lock_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      ::_exit(1);
    }
    const auto began = std::chrono::steady_clock::now();
    ::close(start[1]);
    int opened = 0;
    for (const pid_t each : children) {
      int status = 0;
      ::waitpid(each, &status, 0);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++opened;
    }
    const auto took = std::chrono::steady_clock::now() - began;
    return std::to_string(opened) + (took < 8s ? " soon" : " late");
  });
  EXPECT_EQ(said, std::to_string(crowd) + " soon");
}

TEST(MachineStore, ThatIsDamagedIsBegunAnewWhenNobodyUsesIt) {
  for (const std::string file : {"gate", "state.mdb"}) {
    const std::string said = on_machine([&] {
      std::string all = open_as(ann);
      overwrite(file, 4096);
      all += open_as(bob);
      return all += open_as(ann);
    });
    EXPECT_THAT(said, StartsWith("ok|ok|")) << file;
    EXPECT_THAT(said, HasSubstr("was damaged")) << file;
    EXPECT_THAT(said, Not(HasSubstr("set aside"))) << file;
    EXPECT_THAT(said, EndsWith("ok|")) << "it is whole again";
  }
}

TEST(MachineStore, ThatIsDamagedIsRefusedWhileAnotherUserIsThere) {
  const std::string said = on_machine([&] {
    const living_child other(holding(ann, "door"));
    overwrite("gate", 16);
    return std::to_string(other.pid()) + " " + open_as(bob);
  });
  EXPECT_THAT(said, HasSubstr("is damaged"));
  EXPECT_THAT(said, HasSubstr("while process " + said.substr(0, said.find(' '))));
}

TEST(MachineStore, ThatLostAFileSaysWhoMakesItAgain) {
  for (const std::string file : {"gate", "state.mdb", "tokens", "presence", "inbox"}) {
    const std::string said = on_machine([&] {
      std::string all = open_as(ann);
      fs::remove_all(folder + "/" + file);
      all += open_as(bob);
      init("");
      return all + open_as(bob);
    });
    EXPECT_THAT(said, StartsWith("ok|")) << file;
    EXPECT_THAT(said, HasSubstr("sudo sallyport init local:machine")) << file;
    EXPECT_THAT(said, HasSubstr("|ok|")) << file;
  }
}

/// The numbers of a store that lost its tokens begin anew: nothing of the old ones may go on under the new name.
TEST(MachineStore, ThatLostItsTokensIsBegunAnewWithThem) {
  const std::string said = on_machine([] {
    const auto grant = [] {
      return as(ann, [] {
        const auto store = client::open(address);
        mutex lock{store, "door"};
        const auto held = lock.acquire();
        return std::to_string(held.token().value()) + " " + held.fence_pass().lock;
      });
    };
    grant();
    grant();
    const std::string before = grant();
    fs::remove(folder + "/tokens");
    const std::string told = init_with_log("");
    return before + "\n" + grant() + "\n" + told;
  });
  std::istringstream lines(said);
  std::uint64_t token = 0;
  std::uint64_t new_token = 0;
  std::string name;
  std::string new_name;
  lines >> token >> name >> new_token >> new_name;
  EXPECT_LT(new_token, token) << "it goes on from numbers that its file knows nothing of";
  EXPECT_NE(new_name, name);
  EXPECT_THAT(said, HasSubstr("sallyport fence rebind"));
}

TEST(MachineStore, ThatLostItsTokensIsNotMadeWholeBesideItsUsers) {
  const std::string said = on_machine([] {
    const living_child other(holding(ann, "door"));
    fs::remove(folder + "/tokens");
    const std::string told = init("");
    return told + (fs::exists(folder + "/tokens") ? " made" : " not made");
  });
  EXPECT_THAT(said, HasSubstr("while process"));
  EXPECT_THAT(said, EndsWith(" not made"));
}

TEST(MachineStore, ThatIsNewSaysNothingOfGates) {
  const std::string said = on_new_machine([] { return init_with_log("?size=1M"); });
  EXPECT_THAT(said, Not(HasSubstr("rebind")));
}

}  // namespace
}  // namespace sallyport::backends::local
