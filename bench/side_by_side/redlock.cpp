#include "bench/side_by_side/crew.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "bench/side_by_side/turns.hpp"
#include "tests/kit/redis_quorum.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// A lock that a majority of Redis servers gives. All rows come from processes that take turns and
/// tell of them, as those of other libraries do.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;

constexpr double five_nodes_bar = 2;
constexpr double trouble_bar = 1.3;
constexpr double handoff_bar = 3;
constexpr double longest_handoff_bar = 20;

constexpr std::size_t most_nodes = 5;
/// With so many nodes in trouble a bare majority of five is left.
constexpr std::size_t minority = 2;
/// Callers that were under way when the trouble began have heard of it by then.
constexpr std::chrono::nanoseconds after_trouble = 1s;
/// A crowd stands in line on all nodes by then, and hears their notices.
constexpr std::chrono::nanoseconds lining_up = 200ms;
/// A round of a crowd lasts longer, so that every waiter has several turns.
constexpr double crowd_rounds = 4;

std::unique_ptr<kit::redis_quorum> fresh_quorum(std::size_t nodes) {
  auto made = std::make_unique<kit::redis_quorum>(nodes);
  made->initialise();
  return made;
}

/// What the rows share: one server, and a quorum of each size, started when first asked for. The
/// quorums have servers of their own, because a node belongs to one set only.
class shared_stores {
 public:
  kit::redis_server& one_server() {
    if (!server_) server_ = bench_server(false);
    return *server_;
  }
  kit::redis_quorum& of(std::size_t nodes) {
    auto& found = quorums_[nodes];
    if (!found) found = fresh_quorum(nodes);
    return *found;
  }

 private:
  std::unique_ptr<kit::redis_server> server_;
  std::map<std::size_t, std::unique_ptr<kit::redis_quorum>> quorums_;
};

using stores = std::shared_ptr<shared_stores>;

library on_quorum(library which, const kit::redis_quorum& nodes) {
  std::string ports;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ports += (i == 0 ? "" : ",") + std::to_string(nodes[i].port());
  }
  which.environment.push_back(std::string(store_variable) + "=" + nodes.address());
  which.environment.push_back(std::string(nodes_variable) + "=" + ports);
  return which;
}

lone_figures alone_on(const kit::redis_quorum& nodes, const library& which, seconds time,
                      contest how = {}) {
  const auto outcome = crew{on_quorum(which, nodes), std::move(how), nodes[0]}.run(time);
  return lone_figures_of(outcome.turns, outcome.counted);
}

// ---- nobody else wants the lock ------------------------------------------------------------------

program pair_program(std::string id, std::string title,
                     std::function<lone_figures(seconds)> measure) {
  return {.id = "redlock-1/" + std::move(id),
          .group = "redlock: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = "redlock-1/redis",
          .figures = {{.name = "pair p50", .unit = "us"}},
          .measure = [measure = std::move(measure)](const measure_settings& how) {
            return std::vector<double>{measure(how.time).pair_p50_us};
          }};
}

std::string count_of_nodes(std::size_t nodes) {
  return std::to_string(nodes) + (nodes == 1 ? " node" : " nodes");
}

program pair_on_nodes(const library& which, const std::string& title, std::size_t nodes,
                      const stores& all) {
  auto made = pair_program(
      which.id + "-" + std::to_string(nodes), title + ", " + count_of_nodes(nodes),
      [which, nodes, all](seconds time) { return alone_on(all->of(nodes), which, time); });
  made.why_missing = [which] { return why_missing(which); };
  return made;
}

std::vector<program> pair_programs(const stores& all) {
  auto limit = pair_program("redis", "sallyport::mutex, redis:// one server", [all](seconds time) {
    const auto outcome = crew{sallyport_itself(), {}, all->one_server()}.run(time);
    return lone_figures_of(outcome.turns, outcome.counted);
  });
  limit.limit = {};
  std::vector<program> made{std::move(limit)};
  for (const std::size_t nodes : {std::size_t{1}, std::size_t{3}, most_nodes}) {
    made.push_back(pair_on_nodes(sallyport_itself(), "sallyport::mutex", nodes, all));
  }
  made.back().figures.front().wanted = times_limit(five_nodes_bar);
  for (const std::size_t nodes : {std::size_t{1}, std::size_t{3}, most_nodes}) {
    made.push_back(pair_on_nodes(node_redlock(), "node-redlock", nodes, all));
  }
  return made;
}

// ---- nodes in trouble ----------------------------------------------------------------------------

/// The servers are new in every round: one that was killed would be kept out for the longest lease.
program trouble_program(std::string id, std::string title, void (*hurt)(kit::redis_server&)) {
  return {.id = "redlock-trouble/" + std::move(id),
          .group = "redlock, 5 nodes, 2 in trouble: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = "redlock-trouble/none",
          .figures = {{.name = "acquire p50", .unit = "us", .wanted = times_limit(trouble_bar)}},
          .measure = [hurt](const measure_settings& how) {
            const auto nodes = fresh_quorum(most_nodes);
            // Node 0, over which the processes are spoken with, stays well.
            const auto happens = [&nodes, hurt] {
              for (std::size_t i = 1; i <= minority; ++i) hurt((*nodes)[i]);
            };
            const auto made = alone_on(*nodes, sallyport_itself(), how.time,
                                       {.lead = after_trouble, .at_begin = happens});
            return std::vector<double>{made.acquire_p50_us};
          }};
}

std::vector<program> trouble_programs() {
  auto limit = trouble_program("none", "all nodes well", [](kit::redis_server&) {});
  limit.limit = {};
  limit.figures.front().wanted = {};
  return {std::move(limit),
          trouble_program("killed", "2 killed: they refuse connections",
                          [](kit::redis_server& node) { node.kill(); }),
          trouble_program("stopped", "2 stopped: they accept and never answer",
                          [](kit::redis_server& node) { node.pause(); })};
}

// ---- a crowd -------------------------------------------------------------------------------------

std::vector<double> crowd_on(const kit::redis_quorum& nodes, seconds time) {
  const contest how{.processes = 8, .seats = 4, .hold = 1ms, .lead = lining_up};
  auto outcome = crew{on_quorum(sallyport_itself(), nodes), how, nodes[0]}.run(time * crowd_rounds);
  const auto made =
      figures_of(std::move(outcome.turns), outcome.counted, how.processes * how.seats);
  return {made.handoff_p50_us, made.handoff_longest_us, made.handoff_p99_us, made.turns_per_second,
          made.most_to_fewest, made.without_a_turn,     made.longest_wait_ms};
}

std::vector<program> crowd_programs(const stores& all) {
  const std::string group = "redlock, 5 nodes: 32 waiters in 8 processes, held for 1 ms";
  const std::string lone = "acquire p50";
  return {{.id = "redlock-32/alone",
           .group = group,
           .title = "one process, nobody else wants the lock",
           .limit = {},
           .figures = {{.name = lone, .unit = "us"}},
           .measure =
               [all](const measure_settings& how) {
                 const auto made = alone_on(all->of(most_nodes), sallyport_itself(), how.time);
                 return std::vector<double>{made.acquire_p50_us};
               }},
          {.id = "redlock-32/mutex",
           .group = group,
           .title = "sallyport::mutex, local_turns = 1",
           .limit = "redlock-32/alone",
           .figures = {{.name = "hand-off p50",
                        .unit = "us",
                        .wanted = times_limit(handoff_bar),
                        .beside = lone},
                       {.name = "longest hand-off",
                        .unit = "us",
                        .wanted = times_limit(longest_handoff_bar),
                        .beside = lone},
                       {.name = "hand-off p99", .unit = "us"},
                       {.name = "turns", .unit = "per s"},
                       {.name = "most/fewest turns", .unit = ""},
                       {.name = "waiters without a turn", .unit = ""},
                       {.name = "longest wait", .unit = "ms"}},
           .measure = [all](const measure_settings& how) {
             return crowd_on(all->of(most_nodes), how.time);
           }}};
}

}  // namespace

std::vector<program> redlock_programs() {
  const auto shared = std::make_shared<shared_stores>();
  std::vector<program> all;
  for (auto&& some : {pair_programs(shared), trouble_programs(), crowd_programs(shared)}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace sallyport::bench
