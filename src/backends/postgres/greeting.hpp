#pragma once

#include "backends/postgres/address.hpp"
#include "backends/sql/statement.hpp"
#include "base/result.hpp"
#include <sallyport/capabilities.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace sallyport::backends::postgres {

using sql::reply;

/// What a server says of itself.
struct server_facts {
  int version = 0;      ///< 150004
  bool pooled = false;  ///< nothing is kept from one transaction to the next
  bool fsync = true;
  bool full_page_writes = true;
  std::string synchronous_commit;
  bool standbys = false;  ///< synchronous_standby_names has some
  std::string store;      ///< what the schema calls itself
};

/// The conversation at the beginning of a connection: who the server is, whether it may be used, and
/// whether the schema is there; if not, it is made. Pure.
/// Thread safety: none.
class greeting {
 public:
  greeting(const address& where, int server_process) : where_(where), process_(server_process) {}

  /// Called with nothing, then with each reply; returns what to say next, nothing when it is done.
  base::result<std::optional<std::string>> next(const reply* said);
  /// After it is done.
  [[nodiscard]] const server_facts& facts() const noexcept { return facts_; }

 private:
  enum class step : std::uint8_t { asked_facts, set_up, asked_version, installed };

  base::result<std::optional<std::string>> hear_facts(const reply& said);
  base::result<std::optional<std::string>> hear_version(const reply& said);
  [[nodiscard]] std::string ask_version();

  const address& where_;
  const int process_;
  step step_ = step::asked_facts;
  bool made_schema_ = false;
  server_facts facts_;
};

/// `facts`: nothing, if the server could not be reached.
[[nodiscard]] sallyport::capabilities capabilities_of(const std::optional<server_facts>& facts,
                                                      const address& where);

}  // namespace sallyport::backends::postgres
