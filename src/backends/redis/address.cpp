#include "backends/redis/address.hpp"

#include "backend_api/store_identity.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <variant>

namespace sallyport::backends::redis {
namespace {

constexpr std::uint16_t usual_port = 6379;
constexpr std::uint16_t usual_sentinel_port = 26379;
constexpr std::size_t most_nodes = 15;
constexpr std::size_t longest_prefix = 256;

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri, "the address of a Redis store: " + why +
                                       "; it looks like redis://user@host:6379/0?prefix=app: "
                                       "(docs/redis.md lists the options)");
}

/// What an option such as password_file leads to.
base::result<std::string> secret_of(const std::string& option, const std::string& place) {
  std::string why;
  auto secret = base::read_secret(option, place, why);
  if (!secret) return bad(why);
  return std::move(*secret);
}

base::result<net::endpoint> endpoint_of(const base::uri_host& named, std::uint16_t port) {
  net::endpoint where{named.name, port, {}};
  if (where.host.empty()) where.host = "127.0.0.1";
  if (!named.port.empty()) {
    const auto given = base::parse_number(named.port, 1, 65535);
    if (!given) return bad("'" + named.port + "' is no port");
    where.port = static_cast<std::uint16_t>(*given);
  }
  return where;
}

struct reader {
  address& out;

  base::result<std::monostate> take(std::string& where, base::result<std::string> secret) const {
    if (!secret) return tl::unexpected(secret.error());
    where = std::move(*secret);
    return std::monostate{};
  }

  base::result<std::monostate> number(unsigned& where, const std::string& text,
                                      unsigned most) const {
    const auto value = base::parse_number(text, 0, most);
    if (!value) return bad("'" + text + "' is no number from 0 to " + std::to_string(most));
    where = *value;
    return std::monostate{};
  }

  base::result<std::monostate> text(std::string& where, const std::string& value) const {
    where = value;
    return std::monostate{};
  }

  base::result<std::monostate> option(const std::string& name, const std::string& value) const {
    if (name == "prefix") return prefix(value);
    if (name == "db") return number(out.database, value, 1'000'000);
    if (name == "user") return text(out.user, value);
    if (name == "password_file" || name == "password_env") {
      return take(out.password, secret_of(name, value));
    }
    if (name == "sentinel_user") return text(out.sentinel_user, value);
    if (name == "sentinel_password_file" || name == "sentinel_password_env") {
      return take(out.sentinel_password, secret_of(name, value));
    }
    if (name == "ca_file") return text(out.tls.ca_file, value);
    if (name == "cert_file") return text(out.tls.certificate_file, value);
    if (name == "key_file") return text(out.tls.key_file, value);
    if (name == "server_name") return text(out.tls.server_name, value);
    if (name == "store") return store(value);
    if (name == "client_name") return text(out.client_name, value);
    if (name == "replicas") return number(out.replicas, value, 16);
    if (out.how == topology::quorum && name == "initialise" &&
        (value == "yes" || value == "no" || value == "force")) {
      out.initialise = value != "no";
      out.force = value == "force";
      return std::monostate{};
    }
    if (out.how == topology::quorum && name == "initialise" &&
        (value == "replace" || value == "replace_and_wait")) {
      out.replace = true;
      out.until_it_votes = value == "replace_and_wait";
      return std::monostate{};
    }
    if (out.how == topology::quorum && name == "old") return node(out.old_member, value);
    if (out.how == topology::quorum && name == "new") return node(out.new_member, value);
    if (out.how == topology::quorum && name == "max_lease") return max_lease(value);
    if (name == "verify" && (value == "yes" || value == "no")) {
      out.tls.verify = value == "yes";
      return std::monostate{};
    }
    return bad("unknown option '" + name + "'");
  }

  /// HOST or HOST:PORT, spelled as the list would be.
  base::result<std::monostate> node(std::string& where, const std::string& value) const {
    std::string why;
    const auto named = base::parse_uri("redlock://" + value, why);
    if (!named || named->hosts.size() != 1 || !named->path.empty() || !named->options.empty() ||
        !named->user.empty() || named->password) {
      return bad("'" + value + "' is no HOST:PORT of one node");
    }
    const auto found = endpoint_of(named->hosts.front(), usual_port);
    if (!found) return tl::unexpected(found.error());
    where = found->describe();
    const auto same = [&](const net::endpoint& each) { return each.describe() == where; };
    // Who is to be replaced may be gone, and be in no list any more.
    if (&where == &out.new_member && std::ranges::none_of(out.servers, same)) {
      out.servers.push_back(*found);
    }
    return std::monostate{};
  }

  base::result<std::monostate> max_lease(const std::string& value) const {
    const auto seconds = base::parse_number(value, 1, 24 * 3600);
    if (!seconds) return bad("max_lease is a number of seconds, 1 to 86400, not '" + value + "'");
    out.max_lease = std::chrono::seconds{*seconds};
    return std::monostate{};
  }

  base::result<std::monostate> store(const std::string& value) const {
    if (!backend_api::acceptable_store_name(value)) {
      return bad(std::string(backend_api::store_names_are));
    }
    return text(out.store, value);
  }

  base::result<std::monostate> prefix(const std::string& value) const {
    const bool control = std::ranges::any_of(
        value, [](char each) { return static_cast<unsigned char>(each) < 0x20 || each == 0x7f; });
    if (control || value.size() > longest_prefix) {
      return bad("a prefix is at most 256 bytes without control characters");
    }
    out.prefix = value;
    return std::monostate{};
  }
};

base::result<std::monostate> read_servers(const base::uri& from, address& out) {
  const bool sentinel = out.how == topology::sentinel;
  for (const base::uri_host& each : from.hosts) {
    auto where = endpoint_of(each, sentinel ? usual_sentinel_port : usual_port);
    if (!where) return tl::unexpected(where.error());
    out.servers.push_back(std::move(*where));
  }
  if (out.servers.empty()) out.servers.push_back({"127.0.0.1", usual_port, {}});
  if (out.how == topology::single && out.servers.size() > 1) {
    return bad("several servers need redis+cluster://, redis+sentinel:// or redlock://");
  }
  return std::monostate{};
}

/// What follows the servers: /db, or for sentinels /group/db.
base::result<std::monostate> read_path(std::string_view path, address& out) {
  while (path.starts_with('/')) path.remove_prefix(1);
  if (out.how == topology::sentinel) {
    const auto end = std::min(path.find('/'), path.size());
    out.master = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (out.master.empty()) {
      return bad("sentinels need the name of the group: redis+sentinel://s1,s2,s3/mymaster");
    }
  }
  if (path.empty()) return std::monostate{};
  return reader{out}.number(out.database, std::string(path), 1'000'000);
}

}  // namespace

base::result<address> parse_address(std::string_view text) {
  std::string why;
  const auto from = base::parse_uri(text, why);
  if (!from) return bad(why);
  address out;
  std::string_view scheme = from->scheme;
  if (scheme.starts_with("redlock")) {
    out.how = topology::quorum;
    out.tls.on = scheme == "redlocks";
    scheme = {};
  } else {
    out.tls.on = scheme.starts_with("rediss");
    scheme.remove_prefix(out.tls.on ? 6 : 5);
  }
  out.user = from->user;
  out.password = from->password.value_or("");
  if (scheme == "+unix") {
    if (!from->hosts.empty() || from->path.empty()) {
      return bad("a unix socket is named by its whole path: redis+unix:///run/redis/redis.sock");
    }
    out.servers.push_back({{}, 0, from->path});
  } else {
    if (scheme == "+sentinel") out.how = topology::sentinel;
    if (scheme == "+cluster") out.how = topology::cluster;
    if (auto done = read_servers(*from, out); !done) return tl::unexpected(done.error());
    if (auto done = read_path(from->path, out); !done) return tl::unexpected(done.error());
  }
  for (const auto& [name, value] : from->options) {
    if (auto done = reader{out}.option(name, value); !done) return tl::unexpected(done.error());
  }
  if (out.how == topology::cluster && out.database != 0)
    return bad("a cluster has database 0 only");
  if (out.replace == out.old_member.empty() || out.replace == out.new_member.empty()) {
    return bad("initialise=replace, old=HOST and new=HOST belong together");
  }
  if (out.how == topology::quorum && out.servers.size() > most_nodes) {
    return bad("a quorum has at most 15 nodes");
  }
  if (out.how == topology::quorum && out.replicas > 0) {
    return bad("the nodes of a quorum are masters without replicas that could take their place");
  }
  return out;
}

std::string place_of(const address& where) {
  return "/" + std::to_string(where.database) + ":" + where.prefix;
}

}  // namespace sallyport::backends::redis
