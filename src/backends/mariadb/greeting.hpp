#pragma once

#include "backends/mariadb/address.hpp"
#include "backends/sql/statement.hpp"
#include "base/result.hpp"
#include <sallyport/capabilities.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::backends::mariadb {

using sql::reply;

/// What a server says of itself.
struct server_facts {
  std::string version;
  bool mariadb = true;    ///< false: MySQL, or what else speaks its protocol
  bool flushes = true;    ///< a commit is on disk before it is answered
  bool survives = false;  ///< it survives the end of the server, if not that of its machine
  bool galera = false;    ///< a node of a cluster that takes writes everywhere
  std::string store;      ///< what the tables call themselves
};

/// The conversation at the beginning of a connection: who the server is, whether it may be used, and
/// whether tables and procedures are there; if not, they are made. Pure.
/// Thread safety: none.
class greeting {
 public:
  explicit greeting(const address& where) : where_(where) {}

  /// Called with nothing, then with each reply; returns what to say next, nothing when it is done.
  base::result<std::optional<std::string>> next(const reply* said);
  /// After it is done.
  [[nodiscard]] const server_facts& facts() const noexcept { return facts_; }

 private:
  enum class step : std::uint8_t {
    set_session,
    set_isolation,
    asked_facts,
    asked_version,
    took_turn,
    asked_foreigners,
    installing,
    gave_turn
  };
  using saying = base::result<std::optional<std::string>>;

  std::string set_session();
  saying hear_facts(const reply& said);
  saying hear_version(const reply& said);
  saying hear_foreigners(const reply& said);
  saying install_next();
  saying ask_version();
  [[nodiscard]] base::failure no_rights(const reply& said) const;
  [[nodiscard]] std::string turn() const;

  const address& where_;
  step step_ = step::set_session;
  bool made_schema_ = false;
  std::vector<std::string> statements_;
  std::size_t next_statement_ = 0;
  server_facts facts_;
};

/// `facts`: nothing, if the server could not be reached.
[[nodiscard]] sallyport::capabilities capabilities_of(const std::optional<server_facts>& facts);

}  // namespace sallyport::backends::mariadb
