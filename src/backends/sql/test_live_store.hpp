#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/sql_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
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

// ---- clients -------------------------------------------------------------------------------------

/// Time-outs and heartbeats that a test can wait for.
inline client_options quick() {
  return {.label = "test", .request_timeout = 1s, .store_patience = 20s, .heartbeat = 300ms};
}

inline client open(const std::string& address, client_options options = quick()) {
  return client::open(address, std::move(options));
}

/// Passes through the store at every turn.
inline lock_options lasting(std::chrono::milliseconds length = 60s) {
  return {.lease_length = length, .local_turns = 1};
}

/// The error that `call` throws: its code and its words; empty when it throws none.
struct told {
  std::error_code code;
  std::string words;

  [[nodiscard]] bool says(std::string_view text) const {
    return words.find(text) != std::string::npos;
  }
};

template <class Call>
told error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const lock_error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

inline testing::AssertionResult becomes_lost(const lease_view& view,
                                             lease_clock::duration within = patience) {
  const auto lost = [&] { return view.state() == lease_state::lost; };
  if (eventually(lost, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the lease is " << to_string(view.state());
}

/// A waiter on a thread of its own; the destructor cancels it.
class waiter {
 public:
  explicit waiter(mutex& lock)
      : work_([&lock, stop = stop_.get_token()] { return lock.acquire(stop); }) {}
  waiter(waiter&&) = default;
  waiter& operator=(waiter&&) = delete;
  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;
  ~waiter() { stop_.request_stop(); }

  [[nodiscard]] bool done() const { return work_.done(); }
  void cancel() { stop_.request_stop(); }
  /// What it got; nothing when it was cancelled, or got nothing in time. Call once.
  [[nodiscard]] std::optional<lease> get() {
    if (!eventually([this] { return done(); })) cancel();
    return work_.get();
  }

 private:
  std::stop_source stop_;
  background<std::optional<lease>> work_;
};

// ---- what each server says in its own way: the backend's test_live_store.cpp -----------------------
// A space is where a client's tables are, apart from those of others: a schema, or a prefix.

[[nodiscard]] std::unique_ptr<sql_server> start_server(const kit::shifted_clock* clock = nullptr);
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
