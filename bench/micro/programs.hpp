#pragma once

#include "bench/harness/program.hpp"

#include <string_view>
#include <vector>

/// The programs that are measured, group by group; limits stand before what is held against them.
namespace sallyport::bench {

/// Threads that pass one lock on, beside bare condition variables.
[[nodiscard]] std::vector<program> handoff_programs();
/// Locks nobody else wants, beside what the least lock table would cost.
[[nodiscard]] std::vector<program> uncontended_programs();
/// Calls that ask: try_acquire() on a held lock, valid(), the gates.
[[nodiscard]] std::vector<program> asking_programs();
/// One client that holds very many leases, in a process of its own.
[[nodiscard]] std::vector<program> many_leases_programs();

/// What the process started by many_leases_programs() does: prints its figures, one a line.
int run_many_leases_child(std::string_view subject, double hold_seconds);
/// The argument by which that process is told its work; subject and number of seconds follow.
inline constexpr const char* many_leases_child_flag = "--child-many-leases";

}  // namespace sallyport::bench
