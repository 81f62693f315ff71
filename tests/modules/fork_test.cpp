#include "base/fork_generation.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace sallyport {
namespace {

using namespace std::chrono_literals;

/// What the module that serves this scheme takes for the fork generation.
std::string generation_inside(const std::string& scheme) {
  try {
    static_cast<void>(client::open(scheme + ":?generation"));
  } catch (const lock_error& error) {
    const std::string text = error.what();
    return text.substr(0, text.find(':'));
  }
  return "opened";
}

std::string generation_here() { return std::to_string(base::fork_generation()); }

/// Runs the check in a child; 0 if it was true there.
template <class Check>
int in_a_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check() ? 0 : 1);
  int status = -1;
  if (waitpid(child, &status, 0) != child) return -1;
  return status;
}

class ForkedModules : public ::testing::Test {
 protected:
  ForkedModules() { unsetenv("SALLYPORT_MODULES"); }  // NOLINT(concurrency-mt-unsafe)
};

TEST_F(ForkedModules, CountForksLikeTheProgram) {
  const std::string before = generation_here();
  ASSERT_EQ(generation_inside("echo"), before);

  const int status = in_a_child([&] {
    return generation_here() != before && generation_inside("echo") == generation_here();
  });

  EXPECT_EQ(status, 0);
}

TEST_F(ForkedModules, ThatAChildLoadsCountItsForksToo) {
  const int status = in_a_child(
      [] { return generation_here() != "0" && generation_inside("later") == generation_here(); });

  EXPECT_EQ(status, 0);
}

TEST_F(ForkedModules, LeaveTheChildDeadHandlesAndWorkingOnesOfItsOwn) {
  const auto store = client::open("echo:forked");
  mutex orders{store, "orders", {.lease_length = 10s}};
  const auto held = orders.acquire();

  const int status = in_a_child([&] {
    try {
      static_cast<void>(store.who("orders"));
      return false;
    } catch (const lock_error& error) {
      if (error.code() != errc::forked) return false;
    }
    const auto own = client::open("echo:");
    mutex mine{own, "orders", {.lease_length = 10s}};
    return mine.try_acquire().has_value();
  });

  EXPECT_EQ(status, 0);
  EXPECT_TRUE(held.valid());
}

}  // namespace
}  // namespace sallyport
