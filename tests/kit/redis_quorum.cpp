#include "tests/kit/redis_quorum.hpp"

#include "tests/kit/redis_leftovers.hpp"

#include <array>
#include <cstdio>
#include <functional>

namespace sallyport::kit {
namespace {

std::string run_id_of(redis_probe& probe) {
  const std::string info = probe.expect({"INFO", "server"}).text;
  const std::string before = "run_id:";
  const auto at = info.find(before) + before.size();
  return info.substr(at, info.find('\r', at) - at);
}

std::string id_of(std::size_t node) {
  const std::string number = std::to_string(node);
  return std::string(16 - number.size(), '0') + number;
}

/// What the store is called: another one for every quorum, and for every prefix of it.
std::string store_of(redis_probe first, std::string_view prefix) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016zx", std::hash<std::string_view>{}(prefix));
  return run_id_of(first).substr(0, 16) + digits.data();
}

bool keeps_everything(redis_probe& probe) {
  const auto setting = [&](const char* name) {
    return probe.expect({"CONFIG", "GET", name}).items.at(1).text;
  };
  return setting("appendonly") == "yes" && setting("appendfsync") == "always" &&
         setting("no-appendfsync-on-rewrite") == "no";
}

}  // namespace

redis_quorum::redis_quorum(std::size_t nodes, const redis_options& each)
    : redis_quorum(std::vector<redis_options>(nodes, each)) {}

redis_quorum::redis_quorum(const std::vector<redis_options>& all) {
  for (const redis_options& each : all) servers_.push_back(std::make_unique<redis_server>(each));
}

std::string redis_quorum::address() const {
  std::string all = "redlock://";
  for (const auto& each : servers_) {
    if (&each != &servers_.front()) all += ',';
    all += "127.0.0.1:" + std::to_string(each->port());
  }
  return all;
}

void redis_quorum::initialise(std::string_view prefix, std::chrono::milliseconds max_lease) const {
  // As src/backends/redlock/membership.hpp has it. Of the stamp it matters only that no other mark has it.
  std::string members;
  for (std::size_t i = 0; i < size(); ++i) {
    members += ' ' + id_of(i) + " 127.0.0.1:" + std::to_string(servers_[i]->port());
  }
  const std::string store = store_of(servers_.front()->probe(), prefix);
  for (std::size_t i = 0; i < size(); ++i) {
    auto probe = servers_[i]->probe();
    std::string mark = "sp3 5" + id_of(i).substr(1) + " f " + store + " 1 ";
    mark += std::to_string(max_lease.count()) + ' ' + run_id_of(probe);
    mark += (keeps_everything(probe) ? " d 0 " : " - 0 ") + id_of(i) + members;
    probe.expect({"SET", std::string(prefix) + "\x01quorum-member", mark});
  }
}

std::vector<std::string> redis_quorum::leftovers(std::string_view prefix) {
  std::vector<std::string> all;
  for (const auto& each : servers_) {
    if (!each->awake()) continue;
    auto probe = each->probe();
    for (std::string& key : kit::leftovers(probe)) {
      if (key.starts_with(prefix)) all.push_back(std::move(key));
    }
  }
  return all;
}

std::size_t redis_quorum::parts(std::string_view prefix) {
  std::size_t all = 0;
  for (const auto& each : servers_) {
    if (!each->awake()) continue;
    auto probe = each->probe();
    for (const std::string& key : kit::leftovers(probe)) {
      if (key.starts_with(prefix)) all += parts_of(probe, key);
    }
  }
  return all;
}

}  // namespace sallyport::kit
