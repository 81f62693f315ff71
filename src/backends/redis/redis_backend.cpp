#include "backends/redis/redis_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/redis/session.hpp"

#include <array>
#include <string_view>

namespace sallyport::backends {
namespace {

constexpr std::array<std::string_view, 7> schemes{
    "redis",           "rediss",        "redis+unix",    "redis+sentinel",
    "rediss+sentinel", "redis+cluster", "rediss+cluster"};

}  // namespace

const backend_api::backend_descriptor& redis_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a Redis server, a Sentinel group or a Cluster: redis://host:6379/0",
      &backend_api::open_session<redis::session>};
  return descriptor;
}

}  // namespace sallyport::backends
