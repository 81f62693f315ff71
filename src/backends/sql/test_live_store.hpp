#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/live_client.hpp"
#include "tests/kit/sql_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

/// What the live tests of the backends in SQL servers share: clients of a server of the kit, and
/// questions about both. The live tests in this folder are the same for every server: each backend
/// builds them into programs of its own, with its test_live_store.cpp.
namespace sallyport::sql_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::sql_server;
using live::becomes_lost;
using live::error_of;
using live::lasting;
using live::told;
using live::waiter;

// ---- clients -------------------------------------------------------------------------------------

/// Servers with a disk may take a while.
inline client_options quick() { return live::quick(1s); }

inline client open(const std::string& address, client_options options = quick()) {
  return client::open(address, std::move(options));
}

// ---- what each server says in its own way: the backend's test_live_store.cpp -----------------------
// A space is where a client's tables are, apart from those of others: a schema, or a prefix.

[[nodiscard]] std::unique_ptr<sql_server> start_server(const kit::shifted_clock* clock = nullptr);
/// With its folder in that one.
[[nodiscard]] std::unique_ptr<sql_server> start_server_in(const std::filesystem::path& parent);
/// As the user who may do everything.
[[nodiscard]] std::string address_at(std::uint16_t port);
[[nodiscard]] std::string with_user(const sql_server& server, const std::string& user,
                                    const std::string& options = {});
/// The address option that chooses a space, with a question mark before it.
[[nodiscard]] std::string in_space(const std::string& space);
/// One of our tables, in a statement.
[[nodiscard]] std::string table(const std::string& name, const std::string& space = "sallyport");
/// Takes away what lapsed.
void sweep(const sql_server& server, const std::string& space);
/// Who may make tables, and use all.
void make_user(const sql_server& server, const std::string& user);
/// The server's connections of a user.
[[nodiscard]] int connections_of(const sql_server& server, const std::string& user);
/// Returns when they have ended.
void end_connections(const sql_server& server, const std::string& user);
/// Whether waiters are told that it is their turn, on a connection of its own.
[[nodiscard]] bool waiters_are_told();
/// A reader that nobody renews, and that lapses soon; `number` tells readers apart.
void leave_dead_reader(const sql_server& server, const std::string& name, int number);

// ---- questions -----------------------------------------------------------------------------------

/// Waits until the tables are empty.
inline testing::AssertionResult nothing_is_left(const sql_server& server,
                                                const std::string& space = "sallyport") {
  std::string left;
  const auto clean = [&] {
    sweep(server, space);
    left = server.value("SELECT (SELECT COUNT(*) FROM " + table("lock", space) +
                        ") + (SELECT COUNT(*) FROM " + table("queue", space) + ")");
    return left == "0";
  };
  if (kit::eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left << " rows are left";
}

/// Waits until so many contenders stand in the store's queue.
inline testing::AssertionResult waiters_become(const sql_server& server, std::size_t count) {
  const auto counted = [&] {
    return server.value("SELECT COUNT(*) FROM " + table("queue")) == std::to_string(count);
  };
  if (kit::eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "there are not " << count << " waiters";
}

}  // namespace sallyport::sql_live
