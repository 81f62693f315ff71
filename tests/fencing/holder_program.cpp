// Holds a lock, reads a balance, and writes it back 30 lower when it is told to, however late that
// is: it never looks at its lease.
// usage: fencing_holder STORE LOCK LEASE_MS KIND WHERE bare|guarded FOLDER
//
// In FOLDER: it makes `holding` when it holds the lock and has read, and waits for `go`; what became of
// its write is the exit code: 0 written, 10 refused as stale, anything else a failure.

#include "tests/fencing/balance.hpp"
#include "tests/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace {

int run(const std::filesystem::path& folder, char** words) {
  const auto store = sallyport::client::open(words[1]);
  sallyport::mutex lock{store,
                        std::string(words[2]),
                        {.lease_length = std::chrono::milliseconds{std::stoi(words[3])}}};
  const auto balance = sallyport::fencing::open_balance(words[4], words[5]);
  const auto lease = lock.acquire();
  const sallyport::fence::pass shown = lease.fence_pass();
  const int seen = balance->read();
  std::ofstream{folder / "holding"} << shown.token.value();
  if (!sallyport::kit::eventually([&] { return std::filesystem::exists(folder / "go"); }))
    return 11;
  if (std::string(words[6]) == "bare") {
    balance->write(seen - 30);
    return 0;
  }
  return balance->write_guarded(shown, seen - 30) ? 0 : 10;
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    std::cerr << "usage: fencing_holder STORE LOCK LEASE_MS KIND WHERE bare|guarded FOLDER\n";
    return 64;
  }
  try {
    return run(words[7], words);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
