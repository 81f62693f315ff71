#include "backends/sql/test_live_settings.hpp"
#include "base/random.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

// The promises on servers and for users whose settings are not the usual ones. Settings are drawn by a
// seed; each seed has as many draws as it takes to see every value of every setting once.
//
//   SALLYPORT_SETTINGS_SEED   the first seed (1); "random" draws one
//   SALLYPORT_SETTINGS_SEEDS  how many, each with a server of its own (1)
namespace sallyport::sql_live {
namespace {

/// How often a setting is left as it is, for each time that it has each of its values.
constexpr std::size_t left_alone = 2;

std::size_t draws_for(std::span<const odd_setting> all) {
  std::size_t most = 0;
  for (const odd_setting& each : all) most = std::max(most, each.values.size());
  return most + left_alone;
}

/// Where each setting begins is random; from draw to draw it goes on to its next value.
std::vector<chosen_setting> draw(std::span<const odd_setting> all, std::uint64_t seed,
                                 std::size_t turn) {
  base::random random(seed);
  std::vector<chosen_setting> chosen;
  for (const odd_setting& each : all) {
    const std::size_t choices = draws_for(all);
    const std::size_t choice = (random.below(choices) + turn) % choices;
    if (choice < each.values.size()) chosen.push_back({each.name, each.values[choice]});
  }
  return chosen;
}

std::string text_of(const std::vector<chosen_setting>& settings) {
  std::string out;
  for (const chosen_setting& each : settings) out += "\n  " + each.name + " = " + each.value;
  return out;
}

std::string all_bytes() {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) out += static_cast<char>(byte);
  return out;
}

/// Characters that mean something to some server in some setting, as long as a name may be.
std::string longest_odd_name(char first) {
  std::string name =
      first + std::string("'\"`\\%_$$;-- {}(),x\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92 ");
  name.resize(255, first);
  return name;
}

/// Two clients of one store, one of them of a user with odd settings. What must hold between them.
class meeting {
 public:
  meeting(const std::string& odd_address, const std::string& plain_address)
      : odd_(open(odd_address, labelled(all_bytes()))),
        plain_(open(plain_address, labelled("plain"))) {}

  void hold() {
    mutex kept{odd_, "kept", {.lease_length = kept_length}};
    auto keeps = kept.acquire();
    one_at_a_time(odd_, plain_, "ab");
    one_at_a_time(plain_, odd_, "cd");
    readers_and_permits();
    leaders();
    EXPECT_TRUE(eventually([&] {
      const auto seen = plain_.who("kept").value().holders.at(0);
      return seen.held_for + seen.remaining > kept_length + 100ms;
    })) << "it was not renewed";
    EXPECT_EQ(keeps.release(), release_result::released);
  }

 private:
  /// Renewed after a third of it.
  static constexpr std::chrono::milliseconds kept_length{1500};

  static client_options labelled(const std::string& label) {
    auto options = quick();
    options.request_timeout = 5s;
    options.label = label;
    return options;
  }

  /// Exclusion, hand-over, growing tokens, release, and what is seen of all that.
  static void one_at_a_time(const client& first, const client& second, const std::string& prefix) {
    const std::string name = longest_odd_name(prefix.front());
    const std::string other_name = longest_odd_name(prefix.back());
    mutex mine{first, lock_name(name), lasting()};
    mutex theirs{second, lock_name(name), lasting()};
    mutex also{first, lock_name(other_name), lasting()};
    auto held = mine.acquire();
    auto held_too = also.acquire();
    EXPECT_FALSE(theirs.try_acquire());
    waiter next(theirs);
    EXPECT_TRUE(eventually([&] { return first.who(lock_name(name)).value().waiters.size() == 1; }));

    const auto seen = second.who(lock_name(name));
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->name, name);
    ASSERT_EQ(seen->holders.size(), 1U);
    EXPECT_EQ(seen->holders[0].token, held.token());
    EXPECT_EQ(seen->holders[0].label, first.who(lock_name(other_name)).value().holders.at(0).label);
    EXPECT_FALSE(seen->holders[0].host.empty());
    EXPECT_GT(seen->holders[0].remaining, 50s);
    const auto listed = first.list(prefix.substr(0, 1));
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed[0].name, name);
    EXPECT_EQ(first.list("", name, 1).at(0).name, other_name);

    const auto before = held.token();
    EXPECT_EQ(held.release(), release_result::released);
    auto got = next.get();
    ASSERT_TRUE(got);
    EXPECT_GT(got->token(), before);
    EXPECT_FALSE(mine.try_acquire());
    EXPECT_EQ(got->release(), release_result::released);
    EXPECT_EQ(held_too.release(), release_result::released);
    EXPECT_FALSE(second.who(lock_name(name)));
  }

  void readers_and_permits() {
    shared_mutex room{odd_, "room", lasting()};
    shared_mutex same_room{plain_, "room", lasting()};
    auto reads = room.acquire_shared();
    auto reads_too = same_room.acquire_shared();
    EXPECT_FALSE(room.try_acquire());
    EXPECT_EQ(reads.release(), release_result::released);
    EXPECT_EQ(reads_too.release(), release_result::released);
    semaphore seats{plain_, "seats", 2, lasting()};
    semaphore same_seats{odd_, "seats", 2, lasting()};
    auto one = seats.acquire();
    auto two = same_seats.acquire();
    EXPECT_FALSE(same_seats.try_acquire());
    EXPECT_EQ(one.release(), release_result::released);
    auto three = same_seats.try_acquire();
    EXPECT_TRUE(three);
    EXPECT_EQ(two.release(), release_result::released);
  }

  void leaders() {
    election mine{odd_, "leader", lasting()};
    election theirs{plain_, "leader", lasting()};
    auto leads = mine.campaign(all_bytes());
    EXPECT_EQ(theirs.leader().value().value, all_bytes());
    EXPECT_EQ(mine.leader().value().value, all_bytes());
    mine.proclaim(leads, "\\x" + all_bytes());
    EXPECT_EQ(theirs.leader().value().value, "\\x" + all_bytes());
    EXPECT_EQ(leads.release(), release_result::released);
    EXPECT_FALSE(mine.leader());
  }

  const client odd_;
  const client plain_;
};

std::uint64_t number_from_environment(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr) return 1;
  if (text == std::string("random")) return base::kernel_seed() % 1'000'000;
  return std::stoull(text);
}

TEST(OddSettings, ChangeNoPromise) {
  const std::uint64_t first = number_from_environment("SALLYPORT_SETTINGS_SEED");
  const std::uint64_t count = number_from_environment("SALLYPORT_SETTINGS_SEEDS");
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::cout << "SALLYPORT_SETTINGS_SEED=" << seed << std::endl;
    const auto of_server = draw(server_settings(), seed, 0);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", the server's settings:" + text_of(of_server));
    const auto server = start_server_with(of_server);
    for (std::size_t turn = 0; turn < draws_for(session_settings()); ++turn) {
      const auto of_session = draw(session_settings(), seed, turn);
      SCOPED_TRACE("draw " + std::to_string(turn) + ", the user's settings:" + text_of(of_session));
      const std::string name = "odd" + std::to_string(turn);
      make_user_with(*server, name, of_session);
      // Whoever comes first makes the tables.
      try {
        if (turn % 2 == 1) open(server->address() + in_space(name));
        meeting{with_user(*server, name, in_space(name)), server->address() + in_space(name)}
            .hold();
        EXPECT_TRUE(nothing_is_left(*server, name));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace sallyport::sql_live
