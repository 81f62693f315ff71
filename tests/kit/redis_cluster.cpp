#include "tests/kit/redis_cluster.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::kit {

namespace {

constexpr std::size_t slot_count = 16'384;
constexpr std::size_t keys_a_step = 100;

/// One field of CLUSTER INFO.
std::string cluster_info(redis_server& node, std::string_view field) {
  const std::string all = "\n" + node.command({"CLUSTER", "INFO"}).text;
  const std::string start = "\n" + std::string{field} + ":";
  const auto found = all.find(start);
  if (found == std::string::npos) return {};
  const auto value = found + start.size();
  return all.substr(value, all.find_first_of("\r\n", value) - value);
}

/// Whether a node takes itself for the owner.
bool serves(redis_server& node, std::uint16_t slot) {
  const redis_reply ranges = node.command({"CLUSTER", "SLOTS"});
  const std::string own = std::to_string(node.port());
  return std::any_of(ranges.items.begin(), ranges.items.end(), [&](const redis_reply& range) {
    return range.items.at(0).integer <= slot && slot <= range.items.at(1).integer &&
           std::to_string(range.items.at(2).items.at(1).integer) == own;
  });
}

}  // namespace

std::uint16_t slot_of(std::string_view key) {
  const auto open = key.find('{');
  if (open != std::string_view::npos) {
    const auto close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  std::uint32_t crc = 0;  // CRC-16/XMODEM
  for (const char character : key) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(character)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? (crc << 1) ^ 0x1021U : crc << 1;
  }
  return static_cast<std::uint16_t>(crc % slot_count);
}

redis_cluster::redis_cluster(redis_cluster_options options) : options_(std::move(options)) {
  redis_options node = options_.server;
  node.cluster = true;
  node.config.insert(node.config.begin(),
                     {"cluster-node-timeout " + std::to_string(options_.node_timeout.count()),
                      "cluster-replica-validity-factor 0"});
  const std::size_t count = options_.masters * (1 + options_.replicas);
  for (std::size_t i = 0; i < count; ++i) {
    nodes_.push_back(std::make_unique<redis_server>(node));
    ids_.push_back(nodes_.back()->command({"CLUSTER", "MYID"}).text);
    // Epochs of their own from the start, or nodes would have to find out who yields.
    (void)nodes_.back()->command({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
  }
  share_slots();
  introduce();
  attach_replicas();
  wait_until_ok();
}

void redis_cluster::share_slots() {
  for (std::size_t i = 0; i < options_.masters; ++i) {
    const std::size_t first = slot_count * i / options_.masters;
    const std::size_t last = slot_count * (i + 1) / options_.masters - 1;
    (void)nodes_[i]->command(
        {"CLUSTER", "ADDSLOTSRANGE", std::to_string(first), std::to_string(last)});
  }
}

void redis_cluster::introduce() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (std::size_t j = 0; j < nodes_.size(); ++j) {
      if (i == j) continue;
      (void)nodes_[i]->command({"CLUSTER", "MEET", "127.0.0.1", std::to_string(nodes_[j]->port()),
                                std::to_string(nodes_[j]->bus_port())});
    }
  }
  const bool met = eventually([&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      const std::string known = node->command({"CLUSTER", "NODES"}).text;
      return known.find("handshake") == std::string::npos &&
             std::all_of(ids_.begin(), ids_.end(), [&](const std::string& id) {
               return known.find(id) != std::string::npos;
             });
    });
  });
  if (!met) fail("the nodes do not find each other");
}

void redis_cluster::attach_replicas() {
  for (std::size_t master = 0; master < options_.masters; ++master) {
    for (std::size_t i = 0; i < options_.replicas; ++i) {
      (void)replica(master, i).command({"CLUSTER", "REPLICATE", id_of(master)});
    }
  }
  for (std::size_t i = options_.masters; i < nodes_.size(); ++i) {
    redis_probe probe{nodes_[i]->address()};
    if (!eventually([&] { return probe.info("master_link_status") == "up"; })) {
      fail("a replica does not come online");
    }
  }
}

void redis_cluster::wait_until_ok() {
  const bool good = eventually([&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
      return !node->running() || cluster_info(*node, "cluster_state") == "ok";
    });
  });
  if (!good) fail("the state does not become ok");
}

std::vector<std::uint16_t> redis_cluster::ports() const {
  std::vector<std::uint16_t> ports;
  for (const auto& node : nodes_) ports.push_back(node->port());
  return ports;
}

std::size_t redis_cluster::owner_of(std::uint16_t slot) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->running() && serves(*nodes_[i], slot)) return i;
  }
  fail("nobody serves slot " + std::to_string(slot));
}

void redis_cluster::begin_migration(std::uint16_t slot, std::size_t to, keys what) {
  const std::size_t from = owner_of(slot);
  const std::string number = std::to_string(slot);
  if (from == to) fail("slot " + number + " is there already");
  (void)nodes_[to]->command({"CLUSTER", "SETSLOT", number, "IMPORTING", id_of(from)});
  (void)nodes_[from]->command({"CLUSTER", "SETSLOT", number, "MIGRATING", id_of(to)});
  if (what == keys::move) move_keys(slot, from, to);
}

void redis_cluster::move_keys(std::uint16_t slot, std::size_t from, std::size_t to) {
  redis_probe source{nodes_[from]->address()};
  const redis_address& target = nodes_[to]->address();
  for (;;) {
    const std::vector<std::string> names =
        source
            .expect({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), std::to_string(keys_a_step)})
            .texts();
    if (names.empty()) return;
    redis_probe::words migrate{"MIGRATE", "127.0.0.1", std::to_string(target.port),
                               "",        "0",         "5000"};
    if (!target.user.empty()) {
      migrate.insert(migrate.end(), {"AUTH2", target.user, target.password});
    } else if (!target.password.empty()) {
      migrate.insert(migrate.end(), {"AUTH", target.password});
    }
    migrate.emplace_back("KEYS");
    migrate.insert(migrate.end(), names.begin(), names.end());
    (void)source.expect(migrate);
  }
}

void redis_cluster::finish_migration(std::uint16_t slot, std::size_t to) {
  const std::size_t from = owner_of(slot);
  const std::string number = std::to_string(slot);
  move_keys(slot, from, to);
  // The new owner first: a crash in between leaves a slot with an owner.
  (void)nodes_[to]->command({"CLUSTER", "SETSLOT", number, "NODE", id_of(to)});
  (void)nodes_[from]->command({"CLUSTER", "SETSLOT", number, "NODE", id_of(to)});
  for (std::size_t i = 0; i < options_.masters; ++i) {
    if (i == from || i == to || !nodes_[i]->running()) continue;
    (void)nodes_[i]->command({"CLUSTER", "SETSLOT", number, "NODE", id_of(to)});
  }
  if (!eventually([&] { return owner_of(slot) == to; })) fail("slot " + number + " did not move");
}

void redis_cluster::abandon_migration(std::uint16_t slot, std::size_t to) {
  const std::size_t from = owner_of(slot);
  const std::string number = std::to_string(slot);
  // In this order: a node that migrates takes no keys, and one that does not import gives none.
  (void)nodes_[from]->command({"CLUSTER", "SETSLOT", number, "STABLE"});
  move_keys(slot, to, from);
  (void)nodes_[to]->command({"CLUSTER", "SETSLOT", number, "STABLE"});
}

void redis_cluster::fail(const std::string& what) {
  std::string text = "cluster: " + what;
  for (const auto& node : nodes_) text += "\n" + node->log_tail();
  throw kit_error(text);
}

}  // namespace sallyport::kit
