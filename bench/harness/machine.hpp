#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sallyport::bench {

/// Where a run was made.
struct machine_facts {
  int cores = 0;  ///< that this process may use
  std::string processor;
  std::string kernel;
  std::string compiler;
  bool optimised = false;
  std::string started_at;  ///< wall clock, UTC, for people
};

[[nodiscard]] machine_facts read_machine_facts();

/// Time that the machine's cores spent since boot, in ticks; the first line of /proc/stat.
struct cpu_ticks {
  std::uint64_t all = 0;
  std::uint64_t busy = 0;
  std::uint64_t stolen = 0;  ///< by the host

  friend bool operator==(const cpu_ticks&, const cpu_ticks&) = default;
};

/// `stat` is the text of /proc/stat; all zero when it can't be understood.
[[nodiscard]] cpu_ticks parse_cpu_ticks(std::string_view stat);

/// What else the machine did during a run.
struct load_facts {
  double steal_percent = 0;  ///< of all time of all cores
  double others_cores = 0;   ///< how many cores other programs kept busy
};

/// Watches the machine from its construction on.
class load_watch {
 public:
  load_watch();
  [[nodiscard]] load_facts read() const;

 private:
  cpu_ticks ticks_before_;
  double own_seconds_before_;
};

}  // namespace sallyport::bench
