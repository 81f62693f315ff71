#include "backends/local/records.hpp"

#include "base/random.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::local {
namespace {

/// Names that differ by little: prefixes of each other, and bytes at both ends of what is allowed.
std::vector<std::string> ugly_names() {
  std::vector<std::string> names{"a",
                                 "a/b",
                                 "a/b/c",
                                 "a ",
                                 "a!",
                                 "A",
                                 "L",
                                 "La",
                                 "Q",
                                 "M",
                                 "C",
                                 "H a",
                                 "~",
                                 "\x7e",
                                 "\xc3\xbf",
                                 "a\xf4\x8f\xbf\xbf",
                                 "\xf4\x8f\xbf\xbf"};
  names.push_back(std::string(lock_name::max_bytes, 'a'));
  names.push_back(std::string(lock_name::max_bytes - 1, 'a'));
  names.push_back(std::string(lock_name::max_bytes - 1, 'a') + "b");
  base::random random(11);
  const std::string_view letters = "ab/ ~!";
  for (int i = 0; i < 300; ++i) {
    std::string name;
    for (std::uint64_t left = 1 + random.below(8); left > 0; --left) {
      name += letters[random.below(letters.size())];
    }
    names.push_back(name);
  }
  const std::set<std::string> once(names.begin(), names.end());
  return {once.begin(), once.end()};
}

constexpr std::uint64_t numbers[] = {0, 1, 255, 256, 0x2f2f2f2f2f2f2f2f, ~std::uint64_t{0}};

TEST(RecordKey, IsDifferentForEverythingDifferent) {
  std::map<std::string, std::string> seen;
  const auto add = [&](const record_key& key, const std::string& what) {
    const auto [place, fresh] = seen.emplace(std::string(key), what);
    EXPECT_TRUE(fresh) << what << " and " << place->second;
  };

  add(record_key::meta(), "meta");
  for (const std::uint64_t number : numbers) {
    add(record_key::client(number), "client " + std::to_string(number));
  }
  for (const std::string& name : ugly_names()) {
    ASSERT_TRUE(lock_name::acceptable(name)) << name;
    add(record_key::lock(name), "lock " + name);
    for (const std::uint64_t number : numbers) {
      add(record_key::holder(name, number), "holder " + name);
      add(record_key::ticket(name, number), "ticket " + name);
      add(record_key::watch(name, number), "watch " + name);
    }
  }
}

TEST(RecordKey, LetsNoNamesRangeHoldAnothersKeys) {
  const std::vector<std::string> names = ugly_names();
  for (const std::string& mine : names) {
    const record_key range = record_key::ticket(mine);
    for (const std::string& other : names) {
      for (const std::uint64_t number : numbers) {
        const record_key key = record_key::ticket(other, number);
        EXPECT_EQ(std::string_view(key).starts_with(range.range()), mine == other)
            << mine << " and " << other;
      }
    }
  }
}

TEST(RecordKey, OrdersByNumberWithinAName) {
  for (std::size_t i = 1; i < std::size(numbers); ++i) {
    EXPECT_LT(std::string_view(record_key::ticket("a", numbers[i - 1])),
              std::string_view(record_key::ticket("a", numbers[i])));
  }
}

TEST(RecordKey, SaysItsNumber) {
  for (const std::uint64_t number : numbers) {
    EXPECT_EQ(number_of(record_key::ticket("a", number)), number);
    EXPECT_EQ(number_of(record_key::client(number)), number);
  }
}

TEST(Record, IsReadBackAsItWasWritten) {
  ticket_record written;
  written.id = {3, 4};
  written.lapses = -5;
  written.mode = lock_mode::shared;
  const std::string bytes = std::string(bytes_of(written)) + "and a value";

  const auto read = read_record<ticket_record>(bytes);

  ASSERT_TRUE(read);
  EXPECT_EQ(bytes_of(*read), bytes_of(written));
  EXPECT_FALSE(read_record<ticket_record>(std::string_view(bytes).substr(0, sizeof written - 1)));
}

}  // namespace
}  // namespace sallyport::backends::local
