// The inner gate: a holder that was paused for too long does not know it, but the resource does.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <unistd.h>

using namespace std::chrono_literals;
using sallyport::fence::verdict;

int main() {
  const auto client = sallyport::client::open("memory:");
  sallyport::mutex slow{
      client, "report", {.lease_length = 100ms, .renew = sallyport::renewal::never}};
  sallyport::mutex quick{client, "report", {.lease_length = 30s}};

  const auto folder = std::filesystem::temp_directory_path() /
                      ("sallyport-fenced-write-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto report = folder / "report.txt";
  const auto write = [&](const std::string& text) { std::ofstream{report} << text; };

  bool as_expected = true;
  {
    // The numbers of a file gate are on disk before the action runs, so every process that uses the
    // file is judged alike.
    sallyport::fence::file_gate gate{folder / "report.gate"};

    const auto paused =
        slow.acquire();  // ... and then its machine is suspended, and the lease lapses
    const auto current = quick.acquire();  // waits until the store has taken the lock back
    std::cout << "the paused holder has token " << paused.token().value() << ", the current one "
              << current.token().value() << '\n';

    const verdict first = gate.run(current, [&] { write("written by the current holder\n"); });
    const verdict late = gate.run(paused, [&] { write("overwritten by a ghost\n"); });
    std::cout << "current: " << to_string(first) << ", late: " << to_string(late) << '\n';
    as_expected = first == verdict::passed && late == verdict::stale;
  }
  std::string kept;
  std::getline(std::ifstream{report}, kept);
  std::cout << "the report says: " << kept << '\n';

  // The same in memory, for a resource that lives in this process.
  sallyport::fence::memory_gate gate;
  auto before = quick.acquire();
  before.release();
  const auto after = quick.acquire();
  int balance = 0;
  const verdict newer = gate.run(after, [&] { balance = 10; });
  const verdict older = gate.run(before, [&] { balance = -1; });
  as_expected = as_expected && newer == verdict::passed && older == verdict::stale && balance == 10;

  std::filesystem::remove_all(folder);
  return as_expected && kept == "written by the current holder" ? EXIT_SUCCESS : EXIT_FAILURE;
}
