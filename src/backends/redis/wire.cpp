#include "backends/redis/wire.hpp"

#include "base/check.hpp"

#include <array>
#include <charconv>
#include <cstdint>

namespace sallyport::backends::redis {
namespace {

/// "$5\r\n" or "*3\r\n".
void append_header(std::string& buffer, char what, std::size_t number) {
  std::array<char, 24> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  digits.front() = what;
  const auto end = std::to_chars(digits.data() + 1, digits.data() + digits.size(), number).ptr;
  buffer.append(digits.data(), end);
  buffer.append("\r\n", 2);
}

void append_bulk(std::string& buffer, std::string_view argument) {
  append_header(buffer, '$', argument.size());
  buffer.append(argument);
  buffer.append("\r\n", 2);
}

}  // namespace

void wire_command::add(std::string_view argument) {
  append_bulk(arguments, argument);
  ++argument_count;
}

void wire_command::add(std::initializer_list<std::string_view> parts) {
  std::size_t size = 0;
  for (const std::string_view each : parts) size += each.size();
  append_header(arguments, '$', size);
  for (const std::string_view each : parts) arguments.append(each);
  arguments.append("\r\n", 2);
  ++argument_count;
}

void wire_command::add(std::int64_t argument) {
  std::array<char, 24> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), argument).ptr;
  add(std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data())));
}

wire_command plain_command(std::initializer_list<std::string_view> arguments) {
  wire_command command;
  for (const std::string_view each : arguments) command.add(each);
  return command;
}

wire_command call_of(const script_source& script, std::size_t key_count) {
  wire_command command;
  command.script = &script;
  // Names of up to 255 bytes stand in five keys; most calls need no second allocation.
  constexpr std::size_t usual_size = 640;
  command.arguments.reserve(usual_size);
  command.add(static_cast<std::int64_t>(key_count));
  return command;
}

void append_command(std::string& buffer, const wire_command& command, script_form form) {
  if (command.script == nullptr) {
    append_header(buffer, '*', command.argument_count);
  } else {
    append_header(buffer, '*', command.argument_count + 2);
    const bool in_full = form == script_form::in_full;
    append_bulk(buffer, in_full ? "EVAL" : "EVALSHA");
    append_bulk(buffer, in_full ? command.script->text : command.script->sha1);
  }
  buffer.append(command.arguments);
}

void append_command(std::string& buffer, std::span<const std::string_view> arguments) {
  append_header(buffer, '*', arguments.size());
  for (const std::string_view each : arguments) append_bulk(buffer, each);
}

std::vector<std::string> arguments_of(const wire_command& command) {
  std::vector<std::string> all;
  std::string_view rest = command.arguments;
  while (!rest.empty()) {
    std::size_t length = 0;
    const auto parsed = std::from_chars(rest.data() + 1, rest.data() + rest.size(), length);
    const auto header = static_cast<std::size_t>(parsed.ptr - rest.data()) + 2;
    SALLYPORT_CHECK(rest.front() == '$' && header + length + 2 <= rest.size());
    all.emplace_back(rest.substr(header, length));
    rest.remove_prefix(header + length + 2);
  }
  return all;
}

}  // namespace sallyport::backends::redis
