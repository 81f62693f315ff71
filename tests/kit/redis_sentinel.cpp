#include "tests/kit/redis_sentinel.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace sallyport::kit {

namespace {

using namespace std::chrono_literals;

/// The value of a field in a flat list of names and values.
std::string field(const redis_reply& reply, std::string_view name) {
  for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
    if (reply.items[i].text == name) return reply.items[i + 1].text;
  }
  return {};
}

}  // namespace

redis_sentinel_group::redis_sentinel_group(redis_sentinel_options options)
    : options_(std::move(options)) {
  servers_.push_back(std::make_unique<redis_server>(options_.server));
  redis_options replica = options_.server;
  replica.replica_of = servers_.front()->port();
  for (std::size_t i = 0; i < options_.replicas; ++i) {
    servers_.push_back(std::make_unique<redis_server>(replica));
  }
  redis_probe master{servers_.front()->address()};
  const bool online = eventually([&] {
    std::size_t found = 0;
    for (std::size_t i = 0; i < options_.replicas; ++i) {
      const std::string line = master.info("slave" + std::to_string(i));
      if (line.find("state=online") != std::string::npos) ++found;
    }
    return found == options_.replicas;
  });
  if (!online) fail("the replicas do not come online");

  for (std::size_t i = 0; i < options_.sentinels; ++i) start_sentinel();
  if (!eventually([&] { return all_know_each_other(); })) {
    fail("the sentinels do not find each other and the replicas");
  }
}

void redis_sentinel_group::start_sentinel() {
  const std::string& name = options_.master_name;
  const redis_address& watched = servers_.front()->address();
  const std::size_t quorum = options_.sentinels / 2 + 1;
  redis_options sentinel{.password = options_.sentinel_password, .sentinel = true};
  sentinel.config = {
      "sentinel monitor " + name + " 127.0.0.1 " + std::to_string(watched.port) + " " +
          std::to_string(quorum),
      "sentinel down-after-milliseconds " + name + " " +
          std::to_string(options_.down_after.count()),
      "sentinel failover-timeout " + name + " " + std::to_string(options_.failover_timeout.count()),
  };
  if (!watched.user.empty()) {
    sentinel.config.push_back("sentinel auth-user " + name + " " + watched.user);
  }
  if (!watched.password.empty()) {
    sentinel.config.push_back("sentinel auth-pass " + name + " " + watched.password);
  }
  if (!options_.sentinel_password.empty()) {
    sentinel.config.push_back("sentinel sentinel-pass " + options_.sentinel_password);
  }
  sentinels_.push_back(std::make_unique<redis_server>(std::move(sentinel)));
  hurry(*sentinels_.back());
}

/// By default they publish every 2 s, ask servers every 10 s, and do nothing for 30 s after a pause
/// of their own that a busy machine may cause. Not their pings: a replica is good for a failover
/// only if it was asked within five of these periods, and without a master it is asked once a second.
void redis_sentinel_group::hurry(const redis_server& sentinel) const {
  (void)sentinel.command({"SENTINEL", "DEBUG", "INFO-PERIOD", "100", "PUBLISH-PERIOD", "100",
                          "ASK-PERIOD", "100", "TILT-TRIGGER", "60000"});
}

bool redis_sentinel_group::all_know_each_other() {
  const auto knows = [&](const std::unique_ptr<redis_server>& sentinel) {
    redis_probe probe{sentinel->address()};
    const redis_reply master = probe.command({"SENTINEL", "MASTER", options_.master_name});
    if (field(master, "num-slaves") != std::to_string(options_.replicas) ||
        field(master, "num-other-sentinels") != std::to_string(options_.sentinels - 1) ||
        field(master, "flags") != "master") {
      return false;
    }
    // A replica is not chosen before it has told that its link to the master is good.
    const redis_reply replicas = probe.command({"SENTINEL", "REPLICAS", options_.master_name});
    return std::all_of(replicas.items.begin(), replicas.items.end(), [](const redis_reply& one) {
      return field(one, "flags") == "slave" && field(one, "master-link-status") == "ok";
    });
  };
  return std::all_of(sentinels_.begin(), sentinels_.end(), knows);
}

std::vector<std::uint16_t> redis_sentinel_group::sentinel_ports() const {
  std::vector<std::uint16_t> ports;
  for (const auto& sentinel : sentinels_) ports.push_back(sentinel->port());
  return ports;
}

std::uint16_t redis_sentinel_group::current_master_port() {
  std::map<std::string, std::size_t> votes;
  for (const auto& sentinel : sentinels_) {
    try {
      redis_probe probe{sentinel->address(), 1s};
      const redis_reply reply =
          probe.command({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", options_.master_name}, 1s);
      if (reply.items.size() == 2) ++votes[reply.items[1].text];
    } catch (const kit_error&) {
      // A sentinel that is gone has no vote.
    }
  }
  for (const auto& [port, count] : votes) {
    if (2 * count > sentinels_.size()) return static_cast<std::uint16_t>(std::stoul(port));
  }
  return 0;
}

redis_server& redis_sentinel_group::server_with_port(std::uint16_t port) {
  for (const auto& server : servers_) {
    if (server->port() == port) return *server;
  }
  fail("no server has the port " + std::to_string(port));
}

redis_server& redis_sentinel_group::begin_fail_over(how taken_away) {
  redis_server& old = master();
  switch (taken_away) {
    case how::kill:
      old.kill();
      break;
    case how::pause:
      old.pause();
      break;
  }
  return old;
}

redis_server& redis_sentinel_group::fail_over(how taken_away) {
  redis_server& old = begin_fail_over(taken_away);
  wait_until_settled();
  return old;
}

void redis_sentinel_group::wait_until_settled() {
  // When two sentinels stand for election at once, nobody may win, and the next one is a while off.
  if (!eventually([&] { return settled(); }, patience + 4 * options_.failover_timeout)) {
    fail("the sentinels do not settle on a master");
  }
}

bool redis_sentinel_group::settled() {
  const std::uint16_t port = current_master_port();
  if (port == 0 || !server_with_port(port).awake()) return false;
  const auto agrees = [&](const std::unique_ptr<redis_server>& sentinel) {
    if (!sentinel->awake()) return true;
    const redis_reply master = sentinel->command({"SENTINEL", "MASTER", options_.master_name});
    return field(master, "port") == std::to_string(port) && field(master, "flags") == "master";
  };
  const auto has_its_role = [&](const std::unique_ptr<redis_server>& server) {
    if (!server->awake()) return true;
    redis_probe probe{server->address()};
    if (server->port() == port) return probe.info("role") == "master";
    return probe.info("role") == "slave" && probe.info("master_port") == std::to_string(port) &&
           probe.info("master_link_status") == "up";
  };
  return std::all_of(sentinels_.begin(), sentinels_.end(), agrees) &&
         std::all_of(servers_.begin(), servers_.end(), has_its_role);
}

void redis_sentinel_group::wait_until_replica(redis_server& server) {
  const bool follows = eventually([&] {
    redis_probe probe{server.address()};
    return probe.info("role") == "slave" &&
           probe.info("master_port") == std::to_string(current_master_port()) &&
           probe.info("master_link_status") == "up";
  });
  if (!follows) fail("the server on port " + std::to_string(server.port()) + " follows nobody");
}

std::string redis_sentinel_group::log_tails() const {
  std::string text;
  for (const auto& server : servers_) text += server->log_tail() + "\n";
  for (const auto& sentinel : sentinels_) text += sentinel->log_tail() + "\n";
  return text;
}

void redis_sentinel_group::fail(const std::string& what) const {
  throw kit_error("sentinel group: " + what + "\n" + log_tails());
}

}  // namespace sallyport::kit
