#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <system_error>

namespace sallyport::base {
namespace {

result<int> half(int number) {
  if (number % 2 != 0) return fail(std::make_error_code(std::errc::invalid_argument), "odd");
  return number / 2;
}

TEST(Result, HoldsAValue) {
  const result<int> outcome = half(8);

  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(*outcome, 4);
}

TEST(Result, HoldsTheCodeAndTheSentenceOfAFailure) {
  const result<int> outcome = half(7);

  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, std::errc::invalid_argument);
  EXPECT_EQ(outcome.error().detail, "odd");
}

TEST(Result, PassesAFailureOnToAResultOfAnotherType) {
  const auto describe = [](int number) -> result<std::string> {
    auto outcome = half(number);
    if (!outcome) return tl::unexpected(outcome.error());
    return std::to_string(*outcome);
  };

  EXPECT_EQ(describe(4).value(), "2");
  EXPECT_EQ(describe(5).error().detail, "odd");
}

TEST(Result, CarriesAMoveOnlyValue) {
  result<std::unique_ptr<int>> outcome = std::make_unique<int>(3);

  const std::unique_ptr<int> taken = std::move(outcome).value();

  EXPECT_EQ(*taken, 3);
}

TEST(Result, OfVoidIsSuccessOrFailure) {
  const result<void> done;
  const result<void> refused = fail(std::make_error_code(std::errc::timed_out));

  EXPECT_TRUE(done.has_value());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, std::errc::timed_out);
  EXPECT_EQ(refused.error().detail, "");
}

}  // namespace
}  // namespace sallyport::base
