#include "tests/contract/kit/holder_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace sallyport::contract {

namespace {

/// Where the build has put the program.
constexpr const char* program = SALLYPORT_CONTRACT_HOLDER;

}  // namespace

holder_process::holder_process(const std::string& store, const std::string& name,
                               std::vector<std::string> options) {
  std::array<int, 2> ends{-1, -1};
  // A socket, not a pipe: writing to a dead program must not raise SIGPIPE in the test.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    ADD_FAILURE() << "socketpair: " << errno;
    return;
  }
  channel_ = ends[0];

  std::vector<std::string> words{program, store, name};
  for (std::string& option : options) words.push_back(std::move(option));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int failed = ::posix_spawn(&pid_, program, &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    pid_ = -1;
    ADD_FAILURE() << "cannot start " << program << ": " << failed;
    return;
  }
  const std::string first = answer();
  EXPECT_EQ(first, "ready");
}

holder_process::~holder_process() {
  if (running()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (channel_ >= 0) ::close(channel_);
}

std::string holder_process::ask(const std::string& command) {
  return send(command) ? answer() : std::string{};
}

bool holder_process::send(const std::string& command) {
  const std::string line = command + "\n";
  return channel_ >= 0 && ::send(channel_, line.data(), line.size(), MSG_NOSIGNAL) ==
                              static_cast<ssize_t>(line.size());
}

std::string holder_process::answer(lease_clock::duration within) {
  const auto give_up = lease_clock::now() + within;
  for (;;) {
    if (const auto end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - lease_clock::now());
    if (channel_ < 0 || left.count() <= 0) return {};
    pollfd readable{.fd = channel_, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 512> buffer{};
    const ssize_t got = ::recv(channel_, buffer.data(), buffer.size(), 0);
    if (got <= 0) return {};
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void holder_process::signal(int number) {
  if (running()) ::kill(pid_, number);
}

bool holder_process::look(bool stopped) {
  int status = 0;
  const int flags = WNOHANG | (stopped ? WUNTRACED : 0);
  if (!running() || ::waitpid(pid_, &status, flags) != pid_) return false;
  if (WIFSTOPPED(status)) return true;
  ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

void holder_process::kill() {
  signal(SIGKILL);
  EXPECT_TRUE(wait_for_end()) << "SIGKILL did not end the process";
}

void holder_process::stop() {
  signal(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return look(true); })) << "SIGSTOP did not stop the process";
}

void holder_process::resume() { signal(SIGCONT); }

std::optional<int> holder_process::wait_for_end(lease_clock::duration within) {
  (void)eventually([&] { return ended_ || pid_ <= 0 || look(false); }, within);
  return ended_;
}

}  // namespace sallyport::contract
