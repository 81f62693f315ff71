#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Commands as bytes: RESP2, ready to be sent.
namespace sallyport::backends::redis {

/// One Lua script. Lives as long as the program.
struct script_source {
  std::string_view name;
  std::string_view text;
  std::string_view sha1;  ///< 40 hexadecimal digits
};

/// A command on its way to a server.
struct wire_command {
  /// The arguments as RESP bulk strings: of a plain command all of them, of a script call what
  /// follows the script (the number of keys, the keys, the arguments).
  std::string arguments;
  std::size_t argument_count = 0;  ///< of those in `arguments`
  const script_source* script = nullptr;
  /// Cluster: the slot is just being moved here; ASKING goes before it.
  bool asking = false;

  /// In bytes, about.
  [[nodiscard]] std::size_t size() const noexcept { return arguments.size(); }
  void add(std::string_view argument);
  /// One argument made of several parts.
  void add(std::initializer_list<std::string_view> parts);
  void add(std::int64_t argument);
};

[[nodiscard]] wire_command plain_command(std::initializer_list<std::string_view> arguments);
/// `key_count` keys and then the script's arguments are to be added.
[[nodiscard]] wire_command call_of(const script_source& script, std::size_t key_count);

/// How a script is named: by its hash, or by its whole text.
enum class script_form : std::uint8_t { by_name, in_full };
/// Appends the bytes that go to the server.
void append_command(std::string& buffer, const wire_command& command, script_form form);
void append_command(std::string& buffer, std::span<const std::string_view> arguments);

/// The arguments again, one by one: what a server would see behind the script's hash.
[[nodiscard]] std::vector<std::string> arguments_of(const wire_command& command);

}  // namespace sallyport::backends::redis
