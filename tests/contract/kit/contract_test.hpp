#pragma once

#include "tests/contract/kit/store_under_test.hpp"
#include "tests/contract/kit/waiting.hpp"
#include <sallyport/sallyport.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

/// The fixture of every contract test: a fresh store, clients of it, and the questions that tests
/// ask.
namespace sallyport::contract {

using namespace std::chrono_literals;

class contract_test : public testing::Test {
 protected:
  contract_test();
  ~contract_test() override;

  /// One more client of this test's store.
  [[nodiscard]] client open(std::string_view label = "test", client_options options = {}) const;
  [[nodiscard]] std::string address() const { return store_->address(); }
  /// What the store keeps for its contenders, counted; empty: nobody can tell.
  [[nodiscard]] std::optional<std::size_t> remains() const { return store_->remains(); }

  [[nodiscard]] static const store_under_test& store() { return the_store(); }
  /// What the backend claims (and Capabilities.AreThoseThatTheStoreIsKnownFor compares with what it
  /// says).
  [[nodiscard]] static const sallyport::capabilities& claims() { return the_store().claims; }

  /// A lease for tests that wait for its end.
  [[nodiscard]] static std::chrono::milliseconds short_lease() { return the_store().short_lease; }
  /// Ends by itself after short_lease().
  [[nodiscard]] static lock_options ending();
  /// Never ends while a test runs, and passes through the store at every turn.
  [[nodiscard]] static lock_options lasting();

 private:
  std::unique_ptr<fresh_store> store_;
  std::unique_ptr<client> keeper_;
};

/// The error that `call` throws; empty when it throws none.
template <class Call>
[[nodiscard]] std::error_code error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const lock_error& error) {
    EXPECT_STRNE(error.what(), "");
    return error.code();
  }
  return {};
}

[[nodiscard]] std::size_t holder_count(const client& store, const lock_name& name);
[[nodiscard]] std::size_t waiter_count(const client& store, const lock_name& name);
/// The token under which the store knows the holder: what break_lock compares, also where it is no
/// fence.
[[nodiscard]] fencing_token observed_token(const client& store, const lock_name& name);
/// Whether the store lists so many locks. One that does not list any has to say so.
[[nodiscard]] testing::AssertionResult lists(const client& store, std::size_t count);
/// Waits until so many contenders stand in the store's queue; where nobody can tell, for a moment.
[[nodiscard]] testing::AssertionResult waiters_become(const client& store, const lock_name& name,
                                                      std::size_t count);
/// Waits until the store shows neither holders nor waiters nor tombstones of the name.
[[nodiscard]] testing::AssertionResult becomes_free(const client& store, const lock_name& name);
/// Waits until the lease is lost.
[[nodiscard]] testing::AssertionResult becomes_lost(const lease_view& view);

}  // namespace sallyport::contract
