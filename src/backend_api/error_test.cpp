#include <sallyport/error.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <system_error>

namespace sallyport {
namespace {

constexpr int first_code = static_cast<int>(errc::unavailable);
constexpr int last_code = static_cast<int>(errc::not_enough_memory);

TEST(Error, BelongsToTheSallyportCategory) {
  const std::error_code code = errc::bad_name;

  EXPECT_STREQ(code.category().name(), "sallyport");
  EXPECT_EQ(&code.category(), &lock_category());
  EXPECT_EQ(code.value(), static_cast<int>(errc::bad_name));
}

TEST(Error, IsNeverTakenForSuccess) {
  for (int value = first_code; value <= last_code; ++value) {
    EXPECT_TRUE(make_error_code(static_cast<errc>(value)));
  }
}

TEST(Error, ComparesWithItsOwnCodesOnly) {
  const std::error_code code = errc::outcome_unknown;

  EXPECT_EQ(code, errc::outcome_unknown);
  EXPECT_NE(code, errc::unavailable);
  EXPECT_NE(code, std::error_code(code.value(), std::generic_category()));
}

TEST(Error, SaysCauseAndRemedyForEveryCodeInASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (int value = first_code; value <= last_code; ++value) {
    const std::string sentence = lock_category().message(value);

    EXPECT_EQ(sentence.find("unknown error"), std::string::npos) << value;
    EXPECT_NE(sentence.find_first_of(";,"), std::string::npos) << sentence;
    EXPECT_TRUE(sentences.insert(sentence).second) << sentence;
  }
}

TEST(Error, NamesAnUnknownCodeByItsNumber) {
  EXPECT_EQ(lock_category().message(0), "unknown error 0");
  EXPECT_EQ(lock_category().message(last_code + 1),
            "unknown error " + std::to_string(last_code + 1));
}

TEST(LockError, IsASystemErrorThatQuotesItsDetailAndItsSentence) {
  const lock_error error{errc::closed, "orders/42"};

  const std::system_error& base = error;

  EXPECT_EQ(base.code(), errc::closed);
  EXPECT_EQ(std::string{base.what()}, "orders/42: " + lock_category().message(base.code().value()));
}

}  // namespace
}  // namespace sallyport
