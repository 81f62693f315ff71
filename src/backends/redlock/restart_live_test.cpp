#include "backends/redlock/test_live_quorum.hpp"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <vector>

// Nodes that are killed and come back: with everything that they had said, with nothing, or with
// something old. And clients whose list of nodes is not the one that was initialised.
namespace sallyport::redlock_live {
namespace {

using kit::redis_persistence;

const kit::redis_options durable{.persistence = redis_persistence::append_always};
/// So long a node that has lost its data must not vote, with this longest lease.
constexpr auto short_lease = 1000ms;

/// The largest token that was given out; each has to be larger than all before.
class token_book {
 public:
  void note(const lease& held) {
    EXPECT_GT(held.token().value(), last_);
    last_ = std::max(last_, held.token().value());
  }
  [[nodiscard]] std::uint64_t last() const noexcept { return last_; }

 private:
  std::uint64_t last_ = 0;
};

void take_turns(mutex& lock, token_book& book, int turns) {
  for (int i = 0; i < turns; ++i) {
    auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    book.note(*held);
    held->release();
  }
}

void kill_and_start(redis_quorum& nodes, std::size_t node) {
  nodes[node].kill();
  nodes[node].start();
}

bool is_marked(const redis_quorum& nodes, std::size_t node) {
  const std::string mark = mark_of(nodes, node);
  auto probe = nodes[node].probe();
  return mark.find(" f ") != std::string::npos &&
         mark.find(' ' + probe.info("run_id") + ' ') != std::string::npos;
}

/// What a client that is opened now complains of.
std::string complaints(const redis_quorum& nodes) { return complaints_of(open(nodes.address())); }

// ---- everything is kept ----------------------------------------------------------------------------

TEST(DurableNode, KeepsItsVotesAndVotesAgainAtOnce) {
  redis_quorum nodes(3, durable);
  nodes.initialise();
  const auto store = open_to_all(nodes.address());
  EXPECT_TRUE(store.capabilities().survives_store_restart);
  mutex lock{store, "door", lasting(60s)};
  mutex other{open_to_all(nodes.address()), "door", lasting(60s)};
  auto held = lock.acquire();
  ASSERT_TRUE(eventually([&] { return votes(nodes, 0, "door") && votes(nodes, 1, "door"); }));

  for (const std::size_t node : {0U, 1U}) {
    kill_and_start(nodes, node);
    EXPECT_TRUE(votes(nodes, node, "door"));
    EXPECT_TRUE(eventually([&] { return is_marked(nodes, node); }))
        << "nobody has marked node " << node << " for its new life";
  }
  nodes[2].kill();

  // The two that restarted are all that is left, and they still vote for the holder.
  EXPECT_TRUE(held.valid());
  waiter next(other);
  ASSERT_TRUE(waiters_become(nodes, "door", 1));
  EXPECT_FALSE(next.done());
  mutex third{open(nodes.address()), "door", lasting(60s)};
  EXPECT_FALSE(third.try_acquire());
  EXPECT_EQ(held.release(), release_result::released);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), held.token());
  got->release();
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(DurableNode, IsMarkedAnewByACrowdOfClients) {
  redis_quorum nodes(3, durable);
  nodes.initialise();
  std::vector<client> crowd;
  for (int i = 0; i < 5; ++i) crowd.push_back(open(nodes.address()));

  token_book book;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      kill_and_start(nodes, node);
      for (const client& each : crowd) {
        mutex lock{each, "door", lasting(60s)};
        take_turns(lock, book, 1);
      }
      EXPECT_TRUE(eventually([&] { return is_marked(nodes, node); }));
    }
  }
  EXPECT_TRUE(eventually([&] { return complaints(nodes).empty(); })) << complaints(nodes);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(DurableNodes, ThatAllRestartAtOnceGoOnWhereTheyWere) {
  redis_quorum nodes(3, durable);
  nodes.initialise();
  mutex lock{open_to_all(nodes.address()), "door", lasting(60s)};
  mutex other{open_to_all(nodes.address()), "door", lasting(60s)};
  auto held = lock.acquire();

  for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node].kill();
  EXPECT_EQ(error_of([&] { static_cast<void>(other.try_acquire()); }).code, errc::unavailable);
  for (std::size_t node = 0; node < nodes.size(); ++node) nodes[node].start();

  EXPECT_TRUE(held.valid());
  waiter next(other);
  ASSERT_TRUE(waiters_become(nodes, "door", 1));
  EXPECT_FALSE(next.done());
  // Its client may not have reached them again, and then says so.
  EXPECT_NE(held.release(), release_result::already_lost);
  auto got = next.get();
  ASSERT_TRUE(got);
  EXPECT_GT(got->token(), held.token());
}

TEST(DurableNodes, ThatRestartedWhileAClientWasIdleAreNoTroubleToIt) {
  redis_quorum nodes(3, durable);
  nodes.initialise();
  mutex lock{open_to_all(nodes.address()), "door", lasting(60s)};
  token_book book;
  for (int round = 0; round < 5; ++round) {
    take_turns(lock, book, 1);
    for (std::size_t node = 0; node < nodes.size(); ++node) kill_and_start(nodes, node);

    auto held = lock.try_acquire();
    ASSERT_TRUE(held);
    book.note(*held);
  }
}

// ---- everything is lost ----------------------------------------------------------------------------

/// Restarts a node that loses its data, and shows that it grants nothing before the longest lease has
/// passed, and no token that was given out before.
void expect_quarantine(redis_quorum& nodes, std::size_t node, token_book& book) {
  mutex lock{open(nodes.address()), "door", lasting(short_lease)};
  const auto forgot = lease_clock::now();
  nodes[node].start();
  take_turns(lock, book, 1);

  std::string told;
  EXPECT_TRUE(eventually(
      [&] {
        told = complaints(nodes);
        return told.find(std::to_string(nodes[node].port()) + " has lost its data") !=
               std::string::npos;
      },
      short_lease))
      << told;
  // The largest token from when its quiet time had certainly not passed. Counters are read after that, and others
  // may grant between that and its first vote: those tokens are known to all majorities without it.
  std::uint64_t before = book.last();
  while (!is_marked(nodes, node)) {
    ASSERT_LT(lease_clock::now() - forgot, patience) << "it was never taken in again";
    auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    book.note(*held);
    const bool votes_early = votes(nodes, node, "door");
    if (!is_marked(nodes, node)) {
      EXPECT_FALSE(votes_early) << "it voted while it was to be quiet";
      if (lease_clock::now() - forgot < short_lease) before = held->token().value();
    }
    held->release();
  }
  EXPECT_GE(lease_clock::now() - forgot, short_lease);
  EXPECT_GT(before, 0U);
  EXPECT_GE(counter_of(nodes, node), before);
  EXPECT_TRUE(eventually([&] { return complaints(nodes).empty(); })) << complaints(nodes);
}

TEST(ForgetfulNode, IsQuietForTheLongestLeaseAndThenAheadOfAllTokens) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  const auto store = open_to_all(nodes.address());
  EXPECT_FALSE(store.capabilities().survives_store_restart);
  EXPECT_EQ(store.capabilities().max_lease, short_lease);
  mutex lock{store, "door", lasting(short_lease)};
  token_book book;
  take_turns(lock, book, 10);

  nodes[0].kill();
  expect_quarantine(nodes, 0, book);

  // It votes again: with it, one of the others may go.
  nodes[1].kill();
  take_turns(lock, book, 3);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(ForgetfulNode, IsTakenInByClientsThatAreNeverOpenForLong) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  token_book book;
  const auto take_a_turn = [&] {
    mutex lock{open(nodes.address()), "door", lasting(short_lease)};
    auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    book.note(*held);
    const bool votes_early = votes(nodes, 0, "door");
    EXPECT_TRUE(!votes_early || is_marked(nodes, 0)) << "it voted while it was to be quiet";
  };
  take_a_turn();

  const auto forgot = lease_clock::now();
  kill_and_start(nodes, 0);
  while (!is_marked(nodes, 0)) {
    ASSERT_LT(lease_clock::now() - forgot, patience) << "it was never taken in again";
    take_a_turn();
  }

  EXPECT_GE(lease_clock::now() - forgot, short_lease);
  EXPECT_TRUE(eventually([&] { return complaints(nodes).empty(); })) << complaints(nodes);
  nodes[1].kill();
  take_a_turn();
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(ForgetfulNode, WithAnOldSnapshotIsQuietAsWell) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  mutex lock{open_to_all(nodes.address()), "door", lasting(short_lease)};
  token_book book;
  take_turns(lock, book, 3);
  nodes[0].command({"SAVE"});
  const std::string old_mark = mark_of(nodes, 0);
  const std::uint64_t old_counter = counter_of(nodes, 0);
  take_turns(lock, book, 10);
  ASSERT_LT(old_counter, book.last());

  nodes[0].kill();
  expect_quarantine(nodes, 0, book);

  EXPECT_NE(mark_of(nodes, 0), old_mark);
  EXPECT_GT(counter_of(nodes, 0), old_counter);
  nodes[1].kill();
  take_turns(lock, book, 3);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(ForgetfulNode, IsAskedForItsVoteAgainByWhoHoldsTheLock) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  mutex lock{open_to_all(nodes.address()), "door", lasting(short_lease)};
  mutex other{open_to_all(nodes.address()), "door", lasting(short_lease)};
  auto held = lock.acquire();

  kill_and_start(nodes, 2);

  EXPECT_TRUE(eventually([&] { return votes(nodes, 2, "door"); }));
  EXPECT_TRUE(held.valid());
  nodes[0].kill();  // it holds on with the vote that it got in place of the one that was lost
  EXPECT_FALSE(other.try_acquire_for(2 * short_lease));
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(held.release(), release_result::released);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(ForgetfulNodes, OneAfterTheOtherRepeatNoTokenAndLetNoTwoIn) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  std::atomic<bool> enough{false};
  std::atomic<int> inside{0};
  std::atomic<std::uint64_t> last{0};
  // Several, so that each node is taken in by all of them at the same time.
  std::vector<client> stores;
  for (int i = 0; i < 3; ++i) stores.push_back(open_to_all(nodes.address()));
  std::vector<background<int>> clients;
  for (const client& each : stores) {
    clients.emplace_back([&] {
      mutex lock{each, "door", lasting(short_lease)};
      int turns = 0;
      while (!enough.load()) {
        auto held = lock.try_acquire_for(patience);
        EXPECT_TRUE(held);
        if (!held || !held->valid()) continue;
        EXPECT_EQ(inside.fetch_add(1), 0);
        EXPECT_LT(last.exchange(held->token().value()), held->token().value());
        inside.fetch_sub(1);
        held->release();
        ++turns;
      }
      return turns;
    });
  }

  for (std::size_t node = 0; node < nodes.size(); ++node) {
    kill_and_start(nodes, node);
    EXPECT_TRUE(eventually([&] { return is_marked(nodes, node); })) << "node " << node;
  }
  enough.store(true);

  for (auto& each : clients) EXPECT_GT(each.get(), 3);
  EXPECT_TRUE(nothing_is_left(nodes));
}

TEST(ForgetfulMajority, IsRefusedUntilSomebodyForcesIt) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  mutex lock{open_to_all(nodes.address()), "door", lasting(short_lease)};
  token_book book;
  take_turns(lock, book, 3);

  // One after the other, the client could see the first one back while the second still votes, and
  // would rightly note that it has to be quiet for a while.
  for (const std::size_t node : {0U, 1U}) nodes[node].kill();
  for (const std::size_t node : {0U, 1U}) nodes[node].start();

  const told here = error_of([&] { static_cast<void>(lock.try_acquire_for(slack)); });
  EXPECT_EQ(here.code, errc::store_refused) << here.text;
  EXPECT_NE(here.text.find("sallyport init"), std::string::npos) << here.text;
  const told there = error_of([&] { open(nodes.address()); });
  EXPECT_EQ(there.code, errc::store_refused) << there.text;
  EXPECT_NE(there.text.find("sallyport init"), std::string::npos) << there.text;
  EXPECT_EQ(mark_of(nodes, 0), "");

  // As `sallyport init --force` does.
  const told too_little = error_of([&] { open(nodes.address() + "?initialise=yes&max_lease=1"); });
  EXPECT_EQ(too_little.code, errc::store_refused) << "two of them may have voted";
  EXPECT_NE(too_little.text.find("--force"), std::string::npos) << too_little.text;
  static_cast<void>(open(nodes.address() + "?initialise=force&max_lease=1"));
  for (std::size_t node = 0; node < nodes.size(); ++node) EXPECT_TRUE(is_marked(nodes, node));
  mutex again{open(nodes.address()), "door", lasting(short_lease)};
  take_turns(again, book, 1);
}

TEST(FlushedNode, IsNoticedByItsMissingMarkAndKeptQuiet) {
  redis_quorum nodes(3);
  nodes.initialise({}, short_lease);
  mutex lock{open_to_all(nodes.address()), "door", lasting(short_lease)};
  token_book book;
  take_turns(lock, book, 3);

  nodes[1].command({"FLUSHALL"});
  const auto flushed = lease_clock::now();
  while (!is_marked(nodes, 1)) {
    ASSERT_LT(lease_clock::now() - flushed, patience);
    auto held = lock.try_acquire_for(patience);
    ASSERT_TRUE(held);
    book.note(*held);
    const bool votes_early = votes(nodes, 1, "door");
    EXPECT_TRUE(!votes_early || is_marked(nodes, 1));
  }
  EXPECT_GE(lease_clock::now() - flushed, short_lease);
  take_turns(lock, book, 3);
}

// ---- what was on disk ------------------------------------------------------------------------------

TEST(CarelessNode, ThatIsSetUpBetterAfterItsCrashIsQuietAllTheSame) {
  redis_quorum nodes(3, {.persistence = redis_persistence::append_every_second});
  nodes.initialise({}, short_lease);
  mutex lock{open_to_all(nodes.address()), "door", lasting(short_lease)};
  token_book book;
  take_turns(lock, book, 3);

  nodes[0].kill();
  nodes[0].start();
  nodes[0].command({"CONFIG", "SET", "appendfsync", "always"});
  const auto began = lease_clock::now();
  while (!is_marked(nodes, 0)) {
    ASSERT_LT(lease_clock::now() - began, patience) << "it was never taken in again";
    take_turns(lock, book, 1);
  }

  EXPECT_GE(lease_clock::now() - began, short_lease) << "it may have lost the last second";
}

TEST(CarelessNode, ThatDoesNotSyncWhileItRewritesItsFileIsNotBelieved) {
  redis_quorum nodes(3, {.persistence = redis_persistence::append_always,
                         .config = {"no-appendfsync-on-rewrite yes"}});
  static_cast<void>(open(nodes.address() + "?initialise=yes&max_lease=1"));
  const auto store = open_to_all(nodes.address());
  EXPECT_FALSE(store.capabilities().survives_store_restart);
  mutex lock{store, "door", lasting(short_lease)};
  token_book book;

  kill_and_start(nodes, 0);
  const auto began = lease_clock::now();
  while (!is_marked(nodes, 0)) {
    ASSERT_LT(lease_clock::now() - began, patience) << "it was never taken in again";
    take_turns(lock, book, 1);
  }

  EXPECT_GE(lease_clock::now() - began, short_lease);
}

// ---- lists of nodes --------------------------------------------------------------------------------

std::vector<std::uint16_t> ports_of(const redis_quorum& nodes,
                                    const std::vector<std::size_t>& which) {
  std::vector<std::uint16_t> ports;
  for (const std::size_t each : which) ports.push_back(nodes[each].port());
  return ports;
}

TEST(ListOfNodes, ThatIsShorterThanTheSetIsRefused) {
  redis_quorum nodes(5);
  nodes.initialise();

  const told error = error_of([&] { open(address_at(ports_of(nodes, {0, 1, 2}))); });

  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_NE(error.text.find(std::to_string(nodes[4].port()) + " is a member"), std::string::npos)
      << error.text;
}

TEST(ListOfNodes, WithNodesOfAnotherSetIsRefused) {
  redis_quorum nodes(3);
  nodes.initialise();
  redis_quorum others(3);
  static_cast<void>(open(others.address() + "?initialise=yes"));

  for (const std::size_t ours : {1U, 2U}) {
    std::vector<std::uint16_t> ports;
    for (std::size_t i = 0; i < 3; ++i) ports.push_back((i < ours ? nodes : others)[i].port());
    const told error = error_of([&] { open(address_at(ports)); });

    EXPECT_EQ(error.code, errc::store_refused) << error.text;
    EXPECT_NE(error.text.find("belongs to another set"), std::string::npos) << error.text;
  }
}

TEST(ListOfNodes, WithNodesOfAnotherSetBesideTheMembersDoesNotLetThemVote) {
  redis_quorum nodes(3);
  nodes.initialise();
  redis_quorum others(3);
  static_cast<void>(open(others.address() + "?initialise=yes"));
  auto ports = ports_of(nodes, {0, 1, 2});
  ports.push_back(others[0].port());

  mutex lock{open(address_at(ports)), "door", lasting()};
  auto held = lock.try_acquire();
  ASSERT_TRUE(held);
  EXPECT_FALSE(votes(others, 0, "door"));
  held.reset();
  nodes[1].kill();
  nodes[2].kill();
  EXPECT_TRUE(error_of([&] { static_cast<void>(lock.try_acquire()); }).code);
}

TEST(Initialising, ByTwoClientsAtOnceMakesOneStore) {
  redis_quorum nodes(3);
  for (int round = 0; round < 10; ++round) {
    const std::string prefix = "round-" + std::to_string(round) + ':';
    const std::string address = nodes.address() + "?prefix=" + prefix + "&initialise=yes";
    std::vector<background<bool>> clients;
    std::atomic<int> inside{0};
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&] {
        mutex lock{open(address), "door", lasting()};
        auto held = lock.try_acquire_for(patience);
        EXPECT_EQ(inside.fetch_add(1), 0);
        inside.fetch_sub(1);
        return held.has_value();
      });
    }
    for (auto& each : clients) EXPECT_TRUE(each.get());

    std::set<std::string> stores;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      const std::string mark = nodes[node].command({"GET", prefix + "\1quorum-member"}).text;
      const std::size_t at = mark.find(" f ");
      ASSERT_NE(at, std::string::npos) << mark;
      stores.insert(mark.substr(at + 3, 32));
    }
    EXPECT_EQ(stores.size(), 1U);
  }
}

TEST(Initialising, DoesNothingToNodesThatHaveAMark) {
  redis_quorum nodes(3);
  nodes.initialise();
  const std::string before = mark_of(nodes, 0);
  mutex lock{open_to_all(nodes.address()), "door", lasting()};
  auto held = lock.acquire();

  mutex other{open(nodes.address() + "?initialise=yes"), "door", lasting()};

  EXPECT_FALSE(other.try_acquire());
  EXPECT_EQ(mark_of(nodes, 0), before);
  EXPECT_TRUE(held.valid());
}

TEST(Initialising, WaitsForAllNodes) {
  redis_quorum nodes(3);
  nodes[2].kill();

  const told error = error_of([&] {
    mutex lock{open(nodes.address() + "?initialise=yes"), "door", lasting()};
    static_cast<void>(lock.try_acquire());
  });

  EXPECT_NE(error.code, std::error_code{});
  EXPECT_EQ(mark_of(nodes, 0), "");
  EXPECT_EQ(mark_of(nodes, 1), "");
}

TEST(Forcing, ReplacesAMemberAndKeepsTheOrderOfTokens) {
  redis_quorum nodes(4);
  const std::string before = address_at(ports_of(nodes, {0, 1, 2}));
  const std::string after = address_at(ports_of(nodes, {0, 1, 3}));
  static_cast<void>(open(before + "?initialise=yes&max_lease=1"));
  token_book book;
  std::string store_id;
  {
    const client old = open_to_all(before);
    store_id = old.capabilities().store_id;
    mutex lock{old, "door", lasting(short_lease)};
    take_turns(lock, book, 10);
  }
  EXPECT_EQ(error_of([&] { open(after + "?initialise=yes"); }).code, errc::store_refused);
  EXPECT_EQ(mark_of(nodes, 3), "");

  static_cast<void>(open(after + "?initialise=force&max_lease=1"));

  const client store = open_to_all(after);
  EXPECT_EQ(store.capabilities().store_id, store_id) << "gates stay bound";
  mutex lock{store, "door", lasting(short_lease)};
  take_turns(lock, book, 3);
  // The old list is refused, also while the old member is there; the superset is not.
  const told error = error_of([&] { open(before); });
  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_NE(error.text.find(std::to_string(nodes[3].port())), std::string::npos) << error.text;
  mutex both{open(address_at(ports_of(nodes, {0, 1, 2, 3}))), "door", lasting(short_lease)};
  auto held = both.try_acquire_for(patience);
  ASSERT_TRUE(held);
  book.note(*held);
  EXPECT_FALSE(votes(nodes, 2, "door")) << "it was a member once";
}

}  // namespace
}  // namespace sallyport::redlock_live
