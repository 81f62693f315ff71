// The std way: sallyport's mutexes are lockables, so std::scoped_lock and std::unique_lock work.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main() {
  const auto client = sallyport::client::open("memory:");
  sallyport::mutex orders{client, "orders"};
  sallyport::mutex invoices{client, "invoices"};
  int orders_done = 0;
  int invoices_done = 0;

  std::vector<std::thread> workers;
  workers.reserve(4);
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        // Both or none, whatever the order in which others name them.
        const std::scoped_lock guard{orders, invoices};
        ++orders_done;
        ++invoices_done;
      }
    });
  }
  for (auto& worker : workers) worker.join();
  std::cout << orders_done << " orders and " << invoices_done << " invoices\n";

  // A guard says nothing about loss; current() does, for the thread that holds.
  std::unique_lock guard{orders, 1s};
  if (!guard.owns_lock()) return EXIT_FAILURE;
  const auto lease = orders.current();
  std::cout << "held under token " << lease->token().value() << ", "
            << (lease->valid() ? "valid" : "lost") << '\n';
  return orders_done == 100 && invoices_done == 100 && lease->valid() ? EXIT_SUCCESS : EXIT_FAILURE;
}
