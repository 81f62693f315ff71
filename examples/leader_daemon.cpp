// A daemon that leads whenever it can: it campaigns, works until it leads no more, and goes round
// again. Stopped, it gives the lead to the next one.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// Who has led, in order; for this example's own check.
class chronicle {
 public:
  void add(const std::string& name, sallyport::fencing_token term) {
    const std::scoped_lock lock{mutex_};
    std::cout << name << " leads, term " << term.value() << '\n';
    terms_.emplace_back(name, term);
    changed_.notify_all();
  }
  /// Waits for the next term; false: in vain.
  bool next_is(const std::string& name) {
    std::unique_lock lock{mutex_};
    const auto there = [&] { return terms_.size() > read_; };
    return changed_.wait_for(lock, 20s, there) && terms_[read_++].first == name;
  }
  sallyport::fencing_token latest() {
    const std::scoped_lock lock{mutex_};
    return terms_.back().second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::string, sallyport::fencing_token>> terms_;
  std::size_t read_ = 0;
};

class scheduler {
 public:
  scheduler(const sallyport::client& store, std::string name, chronicle& log)
      : election_(store, "scheduler"), name_(std::move(name)), log_(log) {}

  /// Runs until `end` is requested.
  void run(const std::stop_token& end) {
    while (!end.stop_requested()) {
      std::error_code error;
      const auto leadership = election_.campaign(name_, end, error);
      if (error) {
        // The store is away. It is asked again; nobody who can't reach it leads meanwhile.
        std::cerr << name_ << ": " << sallyport::to_lock_error(error).what() << '\n';
        wait(end, 1s);
      } else if (leadership) {
        log_.add(name_, leadership->token());
        lead(*leadership, end);
      }
    }  // the lead is given back here
  }

 private:
  void lead(const sallyport::lease& leadership, const std::stop_token& end) {
    // Two things end the work, and one token tells of both. The callbacks take no mutex: the
    // destructor of a std::stop_callback waits until its callback has run, and one that wants a
    // mutex which is held there would never get it.
    std::stop_source over;
    const auto stop_work = [&over] { over.request_stop(); };
    const std::stop_callback on_end{end, stop_work};
    const std::stop_callback on_loss{leadership.lost(), stop_work};
    while (!over.stop_requested()) {
      work(leadership.token());
      wait(over.get_token(), 5ms);
    }
  }

  /// One step, which shows its token to whatever it writes to: the inner gate.
  void work(sallyport::fencing_token /*term*/) { ++steps_; }

  /// Until the time is up, or `stop` is requested. The condition variable listens to the token by
  /// itself, and is woken at once.
  static void wait(const std::stop_token& stop, std::chrono::milliseconds time) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock{mutex};
    never.wait_for(lock, stop, time, [] { return false; });
  }

  sallyport::election election_;
  const std::string name_;
  chronicle& log_;
  int steps_ = 0;
};

}  // namespace

int main() {
  // Two clients of one store stand for two processes.
  const auto one = sallyport::client::open("memory:daemon-example", {.label = "one"});
  const auto two = sallyport::client::open("memory:daemon-example", {.label = "two"});
  chronicle log;
  scheduler first{one, "one", log};
  scheduler second{two, "two", log};

  std::jthread first_runs{[&](const std::stop_token& end) { first.run(end); }};
  if (!log.next_is("one")) return EXIT_FAILURE;
  std::jthread second_runs{[&](const std::stop_token& end) { second.run(end); }};
  while (one.who("scheduler")->waiters.empty()) std::this_thread::yield();

  // The leader is told that it has lost the lead, stops its work, and is a candidate again.
  one.break_lock("scheduler", log.latest(), sallyport::break_style::at_once);
  if (!log.next_is("two")) return EXIT_FAILURE;

  // The other one is shut down, and gives the lead back.
  second_runs.request_stop();
  return log.next_is("one") ? EXIT_SUCCESS : EXIT_FAILURE;
}
