#include "bench/harness/machine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace sallyport::bench {
namespace {

std::string processor_name() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor unknown";
}

std::string kernel_name() {
  utsname name{};
  if (uname(&name) != 0) return "kernel unknown";
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

std::string wall_clock() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 64> text{};
  const auto length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return {text.data(), length};
}

std::string all_of(const char* path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

double own_cpu_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    if (getrusage(who, &used) != 0) continue;
    for (const timeval& part : {used.ru_utime, used.ru_stime}) {
      sum += static_cast<double>(part.tv_sec) + static_cast<double>(part.tv_usec) / 1e6;
    }
  }
  return sum;
}

}  // namespace

machine_facts read_machine_facts() {
  machine_facts facts;
  facts.cores = usable_cores();
  facts.processor = processor_name();
  facts.kernel = kernel_name();
#if defined(__clang__)
  facts.compiler = "clang " __clang_version__;
#else
  facts.compiler = "g++ " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
  facts.optimised = true;
#endif
  facts.started_at = wall_clock();
  return facts;
}

cpu_ticks parse_cpu_ticks(std::string_view stat) {
  std::istringstream line{std::string(stat.substr(0, stat.find('\n')))};
  std::string word;
  // user nice system idle iowait irq softirq steal; what follows is counted in user and nice
  // already.
  std::array<std::uint64_t, 8> parts{};
  if (!(line >> word) || word != "cpu") return {};
  for (auto& part : parts) {
    if (!(line >> part)) return {};
  }
  cpu_ticks ticks;
  for (const auto part : parts) ticks.all += part;
  ticks.stolen = parts[7];
  ticks.busy = ticks.all - parts[3] - parts[4] - parts[7];
  return ticks;
}

load_watch::load_watch()
    : ticks_before_(parse_cpu_ticks(all_of("/proc/stat"))),
      own_seconds_before_(own_cpu_seconds()) {}

load_facts load_watch::read() const {
  const cpu_ticks now = parse_cpu_ticks(all_of("/proc/stat"));
  const auto all = static_cast<double>(now.all - ticks_before_.all);
  if (all <= 0) return {};
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto machine_cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  const double took = all / ticks_per_second / machine_cores;
  const double busy = static_cast<double>(now.busy - ticks_before_.busy) / ticks_per_second;
  const double own = own_cpu_seconds() - own_seconds_before_;
  return {.steal_percent = 100 * static_cast<double>(now.stolen - ticks_before_.stolen) / all,
          .others_cores = std::max(0.0, busy - own) / took};
}

}  // namespace sallyport::bench
