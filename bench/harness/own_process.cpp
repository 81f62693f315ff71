#include "bench/harness/own_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace sallyport::bench {
namespace {

constexpr int tick_ms = 200;

double cpu_seconds_in(const std::filesystem::path& task) {
  // schedstat counts nanoseconds; where the kernel has none, stat counts ticks.
  std::ifstream fine{task / "schedstat"};
  if (double nanoseconds = 0; fine >> nanoseconds) return nanoseconds / 1e9;
  std::ifstream coarse{task / "stat"};
  std::string line;
  std::getline(coarse, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) throw std::runtime_error("a thread's CPU time is unreadable");
  std::istringstream fields{line.substr(name_end + 1)};
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// Closes a descriptor when it goes.
class descriptor {
 public:
  explicit descriptor(int number) : number_(number) {}
  ~descriptor() { reset(); }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;

  [[nodiscard]] int get() const { return number_; }
  void reset() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

std::string read_all(int from, const std::function<void()>& tick) {
  std::string text;
  for (;;) {
    pollfd wait{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = poll(&wait, 1, tick_ms);
    tick();
    if (ready <= 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) throw std::runtime_error("the child's output is unreadable");
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

memory_use read_memory_use() {
  const auto heap = mallinfo2();
  std::ifstream statm{"/proc/self/statm"};
  double all_pages = 0;
  double resident_pages = 0;
  if (!(statm >> all_pages >> resident_pages)) {
    throw std::runtime_error("/proc/self/statm is unreadable");
  }
  return {.heap = static_cast<double>(heap.uordblks) + static_cast<double>(heap.hblkhd),
          .resident = resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE))};
}

std::vector<thread_use> read_threads() {
  std::vector<thread_use> all;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    thread_use each;
    std::ifstream comm{task.path() / "comm"};
    std::getline(comm, each.name);
    each.cpu_seconds = cpu_seconds_in(task.path());
    all.push_back(std::move(each));
  }
  return all;
}

double cpu_seconds_of(const std::vector<thread_use>& threads, std::string_view name) {
  double sum = 0;
  for (const auto& each : threads) {
    if (each.name == name) sum += each.cpu_seconds;
  }
  return sum;
}

std::size_t count_of(const std::vector<thread_use>& threads, std::string_view name) {
  return static_cast<std::size_t>(
      std::count_if(threads.begin(), threads.end(),
                    [name](const thread_use& each) { return each.name == name; }));
}

std::string run_self(const std::vector<std::string>& arguments, const std::function<void()>& tick) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe to the child");
  const descriptor from_child{ends[0]};
  descriptor to_parent{ends[1]};

  std::string name = "bench";
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv{name.data()};
  for (auto& each : copies) argv.push_back(each.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_parent.get(), STDOUT_FILENO);
  pid_t child = 0;
  const int refused =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) throw std::runtime_error("the child could not be started");
  to_parent.reset();

  std::string text = read_all(from_child.get(), tick);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("the child is not ours");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error("the child failed (wait status " + std::to_string(status) + ")");
  }
  return text;
}

}  // namespace sallyport::bench
