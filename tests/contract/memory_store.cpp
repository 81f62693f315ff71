#include "tests/contract/kit/store_under_test.hpp"

#include <atomic>
#include <string>

namespace sallyport::contract {

const store_under_test& the_store() {
  static const store_under_test memory{
      .name = "memory",
      .make = []() -> std::unique_ptr<fresh_store> {
        static std::atomic<int> made{0};
        return std::make_unique<plain_store>("memory:contract-" + std::to_string(++made));
      },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = false,
                 .tells_kind = true,
                 .survives_store_restart = false,
                 .min_lease = std::chrono::milliseconds{20},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{300},
      .clients_share = true,
      .processes_share = false,
      .unreachable_address = std::nullopt,
  };
  return memory;
}

}  // namespace sallyport::contract
