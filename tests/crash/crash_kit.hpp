#pragma once

#include "tests/contract/kit/holder_process.hpp"
#include "tests/contract/kit/waiting.hpp"
#include "tests/crash/board.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

/// What crash tests share: a store of their own, workers that are killed, and the look at what is
/// left.
namespace sallyport::crash {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::holder_process;
using contract::patience;

/// A folder of its own, removed in the end.
class crash_test : public testing::Test {
 protected:
  crash_test();
  ~crash_test() override;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string address() const {
    return "local:" + folder_ + "/store?size=1M&map=" + map_;
  }
  [[nodiscard]] std::string board_file() const { return folder_ + "/board"; }
  [[nodiscard]] client open(client_options options = {}) const;
  [[nodiscard]] std::vector<std::string> files_of_store() const;

  /// Buries the dead that nobody waits for; how many there were.
  std::size_t sweep() const;
  /// Nobody is attached, nothing is held: after a sweep nothing may be left but the counters.
  void expect_nothing_left() const;

  std::string map_ = "yes";

 private:
  std::string folder_;
};

/// crash_worker --loop in one slot of a board, started again and again.
class looping_worker {
 public:
  looping_worker() = default;
  looping_worker(const looping_worker&) = delete;
  looping_worker& operator=(const looping_worker&) = delete;
  ~looping_worker();

  void start(std::vector<std::string> words);
  /// The process, 0 when none runs. Reaps.
  pid_t running();
  /// SIGKILL; does not wait.
  void kill() const;
  /// Waits for the end; what waitpid said.
  int reap();

 private:
  pid_t pid_ = 0;
};

/// Sorted; the share of a hundred.
[[nodiscard]] std::int64_t percentile(std::vector<std::int64_t> values, int share);

void pause_for(std::chrono::microseconds length);

}  // namespace sallyport::crash
