#include "base/fork_generation.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace sallyport::base {
namespace {

/// Whether `condition` held in a forked child. The child leaves by _exit: it must not run the
/// parent's handlers.
bool true_in_child(const std::function<bool()>& condition) {
  const pid_t child = fork();
  if (child == 0) _exit(condition() ? 0 : 1);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST(ForkGeneration, StaysTheSameInOneProcess) { EXPECT_EQ(fork_generation(), fork_generation()); }

TEST(ForkGeneration, DiffersInAForkedChild) {
  const std::uint32_t parents = fork_generation();

  EXPECT_TRUE(true_in_child([parents] { return fork_generation() != parents; }));
}

TEST(ForkGeneration, IsNotChangedInTheParentByItsChildren) {
  const std::uint32_t before = fork_generation();

  ASSERT_TRUE(true_in_child([] { return true; }));

  EXPECT_EQ(fork_generation(), before);
}

TEST(ForkGeneration, DiffersInAGrandchildFromBothAncestors) {
  const std::uint32_t grandparents = fork_generation();

  EXPECT_TRUE(true_in_child([grandparents] {
    const std::uint32_t parents = fork_generation();
    return true_in_child([grandparents, parents] {
      return fork_generation() != parents && fork_generation() != grandparents;
    });
  }));
}

}  // namespace
}  // namespace sallyport::base
