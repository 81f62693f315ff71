#pragma once

#include "backend_api/backend.hpp"
#include "backends/sql/speech.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sallyport::backends::mariadb {

using sql::call;
using sql::statement;

/// How requests become calls of the procedures, for one client. Immutable.
/// Thread safety: all members.
class speech final : public sql::speech {
 public:
  speech(const std::string& prefix, backend_api::owner_info owner);

  [[nodiscard]] call acquire(const backend_api::acquire_request& request) const override;
  /// REQUIRES: who wants tokens comes alone (session.cpp sees to it).
  [[nodiscard]] call renew(std::span<const backend_api::renew_request> batch) const override;
  [[nodiscard]] call leave(const backend_api::leave_request& request, bool withdraw) const override;
  [[nodiscard]] call downgrade(const backend_api::renew_request& request) const override;
  [[nodiscard]] call set_value(const backend_api::renew_request& holder,
                               std::string_view value) const override;
  [[nodiscard]] call break_lock(const lock_name& name, fencing_token observed,
                                backend_api::break_mode mode) const override;
  [[nodiscard]] call who(const lock_name& name) const override;
  [[nodiscard]] call list(std::string_view prefix, std::string_view after,
                          std::size_t limit) const override;
  [[nodiscard]] call settle(std::string_view name) const override;
  [[nodiscard]] call sweep() const override;

  [[nodiscard]] const backend_api::owner_info& owner() const noexcept { return owner_; }

 private:
  const backend_api::owner_info owner_;
  const statement acquire_, renew_, leave_, downgrade_, set_value_, break_lock_, look_, sweep_;
};

/// A call as the server reads it. Its parameters are whole numbers and bytes, and bytes are written in
/// hexadecimal digits: nothing that a user gave can be taken for a part of the statement.
[[nodiscard]] std::string text_of(const call& what);

/// A name as SQL writes it: in backticks.
[[nodiscard]] std::string quoted(std::string_view identifier);

}  // namespace sallyport::backends::mariadb
