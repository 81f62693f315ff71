#pragma once

#include "tests/costs/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <limits>

namespace sallyport::costs {

/// Prints the count beside its bound, and holds it against that.
inline testing::AssertionResult keeps_to(const bound& limit, double count) {
  std::cout << "[ cost     ] " << limit.counted << " = " << count << ", at most " << limit.most
            << std::endl;
  if (count > limit.most) {
    return testing::AssertionFailure()
           << limit.counted << " = " << count << ", and the bound is " << limit.most
           << ". Spend less, or raise the bound in tests/costs/bounds.hpp in the same commit and "
              "say why.";
  }
  if (limit.most > 0 && count <= stale_share * limit.most) {
    return testing::AssertionFailure()
           << limit.counted << " = " << count << ", far below the bound of " << limit.most
           << ". Lower the bound in tests/costs/bounds.hpp, so that what was won is kept.";
  }
  return testing::AssertionSuccess();
}

/// The least of a few counts of the same thing: what else the machine does can only add to one.
[[nodiscard]] inline double least_of(int tries, const std::function<double()>& count) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < tries; ++i) least = std::min(least, count());
  return least;
}

}  // namespace sallyport::costs
