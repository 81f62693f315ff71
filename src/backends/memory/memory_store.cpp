#include "backends/memory/memory_store.hpp"

#include "base/fork_generation.hpp"
#include "base/random.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

namespace sallyport::backends::memory {

namespace {

/// The named stores of this process. A forked child does not meet its parent's: their mutexes may
/// be held by threads that the child does not have.
struct store_registry {
  using key = std::pair<std::uint32_t, std::string>;  // fork generation, name

  base::mutex mutex;
  std::map<key, std::weak_ptr<memory_store>> stores SALLYPORT_GUARDED_BY(mutex);
  // Above every token of a named store that was closed, so that tokens go on growing when the name
  // is opened again.
  fencing_token closed_stores_top SALLYPORT_GUARDED_BY(mutex);
  // Part of the stores' ids: two processes that use one name are two token spaces.
  std::optional<std::pair<std::uint32_t, std::string>> process_mark SALLYPORT_GUARDED_BY(mutex);
};

store_registry& registry() {
  // Never destroyed: clients in static storage may close after it would have been.
  static auto* const only = new store_registry;
  return *only;
}

std::string random_mark() {
  std::array<char, 16> digits{};
  const auto written =
      std::to_chars(digits.data(), digits.data() + digits.size(), base::kernel_seed(), 16);
  return {digits.data(), written.ptr};
}

}  // namespace

std::shared_ptr<memory_store> memory_store::make_private() {
  return std::make_shared<memory_store>("memory:#" + random_mark(), fencing_token{});
}

std::shared_ptr<memory_store> memory_store::find_or_make(std::string_view name) {
  const std::uint32_t generation = base::fork_generation();
  store_registry& all = registry();
  const base::mutex_lock lock(all.mutex);
  std::weak_ptr<memory_store>& known = all.stores[{generation, std::string(name)}];
  if (auto existing = known.lock()) return existing;

  if (!all.process_mark || all.process_mark->first != generation) {
    all.process_mark.emplace(generation, random_mark());
  }
  auto made = std::make_shared<memory_store>(
      "memory:" + std::string(name) + "#" + all.process_mark->second, all.closed_stores_top);
  known = made;
  std::erase_if(all.stores, [](const auto& entry) { return entry.second.expired(); });
  return made;
}

std::shared_ptr<session> memory_store::join(backend_api::events& listener,
                                            backend_api::owner_info owner) {
  auto shared_owner = std::make_shared<const backend_api::owner_info>(std::move(owner));
  const base::mutex_lock lock(mutex_);
  const client_number number = ++last_client_;
  auto joined = std::make_shared<session>(listener, requester{number, std::move(shared_owner)});
  sessions_.emplace(number, joined);
  return joined;
}

void memory_store::leave(const session& leaver) {
  fencing_token top;
  {
    const base::mutex_lock lock(mutex_);
    table_.forget(leaver.self.client);
    sessions_.erase(leaver.self.client);
    top = table_.last_token();
  }
  // Before the leaver lets go of the store: afterwards the name may be opened anew at once.
  store_registry& all = registry();
  const base::mutex_lock lock(all.mutex);
  all.closed_stores_top = std::max(all.closed_stores_top, top);
}

void memory_store::address(std::vector<notice>&& notices, std::vector<delivery>& deliveries) {
  deliveries.reserve(deliveries.size() + notices.size());
  for (notice& each : notices) {
    // A client that left may still own tickets: nobody is told then, and the claim window ends the
    // grant.
    const auto to = sessions_.find(each.client);
    if (to != sessions_.end()) deliveries.push_back({to->second, std::move(each)});
  }
}

void deliver(const std::vector<delivery>& deliveries) {
  for (const auto& [to, what] : deliveries) {
    const backend_api::delivery_gate::pass pass(to->gate);
    if (!pass.open()) continue;
    switch (what.kind) {
      case notice_kind::granted:
        to->listener.granted_notice(what.holder, what.grant);
        break;
      case notice_kind::lost:
        to->listener.lost_notice(what.holder);
        break;
      case notice_kind::changed:
        to->listener.changed_notice(what.name);
        break;
    }
  }
}

}  // namespace sallyport::backends::memory
