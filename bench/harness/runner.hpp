#pragma once

#include "bench/harness/options.hpp"
#include "bench/harness/progress.hpp"
#include "bench/harness/report.hpp"

#include <span>
#include <vector>

namespace sallyport::bench {

/// Measures all programs: a short round first that does not count, then the rounds, each with every
/// program once (forwards and backwards in turn, so that a slow drift of the machine favours
/// nobody), then what is measured once. Returns the rounds by program, in the order of `programs`.
/// Throws std::runtime_error with the program's id when one fails.
[[nodiscard]] std::vector<measured_rounds> run_all(std::span<const program> programs,
                                                   const options& how, progress& told);

}  // namespace sallyport::bench
