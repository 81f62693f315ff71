#pragma once

#include "backend_api/backend.hpp"
#include "runtime/engine.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// An engine on a clock moved by hand and a store whose answers the test writes.
namespace sallyport::runtime {

using namespace std::chrono_literals;

class manual_environment final : public environment {
 public:
  [[nodiscard]] time_point now() const override { return now_; }
  void wake_at(time_point when) override { wake = std::min(wake, when); }
  void tell(std::function<void()> item) override { news.push_back(std::move(item)); }
  void tell_observer(std::function<void()> event) override { news.push_back(std::move(event)); }
  void tell_lost(lost_turns turns) noexcept override { lost.append(std::move(turns)); }
  [[nodiscard]] backend_api::holder_id new_holder_id() override { return {1, ++last_id_}; }

  void advance(duration by) { now_ += by; }
  void run_news() {
    for (auto& item : std::exchange(news, {})) item();
  }

  /// Fires the tokens of the turns that were lost; says how many there were.
  int fire_losses() {
    int fired = 0;
    while (const auto turn = lost.pop()) {
      turn->gone.request_stop();
      ++fired;
    }
    return fired;
  }

  time_point wake = time_point::max();
  std::vector<std::function<void()>> news;
  lost_turns lost;

 private:
  time_point now_{1h};
  std::uint64_t last_id_ = 0;
};

/// Remembers what was asked; answers nothing by itself.
class scripted_store final : public backend_api::backend {
 public:
  struct asked {
    std::string what;
    backend_api::holder_id holder;
    std::string name;
    bool may_wait = false;
    std::uint32_t token_count = 0;
    std::uint32_t local_waiters = 0;
    std::string value{};
    time_point answer_by{};
  };

  [[nodiscard]] const sallyport::capabilities& capabilities() const override { return can_; }
  void acquire(const backend_api::acquire_request& r) override {
    log.push_back({"acquire", r.holder, r.name.text(), r.may_wait, r.token_count, r.local_waiters,
                   std::string(r.value)});
  }
  void renew(std::span<const backend_api::renew_request> batch) override {
    if (without_memory) throw std::bad_alloc();
    batches.push_back(batch.size());
    for (const auto& r : batch) {
      log.push_back({"renew",
                     r.holder,
                     r.name.text(),
                     false,
                     r.token_count,
                     r.local_waiters,
                     {},
                     r.answer_by});
    }
  }
  void release(const backend_api::leave_request& r) override {
    if (without_memory) throw std::bad_alloc();
    log.push_back({"release", r.holder, r.name.text()});
  }
  void withdraw(const backend_api::leave_request& r) override {
    log.push_back({"withdraw", r.holder, r.name.text()});
  }
  void downgrade(const backend_api::renew_request& r) override {
    if (without_memory) throw std::bad_alloc();
    log.push_back({"downgrade", r.holder, r.name.text()});
  }
  void set_value(const backend_api::renew_request&, std::string_view,
                 backend_api::completion<bool> done) override {
    done(true);
  }
  void watch(const lock_name&, bool) override {}
  void list(std::string_view, std::string_view, std::size_t,
            backend_api::completion<std::vector<lock_info>> done) override {
    done(std::vector<lock_info>{});
  }
  void who(const lock_name&, backend_api::completion<std::optional<lock_info>> done) override {
    done(std::optional<lock_info>{});
  }
  void break_lock(const lock_name&, fencing_token, backend_api::break_mode,
                  backend_api::completion<std::monostate> done) override {
    done(std::monostate{});
  }
  backend_api::drive_outcome drive(backend_api::drive_ticket&, time_point) override {
    return backend_api::drive_outcome::not_driven;
  }
  void close() override {}

  /// Takes the oldest request out of the log; its kind must be `what`.
  asked take(const std::string& what) {
    if (log.empty()) {
      ADD_FAILURE() << "expected a request '" << what << "', but there is none";
      return {};
    }
    asked first = log.front();
    log.pop_front();
    EXPECT_EQ(first.what, what);
    return first;
  }

  std::deque<asked> log;
  std::vector<std::size_t> batches;
  bool without_memory = false;  // renew, release and downgrade throw

 private:
  sallyport::capabilities can_;
};

class caller final : public acquire_waiter {
 public:
  void finished() noexcept override { ++times_finished; }
  [[nodiscard]] bool done() const { return times_finished == 1; }
  [[nodiscard]] std::shared_ptr<lease_record> lease() {
    auto* got = std::get_if<std::shared_ptr<lease_record>>(&outcome());
    return got != nullptr ? *got : nullptr;
  }
  [[nodiscard]] std::optional<std::error_code> error() {
    auto* why = std::get_if<base::failure>(&outcome());
    return why != nullptr ? std::optional{why->code} : std::nullopt;
  }
  int times_finished = 0;
};

class listener final : public word_waiter {
 public:
  void finished() noexcept override { ++times_finished; }
  int times_finished = 0;
};

inline std::shared_ptr<const audience> heard_by(std::vector<std::shared_ptr<observer>> all) {
  return std::make_shared<const audience>(std::move(all));
}

class EngineTest : public ::testing::Test {
 public:
  EngineTest() { machine.attach(store); }

  static std::shared_ptr<const lock_spec> spec_of(const char* name, std::uint32_t turns = 4,
                                                  lock_kind kind = lock_kind::mutex,
                                                  lock_mode mode = lock_mode::exclusive) {
    return std::make_shared<const lock_spec>(
        lock_spec{.name = name,
                  .kind = kind,
                  .mode = mode,
                  .permits = 1,
                  .local_turns = turns,
                  .local_turn_time = 1s,
                  .times = core::make_timing({.lease_length = 3s,
                                              .lease_granularity = {},
                                              .expiry_granularity = {},
                                              .clock_drift = 0.01,
                                              .heartbeat = 1s,
                                              .request_timeout = 500ms,
                                              .store_patience = 2s})});
  }

  void answer_granted(const backend_api::holder_id& who, std::uint64_t first, std::uint64_t last,
                      duration remaining = 3s) {
    machine.acquire_answered(
        who, backend_api::granted{{fencing_token{first}, fencing_token{last}}, remaining});
  }
  void answer_waiting(const backend_api::holder_id& who) {
    machine.acquire_answered(who, backend_api::waiting{1s});
  }
  void fail_acquire(const backend_api::holder_id& who, errc why) {
    machine.acquire_answered(who, base::fail(why));
  }
  void answer_renewed(const backend_api::holder_id& who, std::uint64_t first, std::uint64_t last) {
    std::vector<backend_api::renew_outcome> outcomes;
    outcomes.push_back(
        {who, backend_api::renewed{{fencing_token{first}, fencing_token{last}}, 3s}});
    machine.renewals_answered(outcomes);
  }
  void answer_gone(const backend_api::holder_id& who) {
    std::vector<backend_api::renew_outcome> outcomes;
    outcomes.push_back({who, backend_api::gone{}});
    machine.renewals_answered(outcomes);
  }
  void answer_left(const backend_api::holder_id& who) {
    machine.leave_answered(who, backend_api::leave_answer::left);
  }
  /// Moves the clock and serves what is due, step by step.
  void pass(duration by) {
    const time_point goal = world.now() + by;
    for (int step = 0; step < 10'000 && world.wake <= goal; ++step) {
      world.advance(std::max(world.wake - world.now(), duration::zero()));
      world.wake = time_point::max();
      machine.run_due();
    }
    world.advance(goal - world.now());
  }
  /// Acquires and lets the store grant it: the usual beginning.
  std::shared_ptr<lease_record> hold(caller& who, const std::shared_ptr<const lock_spec>& spec,
                                     std::uint64_t first = 10, std::uint64_t last = 13) {
    machine.acquire(who, spec, time_point::max());
    answer_granted(store.take("acquire").holder, first, last);
    return who.lease();
  }

  manual_environment world;
  scripted_store store;
  engine machine{world, {.max_waiters_per_name = 4, .observers = nullptr, .seed = 1}};
};

}  // namespace sallyport::runtime
