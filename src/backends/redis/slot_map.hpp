#pragma once

#include "backends/redis/keys.hpp"
#include "backends/redis/reply.hpp"
#include "net/endpoint.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

/// What nodes of a cluster say about slots; pure.
namespace sallyport::backends::redis {

/// Consecutive slots of one master.
struct slot_range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  net::endpoint master;

  friend bool operator==(const slot_range&, const slot_range&) = default;
};

/// The answer to CLUSTER SLOTS. A node that is announced without a host is where `asked` is.
/// Nothing: not understood.
[[nodiscard]] std::optional<std::vector<slot_range>> slots_in(const reply& said,
                                                              const net::endpoint& asked);

/// Where MOVED or ASK lead to; `asked`: who said so. Nothing: it is another error.
[[nodiscard]] std::optional<net::endpoint> target_of(const reply& error,
                                                     const net::endpoint& asked);

}  // namespace sallyport::backends::redis
