#include "tests/kit/own_process.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <malloc.h>
#include <sstream>
#include <stdexcept>
#include <unistd.h>

namespace sallyport::kit {
namespace {

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

}  // namespace sallyport::kit
