#include "tests/contract/kit/holder_process.hpp"

#include "tests/contract/kit/contract_test.hpp"

#include <csignal>
#include <string>

// The driver itself, on the one store that needs no other process: memory.
namespace sallyport::contract {
namespace {

constexpr const char* store = "memory:";

TEST(HolderProcess, HoldsAndReleasesOnCommand) {
  holder_process holder{store, "door"};

  EXPECT_EQ(holder.ask("valid"), "false");
  EXPECT_EQ(holder.ask("token"), "not_held");
  EXPECT_TRUE(holder.ask("acquire").starts_with("acquired "));
  EXPECT_EQ(holder.ask("valid"), "true");
  EXPECT_EQ(holder.ask("state"), "held");
  EXPECT_NE(holder.ask("token"), "0");
  EXPECT_GT(std::stoi(holder.ask("remaining")), 0);
  EXPECT_EQ(holder.ask("release"), "released");
  EXPECT_EQ(holder.ask("valid"), "false");
  EXPECT_EQ(holder.ask("exit"), "bye");
  EXPECT_EQ(holder.wait_for_end(), 0);
}

TEST(HolderProcess, EndsWithItsInput) {
  std::optional<int> ended;
  {
    holder_process holder{store, "door"};
    EXPECT_EQ(holder.ask("exit"), "bye");
    ended = holder.wait_for_end();
    EXPECT_FALSE(holder.running());
    EXPECT_FALSE(holder.send("try") && !holder.answer(100ms).empty());
  }
  EXPECT_EQ(ended, 0);
}

TEST(HolderProcess, KnowsEveryKind) {
  for (const std::string mode : {"mutex", "exclusive", "shared", "semaphore=2", "election=me"}) {
    holder_process holder{
        store, "door", {"--mode", mode, "--lease-ms", "5000", "--label", "kinds"}};
    EXPECT_TRUE(holder.ask("try").starts_with("acquired ")) << mode;
    EXPECT_EQ(holder.ask("release"), "released") << mode;
  }
}

TEST(HolderProcess, LosesAFixedLease) {
  holder_process holder{store, "door", {"--lease-ms", "100", "--renew", "never"}};
  ASSERT_TRUE(holder.ask("acquire 1000").starts_with("acquired "));

  EXPECT_TRUE(eventually([&] { return holder.ask("state") == "lost"; }));
  EXPECT_EQ(holder.ask("release"), "already_lost");
}

TEST(HolderProcess, CanBeKilled) {
  holder_process holder{store, "door"};
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired "));
  ASSERT_EQ(holder.ask("hold"), "holding");

  holder.kill();

  EXPECT_FALSE(holder.running());
  EXPECT_EQ(holder.wait_for_end(), -SIGKILL);
  EXPECT_EQ(holder.ask("valid"), "");
}

TEST(HolderProcess, CanBeStoppedAndContinuedAndFindsItsLeaseLost) {
  holder_process holder{store, "door", {"--lease-ms", "300"}};
  ASSERT_TRUE(holder.ask("acquire").starts_with("acquired "));

  holder.stop();
  const auto stopped = lease_clock::now();
  ASSERT_TRUE(holder.send("valid"));
  EXPECT_EQ(holder.answer(50ms), "");
  wait_until(stopped + 400ms);
  holder.resume();

  EXPECT_EQ(holder.answer(), "false");
  EXPECT_TRUE(eventually([&] { return holder.ask("state") == "lost"; }));
}

TEST(HolderProcess, SaysWhatWasWrong) {
  holder_process holder{store, "door", {"--lease-ms", "30000"}};
  EXPECT_EQ(holder.ask("dance"), "not_held");
  ASSERT_TRUE(holder.ask("try").starts_with("acquired "));
  EXPECT_EQ(holder.ask("dance"), "error unknown command");
}

}  // namespace
}  // namespace sallyport::contract
