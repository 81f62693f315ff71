#pragma once

#include <functional>
#include <string_view>

namespace sallyport::base {

enum class log_level { debug, info, warning, error };

/// Receives one finished line, without a newline. Called from any thread, never with a library
/// mutex held.
using log_sink = std::function<void(log_level, std::string_view line)>;

/// Replaces where log lines go; an empty sink restores the default (warnings and errors to stderr).
/// Thread safety: safe at any time.
void set_log_sink(log_sink sink);

/// Writes one line. Never pass a secret: no password, no holder id.
void log(log_level level, std::string_view line);

using log_function = void (*)(log_level, std::string_view line);

/// For a loadable module, which has a copy of this code: from now on lines go to `of_the_program`,
/// the log() of the program that loaded it, and this copy's sink is not asked.
void forward_log(log_function of_the_program) noexcept;

}  // namespace sallyport::base
