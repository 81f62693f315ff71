#pragma once

#include "backend_api/backend.hpp"
#include "backends/sql/speech.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sallyport::backends::postgres {

using sql::call;
using sql::statement;

/// How requests become calls of the schema's functions, for one client. Immutable.
/// Thread safety: all members.
class speech final : public sql::speech {
 public:
  struct settings {
    std::string schema;        ///< as the user gave it, not quoted
    bool durable = true;       ///< a grant is on disk before it is answered
    std::uint64_t client = 0;  ///< who hears notices; fresh for every client
    backend_api::owner_info owner{};
  };

  explicit speech(settings how);

  [[nodiscard]] call acquire(const backend_api::acquire_request& request) const override;
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
  /// Ends the sessions of this role, of other clients or of this one, that stand in the middle of a call
  /// and wait for their client: the end of the request, or the reading of the answer, does not come.
  [[nodiscard]] call end_cut_calls() const;
  /// Its one value is where changes of the name are told.
  [[nodiscard]] call change_channel(const lock_name& name) const;
  [[nodiscard]] static call listen(std::string_view channel);
  [[nodiscard]] static call unlisten(std::string_view channel);

  /// Where this client hears what concerns it.
  [[nodiscard]] const std::string& channel() const noexcept { return channel_; }
  [[nodiscard]] const settings& how() const noexcept { return how_; }

 private:
  [[nodiscard]] statement function(std::string_view name, int parameters) const;

  const settings how_;
  const std::string channel_;
  const statement acquire_, renew_, leave_, downgrade_, set_value_, break_lock_, look_, sweep_,
      change_channel_;
};

/// An identifier as SQL writes it: in quotes.
[[nodiscard]] std::string quoted(std::string_view identifier);

}  // namespace sallyport::backends::postgres
