// usage: user STORE...
// What a user's program does with each store: takes a lock, guards a resource with the lease's token, gives the lock
// back, and sees that a holder that came late is refused.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <string>

using namespace std::chrono_literals;

namespace {

bool expect(bool good, const char* what) {
  if (!good) std::cerr << "not true: " << what << '\n';
  return good;
}

bool use(const std::string& store) {
  const auto client = sallyport::client::open(store);
  sallyport::mutex orders{client, "orders/42", {.lease_length = 10s}};
  sallyport::fence::memory_gate gate;

  // Asking does not wait for a store that is not there; acquiring would, for a while.
  if (!expect(!client.who("orders/42"), "nobody holds what nobody asked for")) return false;
  auto lease = orders.try_acquire_for(5s);
  if (!expect(lease.has_value(), "a free lock is acquired")) return false;
  bool good = expect(lease->valid() && !lease->lost().stop_requested(), "the lease is valid");
  good &= expect(!orders.try_acquire(), "a held lock is held");
  const auto late = lease->fence_pass();
  good &= expect(lease->release() == sallyport::release_result::released, "it is released");

  const auto next = orders.acquire();
  good &= expect(next.token() > late.token, "tokens grow");
  std::string writer;
  good &= expect(gate.run(next, [&] { writer = "current"; }) == sallyport::fence::verdict::passed,
                 "the current holder passes");
  good &= expect(gate.run(late, [&] { writer = "late"; }) == sallyport::fence::verdict::stale,
                 "the late holder is refused");
  good &= expect(writer == "current", "the late action did not run");

  sallyport::mutex invoices{client, "invoices", {.lease_length = 10s}};
  {
    const std::scoped_lock guard{invoices};
    const auto seen = client.who("invoices");
    good &= expect(seen && !seen->holders.empty(), "who names the holder");
  }
  std::cout << store << ": token " << next.token().value() << '\n';
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    bool good = expect(count > 1, "at least one store was named");
    for (int i = 1; i < count; ++i) good &= use(arguments[i]);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
