#pragma once

#include "base/random.hpp"
#include "fence/gate_testing.hpp"
#include <sallyport/fence.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::fence {

/// Passes and rebindings at random, before a gate and before a memory_gate: `show(pass)` and
/// `rebind(from, pass, kind)` give the verdict of the one. Tokens are drawn from `base` on.
template <class Show, class Rebind>
void rebind_like_a_memory_gate(std::uint64_t seed, std::uint64_t base, int steps, const Show& show,
                               const Rebind& rebind) {
  base::random random{seed};
  const std::vector<std::string> locks{"orders", "invoices", "it's 1 lock\\"};
  memory_gate model;
  for (int step = 0; step < steps; ++step) {
    const std::string bound = model.bound_lock();
    pass shown{.lock = random.chance(0.7) && !bound.empty() ? bound : locks[random.below(3)],
               .token = fencing_token{base + random.below(12)},
               .mode = random.chance(0.7) ? lock_mode::exclusive : lock_mode::shared};
    if (random.chance(0.7)) {
      ASSERT_EQ(show(shown), model.run(shown, [] {})) << "step " << step;
      continue;
    }
    shown.mode = lock_mode::exclusive;
    shown.lock = locks[random.below(3)];
    const std::string from = random.chance(0.7) && !bound.empty() ? bound : locks[random.below(3)];
    const auto kind = random.chance(0.5) ? rebinding::keeps_numbers : rebinding::restarts_numbers;
    if (from == shown.lock) continue;
    ASSERT_EQ(rebind(from, shown, kind), model.rebind(from, shown, kind)) << "step " << step;
  }
}

}  // namespace sallyport::fence
