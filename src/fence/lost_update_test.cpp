// The lost update, told twice: without a gate it happens, with a gate it is refused.
// docs/fencing.md shows this code.
#include "fence/gate_testing.hpp"
#include <sallyport/fence.hpp>

#include <gtest/gtest.h>

#include <string>

namespace sallyport::fence {
namespace {

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  std::uint64_t token;
  pass fence_pass() const { return {.lock = "orders", .token = fencing_token{token}}; }
};

class LostUpdate : public testing::Test, protected test_folder {};

TEST_F(LostUpdate, HappensWithoutAGate) {
  int balance = 100;

  // The first holder reads, and then stands still: swapped out, a frozen virtual machine, a long
  // collection of garbage.
  const int seen_by_first = balance;
  // Its lease ends meanwhile. The second holder has the lock, rightly, and does its work.
  balance += 50;
  // The first wakes up and writes what it had worked out.
  balance = seen_by_first - 30;

  EXPECT_EQ(balance, 70);  // the second holder's 50 are gone
}

TEST_F(LostUpdate, IsRefusedByAMemoryGate) {
  memory_gate gate;
  const fake_lease first{33};
  const fake_lease second{34};
  int balance = 100;

  const int seen_by_first = balance;
  const verdict for_second = gate.run(second, [&] { balance += 50; });
  const verdict for_first = gate.run(first, [&] { balance = seen_by_first - 30; });

  EXPECT_EQ(for_second, verdict::passed);
  EXPECT_EQ(for_first, verdict::stale);
  EXPECT_EQ(balance, 150);
}

TEST_F(LostUpdate, HappensToAFileWithoutAGate) {
  const auto balance = at("balance");
  put_content(balance, "100");

  const int seen_by_first = std::stoi(content_of(balance));
  put_content(balance, std::to_string(std::stoi(content_of(balance)) + 50));
  put_content(balance, std::to_string(seen_by_first - 30));

  EXPECT_EQ(content_of(balance), "70");
}

TEST_F(LostUpdate, IsRefusedByAFileGate) {
  const auto balance = at("balance");
  put_content(balance, "100");
  const fake_lease first{33};
  const fake_lease second{34};
  // Each process opens the gate for itself, on the same path.
  file_gate gate_of_first{at("balance.gate")};
  file_gate gate_of_second{at("balance.gate")};

  const int seen_by_first = std::stoi(content_of(balance));
  const verdict for_second = gate_of_second.run(
      second, [&] { put_content(balance, std::to_string(std::stoi(content_of(balance)) + 50)); });
  const verdict for_first =
      gate_of_first.run(first, [&] { put_content(balance, std::to_string(seen_by_first - 30)); });

  EXPECT_EQ(for_second, verdict::passed);
  EXPECT_EQ(for_first, verdict::stale);
  EXPECT_EQ(content_of(balance), "150");
}

// Asking first and acting later is no fence: the pause fits in between.
TEST_F(LostUpdate, HappensWhenTheActionRunsAfterTheCheck) {
  memory_gate gate;
  const fake_lease first{33};
  const fake_lease second{34};
  int balance = 100;

  const int seen_by_first = balance;
  const verdict checked = gate.run(first, [] {});
  const verdict for_second = gate.run(second, [&] { balance += 50; });
  if (checked == verdict::passed) balance = seen_by_first - 30;

  EXPECT_EQ(for_second, verdict::passed);
  EXPECT_EQ(balance, 70);
}

}  // namespace
}  // namespace sallyport::fence
