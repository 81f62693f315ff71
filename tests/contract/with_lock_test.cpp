#include "tests/contract/kit/contract_test.hpp"

#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>

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

template <class Lock, class Job>
constexpr bool runs_with_lock = requires(Lock& lock, Job job) {
  with_lock(lock, job);
};
template <class Lock, class Job>
constexpr bool tries_with_lock = requires(Lock& lock, Job job) {
  try_with_lock(lock, job);
};

TEST_F(WithLock, RefusesAJobWhoseResultRefersToWhatTheLockNoLongerGuards) {
  static_assert(runs_with_lock<mutex, int (*)(std::stop_token)>);
  static_assert(!runs_with_lock<mutex, int& (*)(std::stop_token)>);
  static_assert(!runs_with_lock < mutex, int && (*)(std::stop_token) >);
  static_assert(!tries_with_lock<mutex, const int& (*)(std::stop_token)>);
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

TEST_F(WithLock, WorksWithCandidatesAndReaders) {
  const auto client = open();
  if (claims().elections) {
    election lead{client, "lead", lasting()};
    const std::string value = with_lock(lead.candidate("http://one:80"), [&](std::stop_token) {
      return lead.leader().value().value;
    });
    EXPECT_EQ(value, "http://one:80");
    EXPECT_TRUE(try_with_lock_for(lead.candidate("two"), patience, [](const std::stop_token&) {}));
  }
  if (claims().shared_locks) {
    shared_mutex book{client, "book", lasting()};
    const auto reading = book.acquire_shared();
    EXPECT_EQ(with_lock(book.readers(), [](const std::stop_token&) { return 7; }), 7);
  }
}

TEST_F(WithLock, DoesNotRunTheJobWithoutTheLock) {
  mutex taken{open("other"), "job", lasting()};
  const auto held = taken.acquire();
  mutex lock{open(), "job", lasting()};
  std::stop_source stop;
  stop.request_stop();
  bool ran = false;
  const auto job = [&](const std::stop_token&) { ran = true; };
  const auto answering = [&](const std::stop_token&) {
    ran = true;
    return 7;
  };

  EXPECT_FALSE(try_with_lock(lock, job));
  EXPECT_FALSE(try_with_lock_for(lock, 20ms, job));
  EXPECT_FALSE(try_with_lock_until(lock, lease_clock::now() + 20ms, answering));
  EXPECT_FALSE(with_lock(lock, stop.get_token(), answering));
  EXPECT_FALSE(try_with_lock_for(lock, patience, stop.get_token(), job));
  EXPECT_FALSE(try_with_lock_until(lock, lease_clock::now() + patience, stop.get_token(), job));

  EXPECT_FALSE(ran);
}

TEST_F(WithLock, RunsTheJobWithinItsDeadline) {
  mutex lock{open(), "job", lasting()};
  bool ran = false;

  EXPECT_TRUE(try_with_lock(lock, [&](const std::stop_token&) { ran = true; }));
  EXPECT_EQ(try_with_lock_for(lock, patience, [](const std::stop_token&) { return 5; }), 5);
  EXPECT_EQ(with_lock(lock, std::stop_token{}, [](const std::stop_token&) { return 6; }), 6);

  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace sallyport::contract
