#pragma once

#include "tests/kit/waiting.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

/// For stores on a server that all tests of a process share: which server that is, and how the tests
/// are kept apart.
namespace sallyport::contract {

/// The value of an environment variable, which is one of `all`; the first one when it is not set.
inline std::string chosen_setup(const char* variable, const std::vector<std::string>& all) {
  const char* const found = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  if (found == nullptr) return all.front();
  if (std::ranges::find(all, found) != all.end()) return found;
  std::string known;
  for (const std::string& each : all) {
    if (!known.empty()) known += &each == &all.back() ? " or " : ", ";
    known += each;
  }
  throw std::invalid_argument(std::string(variable) + " is " + known + ", not '" + found + "'");
}

/// 1, 2, 3 ...: what tells the stores of this process apart.
inline int next_store_number() {
  static std::atomic<int> made{0};
  return ++made;
}

/// What dead clients left goes with their leases; then `look` may find nothing any more. It is
/// asked again and again.
template <class Look>
void expect_nothing_left(const char* what, Look look) {
  std::vector<std::string> left;
  const bool clean = kit::eventually([&] {
    left = look();
    return left.empty();
  });
  EXPECT_TRUE(clean) << left.size() << " " << what << " are left, one is "
                     << (left.empty() ? "" : left.front());
}

}  // namespace sallyport::contract
