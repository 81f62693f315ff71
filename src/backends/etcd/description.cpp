#include "backends/etcd/description.hpp"

#include "base/flat_json.hpp"

#include <limits>
#include <utility>

namespace sallyport::backends::etcd {
namespace {

void take_text(std::string_view name, std::string text, description& out) {
  if (name == "host") {
    out.host = std::move(text);
  } else if (name == "label") {
    out.label = std::move(text);
  }
}

void take_truth(std::string_view name, bool truth, description& out) {
  if (name == "held") out.held = truth;
  if (name == "shared") out.shared = truth;
  if (name == "closed") out.closed = truth;
}

void take_number(std::string_view name, std::int64_t number, description& out) {
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  if (name == "pid") out.pid = number;
  if (name == "since_ms") out.since_ms = number;
  if (name == "token" && number > 0) out.token = static_cast<std::uint64_t>(number);
  if (number < 0 || number > most) return;
  if (name == "waiters") out.waiters = static_cast<std::uint32_t>(number);
  if (name == "permits") out.permits = static_cast<std::uint32_t>(number);
}

}  // namespace

std::string to_json(const description& who) {
  base::flat_json_writer out;
  const auto number = [&](std::string_view name, std::int64_t value) {
    if (value != 0) out.number(name, value);
  };
  const auto truth = [&](std::string_view name, bool value) {
    if (value) out.truth(name, value);
  };
  out.text("by", "sallyport");
  out.text("host", who.host);
  out.number("pid", who.pid);
  out.text("label", who.label);
  out.number("since_ms", who.since_ms);
  number("waiters", who.waiters);
  number("permits", who.permits);
  number("token", static_cast<std::int64_t>(who.token));
  truth("held", who.held);
  truth("shared", who.shared);
  truth("closed", who.closed);
  return out.finished();
}

std::optional<description> from_json(std::string_view text) {
  description found;
  const auto field = [&](std::string_view name, base::flat_json_value value) {
    if (auto* const said = std::get_if<std::string>(&value)) {
      take_text(name, std::move(*said), found);
    } else if (const auto* const number = std::get_if<std::int64_t>(&value)) {
      take_number(name, *number, found);
    } else {
      take_truth(name, std::get<bool>(value), found);
    }
  };
  if (!text.starts_with("{\"by\":\"sallyport\"") || !base::read_flat_json(text, field)) {
    return std::nullopt;
  }
  return found;
}

}  // namespace sallyport::backends::etcd
