#pragma once

#include "tests/kit/redis_server.hpp"
#include "tests/kit/temporary_folder.hpp"

#include <atomic>
#include <string>

/// A store of its own for one test, by its address.
namespace sallyport::costs {

/// Shared by the clients of this process.
inline std::string memory_store() {
  static std::atomic<int> made{0};
  return "memory:costs-" + std::to_string(++made);
}

class local_store {
 public:
  [[nodiscard]] std::string address() const {
    return "local:" + (folder_.path() / "store").string();
  }

 private:
  const kit::temporary_folder folder_{"costs"};
};

class redis_store {
 public:
  [[nodiscard]] std::string address() const {
    return "redis://127.0.0.1:" + std::to_string(server_.port());
  }
  [[nodiscard]] const kit::redis_server& server() const noexcept { return server_; }

 private:
  const kit::redis_server server_;
};

}  // namespace sallyport::costs
