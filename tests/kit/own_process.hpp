#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// What a program can see of itself.
namespace sallyport::kit {

/// Memory in use, in bytes.
struct memory_use {
  double heap = 0;      ///< handed out by malloc, also where it took it straight from the kernel
  double resident = 0;  ///< pages in memory
};

[[nodiscard]] memory_use read_memory_use();

/// One thread of this process.
struct thread_use {
  std::string name;
  double cpu_seconds = 0;
};

/// All threads of this process.
[[nodiscard]] std::vector<thread_use> read_threads();
/// The CPU time of all threads of that name.
[[nodiscard]] double cpu_seconds_of(const std::vector<thread_use>& threads, std::string_view name);
[[nodiscard]] std::size_t count_of(const std::vector<thread_use>& threads, std::string_view name);

}  // namespace sallyport::kit
