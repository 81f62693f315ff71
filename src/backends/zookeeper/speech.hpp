#pragma once

#include "backend_api/requests.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// What is said to ZooKeeper and what it answers, as far as a lock needs it; values without a
/// library.
namespace sallyport::backends::zookeeper {

using backend_api::duration;
using backend_api::time_point;

/// Numbers every change of the whole store, and only grows: the leader's epoch in the upper half, a
/// counter in the lower.
using zxid = std::int64_t;
using session_id = std::int64_t;
/// Names one of this client's connections, each with a ZooKeeper session of its own.
using line_number = std::uint32_t;
/// Names a request that is under way.
using errand_number = std::uint64_t;

enum class verb : std::uint8_t {
  create_contender,  ///< ephemeral and sequential
  create_kept,       ///< a plain node that stays, and that everybody may read
  create_folder,     ///< a container, or a plain node where the server or the dialect has none
  list,              ///< the children; `watch`: tells when they change
  read,              ///< the data; `watch`: tells when it changes or the node is gone
  await_end,         ///< tells when the node is gone, and of nothing else
  look,              ///< the stat; `watch`: also of a node that is not there yet
  write,
  remove,
  replace,  ///< at once: creates `other`, ephemeral, and removes the node
  sync,     ///< everything that the leader had decided by then is seen by what is asked after it
};

struct request {
  verb what = verb::sync;
  std::string path = "/";
  std::string data{};
  std::string other{};
  std::int32_t version = -1;  ///< write and remove: only if it is this one; -1: whichever
  bool watch = false;
};

/// What the store knows of a node.
struct node_stat {
  zxid created = 0;
  zxid modified = 0;
  zxid children_changed = 0;
  std::int64_t created_ms = 0;  ///< by the store's wall clock
  session_id owner = 0;         ///< of an ephemeral node; 0: it is none
  std::int32_t version = 0;     ///< of the data
  std::int32_t children = 0;
};

enum class status : std::uint8_t {
  ok,
  no_node,
  node_exists,
  bad_version,
  not_sent,         ///< certainly nothing happened
  connection_lost,  ///< nobody knows
  session_ended,
  refused,  ///< the store's own word; `text` quotes it
};

struct reply {
  status is = status::not_sent;
  std::string text{};
  std::string path{};  ///< of what was created
  std::string data{};
  std::vector<std::string> children{};
  node_stat stat{};  ///< `list`: of the parent
};

/// Whether an answer to this proves that the leader knew our session when it came by: reads are
/// answered by any server, also by one that has long lost the leader.
[[nodiscard]] constexpr bool passes_the_leader(verb what) noexcept {
  switch (what) {
    case verb::create_contender:
    case verb::create_kept:
    case verb::create_folder:
    case verb::write:
    case verb::remove:
    case verb::replace:
    case verb::sync:
      return true;
    case verb::list:
    case verb::read:
    case verb::await_end:
    case verb::look:
      return false;
  }
  return false;
}

}  // namespace sallyport::backends::zookeeper
