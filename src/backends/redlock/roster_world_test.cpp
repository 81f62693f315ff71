#include "backends/redlock/membership.hpp"
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Several clients initialise the same nodes at once; a seed decides in which order their requests are executed.
namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;

constexpr unsigned node_count = 3;
constexpr unsigned client_count = 3;
constexpr node_set all_nodes = (1U << node_count) - 1;

/// Requests of one client to one node are executed in order, and so come their answers; all else is chance.
class initialising_world {
 public:
  explicit initialising_world(std::uint64_t seed) : luck_(seed) {
    clients_.reserve(client_count);
    for (unsigned client = 0; client < client_count; ++client) {
      clients_.emplace_back(membership::settings{.names = {"node0", "node1", "node2"},
                                                 .initialise = true,
                                                 .max_lease = 60s,
                                                 .fresh_store = "store" + std::to_string(client)});
      for (node_number node = 0; node < node_count; ++node) {
        send(client, node, [this, client, node]() -> answer {
          node_facts facts{
              .run_id = "run" + std::to_string(node), .durable = true, .mark = marks_[node]};
          return [this, client, node, facts = std::move(facts)] {
            return clients_[client].node_up(node, facts, now_);
          };
        });
      }
    }
  }

  /// Until nobody has anything to do any more, or for so long.
  void run(duration longest) {
    const time_point end = now_ + longest;
    while (now_ < end) {
      if (step()) continue;
      time_point next = time_point::max();
      for (const membership& each : clients_) next = std::min(next, each.wake_at());
      if (next == time_point::max()) return;
      now_ = std::max(now_ + 1ms, next);
      for (unsigned client = 0; client < client_count; ++client) {
        if (clients_[client].wake_at() <= now_) follow(client, clients_[client].on_timer(now_));
      }
    }
  }

  [[nodiscard]] const std::vector<membership>& clients() const { return clients_; }
  [[nodiscard]] std::set<std::string> stores() const {
    std::set<std::string> all;
    for (const std::string& each : marks_) {
      const auto mark = node_mark::parse(each);
      all.insert(mark && mark->is == node_mark::state::full ? mark->store : "not a member");
    }
    return all;
  }
  /// Whether somebody was told to make all anew by force.
  [[nodiscard]] bool despaired() const { return despaired_; }

 private:
  using answer = std::function<membership::actions()>;
  using request = std::function<answer()>;
  struct connection {
    std::deque<request> requests;
    std::deque<answer> answers;
  };

  void send(unsigned client, node_number node, request what) {
    connections_.at(client * node_count + node).requests.push_back(std::move(what));
  }

  /// One request is executed, or one answer arrives. False: there is none.
  bool step() {
    std::vector<std::pair<std::size_t, bool>> possible;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (!connections_[i].requests.empty()) possible.emplace_back(i, false);
      if (!connections_[i].answers.empty()) possible.emplace_back(i, true);
    }
    if (possible.empty()) return false;
    now_ += 10us;
    const auto awake = static_cast<unsigned>(luck_.below(client_count));
    if (clients_[awake].wake_at() <= now_) follow(awake, clients_[awake].on_timer(now_));
    const auto [number, arrives] = possible[luck_.below(possible.size())];
    connection& chosen = connections_[number];
    if (!arrives) {
      const request next = std::move(chosen.requests.front());
      chosen.requests.pop_front();
      chosen.answers.push_back(next());
      return true;
    }
    const answer next = std::move(chosen.answers.front());
    chosen.answers.pop_front();
    const auto client = static_cast<unsigned>(number / node_count);
    follow(client, next());
    const membership& hearer = clients_[client];
    const bool hopeless = count(hearer.voters()) < hearer.majority() && !hearer.under_way();
    if (hopeless && hearer.trouble(now_).detail.find("--force") != std::string::npos) {
      despaired_ = true;
    }
    return true;
  }

  void follow(unsigned client, const membership::actions& out) {
    membership& asker = clients_[client];
    const auto tell_mark = [this, &asker](node_number node) -> answer {
      return
          [this, &asker, node, found = marks_[node]] { return asker.adopted(node, found, now_); };
    };
    for (const auto& each : out.adopt) {
      send(client, each.node, [this, each, tell_mark] {
        if (marks_[each.node] == each.expected) {
          marks_[each.node] = each.mark;
          counters_[each.node] = std::max(counters_[each.node], each.floor);
        }
        return tell_mark(each.node);
      });
    }
    for_each(out.read_marks, [&](node_number node) {
      send(client, node, [tell_mark, node] { return tell_mark(node); });
    });
    for_each(out.read_counters, [&](node_number node) {
      send(client, node,
           [this, client, &asker, node, reading = out.reading,
            expected = asker.seen_mark_of(node)]() -> answer {
             if (stamp_of(marks_[node]) != expected) {
               return [this, client, &asker, node, reading, found = marks_[node]] {
                 follow(client, asker.counter_read(node, reading, std::nullopt, now_));
                 return asker.adopted(node, found, now_);
               };
             }
             return [this, &asker, node, reading, found = counters_[node]] {
               return asker.counter_read(node, reading, found, now_);
             };
           });
    });
    for_each(out.read_clocks, [&](node_number node) {
      send(client, node,
           [this, client, &asker, node, reading = out.clock_reading,
            expected = asker.seen_mark_of(node)]() -> answer {
             if (stamp_of(marks_[node]) != expected) {
               return [this, client, &asker, node, reading, found = marks_[node]] {
                 follow(client, asker.clock_read(node, reading, std::nullopt, now_));
                 return asker.adopted(node, found, now_);
               };
             }
             const auto since =
                 std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch());
             return [this, &asker, node, reading, since] {
               return asker.clock_read(node, reading, static_cast<std::uint64_t>(since.count()),
                                       now_);
             };
           });
    });
  }

  base::random luck_;
  time_point now_{1000h};
  std::vector<membership> clients_;
  std::array<std::string, node_count> marks_;
  std::array<std::uint64_t, node_count> counters_{};
  std::array<connection, static_cast<std::size_t>(client_count) * node_count> connections_;
  bool despaired_ = false;
};

TEST(InitialisingWorld, EndsInOneStoreThatEverybodySeesWhateverTheOrder) {
  for (std::uint64_t seed = 1; seed <= 3000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    initialising_world world(seed);

    world.run(20s);  // less than the time for which a node that lost its data is quiet

    EXPECT_EQ(world.stores().size(), 1U);
    EXPECT_FALSE(world.stores().contains("not a member"));
    EXPECT_FALSE(world.despaired());
    for (const membership& each : world.clients()) {
      EXPECT_EQ(each.voters(), all_nodes);
      EXPECT_FALSE(each.initialising());
    }
  }
}

}  // namespace
}  // namespace sallyport::backends::redlock
