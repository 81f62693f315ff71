#include "backends/mariadb/address.hpp"

#include "backend_api/store_identity.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace sallyport::backends::mariadb {
namespace {

// Names of tables and procedures have at most 64 characters; ours add up to 10.
constexpr std::size_t longest_prefix = 48;
constexpr std::size_t longest_database = 64;

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri,
                    "the address of a MariaDB database: " + why +
                        "; it looks like mariadb://user@host:3306/database?prefix=sallyport_ "
                        "(docs/mariadb.md lists the options)");
}

/// What an option such as password_file leads to.
base::result<std::string> secret_of(const std::string& option, const std::string& place) {
  std::string why;
  auto secret = base::read_secret(option, place, why);
  if (!secret) return bad(why);
  return std::move(*secret);
}

bool plain(char each) noexcept {
  return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
         (each >= '0' && each <= '9') || each == '_';
}

base::result<std::monostate> read_choice(const std::string& name, const std::string& value,
                                         address& out) {
  if (value != "yes" && value != "no") return bad(name + " is yes or no");
  if (name == "tls") out.tls.on = value == "yes";
  if (name == "verify") out.tls.verify = value == "yes";
  return std::monostate{};
}

base::result<std::monostate> read_option(const std::string& name, const std::string& value,
                                         address& out) {
  if (name == "prefix") {
    if (value.empty() || value.size() > longest_prefix || !std::ranges::all_of(value, plain)) {
      return bad("a prefix is 1 to 48 letters, digits and underscores");
    }
    out.prefix = value;
    return std::monostate{};
  }
  if (name == "password_file" || name == "password_env") {
    auto secret = secret_of(name, value);
    if (!secret) return tl::unexpected(secret.error());
    out.password = std::move(*secret);
    return std::monostate{};
  }
  if (name == "connect_timeout") {
    const auto seconds = base::parse_number(value, 1, 3600);
    if (!seconds) return bad("connect_timeout is a number of seconds");
    out.connect_timeout_s = *seconds;
    return std::monostate{};
  }
  if (name == "tls" || name == "verify") return read_choice(name, value, out);
  if (name == "store" && !backend_api::acceptable_store_name(value)) {
    return bad(std::string(backend_api::store_names_are));
  }
  for (const auto& [option, where] : {std::pair{"ca_file", &out.tls.ca_file},
                                      {"cert_file", &out.tls.cert_file},
                                      {"key_file", &out.tls.key_file},
                                      {"socket", &out.socket},
                                      {"defaults_file", &out.defaults_file},
                                      {"defaults_group", &out.defaults_group},
                                      {"store", &out.store}}) {
    if (name != option) continue;
    if (value.empty()) return bad(name + " is empty");
    *where = value;
    return std::monostate{};
  }
  return bad("unknown option '" + name + "'");
}

base::result<std::monostate> read_place(const base::uri& from, address& out) {
  if (from.hosts.size() > 1) {
    return bad("it names one server: locks on several would each be another lock");
  }
  if (!from.hosts.empty()) {
    out.host = from.hosts.front().name;
    if (const std::string& given = from.hosts.front().port; !given.empty()) {
      const auto port = base::parse_number(given, 1, 65535);
      if (!port) return bad("'" + given + "' is no port");
      out.port = static_cast<std::uint16_t>(*port);
    }
  }
  out.database = from.path.empty() ? "" : from.path.substr(1);
  if (out.database.empty() || out.database.size() > longest_database ||
      out.database.find('/') != std::string::npos) {
    return bad("it names a database after the host, of at most 64 bytes");
  }
  return std::monostate{};
}

}  // namespace

base::result<address> parse_address(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return bad("it has a zero byte");
  std::string why;
  const auto from = base::parse_uri(text, why);
  if (!from) return bad(why);
  address out;
  out.user = from->user;
  out.password = from->password;
  if (auto done = read_place(*from, out); !done) return tl::unexpected(done.error());
  for (const auto& [name, value] : from->options) {
    if (auto done = read_option(name, value, out); !done) return tl::unexpected(done.error());
  }
  if (!out.socket.empty() && !out.host.empty() && out.host != "localhost") {
    return bad("a unix socket is on this machine: leave the host out");
  }
  if (out.socket.empty() && out.host.empty() && out.defaults_file.empty()) out.host = "127.0.0.1";
  const bool certificates = !out.tls.ca_file.empty() || !out.tls.cert_file.empty() ||
                            !out.tls.key_file.empty() || !out.tls.verify;
  if (certificates && !out.tls.on) return bad("certificates need tls=yes");
  out.description = "mariadb at " +
                    (!out.socket.empty() ? out.socket
                     : out.host.empty()  ? std::string("the option file's place")
                                         : out.host + ":" + std::to_string(out.port)) +
                    "/" + out.database;
  return out;
}

}  // namespace sallyport::backends::mariadb
