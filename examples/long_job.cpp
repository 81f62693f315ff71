// A long job under a lock: it is told when the lock was lost, and stops.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stop_token>

using namespace std::chrono_literals;

namespace {

/// Works in steps until it is done or told to stop; returns the number of steps.
int import_rows(const std::stop_token& gone, int rows) {
  std::mutex mutex;
  std::condition_variable_any pause;
  for (int row = 0; row < rows; ++row) {
    std::unique_lock lock{mutex};
    // One step of work that can be interrupted.
    pause.wait_for(lock, gone, 2ms, [] { return false; });
    if (gone.stop_requested()) return row;
  }
  return rows;
}

}  // namespace

int main() {
  const auto client = sallyport::client::open("memory:");

  // The lease is short and the job is longer: renewals in the background keep it.
  sallyport::mutex nightly{client, "jobs/import", {.lease_length = 2s}};
  const int rows =
      sallyport::with_lock(nightly, [](std::stop_token gone) { return import_rows(gone, 50); });
  std::cout << "imported " << rows << " rows\n";
  if (rows != 50) return EXIT_FAILURE;

  // A fixed lease stands for a holder that was cut off from its store: it lapses while the job
  // still runs.
  sallyport::mutex doomed{
      client, "jobs/export", {.lease_length = 100ms, .renew = sallyport::renewal::never}};
  int exported = 0;
  try {
    sallyport::with_lock(doomed,
                         [&](std::stop_token gone) { exported = import_rows(gone, 1'000'000); });
  } catch (const sallyport::lock_error& error) {
    std::cout << "stopped after " << exported << " rows: " << error.what() << '\n';
    return error.code() == sallyport::errc::lease_lost ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  return EXIT_FAILURE;  // a lost lease must not look like success
}
