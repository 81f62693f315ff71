#include "database.hpp"

#include <memory>
#include <stdexcept>
#include <string>

std::unique_ptr<database> connect(const std::string& address) {
  if (address.starts_with("sqlite:")) return connect_to_sqlite(address.substr(7));
  if (address.starts_with("postgres")) return connect_to_postgres(address);
  if (address.starts_with("mariadb:")) return connect_to_mariadb(address);
  throw std::runtime_error("no database of this shop: " + address);
}
