#pragma once

#include <cstdint>
#include <cstdlib>

namespace sallyport::redis_model {

/// How many seeds a test runs; more when a developer asks: SALLYPORT_TEST_SEEDS=1000.
inline std::uint64_t seeds(std::uint64_t usual) {
  const char* const wanted = std::getenv("SALLYPORT_TEST_SEEDS");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

}  // namespace sallyport::redis_model
