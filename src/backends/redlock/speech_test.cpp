#include "backends/redlock/speech.hpp"

#include "backends/redis/wire.hpp"
#include "backends/redlock/test_replies.hpp"
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace sallyport::backends::redlock {
namespace {

using namespace std::chrono_literals;
using redis::arguments_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using words = std::vector<std::string>;

const std::string me(32, 'a');
const std::string mark = "sp2 store 3 60000 run";

using said::error;
using said::list;
using said::number;
using said::numbers;
using said::text;

const speech& mine() {
  static const speech made({.prefix = "p:",
                            .client = "00000000000000c1",
                            .owner = {.host = "my host", .pid = 42, .label = "test"}});
  return made;
}

wish some_wish() {
  return {.name = "door",
          .contender = me,
          .lease_length = 3s,
          .claim_window = 2s,
          .ticket_length = 9s,
          .tokens = 4,
          .local_waiters = 5,
          .value = "v"};
}

/// What comes behind the keys of a script call.
words behind_keys(const wire_command& call) {
  words all = arguments_of(call);
  const auto keys = std::stoul(all.front());
  return {all.begin() + 1 + static_cast<std::ptrdiff_t>(keys), all.end()};
}
words keys_of(const wire_command& call) {
  words all = arguments_of(call);
  const auto keys = std::stoul(all.front());
  return {all.begin() + 1, all.begin() + 1 + static_cast<std::ptrdiff_t>(keys)};
}

TEST(QuorumSpeech, NamesTheKeysOfALockAndOfTheStore) {
  const wire_command call = mine().bid(mark, some_wish(), "id");

  EXPECT_EQ(call.script, &scripts::bid);
  const words keys = keys_of(call);
  ASSERT_EQ(keys.size(), 5U);
  EXPECT_EQ(keys[0], "p:door") << "where other libraries look, too";
  EXPECT_THAT(keys[1], HasSubstr("quorum-line"));
  EXPECT_THAT(keys[2], HasSubstr("quorum-tickets"));
  EXPECT_EQ(keys[3], "p:\1quorum-fence");
  EXPECT_EQ(keys[4], "p:\1quorum-member");
}

TEST(QuorumSpeech, SaysABidWithItsIdLeaseAndTokens) {
  EXPECT_THAT(behind_keys(mine().bid(mark, some_wish(), "id")),
              ElementsAre(mark, "p:\1quorum-notice:", me, "id", "3000", "4", "5",
                          ::testing::AllOf(HasSubstr("00000000000000c1 42 "), HasSubstr(" v"))));
}

TEST(QuorumSpeech, AsksForAtLeastOneToken) {
  wish what = some_wish();
  what.tokens = 0;
  EXPECT_EQ(behind_keys(mine().bid(mark, what, "id"))[5], "1");
}

TEST(QuorumSpeech, SaysARenewal) {
  EXPECT_THAT(behind_keys(mine().extend(mark, some_wish(), "id", 0)),
              ElementsAre(mark, "id", "3000", "0", "5"));
}

TEST(QuorumSpeech, RoundsALeaseUpSoThatTheStoreDoesNotEndItFirst) {
  wish what = some_wish();
  what.lease_length = 1500us;
  EXPECT_EQ(behind_keys(mine().extend(mark, what, "id", 0))[2], "2");
}

TEST(QuorumSpeech, SaysARaiseInDigits) {
  const wire_command call = mine().raise(mark, "door", "id", 1'815'000'000'000'000ULL);

  EXPECT_THAT(keys_of(call), ElementsAre("p:door", "p:\1quorum-fence", "p:\1quorum-member"));
  EXPECT_THAT(behind_keys(call), ElementsAre(mark, "id", "1815000000000000"));
}

TEST(QuorumSpeech, SaysWhetherAFarewellHandsOverAndWithdraws) {
  EXPECT_THAT(behind_keys(mine().leave({.name = "door", .contender = me, .id = "id"})),
              ElementsAre("p:\1quorum-notice:", me, "id", "p", "", "r"));
  EXPECT_THAT(behind_keys(mine().leave({.name = "door",
                                        .contender = me,
                                        .id = "id",
                                        .hand_over = true,
                                        .nonce = "n",
                                        .withdraw = true})),
              ElementsAre("p:\1quorum-notice:", me, "id", "h", "n", "w"));
}

TEST(QuorumSpeech, SaysATicketWithItsPlaceInTheLine) {
  EXPECT_THAT(
      behind_keys(mine().enqueue(mark, some_wish(), 123)),
      ElementsAre(mark, "p:\1quorum-notice:", me, "123", "9000", "2000", "4", "5", ::testing::_));
}

TEST(QuorumSpeech, HealsWithTheSameFormOfRecordThatScriptsWrite) {
  const wire_command call =
      mine().heal(mark, some_wish(), "id", {fencing_token(7), fencing_token(9)});

  EXPECT_THAT(keys_of(call), ElementsAre("p:door", "p:\1quorum-member"));
  const words spoken = behind_keys(call);
  ASSERT_EQ(spoken.size(), 3U);
  EXPECT_EQ(spoken[0], mark);
  EXPECT_THAT(spoken[1], ::testing::StartsWith("sp2 m id 7 9 c 0 5 00000000000000c1 42 "));
  EXPECT_EQ(spoken[2], "3000");
}

TEST(QuorumSpeech, SaysAChangeOfAMark) {
  EXPECT_THAT(behind_keys(mine().adopt("old", "new", 77)), ElementsAre("old", "new", "77"));
  EXPECT_THAT(behind_keys(mine().adopt("", "new", 0)), ElementsAre("", "new", "0"));
  EXPECT_THAT(arguments_of(mine().read_mark()), ElementsAre("GET", "p:\1quorum-member"));
  EXPECT_THAT(arguments_of(mine().look("stamp")),
              ElementsAre("2", "p:\1quorum-fence", "p:\1quorum-member", "stamp"));
}

TEST(QuorumSpeech, BreaksSafelyOrAtOnce) {
  EXPECT_EQ(behind_keys(mine().break_lock("door", "id", backend_api::break_mode::safe)).back(),
            "s");
  EXPECT_EQ(behind_keys(mine().break_lock("door", "id", backend_api::break_mode::at_once)).back(),
            "n");
}

TEST(QuorumSpeech, HearsOnAChannelOfItsOwn) {
  EXPECT_EQ(mine().channel(), "p:\1quorum-notice:00000000000000c1");
}

// ---- answers -------------------------------------------------------------------------------------

TEST(QuorumSpeech, ReadsTheAnswersToABid) {
  const auto yes = bid_answer_of(numbers({1, 99}));
  ASSERT_TRUE(yes);
  EXPECT_EQ(yes->what, vote::kind::yes);
  EXPECT_EQ(yes->counter, 99U);

  const auto no = bid_answer_of(numbers({0, 1500, 0, 1'700'000}));
  ASSERT_TRUE(no);
  EXPECT_EQ(no->what, vote::kind::no);
  EXPECT_EQ(no->remaining, 1500ms);
  EXPECT_FALSE(no->foreign);
  EXPECT_EQ(no->server_us, 1'700'000U);

  const auto foreign = bid_answer_of(numbers({0, -1, 1, 1}));
  ASSERT_TRUE(foreign);
  EXPECT_TRUE(foreign->foreign);
  EXPECT_GT(foreign->remaining, 1h) << "a key that never ends";
  EXPECT_EQ(bid_answer_of(numbers({0, -2, 0, 1}))->remaining, 0s) << "others stand before it";

  const auto handed = bid_answer_of(list({number(2), text("nonce")}));
  ASSERT_TRUE(handed);
  EXPECT_EQ(handed->what, vote::kind::handed_over);
  EXPECT_EQ(handed->nonce, "nonce");

  const auto stranger = bid_answer_of(list({number(-1), text("other")}));
  ASSERT_TRUE(stranger);
  EXPECT_EQ(stranger->what, vote::kind::not_a_member);
  EXPECT_EQ(stranger->mark, "other");
}

TEST(QuorumSpeech, ReadsTheAnswersToARenewal) {
  EXPECT_EQ(extend_answer_of(numbers({1, 99}))->counter, 99U);
  EXPECT_EQ(extend_answer_of(numbers({1, 0}))->what, vote::kind::yes);
  EXPECT_TRUE(extend_answer_of(numbers({0, 0}))->absent);
  EXPECT_FALSE(extend_answer_of(numbers({0, 1}))->absent);
  EXPECT_EQ(extend_answer_of(list({number(-1), text("")}))->what, vote::kind::not_a_member);
}

TEST(QuorumSpeech, ReadsTheAnswersToATicket) {
  const auto held = enqueue_answer_of(numbers({1, 0, 1, 1200, 1}));
  ASSERT_TRUE(held);
  EXPECT_FALSE(held->free);
  EXPECT_TRUE(held->first);
  EXPECT_EQ(held->remaining, 1200ms);
  EXPECT_TRUE(held->foreign);
  EXPECT_TRUE(enqueue_answer_of(numbers({1, 1, 1, -2, 0}))->free);
  EXPECT_EQ(enqueue_answer_of(list({number(2), text("n")}))->nonce, "n");
}

TEST(QuorumSpeech, TakesARaiseThatIsTooLargeForANo) {
  EXPECT_EQ(plain_answer_of(numbers({1}))->what, vote::kind::yes);
  EXPECT_EQ(plain_answer_of(numbers({0}))->what, vote::kind::no);
  EXPECT_EQ(plain_answer_of(numbers({-2}))->what, vote::kind::far_behind)
      << "which is not that somebody has the lock";
}

TEST(QuorumSpeech, ReadsTheAnswersToAFarewellAndToAnAdoption) {
  EXPECT_TRUE(*leave_answer_of(number(1)));
  EXPECT_FALSE(*leave_answer_of(number(0)));
  const auto done = adopt_answer_of(list({number(1), text("mine")}));
  ASSERT_TRUE(done);
  EXPECT_TRUE(done->done);
  EXPECT_EQ(done->mark, "mine");
  EXPECT_FALSE(adopt_answer_of(list({number(0), text("other")}))->done);
}

TEST(QuorumSpeech, TurnsErrorsAndWhatItDoesNotUnderstandIntoFailures) {
  const std::vector<reply> nonsense{
      number(1), text("1"), list({}), numbers({7}), list({text("yes"), number(1)}), {}};
  for (const reply& each : nonsense) {
    EXPECT_FALSE(bid_answer_of(each));
    EXPECT_FALSE(extend_answer_of(each));
    EXPECT_FALSE(enqueue_answer_of(each));
    EXPECT_FALSE(plain_answer_of(each));
    EXPECT_FALSE(adopt_answer_of(each) && adopt_answer_of(each)->done);
  }
  EXPECT_FALSE(leave_answer_of(numbers({1})));
  const auto refused = bid_answer_of(error("NOPERM no"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::store_refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("NOPERM no"));
  EXPECT_EQ(bid_answer_of(error("LOADING wait")).error().code, errc::unavailable);
  EXPECT_FALSE(leave_answer_of(error("NOPERM no")));
  EXPECT_FALSE(adopt_answer_of(error("NOPERM no")));
}

TEST(QuorumSpeech, ReadsNotices) {
  const auto handed = parse_notice("h " + me + " nonce");
  ASSERT_TRUE(handed);
  EXPECT_EQ(handed->what, notice::kind::handed_over);
  EXPECT_EQ(handed->whom, me);
  EXPECT_EQ(handed->nonce, "nonce");
  EXPECT_EQ(parse_notice("w " + me)->what, notice::kind::wake);
  EXPECT_EQ(parse_notice("l someid")->what, notice::kind::lost);
  EXPECT_EQ(parse_notice("l someid")->whom, "someid");
}

TEST(QuorumSpeech, IgnoresWhatIsNoNotice) {
  for (const char* each : {"", "w", "w ",
                           "x "
                           "abc",
                           "hello", "  "}) {
    EXPECT_FALSE(parse_notice(each)) << each;
  }
}

}  // namespace
}  // namespace sallyport::backends::redlock
