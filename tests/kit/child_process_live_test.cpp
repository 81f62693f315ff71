#include "tests/kit/child_process.hpp"

#include "tests/kit/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace sallyport::kit {
namespace {

using namespace std::chrono_literals;

class ChildProcess : public testing::Test {
 protected:
  /// A shell that runs `script`.
  child_options shell(const std::string& script) const {
    return {.program = "sh",
            .called_as = {},
            .arguments = {"-c", script},
            .environment = {},
            .folder = folder_.path(),
            .log = folder_.path() / "log",
            .run_as = {}};
  }
  [[nodiscard]] std::string log() const {
    std::ifstream file{folder_.path() / "log"};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  /// Waits until the script has said so.
  [[nodiscard]] bool says(const std::string& text) const {
    return eventually([&] { return log().find(text) != std::string::npos; });
  }

  temporary_folder folder_;
};

TEST_F(ChildProcess, WritesBothStreamsToTheLogAndTellsItsExitCode) {
  child_process child{shell("echo out; echo err >&2; exit 7")};

  EXPECT_EQ(child.wait_for_end(), 7);

  EXPECT_EQ(log(), "out\nerr\n");
  EXPECT_NE(child.log_tail().find("out\nerr\n"), std::string::npos);
}

TEST_F(ChildProcess, RunsInItsFolderWithVariablesAdded) {
  child_options options = shell("pwd; echo $KIT_VARIABLE; echo $HOME");
  options.environment = {"KIT_VARIABLE=added", "HOME=/replaced"};
  child_process child{std::move(options)};

  EXPECT_EQ(child.wait_for_end(), 0);

  EXPECT_EQ(log(), folder_.path().string() + "\nadded\n/replaced\n");
}

TEST_F(ChildProcess, InheritsNoDescriptors) {
  const int inherited = ::dup(STDERR_FILENO);
  ASSERT_GT(inherited, STDERR_FILENO);
  child_process child{shell("test -e /proc/self/fd/" + std::to_string(inherited))};

  EXPECT_EQ(child.wait_for_end(), 1);

  ::close(inherited);
}

TEST_F(ChildProcess, ThatCannotBeStartedThrows) {
  child_options options = shell("");
  options.program = "/nowhere/at/all";

  EXPECT_THROW(child_process{options}, kit_error);
}

TEST_F(ChildProcess, StopAsksFirst) {
  child_process child{shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")};
  ASSERT_TRUE(says("ready"));

  EXPECT_EQ(child.stop(), 5);

  EXPECT_FALSE(child.running());
}

TEST_F(ChildProcess, StopKillsWhatDoesNotListen) {
  child_process child{shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")};
  ASSERT_TRUE(says("ready"));

  EXPECT_EQ(child.stop(50ms), -SIGKILL);
}

TEST_F(ChildProcess, StandsStillWhilePaused) {
  child_process child{shell("while read line; do :; done < /dev/zero; sleep 60")};

  child.pause();

  std::ifstream stat{"/proc/" + std::to_string(child.pid()) + "/stat"};
  const std::string line{std::istreambuf_iterator<char>{stat}, {}};
  EXPECT_NE(line.find(") T "), std::string::npos) << line;
  child.resume();
  EXPECT_TRUE(child.running());
  EXPECT_EQ(child.stop(), -SIGTERM);
}

TEST_F(ChildProcess, DiesWithTheThreadThatStartedIt) {
  std::unique_ptr<child_process> child;
  std::thread{[&] { child = std::make_unique<child_process>(shell("exec sleep 60")); }}.join();

  EXPECT_EQ(child->wait_for_end(), -SIGKILL);
}

TEST_F(ChildProcess, IsGoneWithTheObject) {
  pid_t pid = -1;
  {
    child_process child{shell("exec sleep 60")};
    pid = child.pid();
  }

  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_F(ChildProcess, RunsAsAnotherUserWhenRootAsks) {
  child_options options = shell("id -u; id -g");
  const bool root = ::geteuid() == 0;
  options.run_as = user_and_group{.user = 65534, .group = 65534};
  if (!root) {
    EXPECT_THROW(child_process{options}, kit_error);
    return;
  }
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);

  child_process child{std::move(options)};

  EXPECT_EQ(child.wait_for_end(), 0);
  EXPECT_EQ(log(), "65534\n65534\n");
}

}  // namespace
}  // namespace sallyport::kit
