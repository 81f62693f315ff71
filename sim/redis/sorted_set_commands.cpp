#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sallyport::sim::redis {
namespace {

using ranks = sorted_set_value::ranks;

struct add_options {
  bool if_absent = false;
  bool if_present = false;
  bool if_greater = false;
  bool if_less = false;
  bool count_changes = false;
  bool increment = false;

  bool take(std::string_view word) {
    bool* const option = is_word(word, "nx")     ? &if_absent
                         : is_word(word, "xx")   ? &if_present
                         : is_word(word, "gt")   ? &if_greater
                         : is_word(word, "lt")   ? &if_less
                         : is_word(word, "ch")   ? &count_changes
                         : is_word(word, "incr") ? &increment
                                                 : nullptr;
    if (option != nullptr) *option = true;
    return option != nullptr;
  }
};

std::optional<reply> refuse(const add_options& options, std::size_t words) {
  if (words == 0 || words % 2 != 0) return syntax_error();
  if (options.if_absent && options.if_present) {
    return error_reply("ERR XX and NX options at the same time are not compatible");
  }
  if (options.if_absent + options.if_greater + options.if_less > 1) {
    return error_reply("ERR GT, LT, and/or NX options at the same time are not compatible");
  }
  if (options.increment && words > 2) {
    return error_reply("ERR INCR option supports a single increment-element pair");
  }
  return std::nullopt;
}

struct addition {
  bool added = false;
  bool changed = false;
  std::optional<double> score;  // none where a condition kept it out
};

// The error: a sum that is no number.
std::optional<addition> add_one(sorted_set_value& set, const add_options& options,
                                std::string_view member, double score) {
  const auto rank = set.rank_of(member);
  if (!rank.has_value()) {
    if (options.if_present) return addition{};
    set.insert(member, score);
    return addition{.added = true, .changed = false, .score = score};
  }
  if (options.if_absent) return addition{};
  const double old = set.elements()[*rank].score;
  if (options.increment) score += old;
  if (std::isnan(score)) return std::nullopt;
  if ((options.if_less && score >= old) || (options.if_greater && score <= old)) return addition{};
  if (score == old) return addition{.added = false, .changed = false, .score = score};
  set.erase(*rank);
  set.insert(member, score);
  return addition{.added = false, .changed = true, .score = score};
}

reply add(command_context& here, arguments given) {
  add_options options;
  std::size_t first = 2;
  while (first < given.size() && options.take(given[first])) ++first;
  const auto pairs = given.subspan(first);
  if (auto refused = refuse(options, pairs.size())) return *refused;
  std::vector<double> scores;
  scores.reserve(pairs.size() / 2);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const auto score = parse_double(pairs[i]);
    if (!score.has_value()) return error_reply("ERR value is not a valid float");
    scores.push_back(*score);
  }

  auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) {
    if (options.if_present) return options.increment ? nil_reply() : integer_reply(0);
    found = look_up_or_make<sorted_set_value>(here, given[1]);
  }
  std::int64_t count = 0;
  std::optional<double> score;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto done = add_one(*found.value, options, pairs[2 * i + 1], scores[i]);
    if (!done.has_value()) return error_reply("ERR resulting score is not a number (NaN)");
    count += done->added || (options.count_changes && done->changed) ? 1 : 0;
    score = done->score;
  }
  if (!options.increment) return integer_reply(count);
  return score.has_value() ? text_reply(format_double(*score)) : nil_reply();
}

void drop_if_empty(command_context& here, std::string_view key, const sorted_set_value& set) {
  if (set.empty()) here.keys.erase(key, here.now_ms);
}

reply remove(command_context& here, arguments given) {
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) return integer_reply(0);
  std::int64_t removed = 0;
  for (const auto member : given.subspan(2)) {
    if (const auto rank = found.value->rank_of(member)) {
      found.value->erase(*rank);
      ++removed;
    }
  }
  drop_if_empty(here, given[1], *found.value);
  return integer_reply(removed);
}

void append(reply& answer, const sorted_set_value::element& element, bool with_score) {
  answer.elements.push_back(text_reply(element.member));
  if (with_score) answer.elements.push_back(text_reply(format_double(element.score)));
}

reply pop_smallest(command_context& here, arguments given) {
  if (given.size() > 3) return syntax_error();
  std::int64_t count = 1;
  if (given.size() == 3) {
    const auto wanted = parse_integer(given[2]);
    if (!wanted.has_value() || *wanted < 0) {
      return error_reply("ERR value is out of range, must be positive");
    }
    count = *wanted;
  }
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  auto answer = array_reply();
  if (found.kept == nullptr || count == 0) return answer;
  const auto popped =
      static_cast<std::size_t>(std::min(count, static_cast<std::int64_t>(found.value->size())));
  for (std::size_t i = 0; i < popped; ++i) append(answer, found.value->elements()[i], true);
  found.value->erase(ranks{0, popped});
  drop_if_empty(here, given[1], *found.value);
  return answer;
}

reply score(command_context& here, arguments given) {
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  const auto rank = found.kept == nullptr ? std::nullopt : found.value->rank_of(given[2]);
  if (!rank.has_value()) return nil_reply();
  return text_reply(format_double(found.value->elements()[*rank].score));
}

reply rank(command_context& here, arguments given) {
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  const auto place = found.kept == nullptr ? std::nullopt : found.value->rank_of(given[2]);
  return place.has_value() ? count_reply(*place) : nil_reply();
}

reply size(command_context& here, arguments given) {
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  return count_reply(found.kept == nullptr ? 0 : found.value->size());
}

struct score_range {
  score_limit low;
  score_limit high;
};

std::optional<score_range> parse_score_range(std::string_view low, std::string_view high) {
  const auto from = parse_score_limit(low);
  const auto to = parse_score_limit(high);
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return score_range{*from, *to};
}

reply not_a_range() { return error_reply("ERR min or max is not a float"); }

reply count(command_context& here, arguments given) {
  const auto range = parse_score_range(given[2], given[3]);
  if (!range.has_value()) return not_a_range();
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) return integer_reply(0);
  const auto inside = found.value->between(range->low, range->high);
  return count_reply(inside.last - inside.first);
}

reply remove_by_score(command_context& here, arguments given) {
  const auto range = parse_score_range(given[2], given[3]);
  if (!range.has_value()) return not_a_range();
  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) return integer_reply(0);
  const auto inside = found.value->between(range->low, range->high);
  found.value->erase(inside);
  drop_if_empty(here, given[1], *found.value);
  return count_reply(inside.last - inside.first);
}

struct range_options {
  bool by_score = false;
  bool reverse = false;
  bool with_scores = false;
  std::int64_t offset = 0;
  std::int64_t limit = -1;  // negative: all
  std::optional<reply> refused;
};

// ZRANGEBYSCORE takes neither BYSCORE nor REV.
range_options parse_range_options(arguments options, bool any_kind) {
  range_options parsed;
  parsed.by_score = !any_kind;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto word = options[i];
    if (is_word(word, "withscores")) {
      parsed.with_scores = true;
    } else if (is_word(word, "limit") && i + 2 < options.size()) {
      const auto offset = parse_integer(options[i + 1]);
      const auto limit = parse_integer(options[i + 2]);
      if (!offset.has_value() || !limit.has_value()) {
        parsed.refused = not_an_integer();
        return parsed;
      }
      parsed.offset = *offset;
      parsed.limit = *limit;
      i += 2;
    } else if (any_kind && !parsed.reverse && is_word(word, "rev")) {
      parsed.reverse = true;
    } else if (any_kind && !parsed.by_score && is_word(word, "byscore")) {
      parsed.by_score = true;
    } else {
      parsed.refused = syntax_error();
      return parsed;
    }
  }
  if (parsed.limit != -1 && !parsed.by_score) {
    parsed.refused = error_reply(
        "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
  }
  return parsed;
}

// The ranks from the side where the reader begins.
ranks by_index(std::size_t size, std::int64_t first, std::int64_t last) {
  const auto length = static_cast<std::int64_t>(size);
  if (first < 0) first = std::max<std::int64_t>(0, length + first);
  if (last < 0) last = length + last;
  if (first > last || first >= length) return {};
  last = std::min(last, length - 1);
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(last) + 1};
}

void apply_limit(ranks& seen, const range_options& options) {
  const auto length = seen.last - seen.first;
  // A negative offset skips to the end.
  const auto skipped =
      options.offset < 0
          ? length
          : static_cast<std::size_t>(std::min(options.offset, static_cast<std::int64_t>(length)));
  seen.first += skipped;
  if (options.limit >= 0) {
    seen.last =
        std::min(seen.last, seen.first + static_cast<std::size_t>(std::min(
                                             options.limit, static_cast<std::int64_t>(length))));
  }
}

reply answer_range(command_context& here, arguments given, const range_options& options) {
  std::optional<score_range> scores;
  std::optional<std::int64_t> first;
  std::optional<std::int64_t> last;
  if (options.by_score) {
    scores = options.reverse ? parse_score_range(given[3], given[2])
                             : parse_score_range(given[2], given[3]);
    if (!scores.has_value()) return not_a_range();
  } else {
    first = parse_integer(given[2]);
    last = parse_integer(given[3]);
    if (!first.has_value() || !last.has_value()) return not_an_integer();
  }

  const auto found = look_up<sorted_set_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  auto answer = array_reply();
  if (found.kept == nullptr) return answer;
  const auto& elements = found.value->elements();
  ranks seen;
  if (options.by_score) {
    seen = found.value->between(scores->low, scores->high);
    if (options.reverse) seen = {elements.size() - seen.last, elements.size() - seen.first};
    apply_limit(seen, options);
  } else {
    seen = by_index(elements.size(), *first, *last);
  }
  for (auto i = seen.first; i < seen.last; ++i) {
    append(answer, elements[options.reverse ? elements.size() - 1 - i : i], options.with_scores);
  }
  return answer;
}

reply range(command_context& here, arguments given) {
  const auto options = parse_range_options(given.subspan(4), true);
  return options.refused.has_value() ? *options.refused : answer_range(here, given, options);
}

reply range_by_score(command_context& here, arguments given) {
  const auto options = parse_range_options(given.subspan(4), false);
  return options.refused.has_value() ? *options.refused : answer_range(here, given, options);
}

constexpr std::array<command, 10> group{{
    {"zadd", -4, true, add},
    {"zrem", -3, true, remove},
    {"zpopmin", -2, true, pop_smallest},
    {"zscore", 3, true, score},
    {"zcard", 2, true, size},
    {"zcount", 4, true, count},
    {"zrank", 3, true, rank},
    {"zrange", -4, true, range},
    {"zrangebyscore", -4, true, range_by_score},
    {"zremrangebyscore", 4, true, remove_by_score},
}};

}  // namespace

std::span<const command> sorted_set_commands() { return group; }

}  // namespace sallyport::sim::redis
