#include "tests/contract/kit/waiting.hpp"

#include <algorithm>
#include <poll.h>

namespace sallyport::contract {

namespace {

constexpr std::chrono::milliseconds longest_nap{10};

/// Between two looks: short at first, because most things are there at once.
void nap(std::chrono::milliseconds length) { ::poll(nullptr, 0, static_cast<int>(length.count())); }

}  // namespace

bool eventually(const std::function<bool()>& holds, lease_clock::duration within) {
  const auto give_up = lease_clock::now() + within;
  for (std::chrono::milliseconds length{1};; length = std::min(2 * length, longest_nap)) {
    if (holds()) return true;
    if (lease_clock::now() >= give_up) return false;
    nap(length);
  }
}

void wait_until(lease_clock::time_point when) {
  for (auto now = lease_clock::now(); now < when; now = lease_clock::now()) {
    nap(std::chrono::ceil<std::chrono::milliseconds>(when - now));
  }
}

}  // namespace sallyport::contract
