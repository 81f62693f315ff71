#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::kit {

/// Talks to a member of etcd over HTTP, as curl would; a connection for each request. For tests that
/// want to say something which no library of ours says. Throws kit_error when there is no answer, or
/// an error.
/// Thread safety: all members.
class etcd_probe {
 public:
  explicit etcd_probe(std::uint16_t port) : port_(port) {}

  /// POST of JSON, and the body of the answer.
  [[nodiscard]] std::string post(const std::string& path, const std::string& json) const;
  /// GET of a page, such as /metrics.
  [[nodiscard]] std::string page(const std::string& path) const;
  /// Commits a transaction, given as JSON, and returns the `succeeded` of the answer and of those
  /// within it, from the outside in.
  [[nodiscard]] std::vector<bool> commit(const std::string& json) const;
  [[nodiscard]] std::optional<std::string> get(const std::string& key) const;
  void put(const std::string& key, const std::string& value) const;

 private:
  std::uint16_t port_;
};

}  // namespace sallyport::kit
