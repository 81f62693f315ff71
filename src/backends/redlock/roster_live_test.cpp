#include "backends/redlock/test_live_quorum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Clients whose lists of nodes differ: the marks on the nodes say who belongs to the store, the lists only
// where to look.
namespace sallyport::redlock_live {
namespace {

constexpr auto short_lease = 1000ms;
/// So long a node that came without data is kept out, and a little more.
constexpr auto quiet_time = 3s;

std::string by_number(const kit::redis_server& node) {
  return "127.0.0.1:" + std::to_string(node.port());
}
std::string by_name(const kit::redis_server& node) {
  return "localhost:" + std::to_string(node.port());
}

std::string list_of(const std::vector<std::string>& all) {
  std::string address = "redlock://";
  for (const std::string& each : all) address += (&each == &all.front() ? "" : ",") + each;
  return address;
}

/// Three nodes, and one beside them that is no member.
class Lists : public testing::Test {
 protected:
  Lists() { nodes.initialise({}, short_lease); }

  [[nodiscard]] std::string with_spare_for(std::size_t member) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      all.push_back(by_number(i == member ? spare[0] : nodes[i]));
    }
    return list_of(all);
  }
  [[nodiscard]] std::string with_spare() { return nodes.address() + ',' + by_number(spare[0]); }

  redis_quorum nodes{3};
  redis_quorum spare{1};
};

TEST_F(Lists, ThatDifferInOneNodeGiveNoTwoHolders) {
  // One client knows A, B, C, the other A, B and a new node: C is being replaced.
  network mine(nodes);
  mutex lock{open_to_all(mine.address()), "door", lasting(short_lease)};
  fault_proxy a(nodes[0].port());
  fault_proxy b(nodes[1].port());
  fault_proxy d(spare[0].port());
  std::optional<client> other;
  const told refused = error_of([&] {
    other.emplace(open(address_at({a.port(), b.port(), d.port()})));
  });
  std::optional<lease> second;
  if (other) {
    // It would take the new node in after a while.
    mutex busy{*other, "elsewhere", lasting(short_lease)};
    for (const auto until = lease_clock::now() + 2 * quiet_time; lease_clock::now() < until;) {
      (void)error_of([&] { (void)busy.try_acquire(); });
    }
    mine[1].refuse_connections();
    mine[1].close_all();
    a.refuse_connections();
    a.close_all();
    mutex theirs{*other, "door", lasting(short_lease)};
    (void)error_of([&] { second = theirs.try_acquire_for(patience); });
  }
  const auto first = lock.try_acquire_for(patience);

  ASSERT_TRUE(first);
  EXPECT_FALSE(second) << "two hold it, with tokens " << first->token().value() << " and "
                       << second->token().value();
  EXPECT_EQ(refused.code, errc::store_refused) << refused.text;
  EXPECT_NE(refused.text.find(by_number(nodes[2])), std::string::npos)
      << "it does not name the member that is missing: " << refused.text;
  EXPECT_EQ(mark_of(spare, 0), "") << "a node at no member's address was taken in";
}

TEST_F(Lists, ThatLackAMemberAreRefusedAndToldWhich) {
  for (std::size_t member = 0; member < nodes.size(); ++member) {
    const told error = error_of([&] { open(with_spare_for(member)); });

    EXPECT_EQ(error.code, errc::store_refused) << error.text;
    EXPECT_NE(error.text.find(by_number(nodes[member])), std::string::npos) << error.text;
  }
}

TEST_F(Lists, ThatNameMoreNodesThanTheStoreHasAskTheMembersOnly) {
  mutex lock{open(with_spare()), "door", lasting(short_lease)};
  mutex usual{open_to_all(nodes.address()), "door", lasting(short_lease)};
  nodes[0].kill();  // two of three are enough, where two of four would not be

  auto held = lock.try_acquire_for(patience);

  ASSERT_TRUE(held);
  EXPECT_FALSE(votes(spare, 0, "door"));
  EXPECT_FALSE(usual.try_acquire());
  held->release();
  nodes[1].kill();
  const told error = error_of([&] { static_cast<void>(lock.try_acquire()); });
  EXPECT_EQ(error.code, errc::unavailable)
      << "a member and a stranger are no majority: " << error.text;
  EXPECT_EQ(mark_of(spare, 0), "");
}

TEST_F(Lists, MayCallTheNodesByOtherNames) {
  const std::string names = list_of({by_name(nodes[2]), by_name(nodes[0]), by_name(nodes[1])});
  const client other = open_to_all(names);
  const client usual = open_to_all(nodes.address());
  EXPECT_EQ(other.capabilities().store_id, usual.capabilities().store_id)
      << "gates are bound to it";
  mutex lock{other, "door", lasting(short_lease)};

  auto held = lock.try_acquire();

  ASSERT_TRUE(held);
  mutex second{usual, "door", lasting(short_lease)};
  EXPECT_FALSE(second.try_acquire());
}

TEST_F(Lists, ThatNameOneNodeTwiceLackAnother) {
  const told error = error_of([&] {
    open(list_of({by_number(nodes[0]), by_number(nodes[1]), by_name(nodes[1])}));
  });

  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_NE(error.text.find("same server as another"), std::string::npos) << error.text;
  EXPECT_NE(error.text.find(by_number(nodes[2])), std::string::npos) << error.text;
}

TEST_F(Lists, LetABlankServerAtAMembersAddressComeBackAsThatMember) {
  const auto behind_stamp = [&] {
    const std::string mark = mark_of(nodes, 2);
    return mark.size() < 20 ? mark : mark.substr(20);
  };
  const std::string before = behind_stamp();
  mutex lock{open(with_spare()), "door", lasting(short_lease)};
  nodes[2].command({"FLUSHALL"});

  // Whoever uses the lock brings it back, in its time.
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(lock.try_acquire_for(patience));
    return behind_stamp() == before;
  }));
  EXPECT_EQ(mark_of(spare, 0), "") << "the other blank server is at no member's address";
}

TEST_F(Lists, ThatSpellAMemberOtherwiseDoNotTakeItInWhenItIsBlank) {
  const std::string names = list_of({by_name(nodes[0]), by_name(nodes[1]), by_name(nodes[2])});
  mutex lock{open_to_all(names), "door", lasting(short_lease)};
  nodes[2].command({"FLUSHALL"});

  for (const auto until = lease_clock::now() + quiet_time; lease_clock::now() < until;) {
    EXPECT_TRUE(lock.try_acquire_for(patience)) << "the others are enough";
    ASSERT_EQ(mark_of(nodes, 2), "");
  }
  const told error = error_of([&] { open(names); });
  EXPECT_EQ(error.code, errc::store_refused) << error.text;
  EXPECT_NE(error.text.find(by_number(nodes[2])), std::string::npos)
      << "how it was called at init: " << error.text;
}

// ---- a member is replaced while clients run --------------------------------------------------------

class Replacement : public Lists {
 protected:
  /// As `sallyport init --replace` does it.
  client replace(const std::string& how) {
    return open(with_spare() + "?initialise=" + how + "&old=" + by_number(nodes[2]) +
                "&new=" + by_number(spare[0]));
  }
};

TEST_F(Replacement, GoesOnAfterAnInterruptionWhileALockIsHeldAndGivesTheNewMemberAVote) {
  const client store = open(with_spare());
  const std::string id = store.capabilities().store_id;
  mutex lock{store, "door", lasting(short_lease)};
  auto held = lock.try_acquire_for(patience);
  ASSERT_TRUE(held);
  const auto first = held->token();
  nodes[2].kill();
  spare[0].command({"SET", "\1quorum-member", "not blank"});
  const told refused = error_of([&] { replace("replace"); });
  EXPECT_EQ(refused.code, errc::store_refused) << refused.text;
  spare[0].command({"FLUSHALL"});

  // The first one ends before the new member votes.
  static_cast<void>(replace("replace"));
  const client done = replace("replace_and_wait");

  EXPECT_EQ(done.capabilities().store_id, id) << "gates are bound to it";
  EXPECT_FALSE(held->lost().stop_requested()) << "it was renewed by those that stayed";
  held->release();
  nodes[1].kill();
  const auto next = lock.try_acquire_for(patience);
  ASSERT_TRUE(next) << "the new member is one of the two that are left";
  EXPECT_GT(next->token(), first);
  EXPECT_TRUE(votes(spare, 0, "door"));
}

}  // namespace
}  // namespace sallyport::redlock_live
