#pragma once

#include "backends/redis/reply.hpp"
#include "sim/redis/keyspace.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sallyport::sim::redis {

using backends::redis::reply;

class memory_redis;

/// A command with its arguments; the first is the command's name.
using arguments = std::span<const std::string_view>;

/// What a command works on. The time stands still while a command, or a whole script, runs.
struct command_context {
  memory_redis& server;
  keyspace& keys;
  std::chrono::microseconds now;
  wall_ms now_ms;
};

struct command {
  std::string_view name;  ///< lower-case
  int arity;              ///< with the name; negative: at least as many
  bool in_scripts;        ///< scripts may call it
  reply (*run)(command_context& here, arguments given);
};

/// nullptr when there is no such command. Upper and lower case are the same.
const command* find_command(std::string_view name);
[[nodiscard]] bool fits_arity(const command& known, std::size_t count) noexcept;

// One file each.
std::span<const command> key_commands();
std::span<const command> string_commands();
std::span<const command> hash_commands();
std::span<const command> sorted_set_commands();
std::span<const command> server_commands();

// Replies.
inline reply nil_reply() { return {}; }
inline reply integer_reply(std::int64_t integer) {
  return {.what = reply::kind::integer, .integer = integer, .text = {}, .elements = {}};
}
inline reply count_reply(std::size_t count) {
  return integer_reply(static_cast<std::int64_t>(count));
}
inline reply text_reply(std::string text) {
  return {.what = reply::kind::text, .integer = 0, .text = std::move(text), .elements = {}};
}
inline reply status_reply(std::string text) {
  return {.what = reply::kind::status, .integer = 0, .text = std::move(text), .elements = {}};
}
inline reply array_reply() {
  return {.what = reply::kind::array, .integer = 0, .text = {}, .elements = {}};
}
inline reply error_reply(std::string text) {
  return {.what = reply::kind::error, .integer = 0, .text = std::move(text), .elements = {}};
}
inline reply syntax_error() { return error_reply("ERR syntax error"); }
inline reply not_an_integer() { return error_reply("ERR value is not an integer or out of range"); }
inline reply wrong_type() {
  return error_reply("WRONGTYPE Operation against a key holding the wrong kind of value");
}
inline reply overflow() { return error_reply("ERR increment or decrement would overflow"); }
reply wrong_number_of_arguments(std::string_view command_name);
reply invalid_expiry(std::string_view command_name);

/// A live key that should be of type T: neither is set where there is none.
template <class T>
struct looked_up {
  entry* kept = nullptr;
  T* value = nullptr;

  [[nodiscard]] bool wrong_type() const noexcept { return kept != nullptr && value == nullptr; }
};

template <class T>
looked_up<T> look_up(command_context& here, std::string_view key) {
  auto* const kept = here.keys.find(key, here.now_ms);
  return {kept, kept == nullptr ? nullptr : std::get_if<T>(&kept->value)};
}

template <class T>
looked_up<T> look_up_or_make(command_context& here, std::string_view key) {
  auto& kept = here.keys.find_or_make<T>(key, here.now_ms);
  return {&kept, std::get_if<T>(&kept.value)};
}

}  // namespace sallyport::sim::redis
