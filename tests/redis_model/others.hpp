#pragma once

#include "base/random.hpp"
#include "tests/redis_model/redis_pair.hpp"

#include <chrono>
#include <string>

/// What happens on a server of locks beside what their clients ask for.
namespace sallyport::redis_model {

/// A client of another library, which uses the same names: no script may fail for that.
[[nodiscard]] words foreign_use(base::random& luck, const std::string& lock_key);
/// Somebody who spoils what he finds, a person with redis-cli, say.
[[nodiscard]] words damage(base::random& luck, const std::string& key, const std::string& lock_key);
/// How time goes on; now and then backwards.
[[nodiscard]] std::chrono::microseconds clock_step(base::random& luck);

}  // namespace sallyport::redis_model
