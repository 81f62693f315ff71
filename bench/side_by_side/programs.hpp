#pragma once

#include "bench/harness/program.hpp"

#include <chrono>
#include <string>
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
/// Redis beside other libraries' locks on one server; those that are not installed are missing.
[[nodiscard]] std::vector<program> redis_peers_programs();

/// Redlock beside one server, beside itself with nodes in trouble and in a crowd, and beside
/// node-redlock.
[[nodiscard]] std::vector<program> redlock_programs();

/// etcd beside raw gRPC and beside Go's clientv3/concurrency. Only where the module of etcd is built.
[[nodiscard]] std::vector<program> etcd_programs();

/// memcached beside a raw socket: add, delete.
[[nodiscard]] std::vector<program> memcached_programs();
/// MariaDB beside libmariadb itself and the server's GET_LOCK.
[[nodiscard]] std::vector<program> mariadb_programs();

/// PostgreSQL beside libpq itself.
[[nodiscard]] std::vector<program> postgres_programs();

/// ZooKeeper beside its own C library, kazoo and Curator; those that are not installed are missing.
[[nodiscard]] std::vector<program> zookeeper_programs();

/// What a process of a crew does for Sallyport: see bench/peers/README.md.
int run_turns_child(const std::string& port, int process, int seats,
                    std::chrono::microseconds hold);
/// The argument by which that process is told its work; port, process, seats, microseconds follow.
inline constexpr const char* turns_child_flag = "--child-turns";

}  // namespace sallyport::bench
