#pragma once

#include "tests/kit/fault_proxy.hpp"
#include "tests/kit/live_client.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What a network may do to one request: the answer is lost, the connection is cut in the middle, one
// direction falls silent. Whatever happens: never two holders, nothing left behind.
//
// For one file of a program, which says what server it is about: start_server().
namespace sallyport::live {

/// A server behind a backend.
class server {
 public:
  server() = default;
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  virtual ~server() = default;

  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// By way of another port, where a proxy listens.
  [[nodiscard]] virtual client open(std::uint16_t port, client_options options) const = 0;
  /// Waits until no lock and no waiter is on it.
  [[nodiscard]] virtual testing::AssertionResult nothing_is_left() const = 0;
  /// Of a lock that may have to end by itself before the test does.
  [[nodiscard]] virtual std::chrono::milliseconds short_lease() const = 0;
};

[[nodiscard]] std::unique_ptr<server> start_server();

namespace {

using namespace std::chrono_literals;
using contract::eventually;
using contract::patience;
using kit::fault;
using kit::fault_proxy;
using kit::flow;

/// How the network fails.
struct trouble {
  std::string name;
  std::function<void(fault_proxy&)> begin;
};

std::vector<trouble> all_troubles() {
  std::vector<trouble> all{
      {"answer_lost_and_reset",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::drop_reply()); }},
      {"answer_lost_and_closed",
       [](fault_proxy& proxy) {
         proxy.set(flow::to_client, fault::drop_reply(kit::ending::finish));
       }},
      {"answer_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_client, fault::silence()); }},
      {"request_lost_in_silence",
       [](fault_proxy& proxy) { proxy.set(flow::to_server, fault::silence()); }},
      {"both_held", [](fault_proxy& proxy) {
         proxy.set(flow::to_server, fault::hold());
         proxy.set(flow::to_client, fault::hold());
       }}};
  for (const std::uint64_t bytes : {0U, 1U, 40U, 150U, 200U}) {
    all.push_back({"request_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_server, fault::cut_after(bytes));
                   }});
  }
  for (const std::uint64_t bytes : {1U, 4U}) {
    all.push_back({"answer_cut_after_" + std::to_string(bytes), [bytes](fault_proxy& proxy) {
                     proxy.set(flow::to_client, fault::cut_after(bytes));
                   }});
  }
  return all;
}

class WireFault : public testing::TestWithParam<trouble> {
 protected:
  void begin_trouble() { GetParam().begin(proxy_); }
  /// The network works again; connections with a hole in them are gone.
  void heal() {
    proxy_.heal();
    proxy_.close_all();
  }

  const std::unique_ptr<server> server_ = start_server();
  fault_proxy proxy_{server_->port()};
  const client hurt_ = server_->open(proxy_.port(), quick());       // through the proxy
  const client healthy_ = server_->open(server_->port(), quick());  // not
};

TEST_P(WireFault, InMidAcquireLeavesAtMostOneHolder) {
  mutex lock{hurt_, "door", lasting(server_->short_lease())};
  mutex other{healthy_, "door", lasting(server_->short_lease())};
  ASSERT_TRUE(lock.try_acquire());  // connected, and released again

  begin_trouble();
  std::optional<lease> got;
  const told error = error_of([&] { got = lock.try_acquire(); });
  // A try that failed may have left a grant that is yet to be taken back; it is nobody's.
  auto theirs = other.try_acquire();
  EXPECT_FALSE(got && got->valid() && theirs);
  if (!got) {
    EXPECT_TRUE(error.code == errc::outcome_unknown || error.code == errc::unavailable)
        << error.text;
  }
  heal();

  got.reset();
  theirs.reset();
  EXPECT_TRUE(server_->nothing_is_left());
  EXPECT_TRUE(other.try_acquire_for(patience));
}

TEST_P(WireFault, InMidAcquireIsWaitedOut) {
  mutex lock{hurt_, "door", lasting(server_->short_lease())};
  ASSERT_TRUE(lock.try_acquire());

  begin_trouble();
  waiter next(lock);
  // Long enough for the request to be overdue; a cut connection may be made again before.
  static_cast<void>(eventually([&] { return next.done(); }, 700ms));
  heal();

  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->valid());
  mutex other{healthy_, "door", lasting()};
  EXPECT_FALSE(other.try_acquire());
  got->release();
  EXPECT_TRUE(server_->nothing_is_left());
}

TEST_P(WireFault, InMidReleaseIsRepeatedUntilTheStoreKnows) {
  mutex lock{hurt_, "door", lasting(30s)};
  mutex other{healthy_, "door", lasting(30s)};
  auto held = lock.acquire();

  begin_trouble();
  const auto result = held.release();
  EXPECT_NE(result, release_result::already_lost);
  heal();

  // Long before the lease of 30 s ends.
  auto got = other.try_acquire_for(patience);
  ASSERT_TRUE(got);
  if (healthy_.capabilities().fencing) {
    EXPECT_GT(got->token(), held.token());
  }
  got->release();
  EXPECT_TRUE(server_->nothing_is_left());
}

INSTANTIATE_TEST_SUITE_P(Kinds, WireFault, testing::ValuesIn(all_troubles()),
                         [](const auto& each) { return each.param.name; });

/// One holder whose network fails while it renews.
struct hurt_holder {
  hurt_holder(const server& store, trouble how) : what(std::move(how)), proxy(store.port()) {
    auto options = quick();
    options.watcher = watcher;
    lock.emplace(store.open(proxy.port(), options), lock_name(what.name), lasting(4500ms));
    held.emplace(lock->acquire());
  }

  trouble what;
  fault_proxy proxy;
  std::shared_ptr<metrics> watcher = std::make_shared<metrics>();
  std::optional<mutex> lock;
  std::optional<lease> held;
};

// All at the same time: each takes as long as a lease.
TEST(WireFaults, InMidRenewalAreRepeatedInTime) {
  const std::unique_ptr<server> store = start_server();
  std::vector<std::unique_ptr<hurt_holder>> all;
  for (const trouble& each : all_troubles()) {
    all.push_back(std::make_unique<hurt_holder>(*store, each));
  }
  for (const auto& each : all) {
    ASSERT_TRUE(eventually([&] { return each->watcher->read().renewed >= 1; })) << each->what.name;
  }

  for (const auto& each : all) each->what.begin(each->proxy);
  // Over the next renewal, which is due after a third of the lease.
  const auto trouble_until = lease_clock::now() + 1700ms;
  static_cast<void>(eventually([&] { return lease_clock::now() >= trouble_until; }));
  std::vector<std::uint64_t> renewed;
  for (const auto& each : all) {
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    each->proxy.heal();
    each->proxy.close_all();
    renewed.push_back(each->watcher->read().renewed);
  }

  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& each = all[i];
    EXPECT_TRUE(eventually([&] { return each->watcher->read().renewed > renewed[i]; }))
        << each->what.name;
    EXPECT_TRUE(each->held->valid()) << each->what.name;
    EXPECT_EQ(each->watcher->read().lost, 0U) << each->what.name;
    EXPECT_EQ(each->held->release(), release_result::released) << each->what.name;
  }
  EXPECT_TRUE(store->nothing_is_left());
}

}  // namespace
}  // namespace sallyport::live
