#pragma once

#include "backend_api/backend.hpp"
#include "backends/sql/statement.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace sallyport::backends::sql {

/// How requests become calls of the server's procedures, for one client. Immutable.
/// Thread safety: all members.
class speech {
 public:
  speech() = default;
  speech(const speech&) = delete;
  speech& operator=(const speech&) = delete;
  virtual ~speech() = default;

  [[nodiscard]] virtual call acquire(const backend_api::acquire_request& request) const = 0;
  [[nodiscard]] virtual call renew(std::span<const backend_api::renew_request> batch) const = 0;
  [[nodiscard]] virtual call leave(const backend_api::leave_request& request,
                                   bool withdraw) const = 0;
  [[nodiscard]] virtual call downgrade(const backend_api::renew_request& request) const = 0;
  [[nodiscard]] virtual call set_value(const backend_api::renew_request& holder,
                                       std::string_view value) const = 0;
  [[nodiscard]] virtual call break_lock(const lock_name& name, fencing_token observed,
                                        backend_api::break_mode mode) const = 0;
  [[nodiscard]] virtual call who(const lock_name& name) const = 0;
  [[nodiscard]] virtual call list(std::string_view prefix, std::string_view after,
                                  std::size_t limit) const = 0;
  /// Takes away what lapsed of a name, and lets in who may enter.
  [[nodiscard]] virtual call settle(std::string_view name) const = 0;
  /// Removes what the dead left.
  [[nodiscard]] virtual call sweep() const = 0;
};

}  // namespace sallyport::backends::sql
