#pragma once

#include "bench/harness/bar.hpp"
#include "bench/harness/machine.hpp"
#include "bench/harness/program.hpp"
#include "bench/harness/stats.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sallyport::bench {

/// The rounds of one program: measured[round][figure].
using measured_rounds = std::vector<std::vector<double>>;

/// One line of the table: one figure of one program beside its limit.
struct row {
  std::string group;
  std::string program_id;
  std::string title;
  std::string figure_name;
  std::string unit;
  std::vector<double> rounds;
  summary value;
  std::string limit_id;          ///< empty: it has none
  std::optional<summary> ratio;  ///< to the limit's rounds
  bar wanted;
  verdict given = verdict::none;
  bool is_limit = false;  ///< another row's limit
};

/// What a run is told by its options, as far as it says how to read the figures.
struct run_facts {
  std::string command;
  int rounds = 0;
  seconds time{};
  seconds hold{};
  seconds took{};
};

/// A program that could not be measured on this machine.
struct missing_program {
  std::string id;
  std::string why;
};

/// Takes those that can't be measured here out of `programs`, and says why.
[[nodiscard]] std::vector<missing_program> take_out_missing(std::vector<program>& programs);

/// A whole run.
struct report {
  run_facts run;
  machine_facts machine;
  load_facts load;
  std::vector<row> rows;
  std::vector<missing_program> missing;
};

/// Puts every figure beside its limit. Both spans go by program, in one order.
/// Throws std::invalid_argument when a limit is missing or the rounds do not fit.
[[nodiscard]] std::vector<row> make_rows(std::span<const program> programs,
                                         std::span<const measured_rounds> measured);

/// For people; ends with a count of the bars met.
[[nodiscard]] std::string to_table(const report& whole);
/// For programs; "schema": 1.
[[nodiscard]] std::string to_json(const report& whole);

}  // namespace sallyport::bench
