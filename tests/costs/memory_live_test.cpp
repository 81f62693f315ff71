#include "tests/costs/cost.hpp"
#include "tests/costs/counted_malloc.hpp"
#include "tests/costs/stores.hpp"
#include "tests/kit/own_process.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::costs {
namespace {

/// Heap of each of very many leases; their mutex objects are kept or not.
double heap_of_each(bool keep_locks) {
  constexpr std::size_t lease_count = 100'000;
  const auto store = client::open("memory:");
  // A first lock, so that what a client costs once is not counted as a lease's.
  static_cast<void>(mutex{store, "orders/first"}.acquire());

  const double before = kit::read_memory_use().heap;
  std::vector<std::unique_ptr<mutex>> locks;
  std::vector<lease> leases;
  if (keep_locks) locks.reserve(lease_count);
  leases.reserve(lease_count);
  for (std::size_t i = 0; i < lease_count; ++i) {
    auto lock = std::make_unique<mutex>(store, "orders/" + std::to_string(1'000'000 + i));
    leases.push_back(lock->acquire());
    if (keep_locks) locks.push_back(std::move(lock));
  }
  return (kit::read_memory_use().heap - before) / static_cast<double>(lease_count);
}

TEST(Heap, OfALease) { EXPECT_TRUE(keeps_to(heap_of_lease, heap_of_each(false))); }

TEST(Heap, OfALeaseAndItsMutex) {
  EXPECT_TRUE(keeps_to(heap_of_lease_and_mutex, heap_of_each(true)));
}

/// Allocations of a pair that meets nobody, after what is allocated once is there.
double allocations_of_pair(const std::string& address) {
  constexpr int pairs = 200;
  mutex lock{client::open(address), "door"};
  const auto take_and_give_back = [&lock] {
    for (int i = 0; i < pairs; ++i) {
      EXPECT_EQ(lock.acquire().release(), release_result::released);
    }
  };
  take_and_give_back();
  return least_of(5, [&] {
    const std::uint64_t before = allocations();
    take_and_give_back();
    return static_cast<double>(allocations() - before) / pairs;
  });
}

TEST(Allocations, OfAPairInMemory) {
  EXPECT_TRUE(keeps_to(allocations_memory, allocations_of_pair(memory_store())));
}

TEST(Allocations, OfAPairOnLocal) {
  const local_store store;
  EXPECT_TRUE(keeps_to(allocations_local, allocations_of_pair(store.address())));
}

TEST(Allocations, OfAPairOnRedis) {
  const redis_store store;
  EXPECT_TRUE(keeps_to(allocations_redis, allocations_of_pair(store.address())));
}

}  // namespace
}  // namespace sallyport::costs
