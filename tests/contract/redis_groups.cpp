#include "tests/contract/redis_groups.hpp"

#include "tests/kit/redis_cluster.hpp"
#include "tests/kit/redis_sentinel.hpp"

#include <cstdint>

namespace sallyport::contract {
namespace {

std::string places(const std::vector<std::uint16_t>& ports) {
  std::string all;
  for (const std::uint16_t port : ports) {
    all += (all.empty() ? "" : ",") + ("127.0.0.1:" + std::to_string(port));
  }
  return all;
}

class sentinels final : public redis_group {
 public:
  [[nodiscard]] std::string address() const override {
    return "redis+sentinel://" + places(group_.sentinel_ports()) + "/" + group_.master_name();
  }
  [[nodiscard]] std::string unreachable() const override {
    return "redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster";
  }
  [[nodiscard]] std::vector<kit::redis_address> masters() override {
    return {group_.master().address()};
  }

 private:
  kit::redis_sentinel_group group_{{.replicas = 1}};
};

class cluster final : public redis_group {
 public:
  [[nodiscard]] std::string address() const override {
    return "redis+cluster://" + places(cluster_.ports());
  }
  [[nodiscard]] std::string unreachable() const override {
    return "redis+cluster://127.0.0.1:1,127.0.0.1:2";
  }
  [[nodiscard]] std::vector<kit::redis_address> masters() override {
    std::vector<kit::redis_address> all;
    for (std::size_t i = 0; i < cluster_.masters(); ++i) all.push_back(cluster_.node(i).address());
    return all;
  }

 private:
  kit::redis_cluster cluster_;
};

}  // namespace

std::unique_ptr<redis_group> make_redis_group(std::string_view setup) {
  if (setup == "sentinel") return std::make_unique<sentinels>();
  if (setup == "cluster") return std::make_unique<cluster>();
  return nullptr;
}

}  // namespace sallyport::contract
