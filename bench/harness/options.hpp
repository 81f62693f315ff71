#pragma once

#include "bench/harness/program.hpp"

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::bench {

/// What the command line said.
struct options {
  int rounds = 7;
  seconds time{0.3};
  seconds hold{35};
  std::string json_path{};  ///< empty: none; "-": standard output, instead of the table
  std::string only{};       ///< empty: all
  bool list = false;
  bool help = false;
};

/// A command line that makes no sense; what() says why.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int max_rounds = 1000;
inline constexpr double max_seconds = 3600;

/// Reads the arguments after the program's name. --quick stands for few, short rounds; options that
/// are given beside it count, wherever they stand. Throws usage_error.
[[nodiscard]] options parse_options(std::span<const std::string_view> arguments);
[[nodiscard]] std::string_view usage() noexcept;

/// The programs whose id or group contains `pattern`, and their limits, in the order of `all`.
[[nodiscard]] std::vector<program> select(std::span<const program> all, std::string_view pattern);

}  // namespace sallyport::bench
