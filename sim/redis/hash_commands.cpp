#include "sim/redis/commands.hpp"
#include "sim/redis/numbers.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace sallyport::sim::redis {
namespace {

reply set(command_context& here, arguments given) {
  if (given.size() % 2 == 1) return wrong_number_of_arguments("hset");
  const auto found = look_up_or_make<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  std::int64_t added = 0;
  for (std::size_t i = 2; i < given.size(); i += 2) {
    added += found.value->set(given[i], given[i + 1]) ? 1 : 0;
  }
  return integer_reply(added);
}

reply set_if_absent(command_context& here, arguments given) {
  const auto found = look_up_or_make<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.value->find(given[2]) != nullptr) return integer_reply(0);
  found.value->set(given[2], given[3]);
  return integer_reply(1);
}

reply field_reply(const hash_value* hash, std::string_view field) {
  const auto* const value = hash == nullptr ? nullptr : hash->find(field);
  return value == nullptr ? nil_reply() : text_reply(*value);
}

reply get(command_context& here, arguments given) {
  const auto found = look_up<hash_value>(here, given[1]);
  return found.wrong_type() ? wrong_type() : field_reply(found.value, given[2]);
}

reply get_many(command_context& here, arguments given) {
  const auto found = look_up<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  auto answer = array_reply();
  answer.elements.reserve(given.size() - 2);
  for (const auto field : given.subspan(2)) {
    answer.elements.push_back(field_reply(found.value, field));
  }
  return answer;
}

reply erase(command_context& here, arguments given) {
  const auto found = look_up<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  if (found.kept == nullptr) return integer_reply(0);
  std::int64_t erased = 0;
  for (const auto field : given.subspan(2)) erased += found.value->erase(field) ? 1 : 0;
  if (found.value->empty()) here.keys.erase(given[1], here.now_ms);
  return integer_reply(erased);
}

reply length(command_context& here, arguments given) {
  const auto found = look_up<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  return count_reply(found.kept == nullptr ? 0 : found.value->pairs().size());
}

reply exists(command_context& here, arguments given) {
  const auto found = look_up<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  return integer_reply(found.kept != nullptr && found.value->find(given[2]) != nullptr ? 1 : 0);
}

reply list(command_context& here, std::string_view key, bool fields, bool values) {
  const auto found = look_up<hash_value>(here, key);
  if (found.wrong_type()) return wrong_type();
  auto answer = array_reply();
  if (found.kept == nullptr) return answer;
  for (const auto& pair : found.value->pairs()) {
    if (fields) answer.elements.push_back(text_reply(pair.field));
    if (values) answer.elements.push_back(text_reply(pair.value));
  }
  return answer;
}

reply get_all(command_context& here, arguments given) { return list(here, given[1], true, true); }
reply get_keys(command_context& here, arguments given) { return list(here, given[1], true, false); }
reply get_values(command_context& here, arguments given) {
  return list(here, given[1], false, true);
}

reply increment_by(command_context& here, arguments given) {
  const auto by = parse_integer(given[3]);
  if (!by.has_value()) return not_an_integer();
  const auto found = look_up_or_make<hash_value>(here, given[1]);
  if (found.wrong_type()) return wrong_type();
  std::int64_t number = 0;
  if (const auto* const old = found.value->find(given[2])) {
    const auto parsed = parse_integer(*old);
    if (!parsed.has_value()) return error_reply("ERR hash value is not an integer");
    number = *parsed;
  }
  if (__builtin_add_overflow(number, *by, &number)) return overflow();
  found.value->set(given[2], std::to_string(number));
  return integer_reply(number);
}

constexpr std::array<command, 11> group{{
    {"hset", -4, true, set},
    {"hsetnx", 4, true, set_if_absent},
    {"hget", 3, true, get},
    {"hmget", -3, true, get_many},
    {"hdel", -3, true, erase},
    {"hlen", 2, true, length},
    {"hexists", 3, true, exists},
    {"hgetall", 2, true, get_all},
    {"hkeys", 2, true, get_keys},
    {"hvals", 2, true, get_values},
    {"hincrby", 4, true, increment_by},
}};

}  // namespace

std::span<const command> hash_commands() { return group; }

}  // namespace sallyport::sim::redis
