#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/crew.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/redis_probe.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

/// Sallyport's side of the conversation in bench/peers/README.md.
namespace sallyport::bench {
namespace {

std::int64_t now() { return stopwatch::now().time_since_epoch().count(); }

/// The lock's own store, or the server that the conversation is held on.
std::string store_of(const std::string& port) {
  const char* const another = std::getenv(store_variable);  // NOLINT(concurrency-mt-unsafe)
  return another != nullptr ? another : "redis://127.0.0.1:" + port;
}

void give_back(lease& held) {
  if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
}

std::vector<turn> take_turns(mutex& lock, int seat, std::chrono::microseconds hold,
                             turn_window counted) {
  std::vector<turn> turns;
  std::this_thread::sleep_until(stopwatch::time_point{stopwatch::duration{counted.begin}});
  for (turn next{.seat = seat}; (next.wanted_at = now()) < counted.end;) {
    lease held = lock.acquire();
    next.entered_at = now();
    if (hold.count() > 0) std::this_thread::sleep_for(hold);
    next.released_at = now();
    give_back(held);
    turns.push_back(next);
  }
  return turns;
}

void write_to(std::ostream& out, const turn& each) {
  out << each.seat << ' ' << each.wanted_at << ' ' << each.entered_at << ' ' << each.released_at
      << ' ' << each.gave_up << '\n';
}

}  // namespace

int run_turns_child(const std::string& port, int process, int seats,
                    std::chrono::microseconds hold) {
  const client store = client::open(store_of(port));
  mutex warm{store, "bench/warm/" + std::to_string(process)};
  lease first = warm.acquire();
  give_back(first);

  kit::redis_address server;
  server.port = static_cast<std::uint16_t>(std::stoi(port));
  kit::redis_probe probe{server};
  probe.expect({"INCR", "bench/ready"});
  turn_window counted;
  std::istringstream go{probe.expect({"BLPOP", "bench/go", "0"}).texts().at(1)};
  if (!(go >> counted.begin >> counted.end)) throw std::runtime_error("no times to begin and end");

  // Several contenders of one process are as good as strangers, as the other libraries' are: with
  // the default they would pass the lock on among themselves, without the server.
  const lock_options how = seats > 1 ? lock_options{.local_turns = 1} : lock_options{};
  std::vector<std::future<std::vector<turn>>> all;
  all.reserve(static_cast<std::size_t>(seats));
  for (int i = 0; i < seats; ++i) {
    all.push_back(std::async(std::launch::async, [&store, &how, &counted, process, seats, hold, i] {
      mutex lock{store, "bench/lock", how};
      return take_turns(lock, process * seats + i, hold, counted);
    }));
  }
  std::ostringstream lines;
  for (auto& each : all) {
    for (const turn& taken : each.get()) write_to(lines, taken);
  }
  probe.expect({"RPUSH", "bench/turns", lines.str()});
  return 0;
}

}  // namespace sallyport::bench
