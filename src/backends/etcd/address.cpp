#include "backends/etcd/address.hpp"

#include "backend_api/store_identity.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace sallyport::backends::etcd {
namespace {

constexpr std::uint16_t usual_port = 2379;
constexpr std::size_t most_members = 31;
constexpr std::size_t longest_prefix = 256;

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri, "the address of an etcd cluster: " + why +
                                       "; it looks like etcd://user@host1,host2,host3:2379?prefix="
                                       "app/ (docs/etcd.md lists the options)");
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

base::result<std::monostate> read_prefix(const std::string& value, address& out) {
  const bool control = std::ranges::any_of(
      value, [](char each) { return static_cast<unsigned char>(each) < 0x20 || each == 0x7f; });
  if (control || value.size() > longest_prefix) {
    return bad("a prefix is at most 256 bytes without control characters");
  }
  out.prefix = value;
  return std::monostate{};
}

base::result<std::monostate> read_option(const std::string& name, const std::string& value,
                                         address& out) {
  if (name == "prefix") return read_prefix(value, out);
  if (name == "password_file" || name == "password_env") {
    return take(out.password, secret_of(name, value));
  }
  if (name == "store" && !backend_api::acceptable_store_name(value)) {
    return bad(std::string(backend_api::store_names_are));
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

base::result<std::monostate> read_members(const base::uri& from, address& out) {
  for (const base::uri_host& each : from.hosts) {
    net::endpoint where{.host = each.name, .port = usual_port};
    if (where.host.empty()) where.host = "127.0.0.1";
    if (!each.port.empty()) {
      const auto port = base::parse_number(each.port, 1, 65535);
      if (!port) return bad("'" + each.port + "' is no port");
      where.port = static_cast<std::uint16_t>(*port);
    }
    out.members.push_back(std::move(where));
  }
  if (out.members.empty()) out.members.push_back({"127.0.0.1", usual_port, {}});
  if (out.members.size() > most_members) return bad("at most 31 members can be named");
  return std::monostate{};
}

}  // namespace

base::result<address> parse_address(std::string_view text) {
  std::string why;
  const auto from = base::parse_uri(text, why);
  if (!from) return bad(why);
  address out;
  out.tls.on = from->scheme == "etcds";
  out.user = from->user;
  out.password = from->password.value_or("");
  if (!from->path.empty() && from->path != "/") {
    return bad("it has no path; ?prefix= is what stands before the names");
  }
  if (auto done = read_members(*from, out); !done) return tl::unexpected(done.error());
  for (const auto& [name, value] : from->options) {
    if (auto done = read_option(name, value, out); !done) return tl::unexpected(done.error());
  }
  if (out.user.empty() && !out.password.empty()) return bad("a password needs a user");
  if (!out.tls.on && (!out.tls.ca_file.empty() || !out.tls.certificate_file.empty())) {
    return bad("certificates need etcds://");
  }
  return out;
}

}  // namespace sallyport::backends::etcd
