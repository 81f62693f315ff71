#include "backends/zookeeper/address.hpp"

#include "backend_api/store_identity.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace sallyport::backends::zookeeper {
namespace {

constexpr std::string_view usual_port = "2181";
constexpr std::size_t most_servers = 32;
constexpr unsigned longest_tick_ms = 60'000;

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri, "the address of a ZooKeeper store: " + why +
                                       "; it looks like zookeeper://h1:2181,h2:2181,h3:2181/locks "
                                       "(docs/zookeeper.md lists the options)");
}

/// What an option such as password_file leads to.
base::result<std::string> secret_of(const std::string& option, const std::string& place) {
  std::string why;
  auto secret = base::read_secret(option, place, why);
  if (!secret) return bad(why);
  return std::move(*secret);
}

base::result<std::monostate> take_option(address& out, const std::string& name,
                                         const std::string& value) {
  if (name == "password_file" || name == "password_env") {
    auto secret = secret_of(name, value);
    if (!secret) return tl::unexpected(secret.error());
    out.password = std::move(*secret);
  } else if (name == "user") {
    out.user = value;
  } else if (name == "store") {
    if (!backend_api::acceptable_store_name(value)) {
      return bad(std::string(backend_api::store_names_are));
    }
    out.store = value;
  } else if (name == "dialect" && (value == "curator" || value == "kazoo")) {
    out.nodes.speech = value == "kazoo" ? dialect::kazoo : dialect::curator;
  } else if (name == "names" && (value == "encoded" || value == "path")) {
    out.nodes.names_are_paths = value == "path";
  } else if (name == "tick") {
    const auto tick = base::parse_number(value, 1, longest_tick_ms);
    if (!tick) return bad("tick is the servers' tickTime in milliseconds, not '" + value + "'");
    out.tick = std::chrono::milliseconds{*tick};
  } else {
    return bad("unknown option '" + name + "=" + (name.ends_with("word") ? "..." : value) + "'");
  }
  return std::monostate{};
}

base::result<std::monostate> take_root(address& out, std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty()) return std::monostate{};
  layout::settings check;
  check.names_are_paths = true;
  if (path == "/zookeeper" || layout(check).folder(path.substr(1)) != path) {
    return bad("'" + std::string(path) + "' can't be the path of a node that has locks below it");
  }
  out.nodes.root = path;
  return std::monostate{};
}

}  // namespace

base::result<address> parse_address(std::string_view text) {
  std::string why;
  const auto from = base::parse_uri(text, why);
  if (!from) return bad(why);
  if (from->scheme == "zookeepers") {
    return base::fail(errc::bad_uri,
                      "Debian's ZooKeeper client library was built without TLS, so zookeepers:// "
                      "can't be served; use zookeeper:// through a tunnel (stunnel, wireguard)");
  }
  address out;
  for (const base::uri_host& each : from->hosts) {
    const std::string_view port = each.port.empty() ? usual_port : std::string_view(each.port);
    if (!base::parse_number(port, 1, 65535)) return bad("'" + each.port + "' is no port");
    const std::string host = each.name.empty() ? "127.0.0.1" : each.name;
    const bool ipv6 = host.find(':') != std::string::npos;
    out.servers.push_back((ipv6 ? "[" + host + "]" : host) + ":" + std::string(port));
  }
  if (out.servers.empty()) out.servers.push_back("127.0.0.1:" + std::string(usual_port));
  if (out.servers.size() > most_servers) return bad("an ensemble has at most 32 servers");
  out.user = from->user;
  out.password = from->password.value_or("");
  if (auto done = take_root(out, from->path); !done) return tl::unexpected(done.error());
  for (const auto& [name, value] : from->options) {
    if (auto done = take_option(out, name, value); !done) return tl::unexpected(done.error());
  }
  if (out.user.empty() != out.password.empty()) {
    return bad("a user needs a password (password_file, password_env), and a password a user");
  }
  return out;
}

}  // namespace sallyport::backends::zookeeper
