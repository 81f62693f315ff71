#include "fence/gate_file.hpp"
#include "fence/gate_record.hpp"
#include "fence/gate_testing.hpp"
#include "fence/test_rebinding.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <thread>

namespace sallyport::fence {
namespace {

using namespace std::chrono_literals;

class FileGate : public testing::Test, protected test_folder {
 protected:
  /// The error with which a gate refuses to open.
  static std::error_code opening_error(const std::filesystem::path& path,
                                       const file_gate_options& options = {}) {
    try {
      file_gate gate{path, options};
    } catch (const lock_error& error) {
      EXPECT_NE(std::string{error.what()}.find(path.filename().native()), std::string::npos)
          << error.what();
      return error.code();
    }
    return {};
  }

  /// The error with which a gate fails to run; the action must not have run.
  static std::error_code running_error(file_gate& gate, const pass& shown) {
    try {
      (void)gate.run(shown, [] { FAIL() << "the action ran"; });
    } catch (const lock_error& error) {
      return error.code();
    }
    return {};
  }

  /// Spoils the record that the token after `sequence - 1` changes wrote.
  static void spoil_slot(const std::filesystem::path& path, std::uint64_t sequence) {
    std::string bytes = content_of(path);
    bytes.at(slot_of(sequence) * slot_bytes + 40) ^= 1;
    put_content(path, bytes);
  }
};

TEST_F(FileGate, IsBoundAnewAsAMemoryGateIs) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    const auto path = at("gate " + std::to_string(round));
    rebind_like_a_memory_gate(
        round, round % 2 == 0 ? 1 : ~std::uint64_t{0} - 12, 40,
        [&](const pass& shown) {
          file_gate gate{path};
          return gate.run(shown, nothing);
        },
        [&](const std::string& from, const pass& shown, rebinding kind) {
          file_gate gate{path};
          const verdict answer = gate.rebind(from, shown, kind);
          EXPECT_TRUE(answer != verdict::passed || gate.bound_lock() == shown.lock);
          return answer;
        });
  }
}

TEST_F(FileGate, IsNotBoundAnewWhileAnActionRuns) {
  file_gate gate{at("gate")};
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};
  const pass fresh{.lock = "new", .token = fencing_token{9}};

  const verdict inside = gate.run(
      exclusive(7), [&] { EXPECT_THROW((void)impatient.rebind("orders", fresh), lock_error); });

  EXPECT_EQ(inside, verdict::passed);
  EXPECT_EQ(gate.bound_lock(), "orders");
  EXPECT_EQ(impatient.rebind("orders", fresh), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(99), nothing), verdict::wrong_lock);
}

TEST_F(FileGate, RemembersAcrossOpenings) {
  {
    file_gate gate{at("gate")};
    EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
    EXPECT_EQ(gate.run(shared(9), nothing), verdict::passed);
  }

  file_gate gate{at("gate")};

  EXPECT_EQ(gate.run(exclusive(6), [] { FAIL(); }), verdict::stale);
  EXPECT_EQ(gate.run(exclusive(9), [] { FAIL(); }), verdict::stale);
  EXPECT_EQ(gate.run(shared(8), nothing), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(10), nothing), verdict::passed);
  EXPECT_EQ(gate.run(shared(9), [] { FAIL(); }), verdict::stale);
}

TEST_F(FileGate, RemembersBeforeTheActionRuns) {
  file_gate gate{at("gate")};

  EXPECT_EQ(gate.run(exclusive(7),
                     [&] {
                       const std::string bytes = content_of(at("gate"));
                       const auto image = read_image(std::as_bytes(std::span{bytes}));
                       ASSERT_TRUE(image);
                       EXPECT_EQ(image->newest.state.newest_exclusive, fencing_token{7});
                     }),
            verdict::passed);
}

TEST_F(FileGate, KeepsTheNumberWhenTheActionThrows) {
  file_gate gate{at("gate")};

  EXPECT_THROW((void)gate.run(exclusive(5), [] { throw std::runtime_error("disk on fire"); }),
               std::runtime_error);

  EXPECT_EQ(gate.run(exclusive(4), nothing), verdict::stale);
  EXPECT_EQ(gate.run(exclusive(5), nothing), verdict::passed);
}

TEST_F(FileGate, MakesOneSmallPrivateFile) {
  file_gate gate{at("gate")};

  struct stat status {};
  ASSERT_EQ(::stat(at("gate").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(status.st_size, static_cast<off_t>(image_bytes));
  EXPECT_EQ(files_in_folder(), 1U);
}

TEST_F(FileGate, WritesOnlyWhenTheNumbersChange) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
  const std::string before = content_of(at("gate"));

  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(6), nothing), verdict::stale);
  file_gate another{at("gate")};
  EXPECT_EQ(another.run(exclusive(7), nothing), verdict::passed);
  EXPECT_EQ(content_of(at("gate")), before);

  EXPECT_EQ(gate.run(exclusive(8), nothing), verdict::passed);
  EXPECT_NE(content_of(at("gate")), before);
}

TEST_F(FileGate, StaysWithTheLockThatPassedFirst) {
  {
    file_gate gate{at("gate")};
    EXPECT_EQ(gate.run(exclusive(1), nothing), verdict::passed);
  }
  file_gate gate{at("gate")};

  EXPECT_EQ(gate.run(pass{.lock = "invoices", .token = fencing_token{9}}, [] { FAIL(); }),
            verdict::wrong_lock);
}

TEST_F(FileGate, StaysWithTheLockNamedAtConstruction) {
  file_gate gate{at("gate"), {.lock = "invoices"}};

  EXPECT_EQ(gate.run(exclusive(1), [] { FAIL(); }), verdict::wrong_lock);
  EXPECT_EQ(opening_error(at("gate"), {.lock = "orders"}), errc::bad_option);
  EXPECT_EQ(opening_error(at("gate"), {.lock = "invoices"}), std::error_code{});
}

TEST_F(FileGate, BindsAFileThatNobodyHasUsedYet) {
  file_gate unbound{at("gate")};

  file_gate bound{at("gate"), {.lock = "invoices"}};

  EXPECT_EQ(unbound.run(exclusive(1), [] { FAIL(); }), verdict::wrong_lock);
}

TEST_F(FileGate, RefusesAPassWithoutTokenOrLock) {
  file_gate gate{at("gate")};

  EXPECT_EQ(running_error(gate, exclusive(0)), errc::no_fencing);
  EXPECT_EQ(running_error(gate, {.lock = "", .token = fencing_token{1}}), errc::bad_name);
}

TEST_F(FileGate, GoesOnFromTheOtherRecordAfterATornWrite) {
  {
    file_gate gate{at("gate")};  // writes record 1
    EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
    EXPECT_EQ(gate.run(exclusive(8), nothing), verdict::passed);
  }
  spoil_slot(at("gate"), 3);

  file_gate gate{at("gate")};

  EXPECT_EQ(gate.run(exclusive(6), nothing), verdict::stale);
  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(8), nothing), verdict::passed);
}

TEST_F(FileGate, MendsATornRecordWhenItMeetsOne) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);
  spoil_slot(at("gate"), 1);

  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);

  const std::string bytes = content_of(at("gate"));
  const auto image = read_image(std::as_bytes(std::span{bytes}));
  ASSERT_TRUE(image);
  EXPECT_FALSE(image->other_is_torn);
  EXPECT_EQ(image->newest.sequence, 3U);
}

TEST_F(FileGate, RefusesAFileWithNoWholeRecord) {
  file_gate open_before{at("gate")};
  EXPECT_EQ(open_before.run(exclusive(7), nothing), verdict::passed);
  spoil_slot(at("gate"), 1);
  spoil_slot(at("gate"), 2);
  const std::string before = content_of(at("gate"));

  EXPECT_EQ(opening_error(at("gate")), errc::store_refused);
  EXPECT_EQ(running_error(open_before, exclusive(7)), errc::store_refused);
  EXPECT_EQ(content_of(at("gate")), before);
}

TEST_F(FileGate, RefusesAForeignFileAndLeavesItAlone) {
  put_content(at("letter"), "Dear all,\n");
  put_content(at("empty"), "");

  EXPECT_EQ(opening_error(at("letter")), errc::store_refused);
  EXPECT_EQ(opening_error(at("empty")), errc::store_refused);
  EXPECT_EQ(content_of(at("letter")), "Dear all,\n");
  EXPECT_EQ(content_of(at("empty")), "");
}

TEST_F(FileGate, RefusesWhatIsNotARegularFile) {
  file_gate real{at("real")};
  std::filesystem::create_symlink(at("real"), at("link"));
  std::filesystem::create_symlink(at("nowhere"), at("dangling"));
  std::filesystem::create_directory(at("folder"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);

  EXPECT_EQ(opening_error(at("link")), errc::bad_option);
  EXPECT_EQ(opening_error(at("dangling")), errc::bad_option);
  EXPECT_EQ(opening_error(at("folder")), errc::bad_option);
  EXPECT_EQ(opening_error(at("pipe")), errc::bad_option);
  EXPECT_FALSE(std::filesystem::exists(at("nowhere")));
}

TEST_F(FileGate, SaysThatTheFolderIsMissing) {
  try {
    file_gate gate{at("no/such/gate")};
    FAIL() << "opened";
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::bad_option);
    EXPECT_NE(std::string{error.what()}.find("make its folder first"), std::string::npos)
        << error.what();
  }
}

TEST_F(FileGate, RefusesBadOptions) {
  EXPECT_EQ(opening_error(at("gate"), {.wait_limit = -1ms}), errc::bad_option);
  EXPECT_EQ(opening_error(at("gate"), {.wait_limit = 25h}), errc::bad_option);
  EXPECT_EQ(opening_error(at("gate"), {.lock = std::string(5000, 'x')}), errc::bad_name);
  EXPECT_EQ(opening_error(at("gate/")), errc::bad_option);
  EXPECT_EQ(opening_error(""), errc::bad_option);
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(FileGate, MakesNoFileWhenToldNotTo) {
  EXPECT_EQ(opening_error(at("gate"), {.create = false}), errc::bad_option);
  EXPECT_EQ(files_in_folder(), 0U);

  file_gate maker{at("gate")};

  EXPECT_EQ(opening_error(at("gate"), {.create = false}), std::error_code{});
}

TEST_F(FileGate, FailsRatherThanCountAnewWhenItsFileIsRemoved) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(7), nothing), verdict::passed);

  std::filesystem::remove(at("gate"));

  EXPECT_EQ(running_error(gate, exclusive(7)), errc::unavailable);
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(FileGate, FailsRatherThanCountAnewWhenItsFileIsReplaced) {
  file_gate gate{at("gate")};
  file_gate other{at("other")};

  std::filesystem::rename(at("other"), at("gate"));

  EXPECT_EQ(running_error(gate, exclusive(7)), errc::unavailable);
  EXPECT_EQ(running_error(other, exclusive(7)), errc::unavailable);
}

TEST_F(FileGate, FailsWhenItsFileIsReplacedWhileItWaits) {
  file_gate gate{at("gate")};
  file_gate other{at("other")};
  auto blocker = gate_file::open(at("gate"));
  ASSERT_TRUE(blocker && *blocker);
  ASSERT_TRUE((*blocker)->lock(part::turn, lock_mode::exclusive, lease_clock::time_point{}));

  std::jthread waiting{[&] { EXPECT_EQ(running_error(gate, exclusive(7)), errc::unavailable); }};
  while (openings_of(at("gate")) < 2) std::this_thread::yield();
  std::filesystem::rename(at("other"), at("gate"));
  (*blocker)->unlock(part::turn);
}

TEST_F(FileGate, StaysAtItsPathWhenTheProcessChangesItsFolder) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder());
  file_gate gate{"gate"};

  std::filesystem::current_path(before);

  EXPECT_EQ(gate.run(exclusive(1), nothing), verdict::passed);
  EXPECT_TRUE(std::filesystem::exists(at("gate")));
}

TEST_F(FileGate, DoesNotWaitLongerThanItsLimit) {
  file_gate busy{at("gate")};
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};

  EXPECT_EQ(busy.run(exclusive(1),
                     [&] {
                       EXPECT_EQ(running_error(impatient, exclusive(2)), errc::unavailable);
                       EXPECT_EQ(running_error(impatient, shared(2)), errc::unavailable);
                     }),
            verdict::passed);

  // Neither attempt ran, so neither raised a number.
  EXPECT_EQ(busy.run(exclusive(1), nothing), verdict::passed);
}

TEST_F(FileGate, TellsALateHolderAtOnceEvenWhileItIsBusy) {
  file_gate busy{at("gate")};
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};

  EXPECT_EQ(busy.run(exclusive(2),
                     [&] { EXPECT_EQ(impatient.run(exclusive(1), nothing), verdict::stale); }),
            verdict::passed);
}

TEST_F(FileGate, LetsReadersRunTogether) {
  file_gate gate{at("gate")};
  std::barrier both_inside{2};  // would never be passed if readers ran one after the other
  const auto read = [&](std::uint64_t token) {
    EXPECT_EQ(gate.run(shared(token), [&] { both_inside.arrive_and_wait(); }), verdict::passed);
  };

  std::jthread one{read, 3};
  std::jthread other{read, 4};
}

TEST_F(FileGate, LetsNoTwoThreadsInterleave) {
  file_gate gate{at("gate")};
  long first = 0;  // no atomics: the thread sanitizer sees any overlap
  long second = 0;
  std::atomic<long> passed{0};
  const auto write = [&](std::uint64_t token) {
    for (int i = 0; i < 200; ++i) {
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
  EXPECT_GE(passed, 400);
}

TEST_F(FileGate, IsMadeOnceWhenManyMakeIt) {
  std::barrier start{4};
  std::atomic<int> passed{0};
  const auto make_and_use = [&](std::uint64_t token) {
    start.arrive_and_wait();
    file_gate gate{at("gate")};
    if (gate.run(shared(token), nothing) == verdict::passed) ++passed;
  };

  {
    std::jthread one{make_and_use, 1};
    std::jthread two{make_and_use, 2};
    std::jthread three{make_and_use, 3};
    std::jthread four{make_and_use, 4};
  }

  EXPECT_EQ(passed, 4);
  EXPECT_EQ(files_in_folder(), 1U);
  file_gate gate{at("gate"), {.create = false}};
  EXPECT_EQ(gate.run(exclusive(4), nothing), verdict::stale);
}

}  // namespace
}  // namespace sallyport::fence
