#include "bench/harness/own_process.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace sallyport::bench {
namespace {

constexpr int tick_ms = 200;

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
