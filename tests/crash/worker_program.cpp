// crash_worker STORE NAME [--mode mutex|exclusive|shared|mixed|semaphore=N] [--lease-ms N] [--companion PID]
//              [--loop ROUNDS --board FILE --slot N --seed N] [--die STEP:N | --halt STEP:N]
//
// A process that is there to be killed and stopped. STEP is a number of backends::local::step; --die raises SIGKILL,
// --halt SIGSTOP, when that step is reached for the N-th time from then on.
//
// With --loop it acquires and releases, again and again, and says on the board when it is inside. Without it, it reads
// one command a line from stdin and answers each with one line on stdout; the first line, "ready", comes unasked.
//
//   acquire [MS]      acquired TOKEN | busy | error TEXT
//   release           released | already_lost | unknown
//   valid             true | false
//   lost              true | false                          whether lost() has fired
//   lost_late         milliseconds from the deadline to the firing of lost(), or "not yet"
//   write GATE        passed | stale | wrong_lock           an action under fence::file_gate
//   die STEP N        armed
//   halt STEP N       armed
//   fork              PID                                   of a child that lives on and does nothing
//   fork_acquire NAME acquired TOKEN | busy | error TEXT    by a child with a client of its own
//   spawn             PID                                   of an executed child that lives on (sleep)
//   exit              bye

#include "backends/local/steps.hpp"
#include "base/random.hpp"
#include "tests/crash/board.hpp"
#include <sallyport/fence.hpp>
#include <sallyport/sallyport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace {

using sallyport::lease;
using sallyport::lease_clock;
using sallyport::crash::shared_board;
using sallyport::crash::way_in;
using step = sallyport::backends::local::step;

// --- Dying at a step --------------------------------------------------------------------------------

std::atomic<int> armed_step{-1};
std::atomic<int> armed_count{0};
std::atomic<int> armed_signal{SIGKILL};

void count_steps(step where) {
  if (static_cast<int>(where) != armed_step.load()) return;
  if (armed_count.fetch_sub(1) == 1) ::kill(::getpid(), armed_signal.load());
}

void arm(int where, int count, int signal) {
  armed_signal = signal;
  armed_count = count;
  armed_step = where;
  sallyport::backends::local::on_step = count_steps;
}

// --- The lock ---------------------------------------------------------------------------------------

struct settings {
  std::string store;
  std::string name;
  std::string mode = "mutex";
  sallyport::lock_options options{.lease_length = std::chrono::seconds{20}};
  sallyport::client_options client{.label = "crash", .request_timeout = std::chrono::seconds{10}};
  int rounds = 0;
  std::string board;
  std::size_t slot = 0;
  std::uint64_t seed = 0;
};

void arm(const std::string& text, int signal) {
  const auto colon = text.find(':');
  arm(std::stoi(text), std::stoi(text.substr(colon + 1)), signal);
}

settings read_arguments(int count, char** arguments) {
  if (count < 3) throw std::invalid_argument("usage: crash_worker STORE NAME [--OPTION VALUE]...");
  settings read;
  read.store = arguments[1];
  read.name = arguments[2];
  for (int i = 3; i + 1 < count; i += 2) {
    const std::string_view option = arguments[i];
    const std::string value = arguments[i + 1];
    if (option == "--mode") {
      read.mode = value;
    } else if (option == "--lease-ms") {
      read.options.lease_length = std::chrono::milliseconds{std::stoi(value)};
    } else if (option == "--companion") {
      read.client.companion_pid = std::stoll(value);
    } else if (option == "--timeout-ms") {
      read.client.request_timeout = std::chrono::milliseconds{std::stoi(value)};
    } else if (option == "--loop") {
      read.rounds = std::stoi(value);
    } else if (option == "--board") {
      read.board = value;
    } else if (option == "--slot") {
      read.slot = std::stoul(value);
    } else if (option == "--seed") {
      read.seed = std::stoull(value);
    } else if (option == "--die" || option == "--halt") {
      arm(value, option == "--die" ? SIGKILL : SIGSTOP);
    } else {
      throw std::invalid_argument("unknown option: " + std::string(option));
    }
  }
  return read;
}

struct entrance {
  std::function<std::optional<lease>(std::chrono::milliseconds)> ask;
  way_in how = way_in::exclusive;
  std::uint32_t permits = 1;
};

entrance make_entrance(const settings& how, const sallyport::client& store, std::string_view mode) {
  if (mode == "mutex") {
    auto lock = std::make_shared<sallyport::mutex>(store, how.name, how.options);
    return {[lock](auto wait) { return lock->try_acquire_for(wait); }};
  }
  if (mode == "exclusive" || mode == "shared") {
    auto lock = std::make_shared<sallyport::shared_mutex>(store, how.name, how.options);
    if (mode == "exclusive") return {[lock](auto wait) { return lock->try_acquire_for(wait); }};
    return {[lock](auto wait) { return lock->try_acquire_shared_for(wait); }, way_in::shared};
  }
  if (mode.starts_with("semaphore=")) {
    const auto permits = static_cast<std::uint32_t>(std::stoul(std::string(mode.substr(10))));
    auto lock = std::make_shared<sallyport::semaphore>(store, how.name, permits, how.options);
    return {[lock](auto wait) { return lock->try_acquire_for(wait); }, way_in::permit, permits};
  }
  throw std::invalid_argument("unknown mode: " + std::string(mode));
}

std::uint64_t token_of(const lease& held) { return held.fenced() ? held.token().value() : 0; }

// --- Round after round ------------------------------------------------------------------------------

void nap(std::uint64_t microseconds) {
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(microseconds) * 1000};
  ::ppoll(nullptr, 0, &length, nullptr);
}

int run_loop(const settings& how) {
  const shared_board board(how.board);
  const auto store = sallyport::client::open(how.store, how.client);
  std::array<entrance, 2> ways{
      make_entrance(how, store, how.mode == "mixed" ? "exclusive" : how.mode),
      make_entrance(how, store, how.mode == "mixed" ? "shared" : how.mode)};
  sallyport::base::random draw(how.seed);
  for (int round = 0; round < how.rounds; ++round) {
    const entrance& way = ways.at(draw.below(2));
    auto held = way.ask(std::chrono::seconds{30});
    if (!held) {
      board.trouble("did not get in within 30 s");
      return 1;
    }
    board.enter(how.slot, way.how, token_of(*held), way.permits);
    if (draw.chance(0.5)) nap(draw.below(1000));
    if (!held->valid()) board.trouble("lost a lease of 20 s");
    board.leave(how.slot);
    const auto result = held->release();
    if (result != sallyport::release_result::released) {
      board.trouble("release said " + std::string(to_string(result)));
    }
    if (draw.chance(0.3)) nap(draw.below(300));
  }
  return 0;
}

// --- One command after the other --------------------------------------------------------------------

class commands {
 public:
  explicit commands(settings how)
      : how_(std::move(how)),
        store_(sallyport::client::open(how_.store, how_.client)),
        way_(make_entrance(how_, store_, how_.mode)) {}

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "acquire") {
      int wait = 60'000;
      words >> wait;
      return acquire(std::chrono::milliseconds{wait});
    }
    if (word == "die" || word == "halt") {
      int where = 0;
      int count = 1;
      words >> where >> count;
      arm(where, count, word == "die" ? SIGKILL : SIGSTOP);
      return "armed";
    }
    if (word == "fork") return fork_and_live_on();
    if (word == "spawn") return spawn();
    if (word == "fork_acquire") {
      words >> word;
      return fork_acquire(word);
    }
    if (!held_) return "not_held";
    if (word == "release") return std::string(to_string(held_->release()));
    if (word == "valid") return held_->valid() ? "true" : "false";
    if (word == "lost") return held_->lost().stop_requested() ? "true" : "false";
    if (word == "lost_late") return lost_late();
    if (word == "write") {
      words >> word;
      sallyport::fence::file_gate gate(word);
      return std::string(to_string(gate.run(*held_, [] {})));
    }
    return "error unknown command";
  }

 private:
  std::string acquire(std::chrono::milliseconds wait) {
    on_lost_.reset();
    held_.reset();
    lost_at_ = 0;
    try {
      held_ = way_.ask(wait);
    } catch (const sallyport::lock_error& error) {
      return std::string("error ") + error.what();
    }
    if (!held_) return "busy";
    on_lost_.emplace(held_->lost(),
                     [this] { lost_at_ = lease_clock::now().time_since_epoch().count(); });
    return "acquired " + std::to_string(token_of(*held_));
  }

  std::string lost_late() const {
    const std::int64_t fired = lost_at_.load();
    if (fired == 0) return "not yet";
    return std::to_string((fired - held_->deadline().time_since_epoch().count()) / 1'000'000);
  }

  static std::string fork_and_live_on() {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(STDIN_FILENO);
      ::close(STDOUT_FILENO);
      for (;;) ::pause();
    }
    return std::to_string(child);
  }

  static std::string spawn() {
    std::string program = "sleep";
    std::string length = "300";
    std::array<char*, 3> arguments{program.data(), length.data(), nullptr};
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addclose(&actions, STDIN_FILENO);
    ::posix_spawn_file_actions_addclose(&actions, STDOUT_FILENO);
    if (::posix_spawnp(&child, "sleep", &actions, nullptr, arguments.data(), environ) != 0) {
      child = -1;
    }
    ::posix_spawn_file_actions_destroy(&actions);
    return std::to_string(child);
  }

  std::string fork_acquire(const std::string& name) const {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 0;
      try {
        const auto own = sallyport::client::open(how_.store, how_.client);
        sallyport::mutex lock(own, name, how_.options);
        code = lock.try_acquire() ? 10 : 11;
      } catch (const std::exception&) {
        code = 12;
      }
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    switch (WIFEXITED(status) ? WEXITSTATUS(status) : -1) {
      case 10:
        return "acquired";
      case 11:
        return "busy";
      default:
        return "error";
    }
  }

  settings how_;
  sallyport::client store_;
  entrance way_;
  std::optional<lease> held_;
  std::atomic<std::int64_t> lost_at_{0};
  std::optional<std::stop_callback<std::function<void()>>> on_lost_;
};

}  // namespace

int main(int count, char** arguments) {
  settings how;
  try {
    how = read_arguments(count, arguments);
    if (how.rounds > 0) return run_loop(how);
    commands self(how);
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line) && line != "exit";) {
      std::cout << self.answer(line) << std::endl;
    }
    std::cout << "bye" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    if (!how.board.empty()) shared_board(how.board).trouble(error.what());
    std::cout << "error " << error.what() << std::endl;
    return 1;
  }
}
