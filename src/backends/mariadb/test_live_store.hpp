#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/mariadb_server.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

/// What the live tests of this backend share: clients of a server of the kit, and questions about
/// both.
namespace sallyport::mariadb_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::mariadb_probe;
using kit::mariadb_server;

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

inline std::string with_user(const mariadb_server& server, const std::string& user,
                             const std::string& options = {}) {
  return "mariadb://" + user + "@127.0.0.1:" + std::to_string(server.port()) + "/test" + options;
}

/// The stripe of a name, as the procedures find it.
inline std::string stripe_of(const std::string& name) { return "(CRC32('" + name + "') & 1023)"; }

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

/// Waits until the tables are empty.
inline testing::AssertionResult nothing_is_left(const mariadb_server& server,
                                                const std::string& prefix = "sallyport_") {
  std::string left;
  const auto clean = [&] {
    server.rows("CALL " + prefix + "sweep(1)");
    left = server.value("SELECT (SELECT COUNT(*) FROM " + prefix +
                        "lock) + (SELECT COUNT(*) FROM " + prefix + "queue)");
    return left == "0";
  };
  if (kit::eventually(clean)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << left << " rows are left";
}

inline testing::AssertionResult becomes_lost(const lease_view& view,
                                             lease_clock::duration within = patience) {
  const auto lost = [&] { return view.state() == lease_state::lost; };
  if (eventually(lost, within)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "the lease is " << to_string(view.state());
}

/// Waits until so many contenders stand in the store's queue.
inline testing::AssertionResult waiters_become(const mariadb_server& server, std::size_t count) {
  const auto counted = [&] {
    return server.value("SELECT COUNT(*) FROM sallyport_queue") == std::to_string(count);
  };
  if (kit::eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "there are not " << count << " waiters";
}

/// Waits until a transaction waits for a row that another one keeps.
inline testing::AssertionResult row_is_waited_for(const mariadb_server& server) {
  // Not innodb_trx: who looks at that all the time sees the same picture all the time.
  std::string waiting;
  const auto waits = [&] {
    waiting = server.rows("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").front()[1];
    return waiting != "0";
  };
  if (kit::eventually(waits)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << waiting << " wait for a row";
}

/// Waits until no transaction keeps the stripe of a name.
inline testing::AssertionResult stripe_is_free(const mariadb_server& server,
                                               const std::string& name) {
  const auto free = [&] {
    mariadb_probe probe{{.port = server.port()}};
    probe.rows("START TRANSACTION");
    try {
      probe.rows("SELECT * FROM sallyport_stripe WHERE id = (" + stripe_of(name) +
                 ") FOR UPDATE NOWAIT");
    } catch (const kit::kit_error&) {
      return false;
    }
    return true;
  };
  if (kit::eventually(free)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "somebody keeps the stripe of " << name;
}

/// The server's connections of a user.
inline std::string connections_of(const mariadb_server& server, const std::string& user) {
  return server.value("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '" + user +
                      "'");
}

/// Ends the connections of a user, or what they do: "CONNECTION" or "QUERY". Returns when it has
/// happened to connections.
inline void kill_all(const mariadb_server& server, const std::string& how,
                     const std::string& user) {
  const auto all =
      server.rows("SELECT id FROM information_schema.processlist WHERE user = '" + user + "'");
  for (const auto& each : all) server.rows("KILL " + how + " " + each.front());
  if (how != "CONNECTION") return;
  for (const auto& each : all) {
    EXPECT_TRUE(kit::eventually([&] {
      return server.value("SELECT COUNT(*) FROM information_schema.processlist WHERE id = " +
                          each.front()) == "0";
    }));
  }
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

}  // namespace sallyport::mariadb_live
