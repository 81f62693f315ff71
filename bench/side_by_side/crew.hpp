#pragma once

#include "bench/harness/program.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/child_process.hpp"
#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

/// Processes that take turns with a lock and tell of them, in the words of bench/peers/README.md.
namespace sallyport::bench {

/// How to start a process that takes turns with one library's lock.
struct library {
  std::string id;
  std::string title;
  std::string program;
  std::vector<std::string> arguments = {};
  std::vector<std::string> environment = {};
  /// Arguments with which the program only tries whether the library is there; empty: it is.
  std::vector<std::string> trial = {};
  std::string remedy = {};
};

/// sallyport::mutex on the server that the conversation is held on; on another store when
/// store_variable is in the environment.
[[nodiscard]] library sallyport_itself();
[[nodiscard]] library redis_py();
/// On the server that the conversation is held on; on others when nodes_variable is in the
/// environment.
[[nodiscard]] library node_redlock();

/// Environment of a Sallyport process: the address of the store to take turns on.
inline constexpr const char* store_variable = "BENCH_STORE";
/// Environment of node_redlock(): ports on 127.0.0.1, with commas between them.
inline constexpr const char* nodes_variable = "BENCH_NODES";

/// Why the library can't be measured here, for program::why_missing; empty: it can.
[[nodiscard]] std::string why_missing(const library& which);

/// Who contends, and how.
struct contest {
  int processes = 1;
  int seats = 1;  ///< contenders in each process
  std::chrono::microseconds hold{0};
  /// From the beginning, or from the end of `at_begin`, until turns count. All are at it already.
  std::chrono::nanoseconds lead{0};
  /// What happens once all have begun, such as the death of a server; null: nothing.
  std::function<void()> at_begin = {};
};

struct contest_outcome {
  std::vector<turn> turns;  ///< all, also those outside of the window
  turn_window counted;
};

/// Processes of one library; they are gone with the object.
class crew {
 public:
  /// Starts them. The conversation is held on `control`, which is the server of the lock unless the
  /// library's environment says otherwise; it must outlive the crew.
  crew(const library& which, contest how, const kit::redis_server& control);

  /// Lets them contend until `time` has been counted. To be called once. Throws std::runtime_error
  /// with a process's last words when one fails or takes too long.
  [[nodiscard]] contest_outcome run(seconds time);

 private:
  void wait_until_ready();

  const contest how_;
  kit::temporary_folder folder_{"bench"};
  kit::redis_probe probe_;
  std::deque<kit::child_process> processes_;  // they can't be moved
};

}  // namespace sallyport::bench
