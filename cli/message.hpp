#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace sallyport {
class lock_error;
}

namespace sallyport::cli {

/// Ends the command: main() prints the sentence and exits with the code.
class command_failure : public std::runtime_error {
 public:
  command_failure(int code, const std::string& sentence)
      : std::runtime_error(sentence), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// A call that was written wrongly: exit code 64.
class usage_error : public command_failure {
 public:
  explicit usage_error(const std::string& sentence);
};

/// "could not NAME: why", for system calls that should not fail: exit code 71.
[[nodiscard]] command_failure system_failure(std::string_view what, int error_number);

/// The exit code for what the library threw.
[[nodiscard]] int exit_code_for(const lock_error& error) noexcept;

/// One line on standard error, "sallyport: ..."; control characters become blanks. Never throws on
/// a broken stream: what is said there is for people.
void say(std::string_view sentence) noexcept;

/// How much is said on standard error. Errors are always told.
enum class loudness { quiet, normal, verbose };

}  // namespace sallyport::cli
