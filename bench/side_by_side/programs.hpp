#pragma once

#include "bench/harness/program.hpp"

#include <vector>

/// Sallyport beside what people use without it, in the same run.
namespace sallyport::bench {

/// The embedded store beside flock(2): alone, and between eight processes.
[[nodiscard]] std::vector<program> local_store_programs();

/// The command beside flock(1): the whole life of `run NAME -- true`.
[[nodiscard]] std::vector<program> command_programs();

/// Redis beside raw hiredis loops: locks that nobody else wants.
[[nodiscard]] std::vector<program> redis_alone_programs();
/// Redis beside PING: one lock that many want.
[[nodiscard]] std::vector<program> redis_contended_programs();

}  // namespace sallyport::bench
