#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>

namespace sallyport::sim::redis {
namespace {

reply erase(command_context& here, arguments given) {
  std::int64_t erased = 0;
  for (const auto key : given.subspan(1)) erased += here.keys.erase(key, here.now_ms) ? 1 : 0;
  return integer_reply(erased);
}

reply exists(command_context& here, arguments given) {
  std::int64_t found = 0;
  for (const auto key : given.subspan(1)) {
    found += here.keys.find(key, here.now_ms) != nullptr ? 1 : 0;
  }
  return integer_reply(found);
}

std::string_view type_name(const entry& kept) {
  static constexpr std::array<std::string_view, 3> names{"string", "hash", "zset"};
  return names[kept.value.index()];
}

reply type(command_context& here, arguments given) {
  const auto* const found = here.keys.find(given[1], here.now_ms);
  return status_reply(found == nullptr ? "none" : std::string(type_name(*found)));
}

constexpr std::int64_t no_key = -2;
constexpr std::int64_t no_expiry = -1;

reply time_left(command_context& here, arguments given) {
  const auto* const found = here.keys.find(given[1], here.now_ms);
  if (found == nullptr) return integer_reply(no_key);
  if (found->expires_at == entry::never) return integer_reply(no_expiry);
  return integer_reply(found->expires_at - here.now_ms);
}

reply expiry_time(command_context& here, arguments given) {
  const auto* const found = here.keys.find(given[1], here.now_ms);
  if (found == nullptr) return integer_reply(no_key);
  return integer_reply(found->expires_at == entry::never ? no_expiry : found->expires_at);
}

reply persist(command_context& here, arguments given) {
  auto* const found = here.keys.find(given[1], here.now_ms);
  if (found == nullptr || found->expires_at == entry::never) return integer_reply(0);
  found->expires_at = entry::never;
  return integer_reply(1);
}

struct expiry_condition {
  bool if_none = false;
  bool if_any = false;
  bool if_later = false;
  bool if_earlier = false;
  std::optional<reply> refused;

  // A key without expiry lives for ever: nothing is later.
  [[nodiscard]] bool allows(wall_ms current, wall_ms wanted) const {
    const bool none = current == entry::never;
    return !(if_none && !none) && !(if_any && none) && !(if_later && (none || wanted <= current)) &&
           !(if_earlier && !none && wanted >= current);
  }
};

expiry_condition parse_condition(arguments options) {
  expiry_condition parsed;
  for (const auto word : options) {
    if (is_word(word, "nx")) {
      parsed.if_none = true;
    } else if (is_word(word, "xx")) {
      parsed.if_any = true;
    } else if (is_word(word, "gt")) {
      parsed.if_later = true;
    } else if (is_word(word, "lt")) {
      parsed.if_earlier = true;
    } else {
      parsed.refused = error_reply("ERR Unsupported option " + std::string(word));
      return parsed;
    }
  }
  if (parsed.if_none && (parsed.if_any || parsed.if_later || parsed.if_earlier)) {
    parsed.refused =
        error_reply("ERR NX and XX, GT or LT options at the same time are not compatible");
  } else if (parsed.if_later && parsed.if_earlier) {
    parsed.refused = error_reply("ERR GT and LT options at the same time are not compatible");
  }
  return parsed;
}

reply expire_from(command_context& here, arguments given, wall_ms base, std::string_view name) {
  const auto condition = parse_condition(given.subspan(3));
  if (condition.refused.has_value()) return *condition.refused;
  const auto offset = parse_integer(given[2]);
  if (!offset.has_value()) return not_an_integer();
  if (*offset > std::numeric_limits<std::int64_t>::max() - base) return invalid_expiry(name);
  const auto moment = *offset + base;

  auto* const found = here.keys.find(given[1], here.now_ms);
  if (found == nullptr || !condition.allows(found->expires_at, moment)) return integer_reply(0);
  // Here a key is gone at its moment already, not only after it.
  if (moment <= here.now_ms) {
    here.keys.erase(given[1], here.now_ms);
  } else {
    found->expires_at = moment;
  }
  return integer_reply(1);
}

reply expire(command_context& here, arguments given) {
  return expire_from(here, given, here.now_ms, "pexpire");
}

reply expire_at(command_context& here, arguments given) {
  return expire_from(here, given, 0, "pexpireat");
}

struct scan_options {
  std::optional<std::string_view> pattern;
  std::optional<std::string_view> type;
  std::optional<reply> refused;
};

scan_options parse_scan_options(arguments options) {
  scan_options parsed;
  for (std::size_t i = 0; i < options.size(); i += 2) {
    const bool has_value = i + 1 < options.size();
    if (has_value && is_word(options[i], "count")) {
      const auto count = parse_integer(options[i + 1]);
      if (!count.has_value()) {
        parsed.refused = not_an_integer();
      } else if (*count < 1) {
        parsed.refused = syntax_error();
      }
    } else if (has_value && is_word(options[i], "match")) {
      parsed.pattern = options[i + 1];
    } else if (has_value && is_word(options[i], "type")) {
      parsed.type = options[i + 1];
    } else {
      parsed.refused = syntax_error();
    }
    if (parsed.refused.has_value()) break;
  }
  return parsed;
}

std::optional<std::uint64_t> parse_cursor(std::string_view text) {
  const std::string terminated(text);
  char* stopped = nullptr;
  errno = 0;
  const auto cursor = std::strtoull(terminated.c_str(), &stopped, 10);
  const bool space =
      text.starts_with(' ') || (!text.empty() && text.front() >= '\t' && text.front() <= '\r');
  if (space || *stopped != '\0' || errno == ERANGE) return std::nullopt;
  return cursor;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (auto& byte : lower) {
    if (byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte - 'A' + 'a');
  }
  return lower;
}

// Everything is on the first page; whoever asks for another one has come to the end.
reply scan(command_context& here, arguments given) {
  const auto cursor = parse_cursor(given[1]);
  if (!cursor.has_value()) return error_reply("ERR invalid cursor");
  const auto options = parse_scan_options(given.subspan(2));
  if (options.refused.has_value()) return *options.refused;

  auto page = array_reply();
  if (*cursor == 0) {
    const auto type = lower_case(options.type.value_or(std::string_view{}));
    for (auto& key : here.keys.sorted_keys()) {
      if (options.pattern.has_value() && !matches_glob(*options.pattern, key)) continue;
      const auto* const kept = here.keys.find(key, here.now_ms);
      if (kept == nullptr || (options.type.has_value() && type_name(*kept) != type)) continue;
      page.elements.push_back(text_reply(std::move(key)));
    }
  }
  auto answer = array_reply();
  answer.elements.push_back(text_reply("0"));
  answer.elements.push_back(std::move(page));
  return answer;
}

constexpr std::array<command, 10> group{{
    {"del", -2, true, erase},
    {"unlink", -2, true, erase},
    {"exists", -2, true, exists},
    {"type", 2, true, type},
    {"pttl", 2, true, time_left},
    {"pexpire", -3, true, expire},
    {"pexpireat", -3, true, expire_at},
    {"persist", 2, true, persist},
    {"pexpiretime", 2, true, expiry_time},
    {"scan", -2, true, scan},
}};

}  // namespace

std::span<const command> key_commands() { return group; }

}  // namespace sallyport::sim::redis
