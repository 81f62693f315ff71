#include "cli/run_options.hpp"

#include "cli/test_words.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace sallyport::cli {
namespace {

using std::chrono::milliseconds;

std::string refusal(const words& given) {
  try {
    (void)read_run_options(given.span(), "");
    return "accepted";
  } catch (const usage_error& error) {
    return error.what();
  }
}

TEST(RunOptions, HaveDefaults) {
  const words given{"x", "--", "/bin/true"};

  const auto read = read_run_options(given.span(), "memory:");

  EXPECT_EQ(read.name, "x");
  EXPECT_EQ(read.wanted, wanted_lock::plain);
  EXPECT_EQ(read.wait, std::nullopt);
  EXPECT_EQ(read.not_acquired_code, 75);
  EXPECT_EQ(read.lease_length, std::chrono::seconds{30});
  EXPECT_FALSE(read.fixed);
  EXPECT_EQ(read.label, "true");
  EXPECT_EQ(read.store, "memory:");
  EXPECT_EQ(read.loud, loudness::normal);
  ASSERT_EQ(read.command.size(), 2U);
  EXPECT_STREQ(read.command[0], "/bin/true");
  EXPECT_EQ(read.command[1], nullptr);
}

TEST(RunOptions, AreAllRead) {
  const words given{"-w",       "1.5",     "-E", "3",       "-s",     "--lease", "10s",
                    "--fixed",  "--grace", "2s", "--label", "backup", "-v",      "--store",
                    "memory:a", "a/b",     "--", "sh",      "-c",     "exit 3"};

  const auto read = read_run_options(given.span(), "memory:");

  EXPECT_EQ(read.wait, milliseconds{1500});
  EXPECT_EQ(read.not_acquired_code, 3);
  EXPECT_EQ(read.wanted, wanted_lock::shared);
  EXPECT_EQ(read.lease_length, milliseconds{10'000});
  EXPECT_TRUE(read.fixed);
  EXPECT_EQ(read.grace, milliseconds{2000});
  EXPECT_EQ(read.label, "backup");
  EXPECT_EQ(read.store, "memory:a");
  EXPECT_EQ(read.loud, loudness::verbose);
  EXPECT_EQ(read.command.size(), 4U);
}

TEST(RunOptions, LeaveTheCommandsOptionsAlone) {
  const words with_dashes{"x", "-n", "--", "ls", "-n", "--", "-x"};
  const words as_flock{"-n", "x", "ls", "-x", "--", "y"};

  const auto first = read_run_options(with_dashes.span(), "");
  const auto second = read_run_options(as_flock.span(), "");

  EXPECT_EQ(first.command.size(), 5U);
  EXPECT_EQ(first.wait, milliseconds{0});
  EXPECT_EQ(second.command.size(), 5U);
  EXPECT_EQ(second.wanted, wanted_lock::plain);
}

TEST(RunOptions, SayWhatIsMissing) {
  EXPECT_EQ(refusal({}), "run needs the NAME of a lock: sallyport run NAME -- COMMAND");
  EXPECT_EQ(refusal({"x"}), "run needs a COMMAND: sallyport run x -- COMMAND ...");
  EXPECT_EQ(refusal({"x", "--"}), "run needs a COMMAND: sallyport run x -- COMMAND ...");
  EXPECT_EQ(refusal({"--", "true"}),
            "the NAME of the lock stands before '--': sallyport run NAME -- COMMAND");
}

TEST(RunOptions, RefuseWhatMakesNoSense) {
  EXPECT_NE(refusal({"-w", "soon", "x", "true"}).find("'soon' is none"), std::string::npos);
  EXPECT_NE(refusal({"-E", "256", "x", "true"}).find("0 to 255"), std::string::npos);
  EXPECT_NE(refusal({"--permits", "0", "x", "true"}).find("from 1 to"), std::string::npos);
  EXPECT_NE(refusal({"--permits", "2", "-s", "x", "true"}).find("neither"), std::string::npos);
  EXPECT_NE(refusal({"--lease", "0", "x", "true"}).find("--lease"), std::string::npos);
  EXPECT_NE(refusal({"--lease", "1s", "--grace", "1s", "x", "true"}).find("shorter"),
            std::string::npos);
  EXPECT_NE(refusal({"", "--", "true"}).find("bad name"), std::string::npos);
  EXPECT_NE(refusal({"a\nb", "--", "true"}).find("bad name"), std::string::npos);
}

TEST(RunOptions, WaitForTheStoreAsLongAsForTheLock) {
  const auto patience = [](const words& given) {
    return store_patience(read_run_options(given.span(), ""));
  };

  EXPECT_EQ(patience({"x", "true"}), std::chrono::seconds{30});
  EXPECT_EQ(patience({"-w", "5", "x", "true"}), std::chrono::seconds{5});
  EXPECT_EQ(patience({"-w", "5m", "x", "true"}), std::chrono::minutes{5});
  EXPECT_EQ(patience({"-w", "60", "--store-wait", "5", "x", "true"}), std::chrono::seconds{5});
  EXPECT_EQ(patience({"-w", "5", "--store-wait", "60", "x", "true"}), std::chrono::seconds{5});
  EXPECT_EQ(patience({"--store-wait", "2m", "x", "true"}), std::chrono::minutes{2});
  EXPECT_EQ(patience({"--store-wait", "0", "x", "true"}), milliseconds{0});
  EXPECT_EQ(patience({"-n", "x", "true"}), milliseconds{0});
  EXPECT_EQ(patience({"-n", "--store-wait", "60", "x", "true"}), milliseconds{0});
}

TEST(RunOptions, GiveASixthOfTheLeaseAsGrace) {
  EXPECT_EQ(default_grace(milliseconds{600}), milliseconds{100});
  EXPECT_EQ(default_grace(std::chrono::seconds{30}), std::chrono::seconds{5});
  EXPECT_EQ(default_grace(std::chrono::hours{1}), std::chrono::seconds{10});
}

}  // namespace
}  // namespace sallyport::cli
