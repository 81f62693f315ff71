#include "backends/postgres/test_live_store.hpp"
#include "backends/sql/test_live_rules.hpp"
#include "base/random.hpp"

#include <string>

// What the functions of the schema are called with at random.
namespace sallyport::sql_live {
namespace {

constexpr const char* watchman = R"(
CREATE TABLE public.history (n bigserial, name bytea, mode smallint, first_token bigint, last_token bigint);
CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE holders bigint; writers bigint;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE mode = 0 AND state <> 2) INTO holders, writers
    FROM sallyport.lock l WHERE l.name = NEW.name;
  IF (NEW.kind IN (1, 4) AND holders > 1) OR (NEW.kind = 3 AND holders > NEW.permits)
    OR (NEW.kind = 2 AND writers > 0 AND holders > 1) THEN
    RAISE EXCEPTION 'too many holders of %', NEW.name;
  END IF;
  -- A hand-over is an insert, or the giver's row with the taker's name in it.
  IF TG_OP = 'INSERT' OR (NEW.holder <> OLD.holder AND NEW.state <> 2) THEN
    INSERT INTO public.history (name, mode, first_token, last_token)
      VALUES (NEW.name, NEW.mode, NEW.first_token, NEW.last_token);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE ON sallyport.lock FOR EACH ROW EXECUTE FUNCTION public.watch();
)";

}  // namespace

void set_watchman(const sql_server& server) { server.rows(watchman); }

std::string random_call(base::random& random) {
  const std::string kind = std::to_string(1 + random.below(3));
  const std::string name = "'n" + kind + "'";
  const std::string holder = "decode(md5('" + std::to_string(random.below(9)) + "'), 'hex')";
  const std::string lease = std::to_string(5 + random.below(50));
  const std::string coin = random.chance(0.5) ? "true" : "false";
  const std::string durable = random.chance(0.8) ? "true" : "false";
  switch (random.below(10)) {
    case 0:
    case 1:
    case 2:
    case 3: {
      const bool shared = kind == "2" && random.chance(0.6);
      return "SELECT sallyport.acquire(" + name + ", " + holder + ", " + kind + "::smallint, " +
             (shared ? "1" : "0") + "::smallint, " + lease + ", 20, 50, " + coin + ", 3, 4, 0, " +
             durable + ", 7, 7, '', '', '')";
    }
    case 4:
    case 5:
    case 6:
      return "SELECT sallyport.leave(" + name + ", " + holder + ", " + coin + ", " + durable + ")";
    case 7:
      return "SELECT sallyport.renew(ARRAY['n1', 'n2', 'n3']::bytea[], ARRAY[" + holder + ", " +
             holder + ", " + holder + "], '{30,30,30}', '{0,1,4}', '{0,0,0}', " + durable + ")";
    case 8:
      return "SELECT sallyport.downgrade('n2', " + holder + ", " + lease + ", 0, " + durable + ")";
    default:
      return "SELECT sallyport.break_lock(" + name +
             ", coalesce((SELECT first_token FROM sallyport.lock WHERE name = " + name +
             " LIMIT 1), 1), " + coin + ", " + durable + "), sallyport.sweep(true, true)";
  }
}

std::string word_for_deadlock() { return "deadlock"; }

void add_readers(const sql_server& server, const std::string& name, int count, bool alive) {
  server.rows("INSERT INTO sallyport.queue SELECT '" + name +
              "', nextval('sallyport.place'), decode(md5(n::text), 'hex'), 2, 1, 1, 60000, 1, "
              "clock_timestamp() " +
              (alive ? "+" : "-") +
              " interval '1 minute', clock_timestamp(), 0, 7, 7, '', '', '' FROM "
              "generate_series(1, " +
              std::to_string(count) + ") n");
}

void add_dead_holders(const sql_server& server, const std::string& name, int count) {
  server.rows("INSERT INTO sallyport.lock SELECT '" + name +
              "', decode(md5(n::text), 'hex'), 2, 1, 0, 1, n * 1024, n * 1024, clock_timestamp() - "
              "interval '1 minute', clock_timestamp(), 0, 7, 7, '', '', '' FROM "
              "generate_series(1, " +
              std::to_string(count) + ") n");
}

std::string settle(const sql_server& server, const std::string& name) {
  return server.value("SELECT sallyport.leave('" + name + "', '', true, true)");
}

std::string try_to_write(const sql_server& server, const std::string& name) {
  return server.value("SELECT sallyport.acquire('" + name +
                      "', 'w', 2::smallint, 0::smallint, 30000, 3000, 4000, false, 1, 1, 0, true, "
                      "7, 7, '', '', '')");
}

std::string sweep_once(const sql_server& server) {
  return server.value("SELECT sallyport.sweep(true, true)");
}

}  // namespace sallyport::sql_live

namespace sallyport::postgres_live {
namespace {

// A plan that was made for a small table lasts as long as its session, and the table grows.
TEST(Rules, FindNamesByTheirIndexHoweverSmallTheTablesAre) {
  const postgres_server server;
  open(server.address());
  server.rows("VACUUM ANALYZE sallyport.lock");
  server.rows("VACUUM ANALYZE sallyport.queue");
  const auto acquire = [](const std::string& who, const std::string& kind) {
    return "SELECT sallyport.acquire('n" + kind + "', '" + who + "', " + kind +
           "::smallint, 0::smallint, 30000, 3000, 4000, true, 1, 1, 0, false, 7, 7, '', '', '')";
  };

  postgres_probe probe{server.address()};
  probe.rows("BEGIN");
  for (int turn = 0; turn < 10; ++turn) {
    for (const std::string kind : {"1", "3"}) {
      probe.rows(acquire("a", kind));
      probe.rows(acquire("b", kind));
      probe.rows("SELECT sallyport.leave('n" + kind + "', 'a', false, false)");
      probe.rows("SELECT sallyport.renew(ARRAY['n" + kind +
                 "']::bytea[], ARRAY['b']::bytea[], '{30000}', '{1}', '{0}', false)");
      probe.rows("SELECT sallyport.leave('n" + kind + "', 'b', true, false)");
    }
  }

  EXPECT_EQ(probe.value("SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE schemaname = "
                        "'sallyport' AND relname IN ('lock', 'queue')"),
            "0");
  probe.rows("COMMIT");
  EXPECT_TRUE(nothing_is_left(server));
}

TEST(Rules, NeedTransactionsThatSeeWhatOthersCommitted) {
  const postgres_server server;
  open(server.address());
  postgres_probe probe{server.address()};
  probe.rows("SET default_transaction_isolation = 'repeatable read'");
  for (const std::string call :
       {"acquire('n', 'a', 1::smallint, 0::smallint, 30000, 3000, 4000, true, 1, 1, 0, true, 7, 7, "
        "'', '', '')",
        "renew('{}', '{}', '{}', '{}', '{}', true)", "leave('n', 'a', true, true)",
        "downgrade('n', 'a', 1, 0, true)", "set_value('n', 'a', '')",
        "break_lock('n', 1, true, true)", "sweep(true, true)"}) {
    try {
      probe.rows("SELECT sallyport." + call);
      ADD_FAILURE() << call << " was executed";
    } catch (const kit::kit_error& error) {
      EXPECT_NE(std::string(error.what()).find("read committed"), std::string::npos)
          << error.what();
    }
  }
}

// Some plans are dear on paper, because no other way than the index shall be taken; to compile each of them at
// every call would take a hundred times as long as to run it. Compiling is on where nobody says otherwise.
TEST(Rules, AreNotCompiledToMachineCodeAtEveryCall) {
  const postgres_server server{
      {.settings = {"jit=on", "shared_preload_libraries=pg_stat_statements",
                    "pg_stat_statements.track=all"}}};
  server.rows("CREATE EXTENSION pg_stat_statements");
  const auto one = open(server.address());
  const auto other = open(server.address());

  mutex lock{one, "door", lasting()};
  mutex wanted{other, "door", lasting()};
  auto held = lock.acquire();
  waiter next(wanted);
  ASSERT_TRUE(waiters_become(server, 1));
  held.release();
  next.get().value().release();
  shared_mutex room{one, "room", lasting()};
  auto writes = room.acquire();
  EXPECT_FALSE(room.try_acquire_shared_for(50ms));
  writes.release();
  election leaders{one, "leader", lasting()};
  auto leads = leaders.campaign("a");
  leaders.proclaim(leads, "b");
  EXPECT_EQ(other.list().size(), 1U);
  other.break_lock("leader", leads.token());
  sweep(server, "sallyport");

  const std::string calls =
      "SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%sallyport%'";
  EXPECT_NE(server.value(calls), "0");
  EXPECT_EQ(server.value(calls + " AND jit_functions > 0"), "0") << server.value(
      "SELECT string_agg(query, E'\n') FROM pg_stat_statements WHERE jit_functions > 0");
}

}  // namespace
}  // namespace sallyport::postgres_live
