// Many readers or one writer; a writer that has finished writing goes on as a reader.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <shared_mutex>
#include <thread>

using namespace std::chrono_literals;

int main() {
  const auto client = sallyport::client::open("memory:");
  sallyport::shared_mutex config{client, "config"};
  int version = 0;

  auto writer = config.acquire();
  version = 1;
  std::cout << "version 1 written under token " << writer.token().value() << '\n';
  if (config.try_acquire_shared()) return EXIT_FAILURE;  // nobody reads half a version

  // In one step: no other writer can get in between, so what we read now is what we wrote.
  writer.downgrade();
  int seen = 0;
  std::thread reader([&] {
    const std::shared_lock reading{config};
    seen = version;
  });
  reader.join();
  std::cout << "a reader saw version " << seen << " while the writer reads on\n";
  if (seen != 1 || !writer.valid() || config.try_acquire()) return EXIT_FAILURE;

  writer.release();
  const auto next = config.try_acquire_for(1s);
  if (!next) return EXIT_FAILURE;
  std::cout << "the next writer's token is " << next->token().value() << '\n';
  return next->token() > writer.token() ? EXIT_SUCCESS : EXIT_FAILURE;
}
