#include "backends/memcached/memcached_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/memcached/session.hpp"

#include <array>
#include <string_view>

namespace sallyport::backends {
namespace {

constexpr std::array<std::string_view, 3> schemes{"memcached", "memcacheds", "memcached+unix"};

}  // namespace

const backend_api::backend_descriptor& memcached_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a memcached server: memcached://host:11211",
      &backend_api::open_session<memcached::session>};
  return descriptor;
}

}  // namespace sallyport::backends
