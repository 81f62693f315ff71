#pragma once

#include <chrono>
#include <string>

namespace sallyport::bench {

/// Tells on standard error how far a run is: on a terminal in one line that changes, elsewhere in a
/// line every few seconds. Thread safety: none.
class progress {
 public:
  progress();
  /// Clears the line.
  ~progress();
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// From now on this is what the run does.
  void now_at(std::string what);
  /// Shows it, if it is time to.
  void tick();

 private:
  using clock = std::chrono::steady_clock;

  const bool on_terminal_;
  const clock::time_point began_;
  clock::time_point shown_at_;
  std::string what_;
};

}  // namespace sallyport::bench
