#include "backends/local/process.hpp"
#include "backends/local/test_children.hpp"
#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

// Several users in one folder that is open to all and sticky: what one of them made, another can neither
// rename nor remove.
namespace sallyport::backends::local {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr uid_t ann = 65534;
constexpr uid_t bob = 54321;  // has no account: none is needed

const std::string folder = "/mnt/all";
const std::string address = "local:" + folder + "?size=1M";

std::string boot() { return this_machine().value().boot_id; }
std::string gate() { return folder + "/gate-" + boot(); }
std::string state() { return folder + "/state-" + boot() + ".mdb"; }

/// Runs work() in a mount namespace of its own, where /mnt/all is such a folder.
template <class Work>
std::string in_shared_folder(Work work) {
  return in_child([&]() -> std::string {
    leave_namespaces(CLONE_NEWNS);
    mount_tmpfs("/mnt", "size=32M,mode=0755");
    fs::create_directory(folder);
    if (::chmod(folder.c_str(), 03777) != 0) return "no folder";
    return work();
  });
}

/// As this user: what try_open says, and behind a bar what the log said.
std::string open_as(uid_t user) {
  return in_child([&] {
    become_user(user);
    std::string warnings;
    base::set_log_sink([&](base::log_level level, std::string_view line) {
      if (level >= base::log_level::warning) warnings += std::string(line) + "\n";
    });
    const std::string outcome = try_open(address);
    base::set_log_sink({});
    return outcome + "|" + warnings;
  });
}

void overwrite(const std::string& file, std::size_t bytes) {
  std::ofstream(file, std::ios::binary | std::ios::in) << std::string(bytes, '#');
}

void pass_a_boot(const std::string& other = "00000000-0000-0000-0000-000000000000") {
  fs::rename(gate(), folder + "/gate-" + other);
  fs::rename(state(), folder + "/state-" + other + ".mdb");
}

TEST(SharedFolder, WhoseFilesAreAnothersAndDamagedIsBegunAnew) {
  for (const auto& damaged : {&gate, &state}) {
    const std::string said = in_shared_folder([&] {
      std::string all = open_as(ann);
      overwrite(damaged(), 4096);
      all += open_as(bob);
      return all + open_as(ann);
    });
    EXPECT_THAT(said, StartsWith("ok|ok|"));
    EXPECT_THAT(said, testing::EndsWith("ok|")) << "it is whole again";
    EXPECT_THAT(said, HasSubstr("was damaged"));
    EXPECT_THAT(said, HasSubstr("begun anew"));
    EXPECT_THAT(said, Not(HasSubstr("set aside as"))) << "nothing was: the files are another's";
  }
}

TEST(SharedFolder, WhoseStateCannotEvenBeOverwrittenSaysWhatToRemove) {
  const std::string said = in_shared_folder([&] {
    std::string all = open_as(ann);
    fs::remove(state());
    fs::create_directory(state());
    return all + open_as(bob);
  });
  EXPECT_THAT(said, StartsWith("ok|"));
  EXPECT_THAT(said, HasSubstr("remove 'state-"));
  EXPECT_THAT(said, Not(HasSubstr("set aside as")));
}

TEST(SharedFolder, AfterARebootIsBegunByAnybody) {
  const std::string said = in_shared_folder([&]() -> std::string {
    std::string all = open_as(ann);
    for (const char* const each : {"1", "2", "3"}) {
      pass_a_boot("00000000-0000-0000-0000-00000000000" + std::string(each));
      all += open_as(bob);
    }
    for (const std::string& name : names_in(folder, "state-")) {
      if (name != "state-" + boot() + ".mdb" && fs::file_size(folder + "/" + name) != 0) {
        all += name + " keeps its blocks";
      }
    }
    return all + " " + std::to_string(names_in(folder, "state-").size());
  });
  // The first, of the other user, is left without content; those of one's own are gone.
  EXPECT_THAT(said, StartsWith("ok|ok|"));
  EXPECT_THAT(said, HasSubstr("state-00000000-0000-0000-0000-000000000001.mdb"));
  EXPECT_THAT(said, Not(HasSubstr("keeps")));
  EXPECT_THAT(said, testing::EndsWith(" 2"));
}

TEST(SharedFolder, SaysOfWhatItCouldNotEmptyThatItTakesRoom) {
  const std::string said = in_shared_folder([&] {
    std::string all = open_as(ann);
    pass_a_boot();
    for (const std::string& name : names_in(folder, "state-0")) {
      fs::permissions(folder + "/" + name, fs::perms(0600));
    }
    return all + open_as(bob);
  });
  EXPECT_THAT(said, StartsWith("ok|ok|"));
  EXPECT_THAT(said, HasSubstr("1 of them could not be emptied"));
  EXPECT_THAT(said, Not(HasSubstr("take no room")));
}

TEST(SharedFolder, WithPipesThatAnotherLeftIsUsed) {
  const std::string said = in_shared_folder([&]() -> std::string {
    in_child([&]() -> std::string {
      become_user(ann);
      auto* const kept = new client(client::open(address));
      return kept->capabilities().store_id;  // ends without closing
    });
    const auto left = names_in(folder, "inbox-");
    pass_a_boot();
    return std::to_string(left.size()) + " " + open_as(bob);
  });
  EXPECT_THAT(said, StartsWith("1 ok|"));
}

TEST(SharedFolder, WithDraftsThatAnotherLeftIsMade) {
  const std::string said = in_shared_folder([&]() -> std::string {
    in_child([&]() -> std::string {
      become_user(ann);
      for (const std::string name : {"tokens.new", "tokens.new-65534"}) {
        std::ofstream(folder + "/" + name) << "half";
      }
      for (const std::string end : {".new", ".new-65534"}) std::ofstream(gate() + end) << "half";
      return "";
    });
    return open_as(bob);
  });
  EXPECT_THAT(said, StartsWith("ok|"));
}

}  // namespace
}  // namespace sallyport::backends::local
