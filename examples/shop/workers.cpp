#include "workers.hpp"

#include <sallyport/lease_clock.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr const char* worker_word = "--this-is-a-worker";

/// Another process of this program, whose standard input and output are ours.
class worker {
 public:
  explicit worker(const worker_task& task) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("no pipe");
    }
    to_ = in[1];
    from_ = out[0];
    std::vector<std::string> words{"example_shop", worker_word, task.database, task.store,
                                   task.way};
    for (const int each : {task.rows, task.processes, task.number}) {
      words.push_back(std::to_string(each));
    }
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (std::string& each : words) arguments.push_back(each.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const int failed =
        posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    if (failed != 0) throw std::runtime_error("no process");
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  /// A worker that was not told to begin ends when it hears nothing more.
  ~worker() {
    close(to_);
    close(from_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  /// The next line that it says; empty: it has ended.
  [[nodiscard]] std::string line() const {
    std::string out;
    char next = 0;
    for (;;) {
      const ssize_t got = read(from_, &next, 1);
      if (got == 1 && next != '\n') {
        out += next;
      } else if (got >= 0 || errno != EINTR) {
        return out;
      }
    }
  }
  /// One that has died meanwhile will have nothing to report; the others have to begin all the same.
  [[nodiscard]] bool begin() const { return write(to_, "\n", 1) == 1; }
  [[nodiscard]] bool ended_well() {
    int status = 0;
    const bool well = waitpid(pid_, &status, 0) == pid_ && status == 0;
    pid_ = -1;
    return well;
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace

totals run_workers(const worker_task& each) {
  std::signal(SIGPIPE, SIG_IGN);  // a worker that does not listen any more is no reason to die, too
  std::vector<std::unique_ptr<worker>> all;
  for (int i = 0; i < each.processes; ++i) {
    worker_task task = each;
    task.number = i;
    all.push_back(std::make_unique<worker>(task));
  }
  for (const auto& one : all) {
    if (one->line() != "ready") throw std::runtime_error("a worker did not get ready");
  }
  const auto start = sallyport::lease_clock::now();
  bool all_began = true;
  for (const auto& one : all) all_began = one->begin() && all_began;
  totals out;
  for (const auto& one : all) {
    std::istringstream line{one->line()};
    totals mine;
    if (!(line >> mine.sold >> mine.conflicts) || !all_began) {
      throw std::runtime_error("a worker failed");
    }
    out.sold += mine.sold;
    out.conflicts += mine.conflicts;
  }
  out.seconds = std::chrono::duration<double>(sallyport::lease_clock::now() - start).count();
  for (const auto& one : all) {
    if (!one->ended_well()) throw std::runtime_error("a worker ended badly");
  }
  return out;
}

std::optional<worker_task> task_of_this_process(const std::vector<std::string>& words) {
  if (words.size() != 7 || words[0] != worker_word) return std::nullopt;
  return worker_task{.database = words[1],
                     .store = words[2],
                     .way = words[3],
                     .rows = std::stoi(words[4]),
                     .processes = std::stoi(words[5]),
                     .number = std::stoi(words[6])};
}

void announce_and_wait() {
  std::cout << "ready" << std::endl;
  if (std::cin.get() != '\n') throw std::runtime_error("the first process is gone");
}

void report(const totals& mine) { std::cout << mine.sold << ' ' << mine.conflicts << std::endl; }
