#include "backends/redis/slot_map.hpp"

#include <charconv>

namespace sallyport::backends::redis {
namespace {

constexpr std::int64_t highest_port = 65535;

/// Servers that do not know their own name say nothing, or "?".
net::endpoint endpoint_of(std::string_view host, std::int64_t port, const net::endpoint& asked) {
  net::endpoint where;
  where.host = host.empty() || host == "?" ? asked.host : host;
  where.port = static_cast<std::uint16_t>(port);
  return where;
}

}  // namespace

std::optional<std::vector<slot_range>> slots_in(const reply& said, const net::endpoint& asked) {
  if (!said.is_array()) return std::nullopt;
  std::vector<slot_range> all;
  for (const reply& each : said.elements) {
    if (each.elements.size() < 3 || each.elements[2].elements.size() < 2) return std::nullopt;
    const std::int64_t first = each.elements[0].integer;
    const std::int64_t last = each.elements[1].integer;
    const std::int64_t port = each.elements[2].elements[1].integer;
    if (first < 0 || first > last || last >= std::int64_t{slot_count}) return std::nullopt;
    if (port < 1 || port > highest_port) return std::nullopt;
    all.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last),
                   endpoint_of(each.elements[2].elements[0].text, port, asked)});
  }
  return all;
}

std::optional<net::endpoint> target_of(const reply& error, const net::endpoint& asked) {
  const std::string_view word = error.error_word();
  if (word != "MOVED" && word != "ASK") return std::nullopt;
  // MOVED 3999 127.0.0.1:6381; the host may be an IPv6 address, so the last colon counts.
  const std::string_view text = error.text;
  const auto place = text.rfind(' ');
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || place == std::string_view::npos || colon < place) {
    return std::nullopt;
  }
  std::int64_t port = 0;
  const std::string_view digits = text.substr(colon + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (port < 1 || port > highest_port) return std::nullopt;
  return endpoint_of(text.substr(place + 1, colon - place - 1), port, asked);
}

}  // namespace sallyport::backends::redis
