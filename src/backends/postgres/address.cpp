#include "backends/postgres/address.hpp"

#include "backend_api/store_identity.hpp"
#include "base/secret.hpp"
#include "base/uri.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>

namespace sallyport::backends::postgres {
namespace {

constexpr std::size_t longest_schema = 63;  // the server would cut off the rest

auto bad(const std::string& why) {
  return base::fail(errc::bad_uri,
                    "the address of a PostgreSQL database: " + why +
                        "; it looks like postgres://user@host:5432/database?schema=sallyport "
                        "(docs/postgres.md lists the options)");
}

/// Nothing: a percent sign that is followed by no two digits.
std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 3 > text.size()) return std::nullopt;
    const char* const end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, byte, 16).ptr != end || byte == 0) {
      return std::nullopt;
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

/// What an option such as password_file leads to.
base::result<std::string> secret_of(const std::string& option, const std::string& place) {
  std::string why;
  auto secret = base::read_secret(option, place, why);
  if (!secret) return bad(why);
  return std::move(*secret);
}

base::result<std::monostate> read_schema(const std::string& value, address& out) {
  const bool odd = std::ranges::any_of(value, [](char each) {
    return static_cast<unsigned char>(each) < 0x20 || each == 0x7f || each == '"' || each == '\'' ||
           each == '\\' || each == '$';
  });
  if (value.empty() || value.size() > longest_schema || odd || value.starts_with("pg_")) {
    return bad(
        "a schema's name is 1 to 63 bytes without quotes, backslashes, dollar signs and control "
        "characters, and does not begin with pg_");
  }
  out.schema = value;
  return std::monostate{};
}

/// True: it was one of ours.
base::result<bool> read_option(const std::string& name, const std::string& value, address& out,
                               std::optional<std::string>& password) {
  if (name == "schema") {
    if (auto done = read_schema(value, out); !done) return tl::unexpected(done.error());
  } else if (name == "store") {
    if (!backend_api::acceptable_store_name(value)) {
      return bad(std::string(backend_api::store_names_are));
    }
    out.store = value;
  } else if (name == "durable") {
    if (value != "yes" && value != "no") return bad("durable is yes or no");
    out.durable = value == "yes";
  } else if (name == "pooler") {
    if (value != "session" && value != "transaction" && value != "detect") {
      return bad("pooler is session, transaction or detect");
    }
    out.pooler = value == "session"       ? pooling::none
                 : value == "transaction" ? pooling::transactions
                                          : pooling::detect;
  } else if (name == "password_file" || name == "password_env") {
    auto secret = secret_of(name, value);
    if (!secret) return tl::unexpected(secret.error());
    password = std::move(*secret);
  } else {
    return false;
  }
  return true;
}

/// Takes our options out of the query, and leaves libpq's.
base::result<std::string> without_our_options(std::string_view uri, address& out,
                                              std::optional<std::string>& password) {
  const auto mark = uri.find('?');
  std::string rest(uri.substr(0, mark));
  if (mark == std::string_view::npos) return rest;
  std::string_view query = uri.substr(mark + 1);
  char separator = '?';
  while (!query.empty()) {
    const auto end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const auto equals = one.find('=');
    if (equals != std::string_view::npos) {
      const auto value = decoded(one.substr(equals + 1));
      if (!value) return bad("a percent sign is followed by two hexadecimal digits");
      const auto ours = read_option(std::string(one.substr(0, equals)), *value, out, password);
      if (!ours) return tl::unexpected(ours.error());
      if (*ours) continue;
    }
    rest += separator;
    rest += one;
    separator = '&';
  }
  return rest;
}

}  // namespace

base::result<address> parse_address(std::string_view uri) {
  if (uri.find('\0') != std::string_view::npos) return bad("it has a zero byte");
  address out;
  std::optional<std::string> password;
  auto rest = without_our_options(uri, out, password);
  if (!rest) return tl::unexpected(rest.error());
  auto where = wire_parameters_of(*rest);
  if (!where) return bad(where.error().detail);
  std::string host;
  std::string port;
  std::string service;
  for (const auto& [keyword, value] : *where) {
    if (keyword == "host" || (keyword == "hostaddr" && host.empty())) host = value;
    if (keyword == "port") port = value;
    if (keyword == "dbname") out.database = value;
    if (keyword == "service") service = value;
    if (keyword == "user") out.user = value;
    if (keyword == "connect_timeout") {
      const auto seconds = base::parse_number(value, 1, 3600);
      if (!seconds) return bad("connect_timeout is a number of seconds");
      out.connect_timeout_s = *seconds;
    }
  }
  out.description = "postgres at " + (host.empty() ? std::string("the usual place") : host) +
                    (port.empty() ? "" : ":" + port) +
                    (out.database.empty() ? "" : "/" + out.database) +
                    (service.empty() ? "" : " (service " + service + ")");
  out.where = std::move(*where);
  if (password) out.where.emplace_back("password", std::move(*password));
  return out;
}

}  // namespace sallyport::backends::postgres
