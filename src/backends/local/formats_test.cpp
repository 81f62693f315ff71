#include "backends/local/inbox.hpp"
#include "backends/local/token_file.hpp"
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What other processes and earlier crashes may have left in pipes and files: read safely, whatever
// it is.

namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;

std::vector<notice> some_notices() {
  return {
      {0,
       notice_kind::granted,
       {1, 2},
       backend_api::granted{{fencing_token(7), fencing_token(9)}, 1500ms, true, 3},
       {}},
      {0, notice_kind::look, {std::numeric_limits<std::uint64_t>::max(), 0}, std::nullopt, {}},
      {0, notice_kind::lost, {5, 6}, std::nullopt, {}},
      {0, notice_kind::changed, {}, std::nullopt, "a/b"},
      {0, notice_kind::changed, {}, std::nullopt, std::string(lock_name::max_bytes, 'x')},
  };
}

TEST(InboxMessage, IsReadBackAsItWasWritten) {
  std::string stream;
  for (const notice& each : some_notices()) stream += encode(each);
  std::string_view rest = stream;
  bool spoiled = false;

  for (const notice& each : some_notices()) {
    const auto read = decode(rest, spoiled);
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, each);
  }

  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(spoiled);
}

TEST(InboxMessage, IsNotReadBeforeItIsWhole) {
  for (const notice& each : some_notices()) {
    const std::string whole = encode(each);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      std::string_view part = std::string_view(whole).substr(0, size);
      bool spoiled = false;
      EXPECT_FALSE(decode(part, spoiled));
      EXPECT_FALSE(spoiled);
      EXPECT_EQ(part.size(), size);
    }
  }
}

TEST(InboxMessage, IsReadSafelyWithAnyBitFlipped) {
  for (const notice& each : some_notices()) {
    const std::string whole = encode(each) + encode(each);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      std::string_view rest = flipped;
      bool spoiled = false;
      while (const auto read = decode(rest, spoiled)) {
        EXPECT_LE(read->kind, notice_kind::changed);
        EXPECT_LE(read->name.size(), lock_name::max_bytes);
      }
      if (bit < 32) {
        EXPECT_TRUE(spoiled) << bit;
      }
    }
  }
}

TEST(InboxMessage, IsReadSafelyFromNoise) {
  base::random random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string noise(random.below(200), '\0');
    for (char& each : noise) each = static_cast<char>(random.below(256));
    std::string_view rest = noise;
    bool spoiled = false;
    while (decode(rest, spoiled)) {
    }
    EXPECT_TRUE(spoiled || rest.size() < 64);
  }
}

// --- The token file -------------------------------------------------------------------------------

constexpr token_mark older{.sequence = 4, .high_water = 1000, .store = {1, 2}};
constexpr token_mark newer{.sequence = 5, .high_water = 2000, .store = {1, 2}};

std::vector<std::byte> file_of(const token_mark& first, const token_mark& second) {
  std::vector<std::byte> bytes;
  for (const token_mark& each : {first, second}) {
    const token_slot slot = encode(each);
    bytes.insert(bytes.end(), slot.begin(), slot.end());
  }
  return bytes;
}

TEST(TokenSlot, IsReadBackAsItWasWritten) { EXPECT_EQ(decode(encode(newer)), newer); }

TEST(TokenSlot, IsRefusedWithAnyBitThatCountsFlipped) {
  const token_slot good = encode(newer);
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < token_slot_bytes * 8; ++bit) {
    token_slot flipped = good;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto read = decode(flipped);
    if (!read) {
      ++refused;
    } else {
      EXPECT_EQ(*read, newer) << bit;
    }
  }
  EXPECT_GE(refused, 8 * (16 + sizeof(std::uint64_t) + sizeof(token_mark)));
}

TEST(TokenSlot, IsRefusedWhenItIsEmpty) { EXPECT_FALSE(decode(token_slot{})); }

TEST(TokenMarks, TakeTheNewerOfTwo) {
  EXPECT_EQ(read_marks(file_of(older, newer)), newer);
  EXPECT_EQ(read_marks(file_of(newer, older)), newer);
}

TEST(TokenMarks, FallBackToTheOlderWhereTheNewerIsTorn) {
  const std::vector<std::byte> good = file_of(older, newer);
  base::random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> torn = good;
    const std::size_t at = token_slot_bytes + random.below(16 + 8 + sizeof(token_mark));
    torn[at] ^= static_cast<std::byte>(1 + random.below(255));
    EXPECT_EQ(read_marks(torn), older);
  }
}

TEST(TokenMarks, SayNothingWhereBothAreSpoiledOrTheFileIsShort) {
  std::vector<std::byte> bytes = file_of(older, newer);
  bytes[0] ^= std::byte{1};
  bytes[token_slot_bytes + 30] ^= std::byte{1};
  EXPECT_FALSE(read_marks(bytes));

  const std::vector<std::byte> good = file_of(older, newer);
  EXPECT_FALSE(read_marks(std::span(good).first(0)));
  EXPECT_FALSE(read_marks(std::span(good).first(token_slot_bytes - 1)));
  EXPECT_EQ(read_marks(std::span(good).first(token_file_bytes - 1)), older);
}

}  // namespace
}  // namespace sallyport::backends::local
