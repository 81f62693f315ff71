#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace sallyport::backend_api {

/// Names one contender's life in a store, from its first request to its end; 128 bits from
/// getrandom, fresh for every attempt. Whoever knows it can release the lock, so it is never
/// printed and never leaves the process but to the store.
struct holder_id {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend auto operator<=>(const holder_id&, const holder_id&) = default;
};

}  // namespace sallyport::backend_api

template <>
struct std::hash<sallyport::backend_api::holder_id> {
  // The bits are random already.
  std::size_t operator()(const sallyport::backend_api::holder_id& id) const noexcept {
    return id.low;
  }
};
