#include "base/secret.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

namespace sallyport::base {
namespace {

class Secret : public testing::Test {
 protected:
  Secret() = default;
  ~Secret() override {
    std::filesystem::remove(path_);
    ::unsetenv(variable);
  }

  [[nodiscard]] std::optional<std::string> in_file(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return read_secret("password_file", path_, why_);
  }
  [[nodiscard]] std::optional<std::string> in_environment(const char* content) {
    ::setenv(variable, content, 1);
    return read_secret("password_env", variable, why_);
  }
  [[nodiscard]] bool blames(const std::string& place) const {
    return why_.find(place) != std::string::npos;
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string& why() { return why_; }

  static constexpr const char* variable = "SALLYPORT_TEST_SECRET";

 private:
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("sallyport-secret-" + std::to_string(::getpid())))
          .string();
  std::string why_;
};

TEST_F(Secret, IsTheFileWithoutItsLinesEnd) {
  EXPECT_EQ(in_file("s3cr3t\r\n"), "s3cr3t");
  EXPECT_EQ(in_file(" two words "), " two words ");
}

TEST_F(Secret, IsTheVariable) { EXPECT_EQ(in_environment("s3cr3t"), "s3cr3t"); }

TEST_F(Secret, IsNeverEmpty) {
  EXPECT_FALSE(in_file(""));
  EXPECT_TRUE(blames(path()));
  EXPECT_FALSE(in_file("\n"));
  EXPECT_FALSE(in_environment(""));
  EXPECT_TRUE(blames(variable));
  EXPECT_TRUE(blames("empty"));
}

TEST_F(Secret, ThatIsMissingIsNamed) {
  EXPECT_FALSE(read_secret("password_file", "/nowhere/password", why()));
  EXPECT_TRUE(blames("/nowhere/password"));
  EXPECT_FALSE(read_secret("sentinel_password_env", "SALLYPORT_TEST_NO_SUCH_VARIABLE", why()));
  EXPECT_TRUE(blames("SALLYPORT_TEST_NO_SUCH_VARIABLE"));
}

TEST_F(Secret, HasABound) {
  constexpr std::size_t longest = 64UL * 1024;
  EXPECT_TRUE(in_file(std::string(longest, 'x')));
  EXPECT_FALSE(in_file(std::string(longest + 1, 'x')));
  EXPECT_FALSE(read_secret("password_file", "/dev/zero", why()));
}

}  // namespace
}  // namespace sallyport::base
