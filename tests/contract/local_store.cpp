#include "tests/contract/kit/store_under_test.hpp"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

namespace sallyport::contract {
namespace {

/// A folder of its own, removed with the store.
std::unique_ptr<fresh_store> make() {
  std::string path = (std::filesystem::temp_directory_path() / "contract-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  return std::make_unique<plain_store>("local:" + path + "?size=4M", [path] {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  });
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
