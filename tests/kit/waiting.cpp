#include "tests/kit/waiting.hpp"

#include <algorithm>
#include <poll.h>
#include <system_error>

namespace sallyport::kit {

namespace {

constexpr std::chrono::milliseconds longest_nap{10};

bool holds_now(const std::function<bool()>& holds) {
  try {
    return holds();
  } catch (const kit_error&) {
    return false;
  }
}

}  // namespace

bool eventually(const std::function<bool()>& holds, lease_clock::duration within) {
  const auto give_up = lease_clock::now() + within;
  // Short naps at first, because most things are there at once.
  for (std::chrono::milliseconds nap{1};; nap = std::min(2 * nap, longest_nap)) {
    if (holds_now(holds)) return true;
    if (lease_clock::now() >= give_up) return false;
    ::poll(nullptr, 0, static_cast<int>(nap.count()));
  }
}

std::string error_text(int number) { return std::generic_category().message(number); }

int milliseconds_until(lease_clock::time_point when) {
  constexpr std::chrono::milliseconds most{std::chrono::hours{1}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - lease_clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds{0}, most).count());
}

}  // namespace sallyport::kit
