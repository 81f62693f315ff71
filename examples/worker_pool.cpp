// At most three workers, over all processes, may use the slow service at the same time.

#include <sallyport/sallyport.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

int main() {
  constexpr int most_at_once = 3;
  const auto client = sallyport::client::open("memory:");
  sallyport::semaphore slots{client, "slow-service", most_at_once};
  std::atomic<int> busy{0};
  std::atomic<int> busiest{0};
  std::atomic<int> calls{0};

  std::vector<std::thread> workers;
  workers.reserve(8);
  for (int worker = 0; worker < 8; ++worker) {
    workers.emplace_back([&] {
      for (int call = 0; call < 20; ++call) {
        const auto permit = slots.acquire();
        const int now = ++busy;
        int before = busiest.load();
        while (now > before && !busiest.compare_exchange_weak(before, now)) {
        }
        ++calls;
        --busy;
      }
    });
  }
  for (auto& worker : workers) worker.join();

  std::cout << calls << " calls by 8 workers, never more than " << busiest << " at once\n";

  // Permits are not exclusive, so they carry no fencing token: nothing could be compared.
  const auto permit = slots.acquire();
  return busiest <= most_at_once && calls == 160 && !permit.fenced() ? EXIT_SUCCESS : EXIT_FAILURE;
}
