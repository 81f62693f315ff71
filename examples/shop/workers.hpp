#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What one process has to do.
struct worker_task {
  std::string database;
  std::string store;
  std::string way;
  int rows;
  int processes;
  int number;  // of this process, from 0
};

struct totals {
  std::int64_t sold = 0;
  std::int64_t conflicts = 0;
  double seconds = 0;  // from the start of all to the end of the last
};

/// Starts this program `processes` times more, lets all begin at once, and adds up what they report.
/// Throws std::runtime_error when one of them failed.
[[nodiscard]] totals run_workers(const worker_task& each);

/// In such a process: its task.
[[nodiscard]] std::optional<worker_task> task_of_this_process(
    const std::vector<std::string>& words);
/// In such a process: "I am connected", and then waits for the others.
void announce_and_wait();
/// In such a process: the result.
void report(const totals& mine);
