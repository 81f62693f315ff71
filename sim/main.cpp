#include "sim/world.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

// The simulator as a program: replays one seed, or runs many in worker processes.

namespace {

using namespace sallyport::sim;

constexpr std::size_t lines_shown = 60;
constexpr std::uint32_t most_jobs = 64;

void print_usage(std::FILE* where) {
  std::fputs(
      "usage: sim --seed N [--verbose | --trace]\n"
      "       sim --seeds N [--first K] [--jobs J] [--only STORE] [--keep-going]\n"
      "\n"
      "  --seed N     run one seed and say how it ended\n"
      "  --verbose    print what the seed has drawn, and the counters\n"
      "  --trace      also print every step to stderr\n"
      "  --seeds N    run N seeds, from K on (default 1), in J processes (default 1)\n"
      "  --only STORE of these seeds those on network, local, redis, redlock, etcd or zookeeper\n"
      "  --keep-going run all seeds, and name each that failed\n"
      "\n"
      "Exit status: 0 when every check held, 1 when one was violated, 64 on a wrong call.\n",
      where);
}

/// What a worker shares with the program that started it.
struct report {
  std::atomic<std::uint64_t> seeds_done{0};
  std::atomic<std::uint64_t> seed_under_way{0};
  std::atomic<std::uint64_t> events{0};
  std::atomic<bool> failed{false};
  std::atomic<std::uint64_t> failures{0};  // with --keep-going
  counters count;                          // written by the worker, read after its end
};

struct arguments {
  std::optional<std::uint64_t> seed;
  std::uint64_t seeds = 0;
  std::uint64_t first = 1;
  std::uint32_t jobs = 1;
  bool verbose = false;
  bool trace = false;
  bool keep_going = false;
  std::string_view only;  // empty: all stores
};

void print_counters(const counters& count) {
  for (std::size_t i = 0; i < counter_count; ++i) {
    std::printf("  %-26s %llu\n", std::string{counter_names[i]}.c_str(),
                static_cast<unsigned long long>(count.value[i]));
  }
}

int run_one(std::uint64_t seed, bool verbose, bool print_trace) {
  const outcome ended = simulate(seed, print_trace ? tracing::print : tracing::keep);
  if (verbose || print_trace || ended.failed) std::fputs(ended.options.c_str(), stdout);
  if (verbose || print_trace) print_counters(ended.count);
  if (ended.failed) {
    if (!print_trace) {
      const std::size_t skipped = ended.lines.size() - std::min(ended.lines.size(), lines_shown);
      for (std::size_t i = skipped; i < ended.lines.size(); ++i) std::puts(ended.lines[i].c_str());
    }
    std::printf("seed %llu FAILED: %s: %s\n", static_cast<unsigned long long>(seed),
                ended.failed->check.c_str(), ended.failed->what.c_str());
    return 1;
  }
  std::printf("seed %llu ok, %llu events, trace %016llx\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(ended.events),
              static_cast<unsigned long long>(ended.trace_hash));
  return 0;
}

/// Every jobs-th seed; ends at the first that fails, in this worker or another.
void work(report* reports, std::uint32_t mine, const arguments& wanted) {
  report& own = reports[mine];
  const auto anybody_failed = [&] {
    return std::any_of(reports, reports + wanted.jobs,
                       [](const report& each) { return each.failed.load(); });
  };
  for (std::uint64_t i = mine; i < wanted.seeds && !anybody_failed(); i += wanted.jobs) {
    const std::uint64_t seed = wanted.first + i;
    if (!wanted.only.empty() && store_of(seed) != wanted.only) continue;
    own.seed_under_way = seed;
    const outcome ended = simulate(seed);
    own.count += ended.count;
    own.events += ended.events;
    ++own.seeds_done;
    if (mine == 0 && i % 1000 < wanted.jobs && isatty(STDERR_FILENO) != 0) {
      std::fprintf(stderr, "\r%llu of %llu seeds", static_cast<unsigned long long>(i),
                   static_cast<unsigned long long>(wanted.seeds));
    }
    if (!ended.failed) continue;
    if (!wanted.keep_going) {
      own.failed = true;
      return;
    }
    std::printf("seed %llu FAILED: %s: %s\n", static_cast<unsigned long long>(seed),
                ended.failed->check.c_str(), ended.failed->what.c_str());
    std::fflush(stdout);
    ++own.failures;
  }
}

/// What the workers have used of the processors; on a busy machine much less than the time that
/// passed.
double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

double seconds_since(const timespec& began) {
  timespec now{};
  timespec_get(&now, TIME_UTC);
  return static_cast<double>(now.tv_sec - began.tv_sec) +
         static_cast<double>(now.tv_nsec - began.tv_nsec) / 1e9;
}

int run_many(const arguments& wanted) {
  void* const memory = mmap(nullptr, sizeof(report) * wanted.jobs, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("sim: mmap");
    return 71;
  }
  report* const reports = static_cast<report*>(memory);
  for (std::uint32_t i = 0; i < wanted.jobs; ++i) new (reports + i) report;

  timespec began{};
  timespec_get(&began, TIME_UTC);
  std::vector<pid_t> workers;
  for (std::uint32_t i = 0; i < wanted.jobs; ++i) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("sim: fork");
      return 71;
    }
    if (child == 0) {
      work(reports, i, wanted);
      _exit(0);
    }
    workers.push_back(child);
  }

  std::optional<std::uint64_t> failed;
  for (std::uint32_t i = 0; i < wanted.jobs; ++i) {
    int status = 0;
    waitpid(workers[i], &status, 0);
    const bool crashed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (crashed) reports[i].failed = true;
    if (!reports[i].failed) continue;
    const std::uint64_t seed = reports[i].seed_under_way;
    if (crashed) {
      std::printf("seed %llu FAILED: the simulator crashed\n",
                  static_cast<unsigned long long>(seed));
      std::fflush(stdout);
    }
    failed = std::min(failed.value_or(seed), seed);
  }

  if (isatty(STDERR_FILENO) != 0) std::fputs("\r", stderr);
  const double took = seconds_since(began);
  counters total;
  std::uint64_t done = 0;
  std::uint64_t events = 0;
  std::uint64_t failures = 0;
  for (std::uint32_t i = 0; i < wanted.jobs; ++i) {
    total += reports[i].count;
    done += reports[i].seeds_done;
    events += reports[i].events;
    failures += reports[i].failures;
  }
  print_counters(total);
  std::printf(
      "%llu seeds from %llu in %.1f s: %.0f seeds/s, %.0f per second of a core, %.0f events each\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(wanted.first), took,
      static_cast<double>(done) / took,
      static_cast<double>(done) / std::max(processor_seconds(), 1e-6),
      static_cast<double>(events) / static_cast<double>(std::max<std::uint64_t>(done, 1)));
  if (failures > 0) {
    std::printf("%llu seeds FAILED\n", static_cast<unsigned long long>(failures));
    return 1;
  }
  if (!failed) return 0;
  std::fflush(stdout);
  run_one(*failed, false, false);
  return 1;
}

template <class Number>
bool parse(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse(int count, char** values, arguments& out) {
  for (int i = 1; i < count; ++i) {
    const std::string_view name = values[i];
    if (name == "--verbose") {
      out.verbose = true;
    } else if (name == "--trace") {
      out.trace = true;
    } else if (name == "--keep-going") {
      out.keep_going = true;
    } else {
      if (++i == count) return false;
      const std::string_view value = values[i];
      bool good = false;
      if (name == "--seed") good = parse(value, out.seed.emplace());
      if (name == "--seeds") good = parse(value, out.seeds) && out.seeds > 0;
      if (name == "--first") good = parse(value, out.first);
      if (name == "--only") {
        out.only = value;
        good = value == "network" || value == "local" || value == "redis" || value == "redlock" ||
               value == "etcd" || value == "zookeeper";
      }
      if (name == "--jobs") good = parse(value, out.jobs) && out.jobs > 0 && out.jobs <= most_jobs;
      if (!good) return false;
    }
  }
  return out.seed.has_value() != (out.seeds > 0);
}

}  // namespace

int main(int count, char** values) {
  if (count == 2 &&
      (std::string_view{values[1]} == "--help" || std::string_view{values[1]} == "-h")) {
    print_usage(stdout);
    return 0;
  }
  arguments wanted;
  if (!parse(count, values, wanted)) {
    print_usage(stderr);
    return 64;
  }
  return wanted.seed ? run_one(*wanted.seed, wanted.verbose, wanted.trace) : run_many(wanted);
}
