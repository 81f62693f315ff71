#include "backend_api/store_identity.hpp"

#include "base/log.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace sallyport::backend_api {
namespace {

constexpr std::size_t longest_name = 64;
constexpr std::size_t fresh_name_bytes = 16;

bool acceptable(char each) noexcept {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
         (each >= '0' && each <= '9') || each == '.' || each == '_' || each == '-';
}

/// Without what would make two ids one, or what an SQL setting can't hold: '|' ends a store's id in
/// the text of a lock.
std::string in_an_id(std::string_view bytes) {
  std::string out;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '|' || each == '%' || byte <= 0x20 || byte >= 0x7f) {
      constexpr std::string_view digits = "0123456789abcdef";
      out += '%';
      out += digits[byte >> 4U];
      out += digits[byte & 0xfU];
    } else {
      out += each;
    }
  }
  return out;
}

}  // namespace

bool acceptable_store_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, &acceptable);
}

std::string fresh_store_name() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::array<std::uint8_t, fresh_name_bytes> bytes{};
  base::fill_from_kernel(std::as_writable_bytes(std::span(bytes)));
  std::string name;
  for (const std::uint8_t each : bytes) {
    name += digits[each >> 4U];
    name += digits[each & 0xfU];
  }
  return name;
}

store_identity::store_identity(std::string_view scheme, std::string_view named_by_hand,
                               std::string_view place)
    : scheme_(scheme), by_hand_(!named_by_hand.empty()) {
  if (!by_hand_) return;
  const base::mutex_lock lock(mutex_);
  latest_.store(&all_.emplace_back(scheme_ + ":" + std::string(named_by_hand) + in_an_id(place)),
                std::memory_order_release);
}

base::result<void> store_identity::learn(std::string_view name) {
  std::string before;
  {
    const base::mutex_lock lock(mutex_);
    if (by_hand_) return {};
    if (!acceptable_store_name(name)) {
      return base::fail(errc::store_refused, "what the store keeps as its name is none; " +
                                                 std::string(store_names_are));
    }
    std::string id = scheme_ + ":" + std::string(name);
    const std::string& latest = *latest_.load(std::memory_order_relaxed);
    if (latest == id) return {};
    before = latest;
    // Two stores behind one address, say, are met in turns.
    const auto known = std::ranges::find(all_, id);
    if (known != all_.end()) {
      latest_.store(&*known, std::memory_order_release);
    } else if (all_.size() >= most_names) {
      return base::fail(errc::store_refused, "the store has another name at every look");
    } else {
      latest_.store(&all_.emplace_back(std::move(id)), std::memory_order_release);
    }
  }
  if (!before.empty()) {
    base::log(base::log_level::warning,
              "the store was called " + before + " and is called " + id() +
                  " now: it has lost its data, or is another one. Fencing gates refuse its tokens "
                  "until they are bound anew ('sallyport fence rebind')");
  }
  return {};
}

}  // namespace sallyport::backend_api
