#include "bench/micro/timed_loop.hpp"
#include "bench/side_by_side/programs.hpp"
#include "tests/kit/postgres_server.hpp"
#include <sallyport/client.hpp>
#include <sallyport/mutex.hpp>

#include <array>
#include <libpq-fe.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// PostgreSQL beside libpq itself, which calls the same functions in a loop, on one server whose data
/// are in memory: a commit's fsync costs nothing there.
namespace sallyport::bench {
namespace {

/// The bar is 0.8 times the speed of libpq alone.
constexpr double libpq_bar = 1 / 0.8;

/// libpq as simple as it can be used: two prepared statements.
class libpq_loop {
 public:
  explicit libpq_loop(const std::string& address) : connection_(PQconnectdb(address.c_str())) {
    expect(PQprepare(
               connection_, "a",
               "SELECT sallyport.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
               "$14, $15, $16, $17)",
               0, nullptr),
           PGRES_COMMAND_OK);
    expect(PQprepare(connection_, "l", "SELECT sallyport.leave($1, $2, $3, $4)", 0, nullptr),
           PGRES_COMMAND_OK);
  }
  libpq_loop(const libpq_loop&) = delete;
  libpq_loop& operator=(const libpq_loop&) = delete;
  ~libpq_loop() { PQfinish(connection_); }

  void pair() {
    constexpr std::array<const char*, 17> acquire{"raw",   "0123456789abcdef",
                                                  "1",     "0",
                                                  "30000", "3000",
                                                  "4000",  "t",
                                                  "1",     "1",
                                                  "0",     "t",
                                                  "7",     "7",
                                                  "host",  "label",
                                                  ""};
    constexpr std::array<const char*, 4> leave{"raw", "0123456789abcdef", "f", "t"};
    expect(PQexecPrepared(connection_, "a", acquire.size(), acquire.data(), nullptr, nullptr, 0),
           PGRES_TUPLES_OK);
    expect(PQexecPrepared(connection_, "l", leave.size(), leave.data(), nullptr, nullptr, 0),
           PGRES_TUPLES_OK);
  }

 private:
  void expect(PGresult* said, ExecStatusType wanted) {
    const bool right = PQresultStatus(said) == wanted;
    PQclear(said);
    if (!right) throw std::runtime_error(PQerrorMessage(connection_));
  }

  PGconn* connection_;
};

/// Started when first asked for.
class server {
 public:
  std::string address() {
    if (!running_) {
      running_ = std::make_unique<kit::postgres_server>();
      static_cast<void>(client::open(running_->address()));  // makes the schema
    }
    return running_->address();
  }

 private:
  std::unique_ptr<kit::postgres_server> running_;
};

program alone(std::string id, std::string title, std::string limit, bar wanted,
              std::function<double(seconds)> microseconds) {
  return {.id = "postgres-1/" + std::move(id),
          .group = "postgres: one process, nobody else wants the lock",
          .title = std::move(title),
          .limit = std::move(limit),
          .figures = {{.name = "pair", .unit = "us", .wanted = wanted}},
          .measure = [microseconds = std::move(microseconds)](const measure_settings& how) {
            return std::vector<double>{microseconds(how.time)};
          }};
}

}  // namespace

std::vector<program> postgres_programs() {
  const auto where = std::make_shared<server>();
  return {
      alone("raw", "libpq: the same two calls, prepared", "", {},
            [where](seconds time) {
              libpq_loop raw(where->address());
              return nanoseconds_per_call(time, [&] { raw.pair(); }) / 1e3;
            }),
      alone("mutex", "sallyport::mutex acquire(), release()", "postgres-1/raw",
            times_limit(libpq_bar),
            [where](seconds time) {
              mutex lock{client::open(where->address()), "ours", {.local_turns = 1}};
              return nanoseconds_per_call(time, [&] { lock.acquire().release(); }) / 1e3;
            }),
  };
}

}  // namespace sallyport::bench
