#pragma once

#include "tests/kit/redis_probe.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::contract {

/// Several servers as one store.
class redis_group {
 public:
  redis_group() = default;
  redis_group(const redis_group&) = delete;
  redis_group& operator=(const redis_group&) = delete;
  virtual ~redis_group() = default;

  /// An address without options.
  [[nodiscard]] virtual std::string address() const = 0;
  /// One of the same kind where nobody answers.
  [[nodiscard]] virtual std::string unreachable() const = 0;
  /// Where to look for what locks have left.
  [[nodiscard]] virtual std::vector<kit::redis_address> masters() = 0;
};

/// What SALLYPORT_REDIS_SETUP names: "sentinel" (three sentinels, a master, a replica) or "cluster"
/// (three masters). Null: it is neither.
[[nodiscard]] std::unique_ptr<redis_group> make_redis_group(std::string_view setup);

}  // namespace sallyport::contract
