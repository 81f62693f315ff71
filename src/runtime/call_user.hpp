#pragma once

#include "base/log.hpp"

#include <exception>
#include <string>

namespace sallyport::runtime {

/// Runs a callback of the user's. What it throws is logged, and goes no further.
template <class Callback>
void call_user(const Callback& callback) {
  try {
    callback();
  } catch (const std::exception& problem) {
    base::log(base::log_level::error, std::string("a callback threw: ") + problem.what());
  } catch (...) {
    base::log(base::log_level::error, "a callback threw something that is no std::exception");
  }
}

}  // namespace sallyport::runtime
