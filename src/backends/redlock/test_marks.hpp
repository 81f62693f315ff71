#pragma once

#include "backends/redlock/membership.hpp"

#include <chrono>
#include <string>
#include <utility>

/// Marks of the nodes node0, node1, ... for tests.
namespace sallyport::backends::redlock {

/// "id3" is at the address "node3".
inline std::vector<roster_member> test_roster(unsigned nodes) {
  std::vector<roster_member> all;
  for (unsigned i = 0; i < nodes; ++i) {
    all.push_back({"id" + std::to_string(i), "node" + std::to_string(i)});
  }
  return all;
}

/// A full member of a store of so many nodes, which keeps its data.
inline node_mark test_mark(std::string store, unsigned nodes, node_number node, std::string run_id,
                           std::chrono::milliseconds max_lease = std::chrono::seconds{10}) {
  return {.store = std::move(store),
          .max_lease = max_lease,
          .members = test_roster(nodes),
          .own = "id" + std::to_string(node),
          .run_id = std::move(run_id),
          .durable = true};
}

}  // namespace sallyport::backends::redlock
