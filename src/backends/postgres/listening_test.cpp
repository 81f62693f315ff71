#include "backends/postgres/listening.hpp"

#include "base/descriptor.hpp"
#include <sallyport/lease_clock.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace sallyport::backends::postgres {
namespace {

using namespace std::chrono_literals;

/// A server that says what it was told to say.
struct scripted_server {
  std::vector<std::string> heard;
  std::vector<reply> answers;  ///< the next ones; then it agrees to everything
};

class scripted_wire final : public sql::wire {
 public:
  explicit scripted_wire(scripted_server& server) : server_(server) {}

  base::result<wants> dial() override { return wants::nothing; }
  [[nodiscard]] int descriptor() const noexcept override { return bell_.number(); }
  [[nodiscard]] int server_process() const noexcept override { return 1; }
  base::result<std::monostate> say(const std::string& /*text*/) override { return {}; }
  base::result<std::optional<reply>> hear() override { return std::optional<reply>{reply{}}; }
  base::result<std::monostate> begin_calls() override { return {}; }
  base::result<std::monostate> send(const sql::call& what, bool /*named*/) override {
    server_.heard.push_back(what.text);
    reply next;
    if (!server_.answers.empty()) {
      next = server_.answers.front();
      server_.answers.erase(server_.answers.begin());
    }
    replies_.push_back(std::move(next));
    const std::uint64_t one = 1;
    static_cast<void>(::write(bell_.number(), &one, sizeof one));
    return {};
  }
  base::result<bool> flush() override { return true; }
  base::result<std::monostate> receive(std::vector<reply>& replies) override {
    std::uint64_t count = 0;
    static_cast<void>(::read(bell_.number(), &count, sizeof count));
    std::ranges::move(replies_, std::back_inserter(replies));
    replies_.clear();
    return {};
  }
  void take_notifications(std::vector<notification>& /*into*/) override {}
  [[nodiscard]] bool peer_has_left() const noexcept override { return false; }

 private:
  scripted_server& server_;
  const base::descriptor bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::vector<reply> replies_;
};

class scripted_search final : public sql::search {
 public:
  explicit scripted_search(scripted_server& server) : server_(server) {}
  std::optional<base::result<std::unique_ptr<sql::wire>>> poll() override {
    return std::make_unique<scripted_wire>(server_);
  }

 private:
  scripted_server& server_;
};

struct counting_listener final : listening::listener {
  void message(std::string_view /*channel*/, std::string_view /*payload*/) override {}
  void gap_ended() override { ++gaps; }
  int gaps = 0;
};

class Listening : public testing::Test {
 protected:
  ~Listening() override { listens_->close(); }

  void run() {
    for (int i = 0; i < 20; ++i) pump_->run_once({});
  }
  [[nodiscard]] auto times_asked(std::string_view channel) const {
    return std::ranges::count_if(server_.heard, [&](const std::string& each) {
      return each.starts_with("LISTEN") && each.find(channel) != std::string::npos;
    });
  }
  static reply refusal() { return {.error_code = "53200", .error = "out of memory", .rows = {}}; }

  scripted_server server_;
  const std::shared_ptr<net::pump> pump_ = net::pump::make().value();
  const std::shared_ptr<counting_listener> told_ = std::make_shared<counting_listener>();
  const std::shared_ptr<listening> listens_ =
      listening::make(pump_,
                      {.find = [this] { return std::make_unique<scripted_search>(server_); },
                       .worth_repeating = [](const reply& /*said*/) noexcept { return false; }},
                      told_);
};

TEST_F(Listening, AChannelThatWasNotOpenedIsAskedForAgainWithTheNextPing) {
  server_.answers = {refusal()};
  listens_->listen("one");
  run();
  ASSERT_EQ(times_asked("one"), 1);
  ASSERT_EQ(told_->gaps, 0) << "it is not open";

  listens_->due(lease_clock::now());
  run();

  EXPECT_EQ(times_asked("one"), 2);
  EXPECT_EQ(told_->gaps, 1) << "what was said before may have been missed";
  listens_->due(lease_clock::now());
  run();
  EXPECT_EQ(times_asked("one"), 2) << "it is open now";
}

TEST_F(Listening, AChannelThatWasNotOpenedAndIsNotWantedAnyMoreIsForgotten) {
  server_.answers = {refusal()};
  listens_->listen("one");
  run();

  listens_->unlisten("one");
  listens_->due(lease_clock::now());
  run();

  EXPECT_EQ(times_asked("one"), 1);
}

}  // namespace
}  // namespace sallyport::backends::postgres
