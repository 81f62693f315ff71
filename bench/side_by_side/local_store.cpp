#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/bench_folder.hpp"
#include "bench/side_by_side/process_group.hpp"
#include "bench/side_by_side/programs.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <fcntl.h>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/file.h>
#include <unistd.h>

namespace sallyport::bench {
namespace {

constexpr double uncontended_bar = 4;
constexpr double handoff_bar = 5;
constexpr double changes_bar = 1.0 / 3;
constexpr double fairness_bar = 1.05;

int open_lock_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("'" + path + "' could not be opened");
  return file;
}

double flock_pair(seconds time) {
  const bench_folder folder;
  ::close(open_lock_file(folder.file()));
  const std::string path = folder.file();
  return nanoseconds_per_call(time, [&path] {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || ::flock(file, LOCK_EX) != 0) throw std::runtime_error("flock failed");
    ::close(file);
  });
}

double local_pair(seconds time) {
  const bench_folder folder;
  mutex lock{client::open(folder.store()), "bench/uncontended"};
  return nanoseconds_per_call(time, [&lock] {
    lease held = lock.acquire();
    if (held.release() != release_result::released) throw std::runtime_error("a lease was lost");
  });
}

class flock_seat final : public process_seat {
 public:
  explicit flock_seat(const std::string& path) : file_(open_lock_file(path)) {}
  ~flock_seat() override { ::close(file_); }
  void acquire() override {
    if (::flock(file_, LOCK_EX) != 0) throw std::runtime_error("flock failed");
  }
  void release() override {
    if (::flock(file_, LOCK_UN) != 0) throw std::runtime_error("flock failed");
  }

 private:
  int file_;
};

class local_seat final : public process_seat {
 public:
  explicit local_seat(const std::string& store) : lock_(client::open(store), "bench/hand-off") {}
  void acquire() override { held_.emplace(lock_.acquire()); }
  void release() override {
    if (held_->release() != release_result::released) throw std::runtime_error("a lease was lost");
    held_.reset();
  }

 private:
  mutex lock_;
  std::optional<lease> held_;
};

std::vector<double> numbers(const group_figures& all) {
  return {all.handoff_p50_us, all.handoff_p99_us, all.us_per_change, all.most_to_fewest};
}

template <class Seat>
std::unique_ptr<process_seat> make_seat(const std::string& place) {
  return std::make_unique<Seat>(place);
}

program group_program(std::string id, std::string group, std::string title, std::string limit,
                      seconds hold, std::vector<figure> figures,
                      std::unique_ptr<process_seat> (*seat)(const std::string&),
                      std::string (bench_folder::*where)() const) {
  return {
      .id = std::move(id),
      .group = std::move(group),
      .title = std::move(title),
      .limit = std::move(limit),
      .figures = std::move(figures),
      .measure = [hold, seat, where](const measure_settings& how) {
        const bench_folder folder;
        const std::string place = (folder.*where)();
        return numbers(measure_group(how.time, hold, [&place, seat](int) { return seat(place); }));
      }};
}

std::vector<figure> group_figures_with(bar handoff, bar change, bar fairness) {
  return {{.name = "hand-off p50", .unit = "us", .wanted = handoff},
          {.name = "hand-off p99", .unit = "us"},
          {.name = "time per change of holder", .unit = "us", .wanted = change},
          {.name = "most/fewest turns", .unit = "", .wanted = fairness, .compared = false}};
}

program pair_program(std::string id, std::string group, std::string title, std::string limit,
                     bar wanted, double (*measure)(seconds)) {
  return {.id = std::move(id),
          .group = std::move(group),
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "ns", .wanted = wanted}},
          .measure = [measure](const measure_settings& how) {
            return std::vector<double>{measure(how.time)};
          }};
}

}  // namespace

std::vector<program> local_store_programs() {
  using namespace std::chrono_literals;
  const std::string alone = "the embedded store: one process, nobody else wants the lock";
  const std::string busy = "the embedded store: 8 processes, empty critical section";
  const std::string held = "the embedded store: 8 processes, held for 1 ms";
  return {
      pair_program("local-1/flock", alone, "open, flock, close", "", {}, &flock_pair),
      pair_program("local-1/acquire", alone, "sallyport::mutex acquire(), release()",
                   "local-1/flock", times_limit(uncontended_bar), &local_pair),
      group_program("local-8/flock", busy, "flock", "", 0s, group_figures_with({}, {}, {}),
                    &make_seat<flock_seat>, &bench_folder::file),
      group_program("local-8/mutex", busy, "sallyport::mutex", "local-8/flock", 0s,
                    group_figures_with({}, times_limit(changes_bar), at_most(fairness_bar)),
                    &make_seat<local_seat>, &bench_folder::store),
      group_program("local-8-hold/flock", held, "flock", "", 1ms, group_figures_with({}, {}, {}),
                    &make_seat<flock_seat>, &bench_folder::file),
      group_program("local-8-hold/mutex", held, "sallyport::mutex", "local-8-hold/flock", 1ms,
                    group_figures_with(times_limit(handoff_bar), {}, at_most(fairness_bar)),
                    &make_seat<local_seat>, &bench_folder::store),
  };
}

}  // namespace sallyport::bench
