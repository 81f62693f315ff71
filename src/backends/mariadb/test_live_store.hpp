#pragma once

#include "backends/sql/test_live_store.hpp"
#include "tests/kit/mariadb_server.hpp"

#include <gtest/gtest.h>

#include <string>

/// What the live tests of this backend have besides.
namespace sallyport::mariadb_live {

using namespace sql_live;
using kit::mariadb_probe;
using kit::mariadb_server;

/// The stripe of a name, as the procedures find it.
inline std::string stripe_of(const std::string& name) { return "(CRC32('" + name + "') & 1023)"; }

/// Waits until a transaction waits for a row that another one keeps.
[[nodiscard]] testing::AssertionResult row_is_waited_for(const sql_server& server);

/// Waits until no transaction keeps the stripe of a name.
[[nodiscard]] testing::AssertionResult stripe_is_free(const sql_server& server,
                                                      const std::string& name);

/// Ends the connections of a user, or what they do: "CONNECTION" or "QUERY". Returns when it has
/// happened to connections.
void kill_all(const sql_server& server, const std::string& how, const std::string& user);

}  // namespace sallyport::mariadb_live
