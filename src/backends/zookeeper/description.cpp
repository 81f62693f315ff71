#include "backends/zookeeper/description.hpp"

#include "base/flat_json.hpp"

#include <limits>
#include <utility>

namespace sallyport::backends::zookeeper {
namespace {

void take_text(std::string_view name, std::string text, description& out) {
  if (name == "host") {
    out.host = std::move(text);
  } else if (name == "label") {
    out.label = std::move(text);
  } else if (name == "value") {
    out.value = std::move(text);
  } else if (name == "kind") {
    out.kind = std::move(text);
  }
}

void take_number(std::string_view name, std::int64_t number, description& out) {
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  if (name == "pid") out.pid = number;
  if (name == "trust_ms") out.trust_ms = number;
  if (name == "closed") out.closed = number != 0;
  if (name == "token" && number > 0) out.token = static_cast<std::uint64_t>(number);
  if (name == "waiters" && number >= 0 && number <= most) {
    out.waiters = static_cast<std::uint32_t>(number);
  }
}

}  // namespace

std::string to_json(const description& who) {
  base::flat_json_writer out;
  const auto text = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) out.text(name, value);
  };
  const auto number = [&](std::string_view name, std::int64_t value) {
    if (value != 0) out.number(name, value);
  };
  out.text("by", "sallyport");
  text("host", who.host);
  number("pid", who.pid);
  text("label", who.label);
  text("value", who.value);
  text("kind", who.kind);
  number("waiters", who.waiters);
  number("token", static_cast<std::int64_t>(who.token));
  number("trust_ms", who.trust_ms);
  number("closed", who.closed ? 1 : 0);
  return out.finished();
}

std::optional<description> from_json(std::string_view text) {
  description found;
  const auto field = [&](std::string_view name, base::flat_json_value value) {
    if (auto* const said = std::get_if<std::string>(&value)) {
      take_text(name, std::move(*said), found);
    } else if (const auto* const number = std::get_if<std::int64_t>(&value)) {
      take_number(name, *number, found);
    }
  };
  if (!text.starts_with("{\"by\":\"sallyport\"") || !base::read_flat_json(text, field)) {
    return std::nullopt;
  }
  return found;
}

}  // namespace sallyport::backends::zookeeper
