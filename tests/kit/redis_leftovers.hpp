#pragma once

#include "tests/kit/redis_probe.hpp"

#include <string>
#include <vector>

namespace sallyport::kit {

/// All keys of the server, sorted, but for token counters: keys that end in "\x01token" or contain
/// "\x01token{". Counters stay, because a token must never be given twice; anything else that is
/// still there after all locks are released and all clients are gone was left behind. Of a cluster,
/// ask every master.
[[nodiscard]] std::vector<std::string> leftovers(redis_probe& probe);

}  // namespace sallyport::kit
