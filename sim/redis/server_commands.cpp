#include "sim/redis/commands.hpp"
#include "sim/redis/memory_redis.hpp"
#include "sim/redis/numbers.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sallyport::sim::redis {
namespace {

reply ping(command_context&, arguments given) {
  if (given.size() > 2) return wrong_number_of_arguments("ping");
  return given.size() == 1 ? status_reply("PONG") : text_reply(std::string(given[1]));
}

reply time(command_context& here, arguments) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(here.now);
  auto answer = array_reply();
  answer.elements.push_back(text_reply(std::to_string(seconds.count())));
  answer.elements.push_back(text_reply(std::to_string((here.now - seconds).count())));
  return answer;
}

reply publish(command_context& here, arguments given) {
  return integer_reply(here.server.publish({false, given[1], given[2]}));
}

reply publish_sharded(command_context& here, arguments given) {
  return integer_reply(here.server.publish({true, given[1], given[2]}));
}

bool is_flush_mode(std::string_view word) {
  return is_word(word, "sync") || is_word(word, "async");
}

reply flush_all(command_context& here, arguments given) {
  if (given.size() > 2 || (given.size() == 2 && !is_flush_mode(given[1]))) return syntax_error();
  here.keys.clear();
  return status_reply("OK");
}

reply size(command_context& here, arguments) { return count_reply(here.keys.size()); }

// The arguments of a script, after its text or name.
struct script_call {
  arguments keys;
  arguments values;
  std::optional<reply> refused;
};

script_call parse_call(arguments given) {
  const auto count = parse_integer(given[2]);
  if (!count.has_value()) return {{}, {}, not_an_integer()};
  const auto rest = given.subspan(3);
  if (*count > static_cast<std::int64_t>(rest.size())) {
    return {{}, {}, error_reply("ERR Number of keys can't be greater than number of args")};
  }
  if (*count < 0) return {{}, {}, error_reply("ERR Number of keys can't be negative")};
  const auto keys = static_cast<std::size_t>(*count);
  return {rest.first(keys), rest.subspan(keys), std::nullopt};
}

reply evaluate(command_context& here, arguments given) {
  const auto call = parse_call(given);
  if (call.refused.has_value()) return *call.refused;
  const auto loaded = here.server.load_script(given[1]);
  if (loaded.compiled == nullptr) return error_reply(loaded.error);
  return here.server.run_script(*loaded.compiled, call.keys, call.values, here);
}

const script_host::script* find_script(command_context& here, std::string_view name) {
  if (const auto* const found = here.server.find_script(name)) return found;
  std::string lower(name);
  for (auto& byte : lower) {
    if (byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte - 'A' + 'a');
  }
  return here.server.find_script(lower);
}

reply no_script() { return error_reply("NOSCRIPT No matching script. Please use EVAL."); }

reply evaluate_known(command_context& here, arguments given) {
  constexpr std::size_t sha1_digits = 40;
  if (given[1].size() != sha1_digits) return no_script();
  const auto call = parse_call(given);
  if (call.refused.has_value()) return *call.refused;
  const auto* const found = find_script(here, given[1]);
  if (found == nullptr) return no_script();
  return here.server.run_script(*found, call.keys, call.values, here);
}

reply script(command_context& here, arguments given) {
  if (is_word(given[1], "load")) {
    if (given.size() != 3) return wrong_number_of_arguments("script|load");
    const auto loaded = here.server.load_script(given[2]);
    return loaded.compiled == nullptr ? error_reply(loaded.error)
                                      : text_reply(loaded.compiled->sha1);
  }
  if (is_word(given[1], "exists")) {
    if (given.size() < 3) return wrong_number_of_arguments("script|exists");
    auto answer = array_reply();
    // Here, and only here, the name must be in lower case.
    for (const auto sha1 : given.subspan(2)) {
      answer.elements.push_back(integer_reply(here.server.find_script(sha1) != nullptr ? 1 : 0));
    }
    return answer;
  }
  if (is_word(given[1], "flush")) {
    if (given.size() > 3 || (given.size() == 3 && !is_flush_mode(given[2]))) {
      return error_reply("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    here.server.forget_scripts();
    return status_reply("OK");
  }
  return error_reply("ERR unknown subcommand '" + std::string(given[1]) + "'. Try SCRIPT HELP.");
}

constexpr std::array<command, 9> group{{
    {"ping", -1, true, ping},
    {"time", 1, true, time},
    {"publish", 3, true, publish},
    {"spublish", 3, true, publish_sharded},
    {"flushall", -1, true, flush_all},
    {"dbsize", 1, true, size},
    {"eval", -3, false, evaluate},
    {"evalsha", -3, false, evaluate_known},
    {"script", -2, false, script},
}};

}  // namespace

std::span<const command> server_commands() { return group; }

}  // namespace sallyport::sim::redis
