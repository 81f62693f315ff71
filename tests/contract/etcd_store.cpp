#include "tests/contract/kit/shared_server.hpp"
#include "tests/contract/kit/store_under_test.hpp"
#include "tests/kit/etcd_server.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

// SALLYPORT_ETCD_SETUP says what the cluster is like:
//   single        (default)
//   cluster       three members
//   cluster-down  three members, whose leader is killed before the first test
namespace sallyport::contract {
namespace {

std::unique_ptr<kit::etcd_cluster> chosen() {
  const std::string name =
      chosen_setup("SALLYPORT_ETCD_SETUP", {"single", "cluster", "cluster-down"});
  auto made = std::make_unique<kit::etcd_cluster>(
      kit::etcd_options{.members = name == "single" ? std::size_t{1} : 3});
  if (name == "cluster-down") made->kill(made->leader());
  return made;
}

/// The same cluster for all tests of a process.
kit::etcd_cluster& the_cluster() {
  static const std::unique_ptr<kit::etcd_cluster> running = chosen();
  return *running;
}

std::unique_ptr<fresh_store> make() {
  const std::string prefix = "contract-" + std::to_string(next_store_number()) + "/";
  return std::make_unique<plain_store>(
      the_cluster().address() + "?prefix=" + prefix,
      [prefix] { expect_nothing_left("keys", [&] { return the_cluster().keys(prefix); }); },
      [prefix] { return the_cluster().keys(prefix).size(); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.min_lease = std::chrono::seconds{2};
  all.lease_granularity = std::chrono::seconds{1};
  return all;
}

/// Of a cluster one member is not enough.
std::optional<server_switch> the_switch() {
  if (the_cluster().size() != 1) return std::nullopt;
  return server_switch{[] { the_cluster().kill(0); }, [] { the_cluster().start(0); }};
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test etcd{
      .name = "etcd",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::seconds{2},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = "etcd://127.0.0.1:1",
      .server = the_switch(),
  };
  return etcd;
}

}  // namespace sallyport::contract
