#pragma once

#include <functional>
#include <string>
#include <vector>

/// A program started once more by itself.
namespace sallyport::bench {

/// Starts this executable anew with `arguments`, calls `tick` at times while it runs, and returns
/// what it wrote to its standard output. Throws std::runtime_error unless it ended with status 0.
[[nodiscard]] std::string run_self(const std::vector<std::string>& arguments,
                                   const std::function<void()>& tick);

}  // namespace sallyport::bench
