#include "backends/etcd/etcd_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/etcd/session.hpp"

#include <array>
#include <string_view>

namespace sallyport::backends {
namespace {

constexpr std::array<std::string_view, 2> schemes{"etcd", "etcds"};

}  // namespace

const backend_api::backend_descriptor& etcd_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "an etcd cluster: etcd://host1,host2,host3:2379",
      &backend_api::open_session<etcd::session>};
  return descriptor;
}

}  // namespace sallyport::backends
