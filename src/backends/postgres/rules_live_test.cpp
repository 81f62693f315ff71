#include "backends/postgres/test_live_store.hpp"
#include "base/random.hpp"

#include <memory>
#include <string>
#include <vector>

// The functions of the schema, called by many at random: what must hold is looked at by the server
// itself, inside of each transaction that changes a lock.
namespace sallyport::postgres_live {
namespace {

/// A trigger that refuses what must not be, and writes down every grant in the order in which the
/// name's grants were made.
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
  IF TG_OP = 'INSERT' THEN
    INSERT INTO public.history (name, mode, first_token, last_token)
      VALUES (NEW.name, NEW.mode, NEW.first_token, NEW.last_token);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE ON sallyport.lock FOR EACH ROW EXECUTE FUNCTION public.watch();
)";

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

TEST(Rules, HoldWhateverManyDoAtOnce) {
  const postgres_server server;
  open(server.address());
  server.rows(watchman);
  std::vector<std::unique_ptr<background<int>>> all;

  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    all.push_back(std::make_unique<background<int>>([&server, seed] {
      base::random random(seed);
      postgres_probe probe{server.address()};
      int refused = 0;
      for (int i = 0; i < 400; ++i) {
        try {
          probe.rows(random_call(random));
        } catch (const kit::kit_error& error) {
          // Which the client repeats.
          if (std::string_view(error.what()).find("deadlock") == std::string_view::npos) throw;
          ++refused;
        }
      }
      return refused;
    }));
  }
  for (auto& each : all) EXPECT_LE(each->get(), 20);

  // Tokens grow from grant to grant of a name, and blocks do not meet.
  EXPECT_GT(std::stoi(server.value("SELECT count(*) FROM history")), 100);
  EXPECT_EQ(
      server.value("SELECT count(*) FROM (SELECT first_token, lag(last_token) OVER (PARTITION BY "
                   "name ORDER BY n) AS before FROM history) h WHERE first_token <= before"),
      "0");
  EXPECT_TRUE(nothing_is_left(server));
}

}  // namespace
}  // namespace sallyport::postgres_live
