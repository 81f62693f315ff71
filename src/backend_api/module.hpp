#pragma once

#include "backend_api/backend.hpp"
#include "base/log.hpp"

#include <atomic>
#include <cstdint>
#include <system_error>

namespace sallyport::backend_api {

// A module is a backend in a shared object of its own, which a program loads when an address asks
// for it. It carries its own copy of base and backend_api, because a program that was linked with
// the archive exports nothing; what there may only be one of in a process, it takes from the
// program. docs/decisions/0007-backends-are-modules.md has the reasons.

/// What there is one of in a process, as the program that loads a module has it. All of it lives as
/// long as the process.
struct module_host {
  const std::error_category& category;  ///< that of errc: codes compare by its address
  base::log_function log;               ///< where lines go
  const std::atomic<std::uint32_t>& fork_generation;  ///< what base::fork_generation() reads
};

/// This copy's own.
[[nodiscard]] module_host host_of_modules() noexcept;

/// Replaces this copy's own by the program's. Idempotent; any thread.
void adopt(const module_host& host) noexcept;

/// Of which sources a program or module was made. Interfaces between them are C++ and change
/// without notice, so both have to be of one build, or of two builds of the same sources.
struct module_build {
  const char* version;     ///< of Sallyport
  const char* interfaces;  ///< a checksum of all headers that both sides compile
};

/// The one symbol that a module exports. Program and module may be of different sources until
/// `build` has been looked at: the first two fields never change.
struct module_record {
  std::uint32_t magic;  ///< module_magic
  module_build build;
  /// Adopts the host and gives the backend. Idempotent; any thread.
  const backend_descriptor& (*attach)(const module_host& host);
};

inline constexpr std::uint32_t module_magic = 0x53504d31;
inline constexpr const char* module_symbol = "sallyport_backend_module";

}  // namespace sallyport::backend_api
