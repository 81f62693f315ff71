#pragma once

#include <sallyport/lease_clock.hpp>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

/// Real servers for live tests and benchmarks: started, looked at from outside, hurt, and gone with
/// the objects that stand for them. What does not work is thrown as kit_error.
namespace sallyport::kit {

/// A server did not do what it has to do for a test to mean anything. The text ends with what the
/// server last logged, where there is a log.
class kit_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Longer than anything that works takes, also on a machine that others keep busy; only failures
/// wait that long.
inline constexpr std::chrono::seconds patience{20};

/// Asks until the answer is true; false when `within` has passed. A kit_error that `holds` throws
/// means "not yet": servers that change their role close connections.
[[nodiscard]] bool eventually(const std::function<bool()>& holds,
                              lease_clock::duration within = patience);

/// What an errno means.
[[nodiscard]] std::string error_text(int number);

/// What is left until `when`, for poll(2): 0 when it has passed, never rounded down to it.
[[nodiscard]] int milliseconds_until(lease_clock::time_point when);

}  // namespace sallyport::kit
