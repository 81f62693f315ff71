#pragma once

#include "backend_api/backend.hpp"
#include "backend_api/told.hpp"
#include "sim/checkers.hpp"
#include "sim/context.hpp"
#include "sim/process.hpp"
#include "sim/question_book.hpp"
#include "sim/store.hpp"
#include <sallyport/error.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sallyport::sim {

/// The driver of a store whose clients hold their places by sessions: a real machine of
/// src/backends, and what its session does around it. `Protocol` names the machine's types. What it
/// says is done in the order in which it was decided on.
/// Thread safety: none.
template <class Protocol>
class machine_driver : public store_driver {
 public:
  using machine = typename Protocol::machine;
  using action = typename Protocol::action;
  using actions = std::vector<action>;

  machine_driver(context& shared, checkers& checks, process& owner, std::uint64_t client,
                 typename machine::settings how)
      : shared_(shared),
        checks_(checks),
        owner_(owner),
        client_(client),
        questions_(shared, owner),
        machine_(std::move(how)) {
    capabilities_.fencing = true;
    capabilities_.fifo = true;
    capabilities_.direct_handoff = true;
    capabilities_.shared_locks = true;
    capabilities_.semaphores = true;
    capabilities_.elections = true;
  }

  // store_driver
  void attach(backend_api::events& listener) noexcept final { listener_ = &listener; }
  [[nodiscard]] std::vector<link*> connections() final { return {}; }
  void answer_overdue() override {
    // The clock may have been changed: what was set before may come too late.
    timer_ = time_point::max();
    step([](machine& its, time_point now, actions& out) { its.on_timer(now, out); });
    questions_.check();
  }

  // backend
  [[nodiscard]] const sallyport::capabilities& capabilities() const final { return capabilities_; }
  void acquire(const backend_api::acquire_request& request) final {
    seen_[request.holder] = {shared_.index_of(request.name), request.mode};
    questions_.asks(request.holder, question_book::kind::acquire, request.answer_by);
    step([&](machine& its, time_point now, actions& out) { its.acquire(request, now, out); });
  }
  void renew(std::span<const backend_api::renew_request> batch) final {
    for (const auto& each : batch) {
      questions_.asks(each.holder, question_book::kind::renew, each.answer_by);
    }
    step([&](machine& its, time_point now, actions& out) {
      for (const auto& each : batch) its.renew(each, now, out);
    });
  }
  void release(const backend_api::leave_request& request) final { leave(request); }
  void withdraw(const backend_api::leave_request& request) final { leave(request); }
  void downgrade(const backend_api::renew_request& request) final {
    questions_.asks(request.holder, question_book::kind::downgrade, request.answer_by);
    step([&](machine& its, time_point now, actions& out) { its.downgrade(request, now, out); });
  }
  void set_value(const backend_api::renew_request& holder, std::string_view value,
                 backend_api::completion<bool> done) final {
    const std::uint64_t ticket = next_value_++;
    values_.emplace(ticket, std::move(done));
    step([&](machine& its, time_point now, actions& out) {
      its.set_value(holder, value, ticket, now, out);
    });
  }
  void list(std::string_view, std::string_view, std::size_t,
            backend_api::completion<std::vector<lock_info>> done) final {
    done(base::fail(errc::not_supported));
  }
  void who(const lock_name&, backend_api::completion<std::optional<lock_info>> done) final {
    done(base::fail(errc::not_supported));
  }
  void break_lock(const lock_name&, fencing_token, backend_api::break_mode,
                  backend_api::completion<std::monostate> done) final {
    done(base::fail(errc::not_supported));
  }
  backend_api::drive_outcome drive(backend_api::drive_ticket&, time_point) final {
    return backend_api::drive_outcome::not_driven;
  }
  void close() final { die(); }

 protected:
  /// Carries out what is to be done, as opposed to told.
  virtual void carry_out(action& what) = 0;
  /// When, in the checkers' order, the store made this token.
  [[nodiscard]] virtual std::uint64_t made(fencing_token token) = 0;
  /// For checks: the machine says that this contender is in.
  virtual void entered(const backend_api::holder_id& /*who*/, std::size_t /*lock*/) {}

  /// Steps the machine and carries out what it says.
  template <class Step>
  void step(Step&& what) {
    if (dead_) return;
    actions out;
    what(machine_, owner_.now(), out);
    for (action& each : out) to_do_.push_back(std::move(each));
    work_off();
    set_timer();
  }
  /// For what comes from outside: a frozen process looks at it later.
  template <class What>
  void on_process(What what) {
    if (!dead_) owner_.run(std::move(what));
  }

  [[nodiscard]] bool nothing_asked() const noexcept {
    return questions_.empty() && to_do_.empty() && values_.empty();
  }
  [[nodiscard]] machine& its_machine() noexcept { return machine_; }
  [[nodiscard]] const machine& its_machine() const noexcept { return machine_; }
  [[nodiscard]] context& shared() noexcept { return shared_; }
  [[nodiscard]] process& owner() noexcept { return owner_; }
  [[nodiscard]] std::uint64_t client() const noexcept { return client_; }
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// False: it is dead already.
  bool be_dead() noexcept { return !std::exchange(dead_, true); }

 private:
  struct contender_seen {
    std::size_t lock = 0;
    lock_mode mode = lock_mode::exclusive;
  };

  void leave(const backend_api::leave_request& request) {
    questions_.asks(request.holder, question_book::kind::leave, request.answer_by);
    step([&](machine& its, time_point now, actions& out) { its.leave(request, now, out); });
  }
  void work_off() {
    if (working_) return;  // whoever is at it comes to what was added just now, in this order
    working_ = true;
    while (!to_do_.empty()) {
      action next = std::move(to_do_.front());
      to_do_.pop_front();
      if (!tell(next)) carry_out(next);
    }
    working_ = false;
  }
  void set_timer() {
    const time_point wake = machine_.wake_at();
    if (wake >= timer_) return;
    timer_ = wake;
    owner_.at_local_time(wake, [this, wake] {
      if (timer_ != wake) return;
      timer_ = time_point::max();
      step([](machine& its, time_point now, actions& out) { its.on_timer(now, out); });
    });
  }
  bool tell(action& what) {
    using kind = question_book::kind;
    if (auto* const acquired = std::get_if<backend_api::acquire_told>(&what)) {
      questions_.told(acquired->holder, kind::acquire);
      const auto* const won =
          acquired->answer ? std::get_if<backend_api::granted>(&*acquired->answer) : nullptr;
      if (won != nullptr) granted(acquired->holder, won->tokens);
      backend_api::tell(*listener_, *acquired);
    } else if (auto* const renewed = std::get_if<backend_api::renew_told>(&what)) {
      questions_.told(renewed->holder, kind::renew);
      const auto* const won =
          renewed->answer ? std::get_if<backend_api::renewed>(&*renewed->answer) : nullptr;
      if (won != nullptr) granted(renewed->holder, won->tokens);
      backend_api::tell(*listener_, *renewed);
    } else if (auto* const left = std::get_if<backend_api::leave_told>(&what)) {
      questions_.told(left->holder, kind::leave);
      backend_api::tell(*listener_, *left);
    } else if (auto* const downgraded = std::get_if<backend_api::downgrade_told>(&what)) {
      questions_.told(downgraded->holder, kind::downgrade);
      backend_api::tell(*listener_, *downgraded);
    } else if (auto* const entered = std::get_if<backend_api::entered_told>(&what)) {
      shared_.count.add(counter::cluster_entered_by_event);
      backend_api::tell(*listener_, *entered);
    } else if (auto* const lost = std::get_if<backend_api::lost_told>(&what)) {
      shared_.count.add(counter::cluster_loss_told);
      backend_api::tell(*listener_, *lost);
    } else if (auto* const changed = std::get_if<backend_api::changed_told>(&what)) {
      listener_->changed_notice(changed->name);
    } else if (std::holds_alternative<backend_api::reconnected_told>(what)) {
      listener_->reconnected();
    } else if (auto* const said = std::get_if<backend_api::value_told>(&what)) {
      const auto found = values_.find(said->ticket);
      if (found == values_.end()) {
        shared_.fail("waits end", "a value was answered that nobody had asked for, or twice");
        return true;
      }
      const auto done = std::move(found->second);
      values_.erase(found);
      done(std::move(said->answer));
    } else {
      return false;
    }
    return true;
  }
  void granted(const backend_api::holder_id& who, const backend_api::token_block& tokens) {
    const contender_seen& seen = seen_[who];
    const lock_plan& lock = shared_.plan.locks[seen.lock];
    const bool several = lock.kind == lock_kind::shared_mutex && seen.mode == lock_mode::shared;
    entered(who, seen.lock);
    checks_.store.session_granted(seen.lock, who, tokens, made(tokens.first), several);
  }

  context& shared_;
  checkers& checks_;
  process& owner_;
  const std::uint64_t client_;
  question_book questions_;
  machine machine_;
  backend_api::events* listener_ = nullptr;
  sallyport::capabilities capabilities_;
  std::deque<action> to_do_;
  std::map<backend_api::holder_id, contender_seen> seen_;
  std::map<std::uint64_t, backend_api::completion<bool>> values_;
  std::uint64_t next_value_ = 1;
  time_point timer_ = time_point::max();
  bool working_ = false;
  bool dead_ = false;
};

}  // namespace sallyport::sim
