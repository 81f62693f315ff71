#include "tests/contract/kit/store_under_test.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace sallyport::contract {
namespace {

std::unique_ptr<fresh_store> make() {
  static std::atomic<int> made{0};
  return std::make_unique<plain_store>("memory:contract-" + std::to_string(++made));
}

capabilities claims() {
  capabilities all = all_claims();
  all.survives_store_restart = false;
  all.min_lease = std::chrono::milliseconds{20};
  return all;
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test memory{
      .name = "memory",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::milliseconds{300},
      .clients_share = true,
      .processes_share = false,
      .unreachable_address = std::nullopt,
  };
  return memory;
}

}  // namespace sallyport::contract
