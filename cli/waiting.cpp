#include "cli/waiting.hpp"

#include "cli/interrupter.hpp"
#include "cli/signals.hpp"
#include "cli/text.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>
#include <sallyport/mutex.hpp>
#include <sallyport/semaphore.hpp>
#include <sallyport/shared_mutex.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace sallyport::cli {
namespace {

/// A name can change its kind between two looks; so often is not chance any more.
constexpr int most_kind_changes = 16;

/// Between two attempts to open a store that is away: doubles from the first to the longest.
constexpr std::chrono::milliseconds first_pause{20};
constexpr std::chrono::milliseconds longest_pause{1000};
/// Longer waits never end.
constexpr std::chrono::hours for_ever{24 * 365 * 50};
/// What a store that was slow so far gets for the last question, whatever is left of the time: long enough that no
/// answer means that the store hangs, and not that somebody else has the lock.
constexpr std::chrono::milliseconds shortest_question{600};

lease_clock::time_point after(lease_clock::time_point began, std::chrono::milliseconds span) {
  return span < for_ever ? began + span : lease_clock::time_point::max();
}

/// One kind of lock, asked once or asked to wait.
struct asked_lock {
  std::shared_ptr<void> keep;
  /// Waits until then; time_point::min() is one try.
  std::function<std::optional<lease>(lease_clock::time_point, std::stop_token)> ask;
};

asked_lock as_mutex(const client& store, const run_options& options, const lock_options& how) {
  const auto lock = std::make_shared<mutex>(store, options.name, how);
  return {lock, [lock](auto until, std::stop_token stop) {
            return lock->try_acquire_until(until, std::move(stop));
          }};
}

asked_lock as_shared(const client& store, const run_options& options, const lock_options& how) {
  const auto lock = std::make_shared<shared_mutex>(store, options.name, how);
  if (options.wanted == wanted_lock::shared) {
    return {lock, [lock](auto until, std::stop_token stop) {
              return lock->try_acquire_shared_until(until, std::move(stop));
            }};
  }
  return {lock, [lock](auto until, std::stop_token stop) {
            return lock->try_acquire_until(until, std::move(stop));
          }};
}

asked_lock as_semaphore(const client& store, const run_options& options, const lock_options& how) {
  const auto lock = std::make_shared<semaphore>(store, options.name, options.permits, how);
  return {lock, [lock, &options](auto until, std::stop_token stop) {
            auto got = lock->try_acquire_until(until, std::move(stop));
            if (got && lock->permits() != options.permits && options.loud != loudness::quiet) {
              say(quoted(options.name) + " is in use with " + std::to_string(lock->permits()) +
                  " permits, not " + std::to_string(options.permits) +
                  "; the number of whoever came first is in force");
            }
            return got;
          }};
}

/// Chooses the kind, and chooses again when the name turns out to be in use as the other.
class contender {
 public:
  contender(const client& store, const run_options& options)
      : store_(store),
        options_(options),
        how_{.lease_length = options.lease_length,
             .renew = options.fixed ? renewal::never : renewal::automatic,
             .local_turns = 1},
        mutex_kind_(options.wanted == wanted_lock::plain) {}

  std::optional<lease> ask(lease_clock::time_point until, const std::stop_token& stop) {
    for (int changes = 0;; ++changes) {
      if (!lock_.ask) lock_ = make();
      try {
        return lock_.ask(until, stop);
      } catch (const lock_error& error) {
        const bool may_change =
            options_.wanted != wanted_lock::permit && changes < most_kind_changes;
        if (error.code() != errc::wrong_kind || !may_change) throw;
        change_kind(error);
      }
    }
  }
  [[nodiscard]] std::shared_ptr<void> keep() const { return lock_.keep; }

 private:
  asked_lock make() const {
    if (options_.wanted == wanted_lock::permit) return as_semaphore(store_, options_, how_);
    return mutex_kind_ ? as_mutex(store_, options_, how_) : as_shared(store_, options_, how_);
  }

  void change_kind(const lock_error& error) {
    const auto present = store_.who(options_.name);
    if (present) {
      const bool is_mutex = present->kind == lock_kind::mutex;
      if (!is_mutex && present->kind != lock_kind::shared_mutex) throw error;
      mutex_kind_ = is_mutex;
      if (is_mutex && options_.loud == loudness::verbose) {
        say(quoted(options_.name) +
            " is in use as a mutex: taking it alone (run the others with -x to share it)");
      }
    }
    lock_ = {};
  }

  const client& store_;
  const run_options& options_;
  lock_options how_;
  bool mutex_kind_;
  asked_lock lock_;
};

}  // namespace

void say_who_holds(const client& store, const std::string& name, std::string_view prefix,
                   std::string_view suffix) noexcept {
  try {
    const auto info = store.who(name);
    if (!info) return;
    std::string sentence = std::string(prefix) + quoted(name);
    if (info->holders.empty()) {
      sentence += ": closed for " + to_text(info->closed_for) + " after a break";
    } else {
      const holder_info& first = info->holders.front();
      sentence += ": held by " + first.label + " (pid " + std::to_string(first.pid) + " on " +
                  first.host + ") for " + to_text(first.held_for);
      if (info->holders.size() > 1) {
        sentence += " and " + std::to_string(info->holders.size() - 1) + " more";
      }
    }
    if (info->waiters.size() > 1) {
      sentence += "; " + std::to_string(info->waiters.size()) + " in the queue";
    }
    say(sentence.append(suffix));
  } catch (const std::exception&) {
    return;  // the wait itself will tell what is wrong with the store
  }
}

bool somebody_reads(const run_options& options) {
  return options.loud == loudness::verbose ||
         (options.loud == loudness::normal && ::isatty(STDERR_FILENO) == 1);
}

waiting_run::waiting_run(const run_options& options, const signals& source)
    : options_(options),
      source_(source),
      began_(lease_clock::now()),
      until_(after(began_, options.wait.value_or(for_ever))),
      store_until_(after(began_, store_patience(options))) {}

bool waiting_run::worth_waiting(const lock_error& why) {
  const bool away = why.code() == errc::unavailable || why.code() == errc::outcome_unknown;
  const auto now = lease_clock::now();
  if (!away || now >= store_until_) return false;
  if (!std::exchange(told_, true) && somebody_reads(options_)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(store_until_ - now);
    say("waiting for the store, for at most " + to_text(left) + ": " + why.what());
  }
  return true;
}

bool waiting_run::pause(std::chrono::milliseconds span) {
  const auto end = std::min(lease_clock::now() + span, store_until_);
  for (auto now = lease_clock::now(); now < end; now = lease_clock::now()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now);
    pollfd waiting{source_.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    while (const auto signal = source_.next()) {
      if (!signals::cancels(*signal)) continue;
      signal_ = signal;
      return false;
    }
  }
  return true;
}

std::optional<client> waiting_run::open(client_options how) {
  how.store_patience = store_patience(options_);
  auto next_pause = first_pause;
  for (;;) {
    try {
      return client::open(options_.store, how);
    } catch (const lock_error& why) {
      if (!worth_waiting(why)) throw;
    }
    if (!pause(next_pause)) return std::nullopt;
    next_pause = std::min(2 * next_pause, longest_pause);
  }
}

waited waiting_run::acquire(const client& store) {
  contender who{store, options_};
  const auto finish = [&](std::optional<lease> got, std::optional<int> signal) {
    return waited{std::move(got), signal, who.keep(), lease_clock::now() - began_};
  };

  // The usual case needs neither a place in the queue nor a thread that listens to signals. But a
  // store that hangs keeps a look for a request's time-out, which a short wait has not got.
  const bool only_once = options_.wait && options_.wait->count() == 0;
  if (only_once || until_ - lease_clock::now() > client_options{}.request_timeout) {
    std::optional<lease> got;
    try {
      got = who.ask(lease_clock::time_point::min(), {});
    } catch (const lock_error& why) {
      if (only_once || !worth_waiting(why)) throw;
    }
    if (got || only_once) {
      while (const auto signal = source_.next()) {
        if (signals::cancels(*signal)) return finish(std::nullopt, signal);
      }
      return finish(std::move(got), std::nullopt);
    }
  }

  std::function<void()> after_a_second;
  if (somebody_reads(options_) && !told_) {
    after_a_second = [&] { say_who_holds(store, options_.name, "waiting for "); };
  }
  interrupter listening{source_, std::move(after_a_second)};
  const auto now = lease_clock::now();
  const bool slow_store = now - began_ >= shortest_question;
  auto got =
      who.ask(slow_store ? std::max(until_, now + shortest_question) : until_, listening.token());
  const auto signal = listening.finish();
  if (signal) got.reset();
  return finish(std::move(got), signal);
}

}  // namespace sallyport::cli
