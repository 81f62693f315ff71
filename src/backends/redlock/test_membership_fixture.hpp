#pragma once

#include "backends/redlock/membership.hpp"
#include "backends/redlock/test_marks.hpp"
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace sallyport::backends::redlock {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

/// The membership of a client that knows node0, node1, ..., whose clock is moved by hand.
class MembershipTest : public ::testing::Test {
 protected:
  using actions = membership::actions;

  void make(unsigned nodes, bool initialise = false, std::string fresh_store = "fresh",
            bool force = false) {
    membership::settings how;
    how.force = force;
    for (unsigned i = 0; i < nodes; ++i) how.names.push_back("node" + std::to_string(i));
    how.initialise = initialise;
    how.fresh_store = std::move(fresh_store);
    how.max_lease = 60s;
    members = std::make_unique<membership>(std::move(how));
    size = nodes;
  }

  static std::string run_of(node_number node) { return "run" + std::to_string(node); }
  [[nodiscard]] std::string mark_of(node_number node, const std::string& run,
                                    const std::string& store = "old") const {
    return test_mark(store, size, node, run).text();
  }
  [[nodiscard]] std::string mark_of(node_number node) const { return mark_of(node, run_of(node)); }

  actions up(node_number node, std::string mark, bool durable = true,
             std::optional<std::string> run = {}) {
    return members->node_up(
        node, {.run_id = run.value_or(run_of(node)), .durable = durable, .mark = std::move(mark)},
        now);
  }
  actions down(node_number node) {
    return members->node_down(node, {make_error_code(errc::unavailable), "refused"}, now);
  }
  /// All nodes with good marks but those.
  void up_all_but(node_set without = 0) {
    for (node_number node = 0; node < size; ++node) {
      if ((without & only(node)) != 0) continue;
      EXPECT_THAT(up(node, mark_of(node)).adopt, IsEmpty());
    }
  }
  actions pass(duration span) {
    now += span;
    actions out = members->on_timer(now);
    if (out.read_counters != 0) reading = out.reading;
    return out;
  }
  /// The answer to the newest question.
  actions read(node_number node, std::optional<std::uint64_t> counter) {
    return members->counter_read(node, reading, counter, now);
  }
  [[nodiscard]] std::string complaints() const {
    std::string all;
    for (const std::string& each : members->complaints(now)) all += each + '\n';
    return all;
  }
  /// All nodes' clocks.
  [[nodiscard]] std::uint64_t server_us() const {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch() + 5h).count());
  }
  /// Answers all questions for clocks that `asked` has, and carries out what follows.
  void note(actions asked) {
    for (node_number node = 0; node < size && asked.adopt.empty(); ++node) {
      if ((asked.read_clocks & only(node)) == 0) continue;
      actions next = members->clock_read(node, asked.clock_reading, server_us(), now);
      asked.adopt = std::move(next.adopt);
    }
    for (const auto& each : asked.adopt) std::ignore = members->adopted(each.node, each.mark, now);
  }
  /// A node comes that has lost its data, and this is noted on it.
  void comes_without_data(node_number node) { note(up(node, "")); }
  [[nodiscard]] std::string quiet_mark_of(node_number node, const std::string& run,
                                          std::uint64_t since_us, bool durable = true) const {
    node_mark mark = test_mark("old", size, node, run);
    mark.is = node_mark::state::quiet;
    mark.quiet_since_us = since_us;
    mark.durable = durable;
    return mark.text();
  }
  /// Brings a node without a mark to where the others' counters are wanted.
  void make_quiet_and_wait(node_number node) {
    comes_without_data(node);
    const actions asked = pass(members->wake_at() - now);
    EXPECT_EQ(asked.read_counters, members->voters());
  }

  time_point now{1000h};
  std::uint64_t reading = 0;
  unsigned size = 0;
  std::unique_ptr<membership> members;
};

}  // namespace sallyport::backends::redlock
