#include "backends/mariadb/test_live_store.hpp"
#include "backends/sql/test_live_rules.hpp"
#include "base/random.hpp"

#include <string>

// What the procedures see of others who change the same name, and what they are called with at random.
namespace sallyport::mariadb_live {
namespace {

TEST(Rules, DoNotDependOnTheSessionsIsolation) {
  const mariadb_server server;
  open(server.address());
  mariadb_probe strict{{.port = server.port()}};
  mariadb_probe other{{.port = server.port()}};
  strict.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ");
  const auto acquire = [](const std::string& holder) {
    return "CALL sallyport_acquire('door', UNHEX(MD5('" + holder +
           "')), 1, 0, 60000, 3000, 9000, 0, 0, 1, 1, 0, 7, '', '', '')";
  };

  // It waits for the name, and what it then reads is what the other one did meanwhile.
  other.rows("START TRANSACTION");
  other.rows("SELECT * FROM sallyport_stripe WHERE id = " + stripe_of("door") + " FOR UPDATE");
  other.rows(
      "INSERT INTO sallyport_lock VALUES ('door', 0, 'x', 0, 1, 0, 0, 1, 1, 1, 9000000000000000, "
      "0, 0, "
      "0, "
      "'', '', '')");
  strict.begin(acquire("late"));
  ASSERT_TRUE(row_is_waited_for(server));
  other.rows("COMMIT");

  EXPECT_EQ(strict.result(), (kit::sql_rows{{"{3}"}})) << "held";
}

TEST(Rules, ReadTheClockAfterTheWaitForTheName) {
  const mariadb_server server;
  open(server.address());
  mariadb_probe keeper{{.port = server.port()}};
  mariadb_probe late{{.port = server.port()}};

  keeper.rows("START TRANSACTION");
  keeper.rows("SELECT * FROM sallyport_stripe WHERE id = " + stripe_of("door") + " FOR UPDATE");
  late.begin(
      "CALL sallyport_acquire('door', UNHEX(MD5('1')), 1, 0, 60000, 3000, 9000, 0, 0, 1, 1, 0, 7, "
      "'', '', '')");
  ASSERT_TRUE(row_is_waited_for(server));
  const std::string before =
      server.value("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))");
  keeper.rows("COMMIT");
  late.result();

  EXPECT_EQ(server.value("SELECT since > " + before + " FROM sallyport_lock"), "1")
      << "the clock was read before the name was had";
}

}  // namespace
}  // namespace sallyport::mariadb_live

namespace sallyport::sql_live {

void set_watchman(const sql_server& server) {
  server.rows(
      "CREATE TABLE history (n BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255), mode INT, "
      "first_token BIGINT, last_token BIGINT)");
  const std::string look =
      "DECLARE holders, writers INT; "
      "SELECT COUNT(*), SUM(mode = 0 AND state <> 2) INTO holders, writers FROM sallyport_lock "
      "WHERE name = NEW.name; "
      "IF (NEW.kind IN (1, 4) AND holders > 1) OR (NEW.kind = 3 AND holders > NEW.permits) OR "
      "(NEW.kind = 2 AND writers > 0 AND holders > 1) THEN "
      "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too many holders'; END IF; ";
  server.rows("CREATE TRIGGER watch_update AFTER UPDATE ON sallyport_lock FOR EACH ROW BEGIN " +
              look + "END");
  server.rows("CREATE TRIGGER watch_insert AFTER INSERT ON sallyport_lock FOR EACH ROW BEGIN " +
              look +
              "INSERT INTO history (name, mode, first_token, last_token) VALUES (NEW.name, "
              "NEW.mode, NEW.first_token, NEW.last_token); END");
}

std::string random_call(base::random& random) {
  const std::string kind = std::to_string(1 + random.below(3));
  const std::string name = "'n" + kind + "'";
  const std::string holder = "UNHEX(MD5('" + std::to_string(random.below(9)) + "'))";
  const std::string lease = std::to_string(5 + random.below(50));
  const std::string coin = random.chance(0.5) ? "1" : "0";
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
    case 3: {
      const bool shared = kind == "2" && random.chance(0.6);
      return "CALL sallyport_acquire(" + name + ", " + holder + ", " + kind + ", " +
             (shared ? "1" : "0") + ", " + lease + ", 20, 50, " + coin + ", " +
             (random.chance(0.5) ? "1" : "0") + ", 3, 4, 0, 7, '', '', '')";
    }
    case 4:
    case 5:
    case 6:
      return "CALL sallyport_leave(" + name + ", " + holder + ", " + coin + ")";
    case 7: {
      const auto one = [&](const std::string& which) {
        return "X'02', 'n" + which + "', " + holder + ", X'00000000001E0000000000000000'";
      };
      // Who wants tokens comes alone.
      if (random.chance(0.5)) {
        return "CALL sallyport_renew(CONCAT(X'02', " + name + ", " + holder +
               ", X'00000000001E0000000400000000'))";
      }
      return "CALL sallyport_renew(CONCAT(" + one("1") + ", " + one("2") + ", " + one("3") + "))";
    }
    case 8:
      return "CALL sallyport_downgrade('n2', " + holder + ", " + lease + ", 0)";
    default:
      return random.chance(0.5)
                 ? "CALL sallyport_break_lock(" + name +
                       ", COALESCE((SELECT first_token FROM sallyport_lock WHERE name = " + name +
                       " LIMIT 1), 1), " + coin + ")"
                 : std::string("CALL sallyport_sweep(1)");
  }
}

std::string word_for_deadlock() { return "Deadlock"; }

void add_readers(const sql_server& server, const std::string& name, int count, bool alive) {
  const std::string stripe = "id = (CRC32('" + name + "') & 1023)";
  server.rows(
      "INSERT INTO sallyport_queue (name, place, holder, kind, mode, permits, window_ms, "
      "tokens, lapses, since, local_waiters, pid, host, label, value) SELECT '" +
      name + "', s.place + n.seq, UNHEX(MD5(n.seq)), 2, 1, 1, 60000, 1, " + (alive ? "9e15" : "1") +
      ", 1, 0, 7, '', '', '' FROM seq_1_to_" + std::to_string(count) +
      " n JOIN sallyport_stripe s ON s." + stripe);
  server.rows("UPDATE sallyport_stripe SET place = place + " + std::to_string(count) + " WHERE " +
              stripe);
}

void add_dead_holders(const sql_server& server, const std::string& name, int count) {
  server.rows(
      "INSERT INTO sallyport_lock (name, slot, holder, place, kind, mode, state, permits, "
      "first_token, last_token, expires, since, local_waiters, pid, host, label, value) "
      "SELECT '" +
      name +
      "', n.seq, UNHEX(MD5(n.seq)), 0, 2, 1, 0, 1, n.seq * 1024, n.seq * 1024, 1, 1, "
      "0, 7, '', '', '' FROM seq_1_to_" +
      std::to_string(count) + " n");
}

std::string settle(const sql_server& server, const std::string& name) {
  return server.value("CALL sallyport_leave('" + name + "', '', 1)");
}

std::string try_to_write(const sql_server& server, const std::string& name) {
  return server.value("CALL sallyport_acquire('" + name +
                      "', 'w', 2, 0, 30000, 3000, 4000, 0, 0, 1, 1, 0, 7, '', '', '')");
}

std::string sweep_once(const sql_server& server) { return server.value("CALL sallyport_sweep(1)"); }

}  // namespace sallyport::sql_live
