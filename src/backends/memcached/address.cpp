#include "backends/memcached/address.hpp"

#include "backends/memcached/record.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace sallyport::backends::memcached {
namespace {

constexpr std::uint16_t usual_port = 11211;
// memcached reads 255 bytes of a line of its file.
constexpr std::size_t longest_secret = 200;

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri, "the address of a memcached server: " + why +
                                       "; it looks like memcached://host:11211?prefix=app: "
                                       "(docs/memcached.md lists the options)");
}

/// What an option such as password_file leads to.
base::result<std::string> secret_of(const std::string& option, const std::string& place) {
  std::string why;
  auto secret = base::read_secret(option, place, why);
  if (!secret) return bad(why);
  return std::move(*secret);
}

base::result<std::monostate> take(std::string& where, base::result<std::string> secret) {
  if (!secret) return tl::unexpected(secret.error());
  where = std::move(*secret);
  return std::monostate{};
}

base::result<std::monostate> read_option(const std::string& name, const std::string& value,
                                         address& out) {
  if (name == "prefix") {
    if (!acceptable_prefix(value)) {
      return bad("a prefix is at most 128 bytes of UTF-8 without blanks and control characters");
    }
    out.prefix = value;
    return std::monostate{};
  }
  if (name == "password_file" || name == "password_env") {
    return take(out.password, secret_of(name, value));
  }
  if (name == "verify" && (value == "yes" || value == "no")) {
    out.tls.verify = value == "yes";
    return std::monostate{};
  }
  for (const auto& [option, where] : {std::pair{"user", &out.user},
                                      {"ca_file", &out.tls.ca_file},
                                      {"cert_file", &out.tls.certificate_file},
                                      {"key_file", &out.tls.key_file},
                                      {"server_name", &out.tls.server_name},
                                      {"store", &out.store}}) {
    if (name != option) continue;
    *where = value;
    return std::monostate{};
  }
  return bad("unknown option '" + name + "'");
}

base::result<std::monostate> read_server(const base::uri& from, address& out) {
  if (from.scheme == "memcached+unix") {
    if (!from.hosts.empty() || from.path.empty()) {
      return bad("a unix socket is named by its whole path: memcached+unix:///run/memcached.sock");
    }
    out.server.path = from.path;
    return std::monostate{};
  }
  if (from.hosts.size() > 1) {
    return bad("it names one server: locks on several would each be another lock");
  }
  if (!from.path.empty() && from.path != "/") {
    return bad("it has no path; ?prefix= is what stands before the names");
  }
  out.server = {.host = "127.0.0.1", .port = usual_port};
  if (from.hosts.empty()) return std::monostate{};
  const base::uri_host& given = from.hosts.front();
  if (!given.name.empty()) out.server.host = given.name;
  if (given.port.empty()) return std::monostate{};
  const auto port = base::parse_number(given.port, 1, 65535);
  if (!port) return bad("'" + given.port + "' is no port");
  out.server.port = static_cast<std::uint16_t>(*port);
  return std::monostate{};
}

/// The login is "user password": blanks would be taken for its end.
bool acceptable_login(const std::string& word) {
  return word.size() <= longest_secret && std::all_of(word.begin(), word.end(), [](char each) {
           const auto byte = static_cast<unsigned char>(each);
           return byte > 0x20 && byte != 0x7f;
         });
}

}  // namespace

base::result<address> parse_address(std::string_view text) {
  std::string why;
  const auto from = base::parse_uri(text, why);
  if (!from) return bad(why);
  address out;
  out.tls.on = from->scheme == "memcacheds";
  out.user = from->user;
  out.password = from->password.value_or("");
  if (auto done = read_server(*from, out); !done) return tl::unexpected(done.error());
  for (const auto& [name, value] : from->options) {
    if (auto done = read_option(name, value, out); !done) return tl::unexpected(done.error());
  }
  if (!out.tls.on && (!out.tls.ca_file.empty() || !out.tls.certificate_file.empty())) {
    return bad("certificates need memcacheds://");
  }
  if (out.user.empty() != out.password.empty()) {
    return bad("a login is a user and a password (password_file, password_env)");
  }
  if (!acceptable_login(out.user) || !acceptable_login(out.password)) {
    return bad("user and password are at most 200 bytes without blanks");
  }
  return out;
}

std::string store_id_of(const address& where) {
  return "memcached:" + (where.store.empty() ? where.server.describe() : where.store) + ":" +
         where.prefix;
}

}  // namespace sallyport::backends::memcached
