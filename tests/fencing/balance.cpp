#include "tests/fencing/balance.hpp"

#include "tests/kit/etcd_probe.hpp"
#include "tests/kit/redis_probe.hpp"
#include "tests/kit/sql_executors.hpp"
#include <sallyport/fence.hpp>
#include <sallyport/fence_etcd.hpp>
#include <sallyport/fence_redis.hpp>
#include <sallyport/fence_sql.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace sallyport::fencing {
namespace {

using fence::pass;
using fence::verdict;

std::uint16_t port_in(const std::string& where) {
  return static_cast<std::uint16_t>(std::stoi(where));
}

bool let_through(verdict said) {
  if (said == verdict::wrong_lock) throw std::runtime_error("the gate says: another lock");
  return said == verdict::passed;
}

class in_a_file final : public balance {
 public:
  explicit in_a_file(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void prepare(bool) override { write(100); }
  int read() override {
    int value = 0;
    std::ifstream{folder_ / "balance"} >> value;
    return value;
  }
  void write(int value) override { std::ofstream{folder_ / "balance"} << value; }
  bool write_guarded(const pass& shown, int value) override {
    fence::file_gate gate{folder_ / "balance.gate"};
    return let_through(gate.run(shown, [&] { write(value); }));
  }

 private:
  std::filesystem::path folder_;
};

class in_redis final : public balance {
 public:
  explicit in_redis(const std::string& where)
      : redis_({.port = port_in(where), .unix_path = {}, .user = {}, .password = {}}) {}

  void prepare(bool) override {
    redis_.expect({"DEL", "{orders}:fence"});
    write(100);
  }
  int read() override { return std::stoi(redis_.expect({"GET", "{orders}:balance"}).text); }
  void write(int value) override {
    redis_.expect({"SET", "{orders}:balance", std::to_string(value)});
  }
  bool write_guarded(const pass& shown, int value) override {
    const fence::redis_gate gate{"{orders}:fence"};
    const auto answer = redis_.expect(gate.command(
        shown, {{"SET", "{orders}:balance", std::to_string(value)}}, {"{orders}:balance"}));
    return let_through(fence::redis_gate::verdict_of(answer.items.at(0).integer));
  }

 private:
  kit::redis_probe redis_;
};

class in_etcd final : public balance {
 public:
  explicit in_etcd(const std::string& where) : etcd_(port_in(where)) {}

  void prepare(bool) override { write(100); }
  int read() override { return std::stoi(etcd_.get("orders/balance").value()); }
  void write(int value) override { etcd_.put("orders/balance", std::to_string(value)); }
  bool write_guarded(const pass& shown, int value) override {
    const fence::etcd_gate gate{"orders/fence"};
    const auto answer = etcd_.commit(to_json(
        gate.transaction(shown, {{.key = "orders/balance", .value = std::to_string(value)}})));
    return let_through(fence::etcd_gate::verdict_of(answer));
  }

 private:
  kit::etcd_probe etcd_;
};

enum class way { gate, row, trigger };

template <class Executor>
class in_a_database final : public balance {
 public:
  template <class Where>
  in_a_database(const Where& where, way how) : database_(where), how_(how) {}

  void prepare(bool guarded) override {
    database_.run("DROP TABLE IF EXISTS accounts");
    database_.run("DROP TABLE IF EXISTS sallyport_fence");
    database_.run(
        "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint, fence bigint DEFAULT 0)");
    database_.run("INSERT INTO accounts (id, balance) VALUES (42, 100)");
    for (const auto& each : fence::sql_gate::schema(Executor::dialect())) database_(each);
    if (!guarded || how_ != way::trigger) return;
    for (const auto& each : fence::sql_trigger_ddl(
             Executor::dialect(), {.table = "accounts", .resource_column = "id"})) {
      database_(each);
    }
  }
  int read() override {
    return static_cast<int>(
        kit::first_number(database_.run("SELECT balance FROM accounts WHERE id = 42")));
  }
  void write(int value) override {
    database_.run("UPDATE accounts SET balance = " + std::to_string(value) + " WHERE id = 42");
  }
  bool write_guarded(const pass& shown, int value) override {
    const sql::executor database = database_.executor();
    switch (how_) {
      case way::gate:
        return let_through(fence::sql_gate{Executor::dialect(), "accounts/42"}.run(
            database, shown, [&] { write(value); }));
      case way::row: {
        const auto said = fence::sql_row_gate{Executor::dialect(), "accounts", "id"}.update(
            database, shown, 42, {{"balance", value}});
        if (said == fence::row_verdict::no_such_row) throw std::runtime_error("the row is gone");
        return said == fence::row_verdict::written;
      }
      case way::trigger:
        break;
    }
    // A program that only declares its pass, and asks nobody.
    database_.run("BEGIN");
    database_(fence::declare_pass(Executor::dialect(), shown));
    try {
      write(value);
    } catch (const kit::sql_error& error) {
      database_.run("ROLLBACK");
      if (error.state() == fence::sql_state::stale) return false;
      throw;
    }
    database_.run("COMMIT");
    return true;
  }

 private:
  Executor database_;
  const way how_;
};

}  // namespace

std::unique_ptr<balance> open_balance(const std::string& kind, const std::string& where) {
  if (kind == "file") return std::make_unique<in_a_file>(where);
  if (kind == "redis") return std::make_unique<in_redis>(where);
  if (kind == "etcd") return std::make_unique<in_etcd>(where);
  const way how = kind.ends_with("_trigger") ? way::trigger
                  : kind.ends_with("_row")   ? way::row
                                             : way::gate;
  if (kind.starts_with("postgres_")) {
    return std::make_unique<in_a_database<kit::postgres_executor>>(where, how);
  }
  if (kind.starts_with("mariadb_")) {
    return std::make_unique<in_a_database<kit::mariadb_executor>>(
        kit::mariadb_executor_options{.port = port_in(where)}, how);
  }
  throw std::invalid_argument("no balance is kept in " + kind);
}

}  // namespace sallyport::fencing
