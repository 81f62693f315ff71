#include "backends/sql/test_live_store.hpp"
#include "base/random.hpp"
#include "tests/kit/small_disk.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What becomes of locks when the server's disk is full.
namespace sallyport::sql_live {
namespace {

constexpr std::size_t disk_bytes = std::size_t{128} << 20;
constexpr int most_leaders = 200;

/// What a server can't make smaller, and keeps within the row.
std::string long_value() {
  base::random random(7);
  std::string value(1500, '\0');
  std::ranges::generate(value, [&] { return static_cast<char>(random.below(256)); });
  return value;
}

TEST(FullDisk, LetsHoldersRenewAndReleaseAndTellsOthersThatItIsFull) {
  kit::small_disk disk{disk_bytes};
  const auto server = start_server_in(disk.path());
  fault_proxy network{server->port()};
  const auto watcher = std::make_shared<metrics>();
  auto options = quick();
  options.watcher = watcher;
  options.store_patience = 300ms;
  const auto store = open(address_at(network.port()), options);
  mutex door{store, "door", lasting(900ms)};
  auto held = door.acquire();
  const auto goes_on = [&] {
    const auto renewed = watcher->read().renewed;
    return eventually([&] { return watcher->read().renewed >= renewed + 3; });
  };

  disk.fill();
  std::vector<lease> leaders;
  told trouble;
  for (int i = 0; i < most_leaders && !trouble.code; ++i) {
    election seat{store, "seat " + std::to_string(i), lasting()};
    trouble = error_of([&] {
      if (auto leads = seat.try_campaign(long_value())) leaders.push_back(std::move(*leads));
    });
  }
  EXPECT_EQ(trouble.code, errc::unavailable) << trouble.text;
  EXPECT_TRUE(trouble.says("full") || trouble.says("No space left")) << trouble.text;
  EXPECT_TRUE(goes_on());
  network.close_all();
  EXPECT_TRUE(goes_on()) << "after a reconnect";
  EXPECT_EQ(held.release(), release_result::released);

  disk.make_room();
  // A busy server takes its time to be itself again.
  client_options patient = quick();
  patient.request_timeout = patience;
  mutex same_door{open(server->address(), patient), "door", lasting()};
  auto again = same_door.acquire();
  EXPECT_EQ(again.release(), release_result::released);
  leaders.clear();
  EXPECT_TRUE(nothing_is_left(*server));
}

}  // namespace
}  // namespace sallyport::sql_live
