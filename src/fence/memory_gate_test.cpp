#include "fence/gate_testing.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace sallyport::fence {
namespace {

/// Stands in for sallyport::lease: all that a gate asks of one.
struct fake_lease {
  pass shown;
  pass fence_pass() const { return shown; }
};

TEST(MemoryGate, RunsTheActionUnderANewEnoughPass) {
  memory_gate gate;
  int runs = 0;

  EXPECT_EQ(gate.run(exclusive(1), [&] { ++runs; }), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(1), [&] { ++runs; }), verdict::passed);
  EXPECT_EQ(gate.run(shared(2), [&] { ++runs; }), verdict::passed);

  EXPECT_EQ(runs, 3);
}

TEST(MemoryGate, DoesNotRunTheActionOfALateHolder) {
  memory_gate gate;
  EXPECT_EQ(gate.run(exclusive(2), nothing), verdict::passed);

  EXPECT_EQ(gate.run(exclusive(1), [] { FAIL(); }), verdict::stale);
  EXPECT_EQ(gate.run(shared(1), [] { FAIL(); }), verdict::stale);
}

TEST(MemoryGate, TakesWhateverShowsAPass) {
  memory_gate gate;
  const fake_lease late{exclusive(1)};
  const fake_lease current{exclusive(2)};

  EXPECT_EQ(gate.run(current, nothing), verdict::passed);
  EXPECT_EQ(gate.run(late, nothing), verdict::stale);
}

TEST(MemoryGate, RefusesAnotherLock) {
  memory_gate bound_by_first;
  memory_gate bound_at_construction{"invoices"};
  EXPECT_EQ(bound_by_first.run(exclusive(1), nothing), verdict::passed);

  EXPECT_EQ(bound_by_first.run(pass{.lock = "invoices", .token = fencing_token{9}}, nothing),
            verdict::wrong_lock);
  EXPECT_EQ(bound_at_construction.run(exclusive(1), nothing), verdict::wrong_lock);
}

TEST(MemoryGate, ThrowsOnAPassWithoutTokenOrLock) {
  memory_gate gate;
  const auto code_of = [&](const pass& shown) {
    try {
      (void)gate.run(shown, [] { FAIL(); });
    } catch (const lock_error& error) {
      return error.code();
    }
    return std::error_code{};
  };

  EXPECT_EQ(code_of(exclusive(0)), errc::no_fencing);
  EXPECT_EQ(code_of({.lock = "", .token = fencing_token{1}}), errc::bad_name);
  EXPECT_THROW(memory_gate{std::string{}}, lock_error);
}

TEST(MemoryGate, KeepsTheNumberWhenTheActionThrows) {
  memory_gate gate;

  EXPECT_THROW((void)gate.run(exclusive(5), [] { throw std::runtime_error("disk on fire"); }),
               std::runtime_error);

  EXPECT_EQ(gate.run(exclusive(4), nothing), verdict::stale);
  EXPECT_EQ(gate.run(exclusive(5), nothing), verdict::passed);
}

TEST(MemoryGate, LetsNoTwoWritersInterleave) {
  memory_gate gate;
  long first = 0;  // no atomics: the thread sanitizer sees any overlap
  long second = 0;
  std::atomic<long> passed{0};
  const auto write = [&](std::uint64_t token) {
    for (int i = 0; i < 2000; ++i) {
      const verdict answer = gate.run(exclusive(token), [&] {
        ++first;
        second = first;
      });
      if (answer == verdict::passed) ++passed;
    }
  };

  {
    std::jthread older{write, 1};
    std::jthread newer{write, 2};
    std::jthread same_as_newer{write, 2};
  }

  EXPECT_EQ(first, passed);
  EXPECT_EQ(second, passed);
  EXPECT_GE(passed, 4000);
}

TEST(MemoryGate, RefusesTheLateOfTwoWritersEvenIfItComesInTheMiddle) {
  memory_gate gate;
  std::string data;
  std::promise<void> newer_is_inside;
  std::promise<void> older_may_start;

  std::jthread older{[&, start = older_may_start.get_future()] {
    start.wait();
    EXPECT_EQ(gate.run(exclusive(1), [&] { data = "old"; }), verdict::stale);
    newer_is_inside.set_value();
  }};
  EXPECT_EQ(gate.run(exclusive(2),
                     [&] {
                       // The late one is told at once: it does not wait for this action's end.
                       older_may_start.set_value();
                       newer_is_inside.get_future().wait();
                       data = "new";
                     }),
            verdict::passed);
  older.join();

  EXPECT_EQ(data, "new");
}

TEST(MemoryGate, LetsReadersRunTogether) {
  memory_gate gate;
  std::barrier both_inside{2};  // would never be passed if readers ran one after the other
  const auto read = [&](std::uint64_t token) {
    EXPECT_EQ(gate.run(shared(token), [&] { both_inside.arrive_and_wait(); }), verdict::passed);
  };

  std::jthread one{read, 3};
  std::jthread other{read, 4};
}

TEST(MemoryGate, KeepsReadersAndWritersApart) {
  memory_gate gate;
  std::vector<int> pair{0, 0};
  std::atomic<std::uint64_t> counter{0};
  const auto write = [&] {
    for (int i = 0; i < 1000; ++i) {
      (void)gate.run(exclusive(++counter), [&] {
        ++pair[0];
        ++pair[1];
      });
    }
  };
  const auto read = [&] {
    for (int i = 0; i < 1000; ++i) {
      (void)gate.run(shared(++counter), [&] { EXPECT_EQ(pair[0], pair[1]); });
    }
  };

  std::jthread writer{write};
  std::jthread reader{read};
  std::jthread another_reader{read};
}

}  // namespace
}  // namespace sallyport::fence
