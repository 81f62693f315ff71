#include "bench/side_by_side/crew.hpp"
#include "bench/side_by_side/programs.hpp"
#include "bench/side_by_side/redis_bench.hpp"
#include "bench/side_by_side/turns.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Sallyport beside other libraries' locks. All are measured in one way: processes that take turns
/// and tell of them, in the words of bench/peers/README.md.
namespace sallyport::bench {
namespace {

using namespace std::chrono_literals;

/// A contended row, which is measured once, lasts so many rounds: locks that poll are passed on
/// only now and then.
constexpr double contended_rounds = 10;

/// The one server of all these rows; it is started when it is first asked for.
class shared_server {
 public:
  kit::redis_server& get() {
    if (!server_) server_ = bench_server(false);
    return *server_;
  }

 private:
  std::unique_ptr<kit::redis_server> server_;
};

std::vector<double> alone(const library& which, kit::redis_server& server, seconds time) {
  return {microseconds_per_pair(crew{which, {}, server}.run(time).turns)};
}

std::vector<double> contended(const library& which, const contest& how, kit::redis_server& server,
                              seconds time) {
  auto outcome = crew{which, how, server}.run(time * contended_rounds);
  const auto made =
      figures_of(std::move(outcome.turns), outcome.counted, how.processes * how.seats);
  return {made.handoff_p50_us, made.handoff_p99_us, made.changes_per_second, made.turns_per_second,
          made.most_to_fewest, made.without_a_turn, made.longest_wait_ms,    made.gave_up};
}

program alone_program(const library& which, const std::shared_ptr<shared_server>& server) {
  return {
      .id = "redis-peers-1/" + which.id,
      .group = "redis, other libraries: one process, nobody else wants the lock",
      .title = which.title,
      .limit = "redis-peers-1/set",
      .figures = {{.name = "pair", .unit = "us"}},
      .measure = [which, server](
                     const measure_settings& how) { return alone(which, server->get(), how.time); },
      .why_missing = [which] { return why_missing(which); }};
}

/// The same commands as redis-py's, without the library.
program plain_program(const std::shared_ptr<shared_server>& server) {
  auto made = alone_program(
      {.id = "set", .title = "hiredis: SET NX PX, compare-and-delete", .program = {}}, server);
  made.limit = {};
  made.measure = [server](const measure_settings& how) {
    return std::vector<double>{set_and_delete_pair(server->get(), how.time)};
  };
  return made;
}

program contended_program(std::string id, std::string group, const library& which,
                          const contest& how, const std::shared_ptr<shared_server>& server) {
  return {.id = std::move(id) + "/" + which.id,
          .group = std::move(group),
          .title = which.title,
          .limit = {},
          .figures = {{.name = "hand-off p50", .unit = "us"},
                      {.name = "hand-off p99", .unit = "us"},
                      {.name = "changes of holder", .unit = "per s"},
                      {.name = "turns", .unit = "per s"},
                      {.name = "most/fewest turns", .unit = ""},
                      {.name = "waiters without a turn", .unit = ""},
                      {.name = "longest wait", .unit = "ms"},
                      {.name = "gave up, tried again", .unit = ""}},
          .repeat = repetition::once,
          .measure =
              [which, how, server](const measure_settings& settings) {
                return contended(which, how, server->get(), settings.time);
              },
          .why_missing = [which] { return why_missing(which); }};
}

}  // namespace

std::vector<program> redis_peers_programs() {
  const auto server = std::make_shared<shared_server>();
  const std::vector<library> libraries{sallyport_itself(), redis_py(), node_redlock()};
  std::vector<program> all{plain_program(server)};
  for (const library& each : libraries) all.push_back(alone_program(each, server));
  for (const library& each : libraries) {
    all.push_back(contended_program("redis-peers-8",
                                    "redis, other libraries: 8 processes, empty critical section",
                                    each, {.processes = 8}, server));
  }
  for (const library& each : libraries) {
    all.push_back(contended_program(
        "redis-peers-32", "redis, other libraries: 32 waiters in 8 processes, held for 1 ms", each,
        {.processes = 8, .seats = 4, .hold = 1ms}, server));
  }
  return all;
}

}  // namespace sallyport::bench
