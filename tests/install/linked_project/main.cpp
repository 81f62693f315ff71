// usage: linked STORE...
// Takes a lock in each store, and sees that another client is kept out meanwhile.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

using namespace std::chrono_literals;

namespace {

bool use(const std::string& store) {
  const auto here = sallyport::client::open(store, {.store_patience = 100ms});
  const auto there = sallyport::client::open(store);
  sallyport::mutex mine{here, "orders/42", {.lease_length = 10s}};
  sallyport::mutex theirs{there, "orders/42", {.lease_length = 10s}};

  auto lease = mine.acquire();
  const bool kept_out = !theirs.try_acquire().has_value();
  const bool released = lease.release() == sallyport::release_result::released;
  const bool free_again = theirs.try_acquire().has_value();
  std::cout << store << (kept_out && released && free_again ? ": locked\n" : ": NOT LOCKED\n");
  return kept_out && released && free_again;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    bool good = count > 1;
    for (int i = 1; i < count; ++i) good &= use(arguments[i]);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
