#include "tests/client/odd_store.hpp"
#include "tests/contract/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <system_error>

// A caller that waits lends its thread to the store, and may find no memory for what it hears there.
// What it waits for is still under way: the call must not be over before that is.
namespace sallyport::odd {
namespace {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;

class Driving : public ::testing::Test {
 protected:
  Driving() { reset(); }

  /// Lets `call` run until its request is under way and its thread has found no memory, and answers
  /// only then.
  template <class Call>
  auto answered_late(Call call) {
    present().keeps = true;
    present().drives_without_memory = 1;
    background running(std::move(call));
    EXPECT_TRUE(eventually([] { return present().kept() > 0; }));
    EXPECT_TRUE(eventually([] { return present().drives_without_memory == 0; }));
    // A moment in which a call that does not wait would end.
    contract::wait_until(lease_clock::now() + 50ms);
    EXPECT_FALSE(running.done()) << "its request is still under way";
    present().keeps = false;
    // Who left has no place for an answer.
    if (running.done()) {
      while (present().kept() > 0) static_cast<void>(present().take());
    }
    present().answer_all();
    return running.get();
  }

  const client store_ = client::open("odd:driving");
};

TEST_F(Driving, ALeaderIsReadToTheEnd) {
  election lead{store_, "lead"};
  const auto leading = lead.campaign("me");

  const auto found = answered_late([&] {
    std::error_code error;
    auto leader = lead.leader(error);
    EXPECT_FALSE(error) << error.message();
    return leader;
  });

  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, "me");
}

TEST_F(Driving, AValueIsProclaimedToTheEnd) {
  election lead{store_, "lead"};
  const auto leading = lead.campaign("me");

  const auto error = answered_late([&] {
    std::error_code problem;
    lead.proclaim(leading, "still me", problem);
    return problem;
  });

  EXPECT_FALSE(error) << error.message();
}

TEST_F(Driving, AReleaseIsWaitedFor) {
  mutex lock{store_, "door"};
  auto held = lock.acquire();

  EXPECT_EQ(answered_late([&] { return held.release(); }), release_result::released);
}

TEST_F(Driving, ADowngradeIsWaitedFor) {
  shared_mutex page{store_, "page"};
  auto held = page.acquire();

  const auto error = answered_late([&] {
    std::error_code problem;
    held.downgrade(problem);
    return problem;
  });

  EXPECT_FALSE(error) << error.message();
  EXPECT_EQ(held.mode(), lock_mode::shared);
}

TEST_F(Driving, AWaitEndsAndLeavesNoPlaceBehind) {
  const client other = client::open("odd:driving");
  mutex taken{other, "door"};
  auto held = taken.acquire();
  mutex lock{store_, "door"};

  present().drives_without_memory = 1;
  std::error_code error;
  EXPECT_FALSE(lock.acquire(error));

  EXPECT_EQ(error, errc::not_enough_memory);
  held.release();
  EXPECT_TRUE(eventually([&] { return !other.who("door"); }));
}

}  // namespace
}  // namespace sallyport::odd
