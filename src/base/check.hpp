#pragma once

namespace sallyport::base {

/// Prints the failed condition with its place and aborts. Never returns, never throws.
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace sallyport::base

/// Aborts when a programmer broke a rule; stays on in release builds. Input from outside (names,
/// URIs, answers of a store) never reaches a check: it is refused with an error.
#define SALLYPORT_CHECK(condition)                                     \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::sallyport::base::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
