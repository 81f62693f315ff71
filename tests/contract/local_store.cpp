#include "tests/contract/kit/store_under_test.hpp"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace sallyport::contract {
namespace {

/// A folder of its own, removed with the store.
class folder_store final : public fresh_store {
 public:
  folder_store() {
    std::string pattern = (std::filesystem::temp_directory_path() / "contract-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~folder_store() override {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  folder_store(const folder_store&) = delete;
  folder_store& operator=(const folder_store&) = delete;
  [[nodiscard]] std::string address() const override { return "local:" + path_ + "?size=4M"; }

 private:
  std::string path_;
};

}  // namespace

const store_under_test& the_store() {
  static const store_under_test local{
      .name = "local",
      .make = []() -> std::unique_ptr<fresh_store> { return std::make_unique<folder_store>(); },
      .claims = {.fencing = true,
                 .fifo = true,
                 .direct_handoff = true,
                 .shared_locks = true,
                 .semaphores = true,
                 .elections = true,
                 .notices_death = true,
                 .tells_kind = true,
                 .survives_store_restart = true,
                 .min_lease = std::chrono::milliseconds{100},
                 .max_lease = std::chrono::hours{24},
                 .lease_granularity = {},
                 .expiry_granularity = {},
                 .store_id = {},
                 .caveats = {}},
      .short_lease = std::chrono::milliseconds{300},
      .clients_share = true,
      .processes_share = true,
      .unreachable_address = std::nullopt,
  };
  return local;
}

}  // namespace sallyport::contract
