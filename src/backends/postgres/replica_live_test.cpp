#include "backends/postgres/test_live_store.hpp"

// A replica of the server: read-only until it is promoted, and then perhaps behind.
namespace sallyport::postgres_live {
namespace {

std::string address_of(const postgres_server& one, const postgres_server& other) {
  return "postgres://postgres@127.0.0.1:" + std::to_string(one.port()) +
         ",127.0.0.1:" + std::to_string(other.port()) + "/postgres?target_session_attrs=read-write";
}

TEST(Replica, IsReadOnlyAndSaysSo) {
  const postgres_server primary;
  mutex door{open(primary.address()), "door", lasting()};
  const auto held = door.acquire();
  const postgres_server replica{{.replica_of = primary.port()}};
  auto options = quick();
  options.store_patience = 300ms;

  mutex there{open(replica.address(), options), "door", lasting()};
  mutex elsewhere{open(replica.address(), options), "window", lasting()};

  for (mutex* const each : {&there, &elsewhere}) {
    const auto refused = error_of([&] { static_cast<void>(each->try_acquire()); });
    EXPECT_EQ(refused.code, errc::unavailable) << refused.text;
    EXPECT_TRUE(refused.says("read-only replica")) << refused.text;
  }
  EXPECT_TRUE(held.valid());
}

TEST(Replica, IsPassedByWhereThePrimaryIsNamedToo) {
  const postgres_server primary;
  const postgres_server replica{{.replica_of = primary.port()}};

  mutex door{open(address_of(replica, primary)), "door", lasting()};
  auto held = door.acquire();

  EXPECT_EQ(held.release(), release_result::released);
}

TEST(Replica, ThatIsPromotedKeepsWhatItHadAndDrawsLargerTokens) {
  postgres_server primary;
  const auto store = open(primary.address());
  mutex gate{store, "gate", lasting()};
  fencing_token before;
  {
    const auto first = gate.acquire();
    before = first.token();
  }
  fault_proxy between{primary.port()};
  const postgres_server replica{{.replica_of = between.port()}};
  const auto client = open(address_of(primary, replica));
  mutex door{client, "door", lasting()};
  mutex again{client, "gate", lasting()};
  const auto held = door.acquire();
  ASSERT_TRUE(eventually([&] {
    return replica.value("SELECT count(*) FROM sallyport.lock WHERE name = 'door'") == "1";
  }));
  between.set(flow::to_client, fault::silence());
  // A sequence is written down for 32 numbers ahead: more than those.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(gate.try_acquire());
  const auto unseen = gate.acquire();

  primary.kill();
  ASSERT_EQ(replica.value("SELECT pg_promote()"), "t");

  const auto later = again.try_acquire_for(patience);
  ASSERT_TRUE(later) << "the replica never heard of the other's lock";
  EXPECT_GT(unseen.token(), before);
  EXPECT_GT(later->token(), unseen.token());
  mutex other{open(replica.address()), "door", lasting()};
  EXPECT_FALSE(other.try_acquire()) << "it has heard of this one";
  EXPECT_TRUE(held.valid());
}

TEST(Replica, ThatIsSynchronousAndAwayIsWaitedForWhateverTheTimeOutOfStatements) {
  const postgres_server primary;
  static_cast<void>(open(primary.address()));  // the tables are there
  primary.rows("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
  primary.rows("SELECT pg_reload_conf()");
  ASSERT_TRUE(
      eventually([&] { return primary.value("SHOW synchronous_standby_names") == "absent"; }));

  // Long enough for a busy server to do its work, and shorter than the client waits.
  client_options patient = quick();
  patient.request_timeout = 2s;
  for (const std::string options : {"", "?options=-c%20statement_timeout%3D800"}) {
    mutex door{open(primary.address() + options, patient), "door" + options, lasting()};
    const auto trouble = error_of([&] { static_cast<void>(door.try_acquire()); });
    EXPECT_EQ(trouble.code, errc::outcome_unknown) << options << ": " << trouble.text;
  }
}

}  // namespace
}  // namespace sallyport::postgres_live
