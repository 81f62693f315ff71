#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace sallyport::sim::redis {
namespace {

reply get(command_context& here, arguments given) {
  const auto found = look_up<std::string>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  return found.kept == nullptr ? nil_reply() : text_reply(*found.value);
}

struct set_options {
  enum class expiry_unit { milliseconds, seconds };

  bool if_absent = false;
  bool if_present = false;
  bool keep_ttl = false;
  bool get = false;
  std::optional<std::string_view> expiry;
  std::string_view expiry_option;
  expiry_unit unit = expiry_unit::milliseconds;
  bool absolute = false;

  // The options of one kind exclude the others, but may be said twice.
  bool take_expiry(std::string_view option, std::string_view value) {
    if (keep_ttl || (expiry.has_value() && expiry_option != option)) return false;
    expiry = value;
    expiry_option = option;
    unit = option.starts_with('e') ? expiry_unit::seconds : expiry_unit::milliseconds;
    absolute = option.ends_with("at");
    return true;
  }
};

std::optional<set_options> parse_set_options(arguments options) {
  static constexpr std::array<std::string_view, 4> expiries{"ex", "px", "exat", "pxat"};
  set_options parsed;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto word = options[i];
    if (is_word(word, "nx") && !parsed.if_present) {
      parsed.if_absent = true;
    } else if (is_word(word, "xx") && !parsed.if_absent) {
      parsed.if_present = true;
    } else if (is_word(word, "get")) {
      parsed.get = true;
    } else if (is_word(word, "keepttl") && !parsed.expiry.has_value()) {
      parsed.keep_ttl = true;
    } else {
      if (i + 1 == options.size()) return std::nullopt;
      bool taken = false;
      for (const auto option : expiries) {
        if (is_word(word, option)) taken = parsed.take_expiry(option, options[i + 1]);
      }
      if (!taken) return std::nullopt;
      ++i;
    }
  }
  return parsed;
}

// The moment of expiry; an error where the text is none.
struct set_expiry {
  wall_ms at = entry::never;
  std::optional<reply> refused;
};

set_expiry moment_of(const set_options& options, const command_context& here) {
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  const auto given = parse_integer(*options.expiry);
  if (!given.has_value()) return {entry::never, not_an_integer()};
  auto moment = *given;
  const bool seconds = options.unit == set_options::expiry_unit::seconds;
  if (moment <= 0 || (seconds && moment > largest / 1000)) {
    return {entry::never, invalid_expiry("set")};
  }
  if (seconds) moment *= 1000;
  if (!options.absolute) {
    if (moment > largest - here.now_ms) return {entry::never, invalid_expiry("set")};
    moment += here.now_ms;
  }
  return {moment, std::nullopt};
}

reply set(command_context& here, arguments given) {
  const auto options = parse_set_options(given.subspan(3));
  if (!options.has_value()) return syntax_error();
  set_expiry expiry;
  if (options->expiry.has_value()) {
    expiry = moment_of(*options, here);
    if (expiry.refused.has_value()) return *expiry.refused;
  }
  const auto old = look_up<std::string>(here, given[1]);
  if (options->get && old.wrong_type()) return wrong_type();
  auto answer = status_reply("OK");
  if (options->get) answer = old.value == nullptr ? nil_reply() : text_reply(*old.value);

  const bool refused = old.kept != nullptr ? options->if_absent : options->if_present;
  if (refused) return options->get ? answer : nil_reply();
  here.keys.put_text(given[1], given[2], here.now_ms);
  auto* const kept = here.keys.find(given[1], here.now_ms);
  if (!options->keep_ttl) kept->expires_at = expiry.at;
  return answer;
}

reply get_range(command_context& here, arguments given) {
  const auto first = parse_integer(given[2]);
  const auto last = parse_integer(given[3]);
  if (!first.has_value() || !last.has_value()) return not_an_integer();
  const auto found = look_up<std::string>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) return text_reply({});
  const auto length = static_cast<std::int64_t>(found.value->size());
  if (*first < 0 && *last < 0 && *first > *last) return text_reply({});
  const auto from_front = [&](std::int64_t index) {
    return index >= 0 ? index : std::max<std::int64_t>(0, length + index);
  };
  const auto begin = from_front(*first);
  const auto end = std::min(from_front(*last), length - 1);
  if (begin > end || length == 0) return text_reply({});
  return text_reply(found.value->substr(static_cast<std::size_t>(begin),
                                        static_cast<std::size_t>(end - begin + 1)));
}

reply length(command_context& here, arguments given) {
  const auto found = look_up<std::string>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  return count_reply(found.kept == nullptr ? 0 : found.value->size());
}

reply increase(command_context& here, std::string_view key, std::int64_t by) {
  const auto found = look_up<std::string>(here, key);
  if (found.wrong_type()) return wrong_type();
  std::int64_t number = 0;
  if (found.kept != nullptr) {
    const auto old = parse_integer(*found.value);
    if (!old.has_value()) return not_an_integer();
    number = *old;
  }
  if (__builtin_add_overflow(number, by, &number)) return overflow();
  here.keys.put_text(key, std::to_string(number), here.now_ms);
  return integer_reply(number);
}

reply increment(command_context& here, arguments given) { return increase(here, given[1], 1); }

reply increment_by(command_context& here, arguments given) {
  const auto by = parse_integer(given[2]);
  return by.has_value() ? increase(here, given[1], *by) : not_an_integer();
}

constexpr std::array<command, 6> group{{
    {"get", 2, true, get},
    {"set", -3, true, set},
    {"getrange", 4, true, get_range},
    {"strlen", 2, true, length},
    {"incr", 2, true, increment},
    {"incrby", 3, true, increment_by},
}};

}  // namespace

std::span<const command> string_commands() { return group; }

}  // namespace sallyport::sim::redis
