#include "backends/zookeeper/zookeeper_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/zookeeper/session.hpp"

#include <array>
#include <string_view>

namespace sallyport::backends {
namespace {

constexpr std::array<std::string_view, 2> schemes{"zookeeper", "zookeepers"};

}  // namespace

const backend_api::backend_descriptor& zookeeper_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a ZooKeeper ensemble: zookeeper://host1,host2,host3/chroot",
      &backend_api::open_session<zookeeper::session>};
  return descriptor;
}

}  // namespace sallyport::backends
