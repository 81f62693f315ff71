#pragma once

#include "backends/etcd/contention.hpp"
#include "backends/etcd/model_store.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::backends::etcd {

using namespace std::chrono_literals;
using backend_api::acquire_answer;
using backend_api::granted;
using backend_api::held;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::waiting;

/// A store and clients of it, at a time that is moved by hand. Orders are carried out at once, in
/// order, unless a test takes them away first.
class contention_world {
 public:
  time_point now{std::chrono::hours{1}};
  model_store store;

  /// What one client's core was told last, by holder.
  struct heard {
    std::map<holder_id, base::result<acquire_answer>> acquired;
    std::map<holder_id, base::result<renew_answer>> renewals;
    std::map<holder_id, base::result<renew_answer>> downgrades;
    std::map<holder_id, base::result<leave_answer>> leaves;
    std::map<std::uint64_t, base::result<bool>> values;
    std::vector<holder_id> entered;
    std::vector<holder_id> lost;
    std::vector<std::string> changed;
    int reconnected = 0;
    int disconnected = 0;
  };
  struct counts {
    int txns = 0;
    int grants = 0;
    int revokes = 0;
    int keep_alives = 0;
    int watches = 0;
  };

  class client {
   public:
    client(contention_world& where, int number)
        : world_(where),
          number_(number),
          machine({.keys = layout("p/"),
                   .owner = {.host = "host", .pid = number, .label = "client", .companion_pid = 0},
                   .fresh_lease = [this] { return lease_id{1000} * number_ + next_lease_++; },
                   .wall_ms = [] { return std::int64_t{1}; }}) {}

    template <class Step>
    void step(Step&& what) {
      actions out;
      what(machine, world_.now, out);
      for (action& each : out) world_.queue.emplace_back(number_, std::move(each));
      world_.settle();
    }

    void acquire(const holder_id& who, const std::string& name, bool may_wait = true,
                 lock_kind kind = lock_kind::mutex, lock_mode mode = lock_mode::exclusive,
                 std::uint32_t permits = 1) {
      told.acquired.erase(who);
      const lock_name lock{name};
      step([&](contention& each, time_point at, actions& out) {
        each.acquire({.name = lock,
                      .kind = kind,
                      .mode = mode,
                      .holder = who,
                      .lease_length = length,
                      .claim_window = length,
                      .ticket_length = length,
                      .may_wait = may_wait,
                      .permits = permits,
                      .value = value,
                      .answer_by = at + 2s,
                      .renewed = renews},
                     at, out);
      });
    }
    void renew(const holder_id& who, std::uint32_t tokens = 0) {
      told.renewals.erase(who);
      const lock_name any{"any"};
      step([&](contention& each, time_point at, actions& out) {
        each.renew({.name = any,
                    .holder = who,
                    .lease_length = length,
                    .token_count = tokens,
                    .answer_by = at + 2s},
                   at, out);
      });
    }
    void downgrade(const holder_id& who) {
      const lock_name any{"any"};
      step([&](contention& each, time_point at, actions& out) {
        each.downgrade({.name = any, .holder = who, .lease_length = length, .answer_by = at + 2s},
                       at, out);
      });
    }
    void leave(const holder_id& who) {
      told.leaves.erase(who);
      const lock_name any{"any"};
      step([&](contention& each, time_point at, actions& out) {
        each.leave({.name = any, .holder = who, .answer_by = at + 2s}, at, out);
      });
    }

    [[nodiscard]] const granted* grant(const holder_id& who) const {
      const auto found = told.acquired.find(who);
      if (found == told.acquired.end() || !found->second) return nullptr;
      return std::get_if<granted>(&*found->second);
    }
    [[nodiscard]] bool waits(const holder_id& who) const {
      const auto found = told.acquired.find(who);
      return found != told.acquired.end() && found->second &&
             std::holds_alternative<waiting>(*found->second);
    }
    [[nodiscard]] bool is_held(const holder_id& who) const {
      const auto found = told.acquired.find(who);
      return found != told.acquired.end() && found->second &&
             std::holds_alternative<held>(*found->second);
    }
    [[nodiscard]] std::error_code acquire_error(const holder_id& who) const {
      const auto found = told.acquired.find(who);
      if (found == told.acquired.end() || found->second) return {};
      return found->second.error().code;
    }
    [[nodiscard]] const renewed* renewal(const holder_id& who) const {
      const auto found = told.renewals.find(who);
      if (found == told.renewals.end() || !found->second) return nullptr;
      return std::get_if<renewed>(&*found->second);
    }
    [[nodiscard]] std::optional<leave_answer> left(const holder_id& who) const {
      const auto found = told.leaves.find(who);
      if (found == told.leaves.end() || !found->second) return std::nullopt;
      return *found->second;
    }

   private:
    contention_world& world_;
    const int number_;
    lease_id next_lease_ = 1;

   public:
    contention machine;
    heard told;
    counts sent;
    duration length = 6s;
    std::string value{};
    bool renews = true;
  };

  client& add() {
    clients.push_back(std::make_unique<client>(*this, static_cast<int>(clients.size()) + 1));
    return *clients.back();
  }

  /// Moves the time on and rings whatever is due.
  void pass(duration how_long) {
    const time_point until = now + how_long;
    while (now < until) {
      time_point next = until;
      for (const auto& each : clients) next = std::min(next, each->machine.wake_at());
      now = std::max(now, next);
      store.expire(now);
      settle();
      for (const auto& each : clients) {
        if (each->machine.wake_at() > now) continue;
        each->step(
            [](contention& machine, time_point at, actions& out) { machine.on_timer(at, out); });
      }
    }
  }

  /// Carries out orders and delivers reports until nothing is left. `lose` may take one away.
  void settle() {
    if (std::exchange(settling_, true)) return;
    for (;;) {
      if (!queue.empty()) {
        auto [number, what] = std::move(queue.front());
        queue.pop_front();
        if (!lose || !lose(number, what)) carry_out(number, what);
      } else if (!deaf && !store.reports.empty()) {
        const model_store::report said = store.reports.front();
        store.reports.erase(store.reports.begin());
        deliver(said);
      } else {
        break;
      }
    }
    settling_ = false;
  }

  void answer(int number, const std::function<void(contention&, time_point, actions&)>& what) {
    clients[static_cast<std::size_t>(number) - 1]->step(what);
  }

  void carry_out(int number, action& what) {
    client& whose = *clients[static_cast<std::size_t>(number) - 1];
    if (auto* const order = std::get_if<txn_order>(&what)) {
      ++whose.sent.txns;
      const auto said = store.apply(order->what);
      answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.txn_answered(order->errand, said, at, out);
      });
    } else if (auto* const granting = std::get_if<grant_order>(&what)) {
      ++whose.sent.grants;
      store.grant(granting->lease, std::chrono::seconds{granting->seconds}, now);
      answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.lease_granted(granting->lease, {.value = granting->seconds}, at, out);
      });
    } else if (auto* const revoking = std::get_if<revoke_order>(&what)) {
      ++whose.sent.revokes;
      store.revoke(revoking->lease);
    } else if (auto* const keeping = std::get_if<keep_alive_order>(&what)) {
      ++whose.sent.keep_alives;
      const auto seconds = store.keep_alive(keeping->lease, now);
      answer(number, [&](contention& machine, time_point at, actions& out) {
        machine.kept_alive(keeping->lease, seconds, store.term, at, out);
      });
    } else if (auto* const watching = std::get_if<watch_order>(&what)) {
      ++whose.sent.watches;
      store.watch(number, watching->watch, {watching->key, watching->end, watching->puts});
    } else if (auto* const unwatching = std::get_if<unwatch_order>(&what)) {
      store.unwatch(number, unwatching->watch);
    } else {
      hear(whose.told, what);
    }
  }

  std::deque<std::pair<int, action>> queue;
  std::vector<std::unique_ptr<client>> clients;
  std::function<bool(int, action&)> lose;
  bool deaf = false;

 private:
  static void hear(heard& told, action& what) {
    if (auto* const acquired = std::get_if<acquire_told>(&what)) {
      told.acquired.insert_or_assign(acquired->holder, std::move(acquired->answer));
    } else if (auto* const renewal = std::get_if<renew_told>(&what)) {
      told.renewals.insert_or_assign(renewal->holder, std::move(renewal->answer));
    } else if (auto* const downgraded = std::get_if<downgrade_told>(&what)) {
      told.downgrades.insert_or_assign(downgraded->holder, std::move(downgraded->answer));
    } else if (auto* const left = std::get_if<leave_told>(&what)) {
      told.leaves.insert_or_assign(left->holder, std::move(left->answer));
    } else if (auto* const said = std::get_if<value_told>(&what)) {
      told.values.insert_or_assign(said->ticket, std::move(said->answer));
    } else if (auto* const entered = std::get_if<entered_told>(&what)) {
      told.entered.push_back(entered->holder);
    } else if (auto* const lost = std::get_if<lost_told>(&what)) {
      told.lost.push_back(lost->holder);
    } else if (auto* const changed = std::get_if<changed_told>(&what)) {
      told.changed.push_back(changed->name.text());
    } else if (std::holds_alternative<reconnected_told>(what)) {
      ++told.reconnected;
    } else if (std::holds_alternative<disconnected_told>(what)) {
      ++told.disconnected;
    }
  }
  void deliver(const model_store::report& said) {
    answer(said.client, [&](contention& machine, time_point at, actions& out) {
      if (said.began != 0) {
        machine.watch_began(said.watch, said.began, at, out);
      } else {
        machine.watch_said(said.watch, std::span(&said.event, 1), at, out);
      }
    });
  }

  bool settling_ = false;
};

}  // namespace sallyport::backends::etcd
