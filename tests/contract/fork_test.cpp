#include "tests/contract/kit/contract_test.hpp"

#include <functional>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

namespace sallyport::contract {
namespace {

/// Runs `work` in a forked child and returns the number it returns; negative when the child did not
/// end by itself.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    // No test macros and no orderly exit in here: both belong to the parent.
    int result = 99;
    try {
      result = work();
    } catch (...) {
      result = 98;
    }
    ::_exit(result);
  }
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class Fork : public contract_test {};

TEST_F(Fork, HandlesAreDeadInTheChildAndAliveInTheParent) {
  const auto client = open();
  mutex lock{client, "door", lasting()};
  mutex other{client, "window", lasting()};
  auto held = lock.acquire();

  const int verdict = in_child([&] {
    if (held.valid()) return 1;
    std::error_code error;
    if (other.try_acquire(error) || error != errc::forked) return 2;
    if (error_of([&] { (void)lock.acquire(); }) != errc::forked) return 3;
    if (error_of([&] { (void)client.who("door"); }) != errc::forked) return 4;
    if (error_of([&] { held.ensure_valid(); }) == std::error_code{}) return 5;
    return 0;
  });

  EXPECT_EQ(verdict, 0);
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(holder_count(client, "door"), 1U);
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(other.try_acquire());
}

TEST_F(Fork, DestructorsInTheChildTouchNothing) {
  auto client = std::make_optional(open());
  auto lock = std::make_unique<mutex>(*client, "door", lasting());
  auto held = std::make_optional(lock->acquire());

  const int verdict = in_child([&] {
    held.reset();
    lock.reset();
    client.reset();
    return 0;
  });

  EXPECT_EQ(verdict, 0);
  EXPECT_TRUE(held->valid());
  EXPECT_EQ(holder_count(*client, "door"), 1U);
}

TEST_F(Fork, TheParentsLeasesAreRenewedAsBefore) {
  mutex lock{open(), "door", {.lease_length = 3 * short_lease()}};
  const auto held = lock.acquire();
  const auto deadline = held.deadline();

  EXPECT_EQ(in_child([] { return 0; }), 0);

  EXPECT_TRUE(eventually([&] { return held.deadline() > deadline; }));
  EXPECT_TRUE(held.valid());
}

TEST_F(Fork, AThreadOfTheParentThatWaitsIsNotDisturbed) {
  const auto watching = open("watching");
  mutex gate{open("holder"), "door", lasting()};
  mutex wanted{open("waiter"), "door", lasting()};
  auto held = gate.acquire();
  background waiter([&] { return wanted.try_acquire_for(patience).has_value(); });
  ASSERT_TRUE(waiters_become(watching, "door", 1));

  EXPECT_EQ(in_child([&] { return wanted.try_lock() ? 1 : 0; }), 98) << "try_lock throws: forked";
  held.release();

  EXPECT_TRUE(waiter.get());
}

}  // namespace
}  // namespace sallyport::contract
