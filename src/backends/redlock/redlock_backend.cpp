#include "backends/redlock/redlock_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/redlock/session.hpp"

#include <array>
#include <string_view>

namespace sallyport::backends {
namespace {

constexpr std::array<std::string_view, 2> schemes{"redlock", "redlocks"};

}  // namespace

const backend_api::backend_descriptor& redlock_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a majority of independent Redis masters: redlock://host1,host2,host3",
      &backend_api::open_session<redlock::session>};
  return descriptor;
}

}  // namespace sallyport::backends
