#include <sallyport/error.hpp>
#include <sallyport/types.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace sallyport {
namespace {

using namespace std::string_literals;

/// Encodes as UTF-8 would if it knew no rules: surrogates and too large numbers too.
std::string encoded(std::uint32_t code_point, int bytes) {
  const auto follower = [code_point](unsigned shift) {
    return static_cast<char>(0x80U | (code_point >> shift & 0x3FU));
  };
  switch (bytes) {
    case 1:
      return {static_cast<char>(code_point)};
    case 2:
      return {static_cast<char>(0xC0U | code_point >> 6U), follower(0)};
    case 3:
      return {static_cast<char>(0xE0U | code_point >> 12U), follower(6), follower(0)};
    default:
      return {static_cast<char>(0xF0U | code_point >> 18U), follower(12), follower(6), follower(0)};
  }
}

int shortest(std::uint32_t code_point) {
  if (code_point < 0x80) return 1;
  if (code_point < 0x800) return 2;
  return code_point < 0x1'0000 ? 3 : 4;
}

std::string reason(std::string_view text) {
  std::string why;
  EXPECT_FALSE(lock_name::acceptable(text, &why));
  return why;
}

TEST(LockName, KeepsItsTextByteByByte) {
  EXPECT_EQ(lock_name{"orders/42"}.text(), "orders/42");
  EXPECT_EQ(lock_name{"Käse \xF0\x9F\xA7\x80"s}.text(), "Käse \xF0\x9F\xA7\x80");
}

TEST(LockName, IsMadeFromLiteralsStringsAndViews) {
  const lock_name literal = "a";
  const lock_name string = std::string{"a"};
  const lock_name view = std::string_view{"ab"}.substr(0, 1);

  EXPECT_EQ(literal, string);
  EXPECT_EQ(literal, view);
}

TEST(LockName, ComparesBytesAndCase) {
  EXPECT_NE(lock_name{"Orders"}, lock_name{"orders"});
  EXPECT_LT(lock_name{"a"}, lock_name{"a/b"});
  // One letter in two normal forms: two names.
  EXPECT_NE(lock_name{"\xC3\xA9"}, lock_name{"e\xCC\x81"});
}

TEST(LockName, AcceptsOneTo255Bytes) {
  EXPECT_TRUE(lock_name::acceptable("x"));
  EXPECT_TRUE(lock_name::acceptable(std::string(255, 'x')));
}

TEST(LockName, RefusesAnEmptyName) { EXPECT_EQ(reason(""), "the name is empty"); }

TEST(LockName, RefusesANameOfMoreThan255Bytes) {
  EXPECT_EQ(reason(std::string(256, 'x')), "the name has 256 bytes, more than 255");
}

TEST(LockName, CountsBytesAndNotCharacters) {
  std::string umlauts;
  for (int count = 0; count < 127; ++count) umlauts += "\xC3\xA4";

  EXPECT_TRUE(lock_name::acceptable(umlauts + "x"));
  EXPECT_FALSE(lock_name::acceptable(umlauts + "\xC3\xA4"));
}

TEST(LockName, ThrowsBadNameWithTheReason) {
  try {
    const lock_name name{"a\nb"};
    FAIL() << name.text();
  } catch (const lock_error& error) {
    EXPECT_EQ(error.code(), errc::bad_name);
    EXPECT_NE(std::string{error.what()}.find("control character at byte 1"), std::string::npos);
  }
}

TEST(LockName, NeverRepeatsABadNameInItsReason) {
  EXPECT_EQ(reason("evil\x1B[2J").find("evil"), std::string::npos);
}

TEST(LockName, LeavesTheReasonAloneWhenNothingIsWrong) {
  std::string why = "untouched";

  EXPECT_TRUE(lock_name::acceptable("fine", &why));

  EXPECT_EQ(why, "untouched");
}

TEST(LockName, NeedsNobodyToHearTheReason) { EXPECT_FALSE(lock_name::acceptable("")); }

TEST(LockName, RefusesEveryControlCharacterAndNothingElseThatIsUnicode) {
  for (std::uint32_t code_point = 0; code_point <= 0x10'FFFF; ++code_point) {
    const bool control = code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
    const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;

    ASSERT_EQ(lock_name::acceptable(encoded(code_point, shortest(code_point))),
              !control && !surrogate)
        << std::hex << code_point;
  }
}

TEST(LockName, RefusesANulInTheMiddle) {
  EXPECT_EQ(reason("a\0b"s), "the name has a control character at byte 1");
}

TEST(LockName, RefusesAC1ControlCharacterAsSuch) {
  EXPECT_EQ(reason("ab\xC2\x85"), "the name has a control character at byte 2");
}

TEST(LockName, RefusesEveryOverlongSpelling) {
  for (std::uint32_t code_point = 0; code_point < 0x1'0000; ++code_point) {
    for (int bytes = shortest(code_point) + 1; bytes <= 4; ++bytes) {
      ASSERT_FALSE(lock_name::acceptable(encoded(code_point, bytes))) << std::hex << code_point;
    }
  }
}

TEST(LockName, RefusesSurrogatesAlsoInPairs) {
  EXPECT_EQ(reason("\xED\xA0\x80"), "the name is not UTF-8 at byte 0");
  EXPECT_FALSE(lock_name::acceptable("\xED\xBF\xBF"));
  EXPECT_FALSE(lock_name::acceptable("\xED\xA0\xBD\xED\xB8\x80"));
}

TEST(LockName, RefusesWhatIsBeyondUnicode) {
  EXPECT_TRUE(lock_name::acceptable("\xF4\x8F\xBF\xBF"));
  for (std::uint32_t code_point = 0x11'0000; code_point <= 0x1F'FFFF; ++code_point) {
    ASSERT_FALSE(lock_name::acceptable(encoded(code_point, 4))) << std::hex << code_point;
  }
}

TEST(LockName, RefusesBytesThatNeverStartACharacter) {
  for (int byte = 0x80; byte <= 0xFF; ++byte) {
    const std::string alone(1, static_cast<char>(byte));

    EXPECT_FALSE(lock_name::acceptable(alone)) << byte;
    // Where the byte does start a character, "aaa" does not continue it.
    EXPECT_FALSE(lock_name::acceptable(alone + "aaa")) << byte;
  }
  EXPECT_FALSE(lock_name::acceptable("\xF8\x88\x80\x80\x80"));
  EXPECT_FALSE(lock_name::acceptable("\xFF\xFE"));
}

TEST(LockName, RefusesACharacterCutShort) {
  const std::string cheese = "\xF0\x9F\xA7\x80";
  for (std::size_t length = 1; length < cheese.size(); ++length) {
    EXPECT_EQ(reason("ab" + cheese.substr(0, length)), "the name is not UTF-8 at byte 2");
    EXPECT_FALSE(lock_name::acceptable(cheese.substr(0, length) + "ab"));
  }
}

TEST(LockName, DoesNotReadBehindItsText) {
  const std::string_view cut = std::string_view{"\xC3\xA4"}.substr(0, 1);

  EXPECT_FALSE(lock_name::acceptable(cut));
}

TEST(LockName, AcceptsThePrintableOddities) {
  for (const char* const odd : {" ", "~", "a b", "..", "/", "%2F", "{slot}", "*", "\xC2\xA0"}) {
    EXPECT_TRUE(lock_name::acceptable(odd)) << odd;
  }
}

TEST(FencingToken, IsNoneByDefaultAndOrdersByValue) {
  EXPECT_EQ(fencing_token{}.value(), 0U);
  EXPECT_LT(fencing_token{}, fencing_token{1});
  EXPECT_LT(fencing_token{9}, fencing_token{10});
}

TEST(LockKind, HasANameForEveryValue) {
  EXPECT_EQ(to_string(lock_kind::mutex), "mutex");
  EXPECT_EQ(to_string(lock_kind::shared_mutex), "shared_mutex");
  EXPECT_EQ(to_string(lock_kind::semaphore), "semaphore");
  EXPECT_EQ(to_string(lock_kind::election), "election");
}

TEST(Access, HasANameForEveryValue) {
  EXPECT_EQ(to_string(lock_mode::exclusive), "exclusive");
  EXPECT_EQ(to_string(lock_mode::shared), "shared");
}

}  // namespace
}  // namespace sallyport
