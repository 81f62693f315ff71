#pragma once

#include "tests/kit/redis_server.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::kit {

struct redis_cluster_options {
  std::size_t masters = 3;
  std::size_t replicas = 0;  // of each master
  std::chrono::milliseconds node_timeout{1'000};
  redis_options server = {};  // of every node, but for cluster
};

/// The slot of a key, by its hash tag if it has one.
[[nodiscard]] std::uint16_t slot_of(std::string_view key);

/// A Redis Cluster on 127.0.0.1; the slots are shared equally. A node serves nothing in its first two
/// seconds (Redis wants it so): make one cluster for many tests.
/// Thread safety: none.
class redis_cluster {
 public:
  /// Returns when every node says cluster_state:ok and all replicas are online.
  explicit redis_cluster(redis_cluster_options options = {});

  [[nodiscard]] std::size_t masters() const noexcept { return options_.masters; }
  /// The nodes: first the masters, then the replicas of the first master, of the second ...
  [[nodiscard]] redis_server& node(std::size_t index) { return *nodes_.at(index); }
  [[nodiscard]] std::size_t nodes() const noexcept { return nodes_.size(); }
  [[nodiscard]] redis_server& replica(std::size_t master, std::size_t index) {
    return node(masters() + master * options_.replicas + index);
  }
  [[nodiscard]] std::vector<std::uint16_t> ports() const;

  /// The number of the node that serves a slot, by its own word. Throws when nobody does.
  [[nodiscard]] std::size_t owner_of(std::uint16_t slot);

  enum class keys { stay, move };
  /// Half of a migration: `to` imports, `from` (the owner) migrates, and the keys have moved or not.
  void begin_migration(std::uint16_t slot, std::size_t to, keys what = keys::stay);
  /// Moves what is left and gives the slot to `to`. Returns when all masters know.
  void finish_migration(std::uint16_t slot, std::size_t to);
  /// Ends a migration with the slot where it was; keys that have moved move back.
  void abandon_migration(std::uint16_t slot, std::size_t to);
  /// All of it.
  void move_slot(std::uint16_t slot, std::size_t to) {
    begin_migration(slot, to, keys::move);
    finish_migration(slot, to);
  }

  /// Waits until every node that runs says cluster_state:ok.
  void wait_until_ok();

 private:
  void share_slots();
  void introduce();
  void attach_replicas();
  void move_keys(std::uint16_t slot, std::size_t from, std::size_t to);
  [[nodiscard]] const std::string& id_of(std::size_t node) const { return ids_.at(node); }
  [[noreturn]] void fail(const std::string& what);

  const redis_cluster_options options_;
  std::vector<std::unique_ptr<redis_server>> nodes_;
  std::vector<std::string> ids_;
};

}  // namespace sallyport::kit
