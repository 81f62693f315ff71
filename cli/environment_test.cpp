#include "cli/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

namespace sallyport::cli {
namespace {

using testing::ElementsAre;

TEST(ChildEnvironment, SaysWhatTheLockIsLast) {
  const std::array<const char*, 3> inherited{"PATH=/bin", "HOME=/root", nullptr};
  const lock_facts facts{"x", fencing_token{7}, std::nullopt, "local:"};

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("PATH=/bin", "HOME=/root", "SALLYPORT_STORE=local:", "SALLYPORT_LOCK=x",
                          "SALLYPORT_TOKEN=7"));
}

TEST(ChildEnvironment, ForgetsWhatAnOuterRunSaid) {
  const std::array<const char*, 5> inherited{"SALLYPORT_TOKEN=1", "SALLYPORT_LOCK=outer",
                                             "SALLYPORT_DEADLINE=1.000", "SALLYPORT_TOKENS=kept",
                                             nullptr};
  const lock_facts permit{"x", std::nullopt, std::nullopt, ""};

  EXPECT_THAT(child_environment(inherited.data(), permit),
              ElementsAre("SALLYPORT_TOKENS=kept", "SALLYPORT_LOCK=x"));
}

TEST(ChildEnvironment, SaysWhatGatesCallTheLock) {
  const std::array<const char*, 2> inherited{"SALLYPORT_FENCE_LOCK=outer", nullptr};
  lock_facts facts{"x", fencing_token{7}, std::nullopt, ""};
  facts.fence_lock = "store|x";

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("SALLYPORT_LOCK=x", "SALLYPORT_TOKEN=7", "SALLYPORT_FENCE_LOCK=store|x"));

  facts.token.reset();
  EXPECT_THAT(child_environment(inherited.data(), facts), ElementsAre("SALLYPORT_LOCK=x"));
}

TEST(ChildEnvironment, SaysOfASharedTokenThatItIsOne) {
  const std::array<const char*, 2> inherited{"SALLYPORT_MODE=shared", nullptr};
  lock_facts facts{"x", fencing_token{7}, std::nullopt, ""};

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("SALLYPORT_LOCK=x", "SALLYPORT_TOKEN=7"));

  facts.shared_token = true;
  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("SALLYPORT_LOCK=x", "SALLYPORT_TOKEN=7", "SALLYPORT_MODE=shared"));
}

TEST(ChildEnvironment, TellsTheDeadlineInSecondsSinceBoot) {
  const std::array<const char*, 1> inherited{nullptr};
  const lease_clock::time_point deadline{std::chrono::nanoseconds{81'234'056'999'999}};
  const lock_facts facts{"x", fencing_token{7}, deadline, ""};

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("SALLYPORT_LOCK=x", "SALLYPORT_TOKEN=7", "SALLYPORT_DEADLINE=81234.056"));
}

TEST(ChildEnvironment, WithholdsAStoreThatNeedsASecret) {
  const std::array<const char*, 2> inherited{"SALLYPORT_STORE=redis://:pass@db/0", nullptr};
  const lock_facts facts{"x", std::nullopt, std::nullopt, "redis://:pass@db/0"};

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("SALLYPORT_STORE=withheld:redis://db/0", "SALLYPORT_LOCK=x"));
}

TEST(ChildEnvironment, RemovesTheVariablesThatTheAddressNames) {
  const std::array<const char*, 7> inherited{
      "LOCKPW=1", "LOCKPWS=kept", "SENTRY=2", "LOCKPW=3", "PGPASSWORD=kept", "LOCKP=kept", nullptr};
  const lock_facts facts{
      "x", std::nullopt, std::nullopt,
      "redis+sentinel://s1/m?password_env=LOCK%50W&prefix=a&sentinel_password_env=SENTRY"};

  EXPECT_THAT(child_environment(inherited.data(), facts),
              ElementsAre("LOCKPWS=kept", "PGPASSWORD=kept", "LOCKP=kept",
                          "SALLYPORT_STORE=withheld:" + facts.store, "SALLYPORT_LOCK=x"));
}

TEST(ChildEnvironment, SpeaksAsEtcdctlDoesOnEtcd) {
  const std::array<const char*, 3> outer{"ETCD_LOCK_KEY=outer/1", "ETCD_LOCK_REV=1", nullptr};
  lock_facts facts{"x", fencing_token{7}, std::nullopt, "etcd://db"};
  facts.entry = store_entry{.key = "x/4a#m1", .created = 6, .lease = 74};

  EXPECT_THAT(child_environment(outer.data(), facts),
              ElementsAre("SALLYPORT_STORE=etcd://db", "SALLYPORT_LOCK=x", "SALLYPORT_TOKEN=7",
                          "ETCD_LOCK_KEY=x/4a#m1", "ETCD_LOCK_REV=7"));

  facts.token.reset();  // a semaphore's permit
  facts.store = "etcds://db";
  EXPECT_THAT(
      child_environment(outer.data(), facts),
      ElementsAre("SALLYPORT_STORE=etcds://db", "SALLYPORT_LOCK=x", "ETCD_LOCK_KEY=x/4a#m1"));
}

TEST(ChildEnvironment, LeavesWhatAnOuterEtcdctlSaidOnOtherStores) {
  const std::array<const char*, 2> outer{"ETCD_LOCK_REV=1", nullptr};
  const lock_facts facts{"x", std::nullopt, std::nullopt, "local:"};

  EXPECT_THAT(child_environment(outer.data(), facts),
              ElementsAre("ETCD_LOCK_REV=1", "SALLYPORT_STORE=local:", "SALLYPORT_LOCK=x"));
}

}  // namespace
}  // namespace sallyport::cli
