#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// What a program can see of itself, and itself once more.
namespace sallyport::bench {

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

/// Starts this executable anew with `arguments`, calls `tick` at times while it runs, and returns
/// what it wrote to its standard output. Throws std::runtime_error unless it ended with status 0.
[[nodiscard]] std::string run_self(const std::vector<std::string>& arguments,
                                   const std::function<void()>& tick);

}  // namespace sallyport::bench
