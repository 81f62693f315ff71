#include "backends/postgres/postgres_backend.hpp"

#include "backend_api/session_backend.hpp"
#include "backends/postgres/address.hpp"
#include "backends/postgres/schema.hpp"
#include "backends/postgres/session.hpp"

#include <array>
#include <string>
#include <string_view>

namespace sallyport::backends {
namespace {

base::result<std::string> schema(std::string_view uri) {
  const auto where = postgres::parse_address(uri);
  if (!where) return tl::unexpected(where.error());
  return postgres::schema_script(where->schema, where->user);
}

constexpr std::array<std::string_view, 2> schemes{"postgres", "postgresql"};

}  // namespace

const backend_api::backend_descriptor& postgres_backend() {
  static const backend_api::backend_descriptor descriptor{
      schemes, "a PostgreSQL database: postgres://user@host:5432/database",
      &backend_api::open_session<postgres::session>, &schema};
  return descriptor;
}

}  // namespace sallyport::backends
