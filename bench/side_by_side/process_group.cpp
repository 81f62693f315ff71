#include "bench/side_by_side/process_group.hpp"

#include "bench/harness/stats.hpp"
#include "bench/micro/timed_loop.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sallyport::bench {
namespace {

std::int64_t now() { return stopwatch::now().time_since_epoch().count(); }

void take_turns(shared_board& board, int me, std::chrono::nanoseconds hold, process_seat& mine) {
  shared_board::seat& own = board.seats[me];
  while (!board.stop.load(std::memory_order_relaxed)) {
    const std::int64_t wanted_at = now();
    mine.acquire();
    const std::int64_t inside_at = now();
    shared_board::baton& holder = board.holder;
    if (holder.released_by != me) {
      ++holder.changes;
      const bool waited = holder.released_by >= 0 && wanted_at < holder.released_at;
      if (waited && own.samples < std::size(own.latency)) {
        own.latency[own.samples++] = inside_at - holder.released_at;
      }
    }
    ++holder.turns;
    if (++own.turns == 1) ++board.at_it;
    if (board.at_it.load(std::memory_order_relaxed) == group_size &&
        !board.stop.load(std::memory_order_relaxed)) {
      ++own.contended_turns;
    }
    if (hold.count() > 0) std::this_thread::sleep_for(hold);
    holder.released_by = me;
    holder.released_at = now();
    mine.release();
  }
}

/// A child's whole life; never returns.
[[noreturn]] void live(shared_board& board, int me, std::chrono::nanoseconds hold,
                       const std::function<std::unique_ptr<process_seat>(int)>& make_seat) {
  try {
    const auto mine = make_seat(me);
    ++board.ready;
    while (!board.go.load()) std::this_thread::sleep_for(std::chrono::microseconds{200});
    take_turns(board, me, hold, *mine);
  } catch (const std::exception&) {
    board.failed = true;
    board.ready = group_size;
  }
  ::_exit(0);
}

class mapped_board {
 public:
  mapped_board()
      : place_(::mmap(nullptr, sizeof(shared_board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (place_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    board_ = new (place_) shared_board;
  }
  mapped_board(const mapped_board&) = delete;
  mapped_board& operator=(const mapped_board&) = delete;
  ~mapped_board() { ::munmap(place_, sizeof(shared_board)); }
  shared_board& operator*() const { return *board_; }
  shared_board* operator->() const { return board_; }

 private:
  void* place_;
  shared_board* board_ = nullptr;
};

}  // namespace

group_figures measure_group(seconds time, seconds hold,
                            const std::function<std::unique_ptr<process_seat>(int)>& make_seat) {
  const mapped_board board;
  const auto hold_time = std::chrono::duration_cast<std::chrono::nanoseconds>(hold);
  std::array<pid_t, group_size> children{};
  for (int me = 0; me < group_size; ++me) {
    children[static_cast<std::size_t>(me)] = ::fork();
    if (children[static_cast<std::size_t>(me)] == 0) live(*board, me, hold_time, make_seat);
  }
  constexpr auto look = std::chrono::milliseconds{1};
  for (int waited = 0; board->ready.load() < group_size && waited < 20'000; ++waited) {
    std::this_thread::sleep_for(look);
  }
  const auto began = stopwatch::now();
  board->go = true;
  std::this_thread::sleep_for(time);
  board->stop = true;
  const seconds passed = stopwatch::now() - began;
  for (const pid_t child : children) {
    int status = 0;
    for (int waited = 0; ::waitpid(child, &status, WNOHANG) == 0; ++waited) {
      if (waited == 20'000) {
        ::kill(child, SIGKILL);
        board->failed = true;
      }
      std::this_thread::sleep_for(look);
    }
  }

  if (board->failed) throw std::runtime_error("a process of the group failed");
  std::vector<std::int64_t> latencies;
  std::uint64_t sum = 0;
  std::uint64_t most = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  for (const shared_board::seat& each : board->seats) {
    latencies.insert(latencies.end(), each.latency, each.latency + each.samples);
    sum += each.turns;
    most = std::max(most, each.contended_turns);
    fewest = std::min(fewest, each.contended_turns);
  }
  if (sum != board->holder.turns) throw std::runtime_error("two processes were inside at once");
  if (latencies.empty()) throw std::runtime_error("the lock was never handed on");
  return {.handoff_p50_us = percentile(latencies, 0.5) / 1e3,
          .handoff_p99_us = percentile(latencies, 0.99) / 1e3,
          .us_per_change = passed.count() * 1e6 /
                           static_cast<double>(std::max<std::uint64_t>(board->holder.changes, 1)),
          .most_to_fewest =
              static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(fewest, 1))};
}

}  // namespace sallyport::bench
