#pragma once

namespace sallyport::cli {

/// What the command's exit codes mean, after sysexits.h where it has a word for it. Anything else
/// is the command's own, or 128 + n when signal n ended it.
namespace exit_code {
inline constexpr int success = 0;
inline constexpr int nothing_there = 1;  ///< who, break: nobody holds it, or not under that token
inline constexpr int usage = 64;
inline constexpr int store_broken = 69;
inline constexpr int system_refused = 71;  ///< no more processes, descriptors, ...
inline constexpr int output_failed = 74;
inline constexpr int not_acquired = 75;
inline constexpr int lost = 76;  ///< the lease was; fence: a newer holder was at the gate
inline constexpr int cannot_execute = 126;
inline constexpr int command_not_found = 127;
inline constexpr int signal_base = 128;
}  // namespace exit_code

}  // namespace sallyport::cli
