#pragma once

#include "tests/kit/redis_server.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::kit {

/// Several independent redis-servers, for redlock://.
class redis_quorum {
 public:
  explicit redis_quorum(std::size_t nodes, const redis_options& each = {});
  /// Every node in its own way.
  explicit redis_quorum(const std::vector<redis_options>& all);

  [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }
  [[nodiscard]] redis_server& operator[](std::size_t node) { return *servers_[node]; }
  [[nodiscard]] const redis_server& operator[](std::size_t node) const { return *servers_[node]; }

  /// "redlock://127.0.0.1:1234,..." without options.
  [[nodiscard]] std::string address() const;
  /// Initialises the nodes for a prefix, as an operator would: all have to be there.
  void initialise(std::string_view prefix = {},
                  std::chrono::milliseconds max_lease = std::chrono::seconds{60}) const;
  /// Keys on the nodes that are awake, but for counters and marks; with a prefix only its own.
  [[nodiscard]] std::vector<std::string> leftovers(std::string_view prefix = {});
  /// How much is in them, on all nodes together (parts_of).
  [[nodiscard]] std::size_t parts(std::string_view prefix);

 private:
  std::vector<std::unique_ptr<redis_server>> servers_;
};

}  // namespace sallyport::kit
