#include "backends/redis/node.hpp"
#include "backends/redis/protocol.hpp"
#include "net/pump.hpp"
#include "tests/kit/redis_server.hpp"
#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

// Thousands of clients of several processes whose connections end at the same moment.
// SALLYPORT_LOAD_CONNECTIONS: how many, of all processes together.
namespace sallyport::load {
namespace {

using namespace std::chrono_literals;
using backend_api::time_point;
using backends::redis::exchange;
using backends::redis::node;
using backends::redis::protocol;
using backends::redis::reply;

constexpr std::size_t processes = 5;
constexpr auto patience = 60s;

int number_from(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// One side of a conversation with a child: single letters, each waited for with patience.
struct conversation {
  int read_end = -1;
  int write_end = -1;

  void say(char letter) const { EXPECT_EQ(::write(write_end, &letter, 1), 1); }
  [[nodiscard]] char hear(std::chrono::milliseconds longest = patience) const {
    pollfd here{read_end, POLLIN, 0};
    char letter = 0;
    if (::poll(&here, 1, static_cast<int>(longest.count())) != 1) return 0;
    return ::read(read_end, &letter, 1) == 1 ? letter : '\0';
  }
};

/// Many clients of one process: each with a connection as the product makes it, greeting and all.
class many_clients {
 public:
  many_clients(std::uint16_t port, int first, int count) : pump_(net::pump::make().value()) {
    for (int i = first; i < first + count; ++i) {
      std::string number = std::to_string(i);
      number.insert(0, 16 - number.size(), '0');
      auto speech = std::make_shared<const protocol>(
          protocol::settings{.prefix = "", .client = std::move(number)});
      node::settings how;
      how.login.where = {"127.0.0.1", port, {}};
      how.login.client_name = "sallyport:load";
      how.login.connect_timeout = 2s;  // as a client has it
      how.only_server = true;
      all_.push_back(node::make(pump_, how, std::move(speech), {}).value());
    }
  }
  ~many_clients() {
    for (const auto& each : all_) each->close();
  }
  many_clients(const many_clients&) = delete;
  many_clients& operator=(const many_clients&) = delete;

  /// Each asks a script of ours (the counter), and asks again when that fails, until it is answered.
  /// False: not all are in time.
  bool all_are_served(time_point until) {
    served_ = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) ask(i);
    while (served_ < all_.size() && lease_clock::now() < until) {
      pump_->run_once(std::min<time_point>(until, lease_clock::now() + 10ms));
      std::vector<std::size_t> failed;
      failed.swap(failed_);
      for (const std::size_t each : failed) ask(each);
    }
    return served_ == all_.size();
  }

 private:
  class question final : public exchange {
   public:
    question(many_clients& home, std::size_t number) : home_(home), number_(number) {}
    void answered(base::result<reply> said) override {
      if (said && said->is_integer()) {
        ++home_.served_;
      } else {
        home_.failed_.push_back(number_);
      }
    }

   private:
    many_clients& home_;
    const std::size_t number_;
  };

  void ask(std::size_t number) {
    auto asked = std::make_unique<question>(*this, number);
    asked->command = protocol(protocol::settings{}).raise();
    asked->answer_by = lease_clock::now() + 2s;
    all_[number]->commands().send(std::move(asked));
  }

  const std::shared_ptr<net::pump> pump_;
  std::vector<std::shared_ptr<node>> all_;
  std::vector<std::size_t> failed_;
  std::size_t served_ = 0;
};

[[noreturn]] void be_a_child(const conversation& parent, std::uint16_t port, int first, int count) {
  many_clients mine(port, first, count);
  if (!mine.all_are_served(lease_clock::now() + patience)) ::_exit(1);
  parent.say('r');
  if (parent.hear() != 'g') ::_exit(2);
  if (!mine.all_are_served(lease_clock::now() + patience)) ::_exit(3);
  parent.say('s');
  static_cast<void>(parent.hear());
  ::_exit(0);
}

bool raise_limit(rlim_t descriptors) {
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return false;
  now.rlim_cur = std::min(now.rlim_max, std::max(now.rlim_cur, descriptors));
  return ::setrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur >= descriptors;
}

TEST(Reconnects, OfAllClientsAtOnceAreServedWithinTenSeconds) {
  const int connections = number_from("SALLYPORT_LOAD_CONNECTIONS", 500);
  ASSERT_TRUE(raise_limit(12'000)) << "ulimit -Hn is below 12,000";
  const kit::redis_server server({.config = {"maxclients 10000"}});
  std::array<pid_t, processes> children{};
  std::array<conversation, processes> with{};
  for (std::size_t i = 0; i < processes; ++i) {
    std::array<int, 2> down{};
    std::array<int, 2> up{};
    ASSERT_EQ(::pipe(down.data()) + ::pipe(up.data()), 0);
    children[i] = ::fork();
    ASSERT_GE(children[i], 0);
    if (children[i] == 0) {
      const int each = connections / static_cast<int>(processes);
      be_a_child({down[0], up[1]}, server.port(), static_cast<int>(i) * each, each);
    }
    ::close(down[0]);
    ::close(up[1]);
    with[i] = {up[0], down[1]};
  }
  for (const auto& each : with) ASSERT_EQ(each.hear(), 'r');
  kit::redis_probe probe(server.address());
  EXPECT_GE(std::stoi(probe.info("connected_clients")), connections);
  const auto bytes_before = std::stoull(probe.info("total_net_input_bytes"));
  const double cpu_before =
      std::stod(probe.info("used_cpu_user")) + std::stod(probe.info("used_cpu_sys"));

  const auto began = lease_clock::now();
  const auto killed = probe.expect({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}).integer;
  for (const auto& each : with) each.say('g');
  for (const auto& each : with) EXPECT_EQ(each.hear(), 's');
  const std::chrono::duration<double> took = lease_clock::now() - began;

  const double cpu =
      std::stod(probe.info("used_cpu_user")) + std::stod(probe.info("used_cpu_sys")) - cpu_before;
  std::printf(
      "%lld connections of %zu processes ended, all served after %.2f s; the server read %llu "
      "bytes and used %.2f s\n",
      static_cast<long long>(killed), processes, took.count(),
      std::stoull(probe.info("total_net_input_bytes")) - bytes_before, cpu);
  EXPECT_GE(killed, connections);
  EXPECT_LT(took, 10s);
  for (std::size_t i = 0; i < processes; ++i) {
    with[i].say('e');
    int status = -1;
    EXPECT_EQ(::waitpid(children[i], &status, 0), children[i]);
    EXPECT_EQ(status, 0);
    ::close(with[i].read_end);
    ::close(with[i].write_end);
  }
}

}  // namespace
}  // namespace sallyport::load
