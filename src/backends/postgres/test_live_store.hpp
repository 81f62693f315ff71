#pragma once

#include "tests/contract/kit/waiting.hpp"
#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/postgres_server.hpp"
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
namespace sallyport::postgres_live {

using namespace std::chrono_literals;
using contract::background;
using contract::eventually;
using contract::patience;
using kit::fault;
using kit::fault_proxy;
using kit::flow;
using kit::postgres_probe;
using kit::postgres_server;

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

/// Waits until the tables are empty.
inline testing::AssertionResult nothing_is_left(const postgres_server& server,
                                                const std::string& schema = "sallyport") {
  std::string left;
  const auto clean = [&] {
    server.rows("SELECT " + schema + ".sweep(true, true)");
    left = server.value("SELECT (SELECT count(*) FROM " + schema +
                        ".lock) + (SELECT count(*) FROM " + schema + ".queue)");
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
inline testing::AssertionResult waiters_become(const postgres_server& server, std::size_t count) {
  const auto counted = [&] {
    return server.value("SELECT count(*) FROM sallyport.queue") == std::to_string(count);
  };
  if (kit::eventually(counted)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "there are not " << count << " waiters";
}

/// The server's processes that serve clients of ours.
inline std::string connections_of(const postgres_server& server, const std::string& label) {
  return server.value(
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sallyport:" + label + "'");
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

}  // namespace sallyport::postgres_live
