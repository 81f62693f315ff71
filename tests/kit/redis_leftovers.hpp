#pragma once

#include "tests/kit/redis_probe.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace sallyport::kit {

/// All keys of the server, sorted, but for token counters, keys that end in "\x01token" or contain
/// "\x01token{", and the store's name ("\x01store"). Those stay, because a token must never be given twice;
/// anything else that is still there after all locks are released and all clients are gone was left behind. Of a cluster,
/// ask every master.
[[nodiscard]] std::vector<std::string> leftovers(redis_probe& probe);

/// How much is in one key: the fields of a hash, the members of a sorted set, 1 for anything else, 0
/// for a key that has gone.
[[nodiscard]] std::size_t parts_of(redis_probe& probe, const std::string& key);

}  // namespace sallyport::kit
