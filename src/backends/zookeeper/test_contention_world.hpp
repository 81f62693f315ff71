#pragma once

#include "backends/zookeeper/contention.hpp"
#include "backends/zookeeper/model_store.hpp"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::zookeeper::testing {

using namespace std::chrono_literals;

/// One client: a machine on a model store, with connections that can be cut.
class model_client {
 public:
  model_client(model_store& store, std::uint64_t number,
               layout::settings nodes = {.root = "/locks"}, bool asks_name = false)
      : store_(store),
        number_(number),
        machine_({.nodes = layout(nodes),
                  .owner = {.host = "h", .pid = 7, .label = "l"},
                  .tick = 100ms,
                  .asks_name = asks_name}) {}

  // What was told, the newest last.
  std::vector<acquire_told> acquired;
  std::vector<renew_told> renewed;
  std::vector<downgrade_told> downgraded;
  std::vector<leave_told> left;
  std::vector<lost_told> lost;
  std::vector<entered_told> entered;
  std::vector<changed_told> changed;
  std::vector<wanted_told> wanted;
  std::size_t sent = 0;     // requests
  std::size_t flights = 0;  // groups of requests that left together
  std::size_t doubts = 0;
  bool connected = true;
  bool renews = true;
  duration lease_length = 3s;
  bool swallow_answers = false;  // executed, and the answer is lost with the connection
  std::optional<verb> refused;   // a right that it does not have
  time_point now{1000s};

  [[nodiscard]] backend_api::holder_id id(std::uint64_t which) const {
    return {number_, which << 32U};
  }

  void acquire(std::uint64_t which, lock_kind kind = lock_kind::mutex,
               lock_mode mode = lock_mode::exclusive, bool may_wait = true,
               std::uint32_t permits = 1, const char* name = "door") {
    const lock_name called{name};
    step([&](actions& out) {
      machine_.acquire({.name = called,
                        .kind = kind,
                        .mode = mode,
                        .holder = id(which),
                        .lease_length = lease_length,
                        .may_wait = may_wait,
                        .permits = permits,
                        .value = {},
                        .answer_by = now + 2s,
                        .renewed = renews},
                       now, out);
    });
  }
  /// Whether its acquire would have to ask for the store's name first.
  std::optional<contention::name_question> name_wanted(std::uint64_t which) {
    const lock_name called{"door"};
    std::optional<contention::name_question> question;
    step([&](actions& out) {
      question = machine_.name_wanted({.name = called,
                                       .holder = id(which),
                                       .lease_length = lease_length,
                                       .value = {},
                                       .answer_by = now + 2s,
                                       .renewed = renews},
                                      out);
    });
    return question;
  }
  void renew(std::uint64_t which, std::uint32_t tokens = 0, const char* name = "door") {
    const lock_name called{name};
    step([&](actions& out) {
      machine_.renew({.name = called,
                      .holder = id(which),
                      .lease_length = 3s,
                      .token_count = tokens,
                      .answer_by = now + 2s},
                     now, out);
    });
  }
  void downgrade(std::uint64_t which) {
    const lock_name called{"door"};
    step([&](actions& out) {
      machine_.downgrade({.name = called,
                          .kind = lock_kind::shared_mutex,
                          .holder = id(which),
                          .lease_length = 3s,
                          .answer_by = now + 2s},
                         now, out);
    });
  }
  void leave(std::uint64_t which) {
    const lock_name called{"door"};
    step([&](actions& out) {
      machine_.leave({.name = called, .holder = id(which), .answer_by = now + 2s}, now, out);
    });
  }
  void pass(duration span) {
    now += span;
    step([&](actions& out) { machine_.on_timer(now, out); });
  }

  void cut() {
    connected = false;
    for (const auto& [line, session] : sessions_) machine_.line_down(line);
    auto pending = std::exchange(under_way_, {});
    for (send_order& each : pending) {
      if (swallow_answers) store_.execute(sessions_.at(each.line), each.what);
      step([&](actions& out) {
        machine_.answered(each.errand, {.is = status::connection_lost}, now, out);
      });
    }
    swallow_answers = false;
  }
  void reconnect() {
    connected = true;
    for (const auto& [line, session] : std::map(sessions_)) {
      step([&, number = line, its = session](actions& out) {
        machine_.line_up(number, its, 3s, now, out);
      });
    }
  }
  void expire() {
    for (const auto& [line, session] : std::exchange(sessions_, {})) {
      store_.end_session(session);
      step([&, number = line](actions& out) { machine_.line_ended(number, now, out); });
    }
    connected = true;
  }

  /// The next request is executed and answered. False: there is none.
  bool deliver_one() {
    if (!connected || under_way_.empty()) return false;
    send_order next = std::move(under_way_.front());
    under_way_.pop_front();
    reply said = !sessions_.contains(next.line) ? reply{.is = status::session_ended}
                 : refused == next.what.what    ? reply{.is = status::refused, .text = "no right"}
                                             : store_.execute(sessions_.at(next.line), next.what);
    step([&](actions& out) { machine_.answered(next.errand, std::move(said), now, out); });
    return true;
  }
  void hear(const model_store::event& what) {
    for (const auto& [line, session] : sessions_) {
      if (session != what.session) continue;
      step([&](actions& out) { machine_.happened(what.path, what.gone, what.below, now, out); });
      return;
    }
  }
  [[nodiscard]] std::deque<send_order>& under_way() { return under_way_; }
  [[nodiscard]] contention& machine() { return machine_; }

  /// What the last acquire was granted; empty: nothing.
  [[nodiscard]] std::optional<backend_api::granted> grant() const {
    if (acquired.empty() || !acquired.back().answer) return std::nullopt;
    const auto* const found = std::get_if<backend_api::granted>(&*acquired.back().answer);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  [[nodiscard]] bool told_to_wait() const {
    return !acquired.empty() && acquired.back().answer &&
           std::holds_alternative<backend_api::waiting>(*acquired.back().answer);
  }
  [[nodiscard]] bool told_held() const {
    return !acquired.empty() && acquired.back().answer &&
           std::holds_alternative<backend_api::held>(*acquired.back().answer);
  }
  [[nodiscard]] std::error_code error() const {
    return acquired.empty() || acquired.back().answer ? std::error_code{}
                                                      : acquired.back().answer.error().code;
  }
  [[nodiscard]] std::optional<backend_api::renewed> renewal() const {
    if (renewed.empty() || !renewed.back().answer) return std::nullopt;
    const auto* const found = std::get_if<backend_api::renewed>(&*renewed.back().answer);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }

 private:
  template <class Step>
  void step(Step&& what) {
    actions out;
    what(out);
    const std::size_t before = sent;
    for (action& each : out) take(each);
    if (sent != before) ++flights;
  }
  void take(action& what) {
    if (auto* const order = std::get_if<send_order>(&what)) {
      ++sent;
      under_way_.push_back(std::move(*order));
    } else if (auto* const open = std::get_if<open_order>(&what)) {
      sessions_[open->line] = store_.open_session();
      if (connected) {
        step([&](actions& out) {
          machine_.line_up(open->line, sessions_.at(open->line), 3s, now, out);
        });
      }
    } else if (auto* const told = std::get_if<acquire_told>(&what)) {
      acquired.push_back(std::move(*told));
    } else if (auto* const again = std::get_if<renew_told>(&what)) {
      renewed.push_back(std::move(*again));
    } else if (auto* const down = std::get_if<downgrade_told>(&what)) {
      downgraded.push_back(std::move(*down));
    } else if (auto* const gone = std::get_if<leave_told>(&what)) {
      left.push_back(std::move(*gone));
    } else if (auto* const loss = std::get_if<lost_told>(&what)) {
      lost.push_back(*loss);
    } else if (auto* const in = std::get_if<entered_told>(&what)) {
      entered.push_back(*in);
    } else if (auto* const news = std::get_if<changed_told>(&what)) {
      changed.push_back(*news);
    } else if (auto* const wish = std::get_if<wanted_told>(&what)) {
      wanted.push_back(*wish);
    } else if (auto* const doubt = std::get_if<doubt_order>(&what)) {
      doubts += doubt->hangs ? 1 : 0;
    }
  }

  model_store& store_;
  const std::uint64_t number_;
  contention machine_;
  std::map<line_number, session_id> sessions_;
  std::deque<send_order> under_way_;
};

/// Lets all that is under way happen, until nothing is.
inline void settle(model_store& store, std::initializer_list<model_client*> all) {
  for (bool busy = true; busy;) {
    busy = false;
    for (model_client* const each : all) {
      while (each->deliver_one()) busy = true;
    }
    for (const auto& what : store.take_events()) {
      for (model_client* const each : all) each->hear(what);
      busy = true;
    }
  }
}

}  // namespace sallyport::backends::zookeeper::testing
