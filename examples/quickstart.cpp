// One lock, one lease: take it, use its token, notice its loss, give it back.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>

using namespace std::chrono_literals;

int main() {
  // "memory:" is a store inside this process; the address of a server makes the same code work
  // across machines.
  const auto client = sallyport::client::open("memory:");
  sallyport::mutex orders{client, "orders/42", {.lease_length = 30s}};

  // Empty means that somebody else has it. A broken store throws: "held" and "broken" are never
  // confused.
  if (auto lease = orders.try_acquire_for(5s)) {
    std::cout << "holding '" << lease->name().text() << "' under token " << lease->token().value()
              << '\n';

    // Work may look at valid(), or hand lost() to whatever can be stopped.
    const std::stop_token gone = lease->lost();
    if (!lease->valid() || gone.stop_requested()) return EXIT_FAILURE;

    // Whoever asks now is told "held", at once and without an exception.
    if (orders.try_acquire()) return EXIT_FAILURE;
    std::cout << "a second caller was turned away\n";
  }  // released here; never throws

  const auto again = orders.try_acquire();
  if (!again) return EXIT_FAILURE;
  std::cout << "free again; the next token is " << again->token().value() << '\n';
}
