#pragma once

#include "backends/zookeeper/layout.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::zookeeper {

/// Where a contender stands, judged by the children of its folder. Whoever came before it only ever
/// goes away: nobody can come in before it, so whoever is admitted stays so.
struct standing {
  enum class word : std::uint8_t {
    admitted,
    blocked,
    missing,     ///< its own node is not there
    wrong_kind,  ///< those before it use the name as another kind
  };
  word is = word::missing;
  std::string behind{};                ///< blocked: the child whose end may let it in
  std::vector<std::string> unknown{};  ///< children that look like no contender's node
};

/// The contenders among these children, in the order in which they came; the rest goes to `unknown`.
[[nodiscard]] std::vector<child> contenders_among(std::span<const std::string> children,
                                                  std::vector<std::string>& unknown);

/// `own`: the name of the contender's node. In the line of a semaphore, `what` is form::mutex.
[[nodiscard]] standing stand(form what, std::string_view own,
                             std::span<const std::string> children);

}  // namespace sallyport::backends::zookeeper
