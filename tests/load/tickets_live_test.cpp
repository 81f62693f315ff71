#include "backends/redis/protocol.hpp"
#include "core/timing.hpp"
#include "tests/kit/redis_server.hpp"
#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

// What it costs a Redis server that very many wait for one semaphore: they say that they still do by
// our own scripts, as often as core would.
// SALLYPORT_LOAD_TICKETS: how many; SALLYPORT_LOAD_HEARTBEAT_MS; SALLYPORT_LOAD_SECONDS: how long the
// server is looked at.
namespace sallyport::load {
namespace {

using namespace std::chrono_literals;
using backend_api::duration;
using backend_api::time_point;
using backends::redis::protocol;
using backends::redis::wire_command;

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

backends::redis::reply reply_of(const kit::redis_reply& said) {
  using backends::redis::reply;
  reply out;
  switch (said.is) {
    case kit::redis_reply::kind::nil:
      break;
    case kit::redis_reply::kind::integer:
      out.what = reply::kind::integer;
      break;
    case kit::redis_reply::kind::text:
      out.what = reply::kind::text;
      break;
    case kit::redis_reply::kind::status:
      out.what = reply::kind::status;
      break;
    case kit::redis_reply::kind::error:
      out.what = reply::kind::error;
      break;
    case kit::redis_reply::kind::array:
      out.what = reply::kind::array;
      break;
  }
  out.integer = said.integer;
  out.text = said.text;
  for (const auto& item : said.items) out.elements.push_back(reply_of(item));
  return out;
}

/// Waiters of many clients, each of which has a connection of its own.
class Tickets : public testing::Test {
 protected:
  struct ticket {
    bool asked_before = false;
    core::last_question last{};
  };
  struct turn {
    time_point due;
    std::size_t number;
    friend bool operator>(const turn& left, const turn& right) { return left.due > right.due; }
  };

  Tickets() {
    for (std::size_t i = 0; i < clients; ++i) {
      std::string number = std::to_string(i);
      number.insert(0, 16 - number.size(), '0');
      speeches_.push_back(std::make_unique<protocol>(
          protocol::settings{.prefix = "", .cluster = false, .client = number}));
      connections_.push_back(std::make_unique<kit::redis_probe>(server_.address()));
    }
    for (const auto* each :
         {&backends::redis::scripts::acquire_many, &backends::redis::scripts::beat}) {
      server_.command({"SCRIPT", "LOAD", std::string(each->text)});
    }
  }

  [[nodiscard]] backend_api::acquire_request question(std::size_t number) const {
    return {.name = name_,
            .kind = lock_kind::semaphore,
            .holder = {number + 1, 1},
            .lease_length = times_.lease_length,
            .claim_window = times_.claim_window,
            .ticket_length = times_.ticket_length,
            .may_wait = true,
            .value = {},
            .answer_by = {}};
  }
  void send(kit::redis_probe& over, const wire_command& command) {
    auto words = arguments_of(command);
    words.insert(words.begin(), {"EVALSHA", std::string(command.script->sha1)});
    over.send(words);
  }

  /// Somebody has the only permit, and keeps it.
  void hold() {
    const auto call = speeches_[0]->acquire({.name = name_,
                                             .kind = lock_kind::semaphore,
                                             .holder = {1, 2},
                                             .lease_length = 24h,
                                             .claim_window = 3s,
                                             .ticket_length = 6s,
                                             .may_wait = false,
                                             .value = {},
                                             .answer_by = {}},
                                            false);
    send(*connections_[0], call);
    ASSERT_EQ(connections_[0]->receive().items.at(0).integer, 1);
  }

  /// Asks for those who are due, and hears the answers. Heartbeats of one client travel together, as
  /// those of a process do; first questions come one by one.
  void ask_due() {
    std::map<std::size_t, std::vector<std::size_t>> due;
    for (std::size_t asked = 0; asked < clients; ++asked) {
      if (turns_.empty() || turns_.top().due > lease_clock::now()) break;
      due[turns_.top().number % clients].push_back(turns_.top().number);
      turns_.pop();
    }
    const time_point sent = lease_clock::now();
    for (const auto& [client, numbers] : due) {
      kit::redis_probe& over = *connections_[client];
      std::vector<backend_api::acquire_request> beats;
      for (const std::size_t each : numbers) {
        if (tickets_[each].asked_before) {
          beats.push_back(question(each));
        } else {
          send(over, speeches_[client]->acquire(question(each), false));
        }
      }
      if (!beats.empty()) send(over, speeches_[client]->beat(beats));
    }
    for (const auto& [client, numbers] : due) hear(client, numbers, sent);
  }
  void hear(std::size_t client, const std::vector<std::size_t>& numbers, time_point sent) {
    kit::redis_probe& over = *connections_[client];
    std::vector<std::size_t> beats;
    for (const std::size_t each : numbers) {
      if (tickets_[each].asked_before) {
        beats.push_back(each);
      } else {
        answered(each, sent, over.receive());
      }
    }
    if (beats.empty()) return;
    const auto said = over.receive();
    ASSERT_EQ(said.items.size(), beats.size());
    for (std::size_t i = 0; i < beats.size(); ++i) answered(beats[i], sent, said.items[i]);
  }
  void answered(std::size_t number, time_point sent, const kit::redis_reply& said) {
    ++questions_;
    const auto answer = backends::redis::acquire_answer_of(reply_of(said), 0);
    ASSERT_TRUE(answer) << answer.error().detail;
    const auto* waits = std::get_if<backend_api::waiting>(&*answer);
    ASSERT_NE(waits, nullptr);
    ticket& mine = tickets_[number];
    mine.asked_before = true;
    mine.last = {.sent = sent,
                 .ahead = waits->ahead,
                 .pause = core::pause_of_waiter(times_, *waits, sent, mine.last)};
    longest_pause_ = std::max(longest_pause_, mine.last.pause);
    // On the grid on which core has them.
    const duration step = times_.heartbeat / 8;
    turns_.push({time_point{(sent + mine.last.pause).time_since_epoch() / step * step}, number});
  }
  void go_on_until(time_point until) {
    while (lease_clock::now() < until && !HasFatalFailure()) {
      ask_due();
      const auto next = turns_.empty() ? until : std::min(until, turns_.top().due);
      if (const auto now = lease_clock::now(); now < next) std::this_thread::sleep_for(next - now);
    }
  }
  /// They come so slowly that their first heartbeats, which are the most, do not stand in their way.
  void stand_in_line(std::size_t count) {
    const duration apart = times_.heartbeat / 1000;
    const time_point began = lease_clock::now();
    for (std::size_t i = 0; i < count && !HasFatalFailure(); ++i) {
      turns_.push({began + i * apart, i});
    }
    tickets_.resize(count);
    go_on_until(began + count * apart);
  }
  /// Of so many waiters that ask as rarely as their places allow.
  [[nodiscard]] double least_questions_a_second(std::size_t count) const {
    const std::chrono::duration<double> heartbeat = times_.heartbeat;
    double sum = 0;
    for (std::size_t place = 0; place < count; ++place) {
      sum += 1 / static_cast<double>(std::clamp<std::size_t>(place / 128, 1, 32));
    }
    return sum / heartbeat.count();
  }
  double server_seconds() {
    return std::stod(probe_.info("used_cpu_user")) + std::stod(probe_.info("used_cpu_sys"));
  }

  static constexpr std::size_t clients = 100;
  const lock_name name_{"crowd"};
  const core::timing times_ = core::make_timing(
      {.lease_length = 30s,
       .heartbeat = std::chrono::milliseconds{number_from("SALLYPORT_LOAD_HEARTBEAT_MS", 250)},
       .request_timeout = 2s});
  kit::redis_server server_;
  kit::redis_probe probe_{server_.address()};
  std::vector<std::unique_ptr<protocol>> speeches_;
  std::vector<std::unique_ptr<kit::redis_probe>> connections_;
  std::deque<ticket> tickets_;
  std::priority_queue<turn, std::vector<turn>, std::greater<>> turns_;
  std::uint64_t questions_ = 0;
  duration longest_pause_{};
};

TEST_F(Tickets, CostLessThanAFifthOfACore) {
  const auto count = static_cast<std::size_t>(number_from("SALLYPORT_LOAD_TICKETS", 2000));
  const std::chrono::seconds looked_at{number_from("SALLYPORT_LOAD_SECONDS", 4)};
  ASSERT_NO_FATAL_FAILURE(hold());
  stand_in_line(count);
  // From one question to the next the pauses double, up to a heartbeat for every 128 tickets, and 32.
  const auto longest = std::clamp<std::int64_t>(static_cast<std::int64_t>(count) / 128, 1, 32);
  go_on_until(lease_clock::now() + 2 * longest * times_.heartbeat);
  ASSERT_FALSE(HasFatalFailure());

  const auto began = lease_clock::now();
  const double before = server_seconds();
  const auto questions_before = questions_;
  go_on_until(began + looked_at);
  const double used = server_seconds() - before;
  const std::chrono::duration<double> took = lease_clock::now() - began;

  const auto asked = questions_ - questions_before;
  std::printf(
      "%zu tickets: %.1f %% of a core over %.1f s; %.0f questions a second, %.1f us each; "
      "the longest pause is %.1f s\n",
      count, 100 * used / took.count(), took.count(), static_cast<double>(asked) / took.count(),
      asked == 0 ? 0 : 1e6 * used / static_cast<double>(asked),
      std::chrono::duration<double>(longest_pause_).count());
  EXPECT_LT(used / took.count(), 0.2);
  // They asked as often as they have to, and not much more often; core's grid makes some a little early.
  const double asked_a_second = static_cast<double>(asked) / took.count();
  EXPECT_GE(asked_a_second, 0.85 * least_questions_a_second(count));
  EXPECT_LE(asked_a_second, 1.2 * least_questions_a_second(count));
  // Nobody lost its place, and nobody came twice.
  EXPECT_EQ(probe_.expect({"ZCARD", "crowd\1queue"}).integer, static_cast<std::int64_t>(count));
  EXPECT_EQ(probe_.expect({"HGET", "crowd\1waiters", ":next"}).text, std::to_string(count));
}

}  // namespace
}  // namespace sallyport::load
