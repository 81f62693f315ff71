#include "client/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace sallyport::client_detail {
namespace {

/// The modules of this build, as users get them.
TEST(BuiltModules, ServeTheSchemesThatTheRegistryNames) {
  for (const auto& module : registered_modules()) {
    const auto found = find_backend(module.schemes.front());

    ASSERT_TRUE(found.has_value()) << found.error().detail;
    EXPECT_THAT(std::vector<std::string_view>((*found)->schemes.begin(), (*found)->schemes.end()),
                ::testing::UnorderedElementsAreArray(module.schemes))
        << module.name;
    EXPECT_FALSE((*found)->summary.empty()) << module.name;
  }
}

TEST(BuiltModules, AreFoundInAFolderOfThisVersion) {
  const module_home& home = home_of_modules();

  EXPECT_THAT(home.installed, ::testing::AllOf(::testing::StartsWith("/"),
                                               ::testing::EndsWith(home.build.version)));
  EXPECT_THAT(home.from_program, ::testing::EndsWith(home.build.version));
  EXPECT_THAT(home.from_library, ::testing::EndsWith(home.build.version));
}

}  // namespace
}  // namespace sallyport::client_detail
