#include "bench/micro/bare_locks.hpp"
#include "bench/micro/programs.hpp"
#include "bench/micro/timed_loop.hpp"
#include <sallyport/client.hpp>
#include <sallyport/fence.hpp>
#include <sallyport/mutex.hpp>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace sallyport::bench {
namespace {

void expect(bool good, const char* otherwise) {
  if (!good) throw std::runtime_error(otherwise);
}

double table_lookup(seconds time) {
  bare_table table;
  const std::string name = "bench/held";
  table.insert(name, {});
  return nanoseconds_per_call(time, [&] { keep(table.contains(name)); });
}

double try_held(seconds time, const client& holder, const client& asker) {
  mutex theirs{holder, "bench/held"};
  mutex ours{asker, "bench/held"};
  const lease held = theirs.acquire();
  return nanoseconds_per_call(
      time, [&ours] { expect(!ours.try_acquire().has_value(), "a held lock was granted"); });
}

double try_held_here(seconds time) {
  const auto store = client::open("memory:");
  return try_held(time, store, store);
}

double try_held_elsewhere(seconds time) {
  return try_held(time, client::open("memory:bench"), client::open("memory:bench"));
}

double one_clock(seconds time) {
  return nanoseconds_per_call(time, [] {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    keep(now);
  });
}

double lease_valid(seconds time) {
  const auto store = client::open("memory:");
  mutex lock{store, "bench/valid"};
  const lease held = lock.acquire();
  return nanoseconds_per_call(time, [&held] { expect(held.valid(), "a lease was lost"); });
}

double mutex_and_call(seconds time) {
  std::mutex lock;
  std::uint64_t runs = 0;
  const auto action = [&runs] { ++runs; };
  return nanoseconds_per_call(time, [&] {
    const std::function<void()> wrapped{std::ref(action)};
    const std::lock_guard locked{lock};
    keep(wrapped);
    wrapped();
  });
}

double run_gate(seconds time, fence::gate& gate) {
  std::uint64_t runs = 0;
  const fence::pass shown{.lock = "bench/gate", .token = fencing_token{1}};
  return nanoseconds_per_call(time, [&] {
    expect(gate.run(shown, [&runs] { ++runs; }) == fence::verdict::passed, "a gate refused");
  });
}

double memory_gate_run(seconds time) {
  fence::memory_gate gate;
  return run_gate(time, gate);
}

/// A folder of its own that goes with this object.
class scratch_folder {
 public:
  scratch_folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "sallyport-bench-XXXXXX").native();
    expect(mkdtemp(pattern.data()) != nullptr, "no temporary folder could be made");
    path_ = pattern;
  }
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  [[nodiscard]] std::filesystem::path file() const { return path_ / "gate"; }

 private:
  std::filesystem::path path_;
};

double file_gate_run(seconds time) {
  const scratch_folder folder;
  fence::file_gate gate{folder.file()};
  return run_gate(time, gate);
}

double file_lock_pair(seconds time) {
  const scratch_folder folder;
  const std::string path = folder.file().native();
  const int made = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  std::array<char, 64> bytes{};
  expect(made >= 0 && write(made, bytes.data(), bytes.size()) == 64, "no file could be made");
  close(made);
  return nanoseconds_per_call(time, [&] {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    expect(file >= 0 && fcntl(file, F_OFD_SETLK, &range) == 0, "the file could not be locked");
    expect(pread(file, bytes.data(), bytes.size(), 0) == 64, "the file could not be read");
    keep(bytes);
    close(file);
  });
}

program make(const std::string& id, std::string title, const std::string& limit,
             double (*measure)(seconds)) {
  return {.id = "asking/" + id,
          .group = "calls that ask",
          .title = std::move(title),
          .limit = limit.empty() ? limit : "asking/" + limit,
          .figures = {{.name = "call", .unit = "ns"}},
          .measure = [measure](const measure_settings& how) {
            return std::vector<double>{measure(how.time)};
          }};
}

}  // namespace

std::vector<program> asking_programs() {
  return {
      make("table", "bare table: mutex, hash map lookup", "", &table_lookup),
      make("try-held-here", "try_acquire(), held through the same client", "table", &try_held_here),
      make("try-held-elsewhere", "try_acquire(), held through another client", "table",
           &try_held_elsewhere),
      make("clock", "clock_gettime(CLOCK_BOOTTIME)", "", &one_clock),
      make("valid", "lease.valid()", "clock", &lease_valid),
      make("mutex-call", "std::mutex around a std::function", "", &mutex_and_call),
      make("memory-gate", "memory_gate run, same token", "mutex-call", &memory_gate_run),
      make("file-lock", "open, lock (F_OFD_SETLK), read 64 bytes, close", "", &file_lock_pair),
      make("file-gate", "file_gate run, same token", "file-lock", &file_gate_run),
  };
}

}  // namespace sallyport::bench
