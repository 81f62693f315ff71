#include "client/registry.hpp"
#include <sallyport/client.hpp>
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
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

/// What a client is told that is opened there. Nothing: it is let in.
std::string refusal_of(const std::string& address) {
  try {
    static_cast<void>(client::open(address));
  } catch (const lock_error& error) {
    return error.code() == errc::bad_uri ? error.what() : "";
  }
  return "";
}

/// Whoever forgot the secret is not to work as somebody who needs none.
TEST(BuiltModules, RefuseAPasswordThatIsEmptyInTheEnvironment) {
  constexpr const char* variable = "SALLYPORT_TEST_EMPTY_PASSWORD";
  ASSERT_EQ(::setenv(variable, "", 1), 0);  // NOLINT(concurrency-mt-unsafe)
  for (const auto& module : registered_modules()) {
    for (const std::string_view scheme : module.schemes) {
      if (scheme == "zookeepers") continue;  // no address of it is served
      // Each scheme understands one of these.
      std::string refusals;
      for (const char* place : {"user@127.0.0.1:1", "user@127.0.0.1:1/1", "/1"}) {
        refusals += refusal_of(std::string(scheme) + "://" + place + "?password_env=" + variable);
        refusals += "\n";
      }
      EXPECT_THAT(refusals, ::testing::HasSubstr(variable)) << scheme;
    }
  }
  ::unsetenv(variable);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace
}  // namespace sallyport::client_detail
