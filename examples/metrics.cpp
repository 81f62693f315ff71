// Counting what locks do, and hearing of what should not happen.

#include <sallyport/sallyport.hpp>

#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>

using namespace std::chrono_literals;

namespace {

/// An observer of one's own: override what you need.
class loss_alarm final : public sallyport::observer {
 public:
  void lost(const sallyport::lock_event& event) override {
    const std::chrono::duration<double, std::milli> held = event.took;
    std::cout << "ALARM: '" << event.name << "' was lost after " << held.count()
              << " ms: " << to_string(event.reason) << ' ' << event.detail << '\n';
    rung_.set_value();
  }
  void store_away(const sallyport::store_event& event) override {
    std::cout << "ALARM: the store is away: " << event.detail << '\n';
  }
  void store_back(const sallyport::store_event& event) override {
    const std::chrono::duration<double> away = event.away;
    std::cout << "the store is back after " << away.count() << " s\n";
  }
  std::future<void> rung() { return rung_.get_future(); }

 private:
  std::promise<void> rung_;
};

}  // namespace

int main() {
  const auto counters = std::make_shared<sallyport::metrics>();
  {
    const auto client = sallyport::client::open("memory:", {.watcher = counters});
    sallyport::mutex lock{client, "counted"};
    for (int i = 0; i < 3; ++i) {
      const std::scoped_lock guard{lock};
      if (lock.try_acquire_for(1ms)) return EXIT_FAILURE;
    }
  }  // closing the client delivers what was still to be told
  const auto seen = counters->read();
  std::cout << "acquired " << seen.acquired << ", released " << seen.released << ", not acquired "
            << seen.not_acquired << ", lost " << seen.lost << '\n';
  if (seen.acquired != 3 || seen.released != 3 || seen.not_acquired != 3 || seen.lost != 0) {
    return EXIT_FAILURE;
  }

  // One that rings, and one that counts.
  const auto alarm = std::make_shared<loss_alarm>();
  auto rung = alarm->rung();
  const auto client = sallyport::client::open("memory:", {.watchers = {counters, alarm}});
  sallyport::mutex fixed{
      client, "fixed", {.lease_length = 100ms, .renew = sallyport::renewal::never}};
  const auto lease = fixed.acquire();
  if (rung.wait_for(20s) != std::future_status::ready) return EXIT_FAILURE;
  return lease.valid() || counters->read().lost != 1 ? EXIT_FAILURE : EXIT_SUCCESS;
}
