#include "fence/gate_record.hpp"

#include "base/checksum.hpp"
#include "base/random.hpp"
#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::fence {
namespace {

gate_record record_of(std::uint64_t sequence, std::uint64_t newest_exclusive) {
  return {.sequence = sequence,
          .state = {.lock = "orders",
                    .newest_exclusive = fencing_token{newest_exclusive},
                    .newest_shared = fencing_token{5}}};
}

using image = std::vector<std::byte>;

void put(image& file, const gate_record& record) {
  const slot bytes = encode(record);
  std::ranges::copy(
      bytes, file.begin() + static_cast<std::ptrdiff_t>(slot_of(record.sequence) * slot_bytes));
}

image image_with(const std::vector<gate_record>& records) {
  image file(image_bytes);
  for (const auto& record : records) put(file, record);
  return file;
}

void expect_refused(const image& file, std::string_view why) {
  const auto read = read_image(file);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, errc::store_refused);
  EXPECT_NE(read.error().detail.find(why), std::string::npos) << read.error().detail;
}

TEST(Checksum, IsTheStandardOne) {
  const std::string_view text = "123456789";

  EXPECT_EQ(base::checksum(std::as_bytes(std::span{text})), 0x995dc9bbdf1939faU);
}

TEST(GateRecord, ReadsBackWhatItWrote) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, gate::max_lock_bytes}) {
    const gate_record record{.sequence = ~0ULL,
                             .state = {.lock = std::string(length, '\xff'),
                                       .newest_exclusive = fencing_token{0x0123456789abcdefU},
                                       .newest_shared = fencing_token{~0ULL}}};

    EXPECT_EQ(decode(encode(record)), record);
  }
}

TEST(GateRecord, NoticesEveryFlippedBitThatCounts) {
  const gate_record record = record_of(3, 7);
  const slot good = encode(record);
  const std::size_t used = 52 + record.state.lock.size();

  for (std::size_t bit = 0; bit < used * 8; ++bit) {
    slot spoiled = good;
    spoiled[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));

    EXPECT_EQ(decode(spoiled), std::nullopt) << "bit " << bit;
  }
}

TEST(GateRecord, NoticesEveryTornWrite) {
  const slot before = encode({.sequence = 1, .state = {.lock = std::string(2000, 'a')}});
  const slot after = encode({.sequence = 3, .state = {.lock = std::string(2000, 'b')}});

  for (std::size_t cut = 25; cut < 52 + 2000; ++cut) {
    slot torn = before;
    std::copy_n(after.begin(), cut, torn.begin());

    EXPECT_EQ(decode(torn), std::nullopt) << "cut at " << cut;
  }
}

TEST(GateRecord, IsSafeOnAnyBytes) {
  const image good = image_with({record_of(1, 1), record_of(2, 2)});
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    base::random random{seed};
    image file = good;
    const auto edits = random.below(20);
    for (std::uint64_t i = 0; i < edits; ++i) {
      // Mostly where the fields are.
      const std::size_t within = random.chance(0.8) ? random.below(64) : random.below(slot_bytes);
      file[random.below(2) * slot_bytes + within] = static_cast<std::byte>(random.below(256));
    }
    if (random.chance(0.1)) file.resize(random.below(2 * image_bytes));

    const auto read = read_image(file);

    if (read) {
      EXPECT_TRUE(read->newest == record_of(1, 1) || read->newest == record_of(2, 2))
          << "seed " << seed;
    } else {
      EXPECT_EQ(read.error().code, errc::store_refused);
    }
  }
}

TEST(GateImage, TakesTheNewerRecord) {
  const auto even = read_image(image_with({record_of(1, 10), record_of(2, 20)}));
  const auto odd = read_image(image_with({record_of(3, 30), record_of(2, 20)}));

  ASSERT_TRUE(even && odd);
  EXPECT_EQ(even->newest, record_of(2, 20));
  EXPECT_EQ(odd->newest, record_of(3, 30));
  EXPECT_FALSE(even->other_is_torn);
}

TEST(GateImage, TakesTheFirstRecordOfANewFile) {
  const auto read = read_image(image_with({record_of(1, 10)}));

  ASSERT_TRUE(read);
  EXPECT_EQ(read->newest, record_of(1, 10));
  EXPECT_FALSE(read->other_is_torn);
}

TEST(GateImage, FallsBackWhenTheNewerIsTorn) {
  image file = image_with({record_of(1, 10), record_of(2, 20)});
  file[40] ^= std::byte{1};

  const auto read = read_image(file);

  ASSERT_TRUE(read);
  EXPECT_EQ(read->newest, record_of(1, 10));
  EXPECT_TRUE(read->other_is_torn);
}

TEST(GateImage, TakesNoRecordInTheWrongSlot) {
  image file = image_with({record_of(2, 20)});
  const slot misplaced = encode(record_of(4, 40));
  std::ranges::copy(misplaced, file.begin() + slot_bytes);

  const auto read = read_image(file);

  ASSERT_TRUE(read);
  EXPECT_EQ(read->newest, record_of(2, 20));
  EXPECT_TRUE(read->other_is_torn);
}

TEST(GateImage, RefusesWhatIsNotWhole) {
  image both_torn = image_with({record_of(1, 10), record_of(2, 20)});
  both_torn[40] ^= std::byte{1};
  both_torn[slot_bytes + 40] ^= std::byte{1};
  image shorter = image_with({record_of(1, 10), record_of(2, 20)});
  shorter.resize(slot_bytes);
  image longer = image_with({record_of(1, 10), record_of(2, 20)});
  longer.push_back(std::byte{0});

  expect_refused(both_torn, "neither of its two records");
  expect_refused(shorter, "length");
  expect_refused(longer, "length");
}

TEST(GateImage, RefusesAForeignFile) {
  image text(image_bytes, std::byte{'x'});

  expect_refused(text, "not a gate's file");
  expect_refused(image{}, "not a gate's file");
  expect_refused(image(image_bytes), "not a gate's file");
  expect_refused(image(3, std::byte{'s'}), "not a gate's file");
}

TEST(GateImage, RefusesAnotherVersionEvenBesideAGoodRecord) {
  image file = image_with({record_of(1, 10), record_of(2, 20)});
  file[15] = std::byte{'2'};

  expect_refused(file, "version");
}

}  // namespace
}  // namespace sallyport::fence
