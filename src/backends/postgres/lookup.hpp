#pragma once

#include "backends/postgres/wire.hpp"
#include "base/result.hpp"
#include "net/resolution.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sallyport::backends::postgres {

/// Finds the addresses of the hosts that an address names, without blocking, which libpq can't: it is
/// given addresses beside the names. Hosts that only libpq knows (from a service file or PGHOST) are
/// left to it.
/// Thread safety: none.
class lookup {
 public:
  explicit lookup(const wire_parameters& where);

  /// Nothing: not yet. Fails with `unavailable` when no host has an address.
  [[nodiscard]] std::optional<base::result<wire_parameters>> poll();

 private:
  struct host {
    std::string name;
    std::string port;
    std::unique_ptr<net::resolution> question;  // null: nothing to ask
    std::vector<std::string> addresses;
  };

  wire_parameters rest_;  // all but hosts and ports
  std::vector<host> hosts_;
  std::string why_;
};

/// Looks up, and makes the wire that dials what was found.
[[nodiscard]] std::unique_ptr<sql::search> search_for(const wire_parameters& where);

}  // namespace sallyport::backends::postgres
