#include "tests/redis_model/others.hpp"

namespace sallyport::redis_model {

words foreign_use(base::random& luck, const std::string& lock_key) {
  switch (luck.below(7)) {
    case 0:
    case 1:
      return {"SET", lock_key, "somebody", "NX", "PX", std::to_string(1 + luck.below(50))};
    case 2:
      return {"SET", lock_key, "somebody", "XX", "PX", std::to_string(1 + luck.below(50))};
    case 3:
      return {"DEL", lock_key};
    case 4:
      return {"SET", lock_key, "somebody"};
    case 5:
      return {"SCRIPT", "FLUSH"};
    default:
      // As Redisson does: never into a hash of ours, whose order is nobody's business.
      return {"EVAL",
              "return redis.call('exists', KEYS[1]) == 0 and redis.call('hset', KEYS[1], 'uuid:1', "
              "1)",
              "1", lock_key};
  }
}

words damage(base::random& luck, const std::string& key, const std::string& lock_key) {
  switch (luck.below(8)) {
    case 0:
      return {"SET", key, luck.chance(0.5) ? "sp1 x" : "5"};
    case 1:
    case 2:
      return {"DEL", key};
    case 3:
      return {"ZADD", key, "1", "somebody"};
    case 4:
      return {"PEXPIRE", key, std::to_string(luck.below(50))};
    case 5:
      return {"PERSIST", key};
    case 6:
      return luck.chance(0.3) ? words{"FLUSHALL"} : words{"GET", key};
    default:
      return foreign_use(luck, lock_key);
  }
}

std::chrono::microseconds clock_step(base::random& luck) {
  const auto kind = luck.below(20);
  if (kind < 10) return std::chrono::microseconds{luck.below(1500)};
  if (kind < 18) return std::chrono::milliseconds{luck.below(8)};
  if (kind < 19) return std::chrono::milliseconds{luck.below(100)};
  return -std::chrono::milliseconds{luck.below(20)};
}

}  // namespace sallyport::redis_model
