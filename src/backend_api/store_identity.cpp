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

store_identity::store_identity(std::string_view scheme, std::string_view named_by_hand)
    : scheme_(scheme), by_hand_(!named_by_hand.empty()) {
  if (by_hand_) static_cast<void>(learn(named_by_hand));
}

base::result<void> store_identity::learn(std::string_view name) {
  std::string before;
  {
    const base::mutex_lock lock(mutex_);
    if (by_hand_ && !all_.empty()) return {};
    if (!acceptable_store_name(name)) {
      return base::fail(errc::store_refused, "what the store keeps as its name is none; " +
                                                 std::string(store_names_are));
    }
    std::string id = scheme_ + ":" + std::string(name);
    if (!all_.empty() && all_.back() == id) return {};
    if (all_.size() >= most_names) {
      return base::fail(errc::store_refused, "the store has another name at every look");
    }
    if (!all_.empty()) before = all_.back();
    latest_.store(&all_.emplace_back(std::move(id)), std::memory_order_release);
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
