#include "backends/mariadb/mariadb_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/mariadb/address.hpp"
#include "backends/mariadb/schema.hpp"
#include "backends/mariadb/session.hpp"

#include <array>
#include <string>
#include <string_view>

namespace sallyport::backends {
namespace {

base::result<std::string> schema(std::string_view uri) {
  const auto where = mariadb::parse_address(uri);
  if (!where) return tl::unexpected(where.error());
  return mariadb::schema_script(where->prefix, where->database, where->user);
}

constexpr std::array<std::string_view, 2> schemes{"mariadb", "mysql"};

}  // namespace

const backend_api::backend_descriptor& mariadb_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a MariaDB database: mariadb://user@host:3306/database",
      &backend_api::open_session<mariadb::session>, &schema};
  return descriptor;
}

}  // namespace sallyport::backends
