#include "tests/kit/redis_quorum.hpp"

#include "tests/kit/redis_leftovers.hpp"

namespace sallyport::kit {
namespace {

std::string run_id_of(redis_probe& probe) {
  const std::string info = probe.expect({"INFO", "server"}).text;
  const std::string before = "run_id:";
  const auto at = info.find(before) + before.size();
  return info.substr(at, info.find('\r', at) - at);
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
  const std::string store = "0123456789abcdef0123456789abcdef";
  for (const auto& each : servers_) {
    auto probe = each->probe();
    probe.expect({"SET", std::string(prefix) + "\x01quorum-member",
                  "sp2 " + store + ' ' + std::to_string(size()) + ' ' +
                      std::to_string(max_lease.count()) + ' ' + run_id_of(probe)});
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

}  // namespace sallyport::kit
