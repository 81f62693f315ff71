#include "base/check.hpp"
#include "client/lock_core.hpp"
#include <sallyport/lock_all.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>

namespace sallyport {

struct lease_set::contents {
  std::vector<lease> leases;       // in the order of the caller
  std::vector<std::size_t> taken;  // indices in the order of taking
  std::stop_source gone;
  std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> watches;
};

lease_set::lease_set(std::unique_ptr<contents> inside) noexcept : inside_(std::move(inside)) {}
lease_set::lease_set(lease_set&&) noexcept = default;

lease_set& lease_set::operator=(lease_set&& other) noexcept {
  if (this != &other) {
    release();
    inside_ = std::move(other.inside_);
  }
  return *this;
}

lease_set::~lease_set() { release(); }

std::size_t lease_set::size() const noexcept { return inside_ ? inside_->leases.size() : 0; }

const lease& lease_set::operator[](std::size_t index) const {
  SALLYPORT_CHECK(index < size());
  return inside_->leases[index];
}

bool lease_set::valid() const noexcept {
  return inside_ &&
         std::ranges::all_of(inside_->leases, [](const lease& each) { return each.valid(); });
}

lease_clock::time_point lease_set::deadline() const noexcept {
  auto earliest = lease_clock::time_point::max();
  for (std::size_t i = 0; i < size(); ++i)
    earliest = std::min(earliest, inside_->leases[i].deadline());
  return earliest;
}

std::stop_token lease_set::lost() const { return inside_->gone.get_token(); }

void lease_set::ensure_valid() const {
  for (std::size_t i = 0; i < size(); ++i) inside_->leases[i].ensure_valid();
}

void lease_set::release() noexcept {
  if (!inside_) return;
  inside_->watches.clear();
  for (auto index = inside_->taken.rbegin(); index != inside_->taken.rend(); ++index) {
    static_cast<void>(inside_->leases[*index].release());
  }
  inside_.reset();
}

namespace {

/// With less than this share of its length left a lease is not worth returning.
bool third_left(const lease& each) {
  return each.valid() && each.deadline() - lease_clock::now() >= each.length() / 3;
}

/// By store, then by name: the same order for everybody. What a store that was never reached is called
/// is not known; its locks come first, so that nothing is held while it is waited for.
std::vector<std::size_t> taking_order(std::span<mutex* const> mutexes) {
  std::vector<std::size_t> order(mutexes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t index) {
    const detail::lock_core& core = mutexes[index]->core();
    const std::string& store = core.owner().store().store_id();
    // Two stores without a name are two stores.
    const auto client = store.empty() ? reinterpret_cast<std::uintptr_t>(&core.owner()) : 0;
    return std::tuple{std::string_view{store}, client, std::string_view{core.spec().name.text()}};
  };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  const auto twice = std::ranges::adjacent_find(
      order, [&](std::size_t a, std::size_t b) { return key(a) == key(b); });
  if (twice != order.end()) {
    throw lock_error(make_error_code(errc::would_deadlock),
                     "lock_all: '" + mutexes[*twice]->name().text() + "' is named twice");
  }
  return order;
}

bool all_stores_known(std::span<mutex* const> mutexes) {
  return std::ranges::none_of(
      mutexes, [](const mutex* each) { return each->core().owner().store().store_id().empty(); });
}

void refuse_names_already_held(std::span<mutex* const> mutexes) {
  for (const mutex* each : mutexes) {
    detail::lock_core& core = each->core();
    core.owner().ensure_alive();
    if (core.owner().engine().holds(lock_kind::mutex, core.spec().name)) {
      throw lock_error(make_error_code(errc::would_deadlock),
                       "lock_all: '" + each->name().text() + "' is already held by this client");
    }
  }
}

}  // namespace

std::optional<lease_set> lock_all_until(std::span<mutex* const> mutexes,
                                        lease_clock::time_point deadline, std::stop_token stop) {
  constexpr int rounds =
      16;  // a lease that lapses while the others are taken is taken again, but not for ever
  refuse_names_already_held(mutexes);
  for (int round = 0; round < rounds; ++round) {
    const bool known = all_stores_known(mutexes);
    const std::vector<std::size_t> order = taking_order(mutexes);
    std::vector<std::optional<lease>> got(mutexes.size());
    for (const std::size_t index : order) {
      std::error_code error;
      got[index] = mutexes[index]->core().wait(deadline, stop, {}, error);
      if (error) detail::throw_failure(error);
      if (!got[index]) return std::nullopt;  // what was taken is released as `got` goes
      // Now that it has said its name, the order may be another one than everybody's.
      if (!known && taking_order(mutexes) != order) break;
    }
    if (!std::ranges::all_of(got, [](const auto& each) { return each.has_value(); })) continue;
    for (const std::size_t index : order) {
      mutexes[index]->core().owner().claim(*detail::client_state::record_of(*got[index]));
    }
    if (!std::ranges::all_of(got, [](const auto& each) { return third_left(*each); })) {
      if (lease_clock::now() >= deadline || stop.stop_requested()) return std::nullopt;
      continue;
    }
    auto inside = std::make_unique<lease_set::contents>();
    inside->taken = order;
    for (auto& each : got) {
      inside->leases.push_back(std::move(*each));
      inside->watches.push_back(std::make_unique<std::stop_callback<std::function<void()>>>(
          inside->leases.back().lost(), [gone = inside->gone]() mutable { gone.request_stop(); }));
    }
    return lease_set{std::move(inside)};
  }
  throw lock_error(
      make_error_code(errc::lease_lost),
      "lock_all: the leases lapse before all of them are taken; use a longer lease_length");
}

}  // namespace sallyport
