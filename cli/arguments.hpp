#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::cli {

/// One option of a command. `value_name` is empty for a flag; `short_name` is 0 where there is none.
struct option_spec {
  char short_name = 0;
  std::string_view long_name;
  std::string_view value_name;
};

/// Reads a command's arguments one after the other: "--name value", "--name=value", "-n", "-w5",
/// "-w 5", and short flags together ("-nx"). Unknown options throw usage_error and name the nearest.
/// Thread safety: none.
class argument_reader {
 public:
  struct item {
    const option_spec* option = nullptr;  ///< null: a plain word
    std::string_view value;               ///< the option's value, or the word
  };

  argument_reader(std::span<char* const> arguments, std::span<const option_spec> options)
      : arguments_(arguments), options_(options) {}

  /// The next option or word; empty at the end and at "--", which it skips.
  [[nodiscard]] std::optional<item> next();
  /// What was not read.
  [[nodiscard]] std::span<char* const> rest() const { return arguments_.subspan(at_); }
  /// Whether next() stopped at "--".
  [[nodiscard]] bool after_dashes() const noexcept { return after_dashes_; }
  /// Gives the word that was just read back: rest() begins with it.
  void unread() noexcept { --at_; }

 private:
  [[nodiscard]] item read_long(std::string_view text);
  [[nodiscard]] item read_short();
  [[nodiscard]] std::string_view next_value(const std::string& option);

  std::span<char* const> arguments_;
  std::span<const option_spec> options_;
  std::size_t at_ = 0;
  std::string_view cluster_;  // what is left of "-nx"
  bool after_dashes_ = false;
};

}  // namespace sallyport::cli
