#include "tests/contract/kit/contract_test.hpp"

#include <utility>

namespace sallyport::contract {

contract_test::contract_test() : store_(the_store().make()) {
  // Stores that live only as long as somebody uses them must outlive the clients that a test
  // closes.
  keeper_ = std::make_unique<client>(open("keeper"));
}

contract_test::~contract_test() = default;

client contract_test::open(std::string_view label, client_options options) const {
  options.label = label;
  return client::open(store_->address(), std::move(options));
}

lock_options contract_test::ending() {
  return {.lease_length = short_lease(), .renew = renewal::never, .local_turns = 1};
}

lock_options contract_test::lasting() { return {.lease_length = 60s, .local_turns = 1}; }

std::size_t holder_count(const client& store, const lock_name& name) {
  const auto seen = store.who(name);
  return seen ? seen->holders.size() : 0;
}

std::size_t waiter_count(const client& store, const lock_name& name) {
  const auto seen = store.who(name);
  return seen ? seen->waiters.size() : 0;
}

fencing_token observed_token(const client& store, const lock_name& name) {
  return store.who(name).value().holders.at(0).token;
}

testing::AssertionResult lists(const client& store, std::size_t count) {
  if (!the_store().claims.lists) {
    if (error_of([&] { (void)store.list(); }) == errc::not_supported) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "it does not say that it lists nothing";
  }
  const auto seen = store.list();
  if (seen.size() == count) return testing::AssertionSuccess();
  return testing::AssertionFailure() << seen.size() << " locks are listed, not " << count;
}

testing::AssertionResult waiters_become(const client& store, const lock_name& name,
                                        std::size_t count) {
  if (!the_store().shows_waiters) {
    if (count > 0) wait_until(lease_clock::now() + 150ms);
    return testing::AssertionSuccess();
  }
  if (eventually([&] { return waiter_count(store, name) == count; })) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << name.text() << " has " << waiter_count(store, name) << " waiters, not " << count;
}

testing::AssertionResult becomes_free(const client& store, const lock_name& name) {
  if (eventually([&] { return !store.who(name); })) return testing::AssertionSuccess();
  const auto seen = store.who(name);
  return testing::AssertionFailure()
         << name.text() << " is not free: " << (seen ? seen->holders.size() : 0) << " holders, "
         << (seen ? seen->waiters.size() : 0) << " waiters";
}

testing::AssertionResult becomes_lost(const lease_view& view) {
  if (eventually([&] { return view.state() == lease_state::lost; })) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "the lease on " << view.name().text() << " is "
                                     << to_string(view.state()) << ", not lost";
}

}  // namespace sallyport::contract
