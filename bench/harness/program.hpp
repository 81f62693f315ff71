#pragma once

#include "bench/harness/bar.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace sallyport::bench {

using seconds = std::chrono::duration<double>;

/// What a program is told when it is to measure.
struct measure_settings {
  seconds time;                ///< how long to measure; setting up is not part of it
  seconds hold;                ///< for programs that hold something: how long
  std::function<void()> tick;  ///< to be called at times by a program that takes long; never null
};

/// One number that a program measures.
struct figure {
  std::string name;  ///< the same name in the program's limit is what it is compared with
  std::string unit;
  bar wanted = {};
  bool compared = true;     ///< false: no ratio, even where the limit has such a figure
  std::string beside = {};  ///< the limit's figure to compare with, where its name is another one
};

/// How often a program is measured.
enum class repetition : std::uint8_t {
  every_round,  ///< in turn with all others
  once          ///< alone, after all rounds
};

/// Something that can be measured.
struct program {
  std::string id;     ///< short, for --only
  std::string group;  ///< programs of one group stand together
  std::string title;
  std::string limit;  ///< the id of the program that is its physical limit; empty: none
  std::vector<figure> figures;
  repetition repeat = repetition::every_round;
  /// Measures one round: one number for each figure, in their order. Throws when what it ran did
  /// not work; its numbers would mean nothing.
  std::function<std::vector<double>(const measure_settings&)> measure;
  /// Says why it can't be measured here, such as a package that is not installed; empty: it can.
  /// Null: always. REQUIRES of a program that may be missing: it is nobody's limit.
  std::function<std::string()> why_missing = {};
};

}  // namespace sallyport::bench
