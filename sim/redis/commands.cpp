#include "sim/redis/commands.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <unordered_map>

namespace sallyport::sim::redis {
namespace {

constexpr std::size_t longest_name = 32;

using command_table = std::unordered_map<std::string_view, const command*>;

command_table make_table() {
  command_table table;
  for (const auto group : {key_commands(), string_commands(), hash_commands(),
                           sorted_set_commands(), server_commands()}) {
    for (const auto& each : group) table.emplace(each.name, &each);
  }
  return table;
}

}  // namespace

const command* find_command(std::string_view name) {
  static const command_table table = make_table();
  std::array<char, longest_name> lower{};
  if (name.size() > lower.size()) return nullptr;
  std::transform(name.begin(), name.end(), lower.begin(), [](char byte) {
    return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
  });
  const auto found = table.find(std::string_view(lower.data(), name.size()));
  return found == table.end() ? nullptr : found->second;
}

bool fits_arity(const command& known, std::size_t count) noexcept {
  const auto wanted = static_cast<std::size_t>(known.arity < 0 ? -known.arity : known.arity);
  return known.arity < 0 ? count >= wanted : count == wanted;
}

reply wrong_number_of_arguments(std::string_view command_name) {
  return error_reply("ERR wrong number of arguments for '" + std::string(command_name) +
                     "' command");
}

reply invalid_expiry(std::string_view command_name) {
  return error_reply("ERR invalid expire time in '" + std::string(command_name) + "' command");
}

}  // namespace sallyport::sim::redis
