#include "tests/contract/kit/contract_test.hpp"

#include <memory>
#include <stdexcept>

namespace sallyport::contract {
namespace {

class WithLock : public contract_test {};

TEST_F(WithLock, RunsTheJobInsideAndReturnsItsResult) {
  const auto client = open();
  mutex lock{client, "job", lasting()};

  const std::size_t inside = with_lock(lock, [&](std::stop_token gone) {
    EXPECT_FALSE(gone.stop_requested());
    return holder_count(client, "job");
  });
  bool ran = false;
  with_lock(lock, [&](const std::stop_token&) { ran = true; });

  EXPECT_EQ(inside, 1U);
  EXPECT_TRUE(ran);
  EXPECT_TRUE(becomes_free(client, "job"));
}

TEST_F(WithLock, MovesAResultThatCanNotBeCopied) {
  mutex lock{open(), "job", lasting()};

  const auto result =
      with_lock(lock, [](const std::stop_token&) { return std::make_unique<int>(7); });

  EXPECT_EQ(*result, 7);
}

TEST_F(WithLock, TellsTheJobThatTheLeaseWasLostAndThenTheCaller) {
  mutex lock{open(), "job", ending()};
  bool stopped = false;

  const auto error = error_of([&] {
    with_lock(lock, [&](const std::stop_token& gone) {
      stopped = eventually([&] { return gone.stop_requested(); });
    });
  });

  EXPECT_TRUE(stopped);
  EXPECT_EQ(error, errc::lease_lost);
}

TEST_F(WithLock, ReleasesWhenTheJobThrows) {
  const auto client = open();
  mutex lock{client, "job", lasting()};

  EXPECT_THROW(with_lock(lock, [](const std::stop_token&) { throw std::runtime_error("broken"); }),
               std::runtime_error);

  EXPECT_TRUE(becomes_free(client, "job"));
}

TEST_F(WithLock, WorksWithPermitsAndRecursiveMutexes) {
  const auto client = open();
  recursive_mutex again{client, "again", lasting()};
  const int depth = with_lock(again, [&](const std::stop_token&) {
    return with_lock(again,
                     [&](const std::stop_token&) { return static_cast<int>(again.depth()); });
  });
  EXPECT_EQ(depth, 2);

  if (!claims().semaphores) return;
  semaphore pool{client, "pool", 2, lasting()};
  EXPECT_EQ(with_lock(pool, [](const std::stop_token&) { return 5; }), 5);
}

}  // namespace
}  // namespace sallyport::contract
