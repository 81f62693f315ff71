#include "backends/local/local_store.hpp"

#include "tests/contract/kit/store_under_test.hpp"
#include "tests/contract/kit/waiting.hpp"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace sallyport::contract {
namespace {

namespace local = backends::local;

/// The records of clients. One that died has its own until all that it held and waited for is gone.
std::size_t clients_on_record(const std::string& address) {
  const auto store = local::local_store::find_or_open(*local::parse_address(address));
  if (!store) throw std::runtime_error(store.error().detail);
  std::vector<local::notice> own;
  const auto all =
      (*store)->transact(lease_clock::now() + patience, 0, own,
                         [](local::lock_rules& rules) { return rules.some_clients(0, 100'000); });
  if (!all) throw std::runtime_error(all.error().detail);
  return all->size();
}

/// A folder of its own, removed with the store.
std::unique_ptr<fresh_store> make() {
  std::string path = (std::filesystem::temp_directory_path() / "contract-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  const std::string address = "local:" + path + "?size=4M";
  return std::make_unique<plain_store>(
      address,
      [path] {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
      },
      [address] { return clients_on_record(address); });
}

capabilities claims() {
  capabilities all = all_claims();
  all.notices_death = true;
  return all;
}

}  // namespace

const store_under_test& the_store() {
  static const store_under_test local{
      .name = "local",
      .make = &make,
      .claims = claims(),
      .short_lease = std::chrono::milliseconds{300},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = std::nullopt,
  };
  return local;
}

}  // namespace sallyport::contract
