#include "fence/gate_testing.hpp"
#include <sallyport/error.hpp>
#include <sallyport/fence.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::fence {
namespace {

using namespace std::chrono_literals;

/// A process that runs `body` and exits with what it returns; an exception is exit code 255.
class child {
 public:
  explicit child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    int code = 255;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  child(child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  child& operator=(child&&) = delete;
  ~child() {
    if (pid_ > 0) (void)end();
  }

  /// Waits for its end and returns the wait status.
  int end() {
    int status = -1;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  int exit_code() {
    const int status = end();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

/// A pipe to say "go on" through, between processes.
class signal_pipe {
 public:
  signal_pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) std::abort();
  }
  signal_pipe(const signal_pipe&) = delete;
  signal_pipe& operator=(const signal_pipe&) = delete;
  ~signal_pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  void give() const {
    if (::write(ends_[1], "x", 1) != 1) std::abort();
  }
  void wait() const {
    char byte = 0;
    while (::read(ends_[0], &byte, 1) != 1) {
    }
  }

 private:
  std::array<int, 2> ends_{};
};

/// The code of the lock_error with which `attempt` fails; zero when it does not.
std::error_code error_of(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const lock_error& error) {
    return error.code();
  }
  return {};
}

class FileGateProcesses : public testing::Test, protected test_folder {};

TEST_F(FileGateProcesses, LoseNoUpdateAndAcceptNoOlderTokenAfterANewer) {
  constexpr std::uint64_t processes = 3;
  constexpr std::uint64_t rounds = 100;
  put_content(at("log"), "");
  file_gate made_before{at("gate")};

  std::vector<child> children;
  children.reserve(processes);
  const signal_pipe start;
  for (std::uint64_t number = 0; number < processes; ++number) {
    children.emplace_back([&, number] {
      file_gate gate{at("gate")};
      start.wait();
      int passed = 0;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t token = 1 + round / 10 + number % 2;
        // Read and write back everything: any interleaving loses lines.
        const verdict answer = gate.run(exclusive(token), [&] {
          put_content(at("log"), content_of(at("log")) + static_cast<char>('0' + token));
        });
        if (answer == verdict::passed) ++passed;
      }
      return passed;
    });
  }
  for (std::uint64_t number = 0; number < processes; ++number) start.give();
  std::size_t passed = 0;
  for (auto& process : children) {
    const int count = process.exit_code();
    ASSERT_GE(count, 0);
    ASSERT_LE(count, static_cast<int>(rounds));
    passed += static_cast<std::size_t>(count);
  }

  const std::string log = content_of(at("log"));
  EXPECT_GE(passed, rounds / 10);  // the newest token passes each time it is shown
  EXPECT_EQ(log.size(), passed);
  EXPECT_TRUE(std::ranges::is_sorted(log)) << log;
}

TEST_F(FileGateProcesses, KeepTheNumberOfOneThatWasKilledInsideItsAction) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(1), nothing), verdict::passed);

  child killed{[&] {
    file_gate own{at("gate")};
    (void)own.run(exclusive(5), [] { ::raise(SIGKILL); });
    return 0;
  }};
  const int status = killed.end();

  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(gate.run(exclusive(4), nothing), verdict::stale);
  EXPECT_EQ(gate.run(exclusive(5), nothing), verdict::passed);  // and the dead one's lock is gone
}

TEST_F(FileGateProcesses, WaitForOneAnothersActions) {
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};
  const signal_pipe inside;
  const signal_pipe leave;
  child busy{[&] {
    file_gate own{at("gate")};
    const verdict answer = own.run(exclusive(2), [&] {
      inside.give();
      leave.wait();
    });
    return answer == verdict::passed ? 0 : 1;
  }};

  inside.wait();
  EXPECT_EQ(error_of([&] { (void)impatient.run(exclusive(3), nothing); }), errc::unavailable);
  EXPECT_EQ(impatient.run(exclusive(1), nothing), verdict::stale);
  leave.give();

  EXPECT_EQ(busy.exit_code(), 0);
  EXPECT_EQ(impatient.run(exclusive(3), nothing), verdict::passed);
}

TEST_F(FileGateProcesses, DoNotFreeTheGateOfTheProcessTheyWereForkedFrom) {
  file_gate gate{at("gate")};
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};
  const pid_t parent = ::getpid();

  const verdict answer = gate.run(exclusive(1), [&] {
    const pid_t forked = ::fork();
    if (forked == 0) return;  // the child leaves the action, and with it the gate
    int status = -1;
    ASSERT_EQ(::waitpid(forked, &status, 0), forked);
    EXPECT_EQ(error_of([&] { (void)impatient.run(exclusive(1), nothing); }), errc::unavailable);
  });
  if (::getpid() != parent) ::_exit(0);

  EXPECT_EQ(answer, verdict::passed);
}

TEST_F(FileGateProcesses, LeaveTheGateUsableInAForkedChild) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(2), nothing), verdict::passed);

  child forked{[&] {
    const bool refused = gate.run(exclusive(1), nothing) == verdict::stale;
    return refused && gate.run(exclusive(3), nothing) == verdict::passed ? 0 : 1;
  }};

  EXPECT_EQ(forked.exit_code(), 0);
  EXPECT_EQ(gate.run(exclusive(2), nothing), verdict::stale);
}

TEST_F(FileGateProcesses, DoNotInheritTheGateThroughExec) {
  file_gate gate{at("gate")};
  int descriptors = 0;

  EXPECT_EQ(
      gate.run(exclusive(1),
               [&] {
                 for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
                   std::error_code closed_meanwhile;
                   if (std::filesystem::read_symlink(entry, closed_meanwhile) != at("gate"))
                     continue;
                   ++descriptors;
                   const int flags = ::fcntl(std::stoi(entry.path().filename()), F_GETFD);
                   EXPECT_NE(flags & FD_CLOEXEC, 0);
                 }
               }),
      verdict::passed);

  EXPECT_EQ(descriptors, 1);
}

TEST_F(FileGateProcesses, KeepAnInheritableGateShutUntilTheLastHeirIsGone) {
  file_gate impatient{at("gate"), {.wait_limit = 0ms}};
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);

  child killed{[&] {
    file_gate own{at("gate"), {.inheritable = true}};
    (void)own.run(exclusive(2), [&] {
      const pid_t heir = ::fork();
      if (heir == 0) {
        ::execl("/bin/sleep", "sleep", "1000", nullptr);
        ::_exit(1);
      }
      if (::write(ends[1], &heir, sizeof heir) != sizeof heir) ::_exit(1);
      ::raise(SIGKILL);
    });
    return 0;
  }};
  pid_t heir = 0;
  ASSERT_EQ(::read(ends[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_TRUE(WIFSIGNALED(killed.end()));

  EXPECT_EQ(error_of([&] { (void)impatient.run(exclusive(3), nothing); }), errc::unavailable);
  ::kill(heir, SIGKILL);
  file_gate patient{at("gate")};
  EXPECT_EQ(patient.run(exclusive(3), nothing), verdict::passed);
}

/// In this process no file may grow or be written beyond `bytes`, as if the disk were full.
void fill_the_disk_beyond(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::abort();
}

TEST_F(FileGateProcesses, LeaveNothingBehindWhenThereIsNoSpaceForANewGate) {
  child without_space{[&] {
    fill_the_disk_beyond(100);
    return error_of([&] { file_gate gate{at("gate")}; }) == errc::unavailable ? 0 : 1;
  }};

  EXPECT_EQ(without_space.exit_code(), 0);
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(FileGateProcesses, DoNotActWhenTheNumberCannotBeRemembered) {
  file_gate gate{at("gate")};
  EXPECT_EQ(gate.run(exclusive(1), nothing), verdict::passed);  // record 2, in the first slot

  child without_space{[&] {
    fill_the_disk_beyond(4096 + 100);  // tears record 3, in the second
    bool ran = false;
    const auto error = error_of([&] { (void)gate.run(exclusive(2), [&] { ran = true; }); });
    const auto again = error_of([&] { (void)gate.run(exclusive(2), [&] { ran = true; }); });
    return error == errc::unavailable && again == errc::unavailable && !ran ? 0 : 1;
  }};

  EXPECT_EQ(without_space.exit_code(), 0);
  EXPECT_EQ(gate.run(exclusive(1), nothing), verdict::passed);
  EXPECT_EQ(gate.run(exclusive(2), nothing), verdict::passed);
}

/// Gives up root's privilege to write everywhere.
void become_an_ordinary_user() {
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::abort();
}

TEST_F(FileGateProcesses, SayThatTheFolderCannotBeWritten) {
  std::filesystem::permissions(folder(), std::filesystem::perms{0555});

  child ordinary{[&] {
    become_an_ordinary_user();
    return error_of([&] { file_gate gate{at("gate")}; }) == errc::unavailable ? 0 : 1;
  }};

  EXPECT_EQ(ordinary.exit_code(), 0);
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(FileGateProcesses, SayThatTheFileCannotBeWritten) {
  file_gate gate{at("gate")};
  std::filesystem::permissions(folder(), std::filesystem::perms{0755});
  std::filesystem::permissions(at("gate"), std::filesystem::perms{0444});

  child ordinary{[&] {
    become_an_ordinary_user();
    const bool opening = error_of([&] { file_gate own{at("gate")}; }) == errc::unavailable;
    const bool running =
        error_of([&] { (void)gate.run(exclusive(1), [] { ::_exit(1); }); }) == errc::unavailable;
    return opening && running ? 0 : 1;
  }};

  EXPECT_EQ(ordinary.exit_code(), 0);
}

}  // namespace
}  // namespace sallyport::fence
