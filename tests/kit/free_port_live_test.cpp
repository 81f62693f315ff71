#include "tests/kit/free_port.hpp"

#include "tests/kit/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <memory>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace sallyport::kit {
namespace {

TEST(FreePort, CanBeBound) {
  const free_port port;
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port.number());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

  EXPECT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);

  ::close(server);
}

TEST(FreePort, IsGivenOnce) {
  constexpr std::size_t many = 100;
  std::vector<free_port> ports(many);
  std::set<std::uint16_t> numbers;

  for (const free_port& port : ports) numbers.insert(port.number());

  EXPECT_EQ(numbers.size(), many);
}

TEST(FreePort, IsGivenOnceAcrossProcesses) {
  const free_port ours;
  const pid_t other = ::fork();
  if (other == 0) {
    const free_port theirs{ours.number()};
    ::_exit(theirs.number() == ours.number() ? 1 : 0);
  }

  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);

  EXPECT_EQ(status, 0);
}

TEST(FreePort, IsFreeAgainWithTheObject) {
  const std::uint16_t number = free_port{}.number();

  EXPECT_EQ(free_port{number}.number(), number);
}

TEST(FreePort, IsNoneThatSomebodyListensOn) {
  auto first = std::make_unique<free_port>();
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(first->number());
  ASSERT_EQ(::bind(server, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(::listen(server, 1), 0);
  const std::uint16_t number = first->number();
  first.reset();

  EXPECT_NE(free_port{number}.number(), number);

  ::close(server);
}

TEST(TemporaryFolder, IsGoneWithItsFiles) {
  std::filesystem::path path;
  {
    const temporary_folder folder;
    path = folder.path();
    std::filesystem::create_directories(path / "a" / "b");
    EXPECT_TRUE(std::filesystem::exists(path / "a" / "b"));
  }

  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace sallyport::kit
