#include "backends/local/local_backend.hpp"
#include "backends/local/test_children.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// A store whose map is full: who holds something goes on as ever, and who comes anew is told why it cannot.
namespace sallyport::backends::local {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// One client, driven by hand.
class full_client final : public backend_api::events {
 public:
  explicit full_client(const std::string& address) {
    auto opened = local_backend().open({.uri = address, .owner = {}, .listener = *this});
    if (!opened) throw std::runtime_error(opened.error().detail);
    store_ = std::move(*opened);
  }

  /// Empty: granted; else what the store says.
  std::string acquire(const std::string& name, bool may_wait = false) {
    contender one{lock_name(name), {}};
    one.id.low = ++last_;
    said_ = "nothing";
    store_->acquire({.name = one.name,
                     .holder = one.id,
                     .lease_length = 24h,
                     .claim_window = 1min,
                     .ticket_length = 1min,
                     .may_wait = may_wait,
                     .value = {},
                     .answer_by = soon()});
    if (said_.empty()) held_.push_back(std::move(one));
    return said_;
  }
  /// Holds locks until there is no room for more; says what was said then.
  std::string fill() {
    std::string refusal;
    // Long names first, then short ones into what is left.
    for (const std::size_t length : {200U, 100U, 8U}) {
      refusal.clear();
      for (int i = 0; i < 20'000 && refusal.empty(); ++i) {
        std::string name = std::to_string(i);
        refusal = acquire(name + std::string(length - name.size(), '.'));
      }
    }
    return refusal;
  }
  /// How many of all that is held the store renews when it is asked in one go.
  std::size_t renew_all() {
    std::vector<backend_api::renew_request> batch;
    for (const contender& each : held_) {
      batch.push_back(
          {.name = each.name, .holder = each.id, .lease_length = 24h, .answer_by = soon()});
    }
    renewed_ = 0;
    store_->renew(batch);
    return renewed_;
  }
  std::size_t release_all() {
    released_ = 0;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      const contender& each = held_[i * 7919 % held_.size()];
      store_->release({.name = each.name, .holder = each.id, .answer_by = soon()});
    }
    held_.clear();
    return released_;
  }
  [[nodiscard]] std::size_t held() const noexcept { return held_.size(); }
  [[nodiscard]] backend_api::backend& store() const noexcept { return *store_; }

  void acquire_answered(const backend_api::holder_id& /*who*/,
                        base::result<backend_api::acquire_answer> answer) override {
    if (!answer) {
      said_ = answer.error().code.message() + ": " + answer.error().detail;
    } else if (std::holds_alternative<backend_api::granted>(*answer)) {
      said_.clear();
    } else {
      said_ = std::holds_alternative<backend_api::held>(*answer) ? "held" : "waiting";
    }
  }
  void renewals_answered(std::span<backend_api::renew_outcome> outcomes) override {
    for (const auto& each : outcomes) {
      if (each.answer && std::holds_alternative<backend_api::renewed>(*each.answer)) ++renewed_;
    }
  }
  void leave_answered(const backend_api::holder_id& /*who*/,
                      base::result<backend_api::leave_answer> answer) override {
    if (answer && *answer == backend_api::leave_answer::left) ++released_;
  }
  void downgrade_answered(const backend_api::holder_id& /*who*/,
                          base::result<backend_api::renew_answer> /*answer*/) override {}
  void granted_notice(const backend_api::holder_id& /*who*/,
                      std::optional<backend_api::granted> /*grant*/) override {}
  void lost_notice(const backend_api::holder_id& /*who*/) override {}
  void changed_notice(const lock_name& /*name*/) override {}
  void reconnected() override {}

 private:
  struct contender {
    lock_name name;
    backend_api::holder_id id;
  };
  static backend_api::time_point soon() { return lease_clock::now() + 10s; }

  std::unique_ptr<backend_api::backend> store_;
  std::vector<contender> held_;
  std::uint64_t last_ = 0;
  std::string said_;
  std::size_t renewed_ = 0;
  std::size_t released_ = 0;
};

class FullStore : public testing::Test {
 protected:
  [[nodiscard]] std::string token_file_content() const {
    std::ifstream in(root_.path() + "/store/tokens", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  temporary_folder root_;
  const std::string address_ = "local:" + root_.path() + "/store?size=1M";
};

TEST_F(FullStore, RenewsAndReleasesAllThatIsHeld) {
  full_client here(address_);
  const std::string refusal = here.fill();
  ASSERT_GT(here.held(), 200U);

  EXPECT_THAT(refusal, HasSubstr("full"));
  EXPECT_EQ(here.renew_all(), here.held());
  const std::string another = in_child([&] { return full_client(address_).acquire("new"); });
  EXPECT_THAT(another, HasSubstr("full")) << "opened anew, by another process";
  EXPECT_EQ(here.renew_all(), here.held()) << "again";
  const std::size_t all = here.held();
  EXPECT_EQ(here.release_all(), all);
  EXPECT_EQ(here.acquire("again"), "");
}

TEST_F(FullStore, TellsNewcomersWhyAndWhatToDo) {
  full_client here(address_);
  here.fill();
  full_client newcomer(address_);
  const std::string tokens = token_file_content();

  const std::string held_name = "0" + std::string(199, '.');
  for (const auto& [name, may_wait] :
       {std::pair{std::string("new"), false}, {"new", true}, {held_name, true}}) {
    const std::string refusal = newcomer.acquire(name, may_wait);
    EXPECT_THAT(refusal, HasSubstr("is full"));
    EXPECT_THAT(refusal, HasSubstr("size=")) << "the remedy";
  }
  EXPECT_EQ(token_file_content(), tokens) << "who is refused reserves no tokens";
  std::string held = "not answered";
  newcomer.store().list("", "", 10, [&](const auto& found) {
    held = found ? std::to_string(found->size()) : found.error().detail;
  });
  EXPECT_EQ(held, "10") << "it can be looked at";
}

TEST_F(FullStore, OfTheDeadIsSweptByWhoComes) {
  const std::string filled = in_child([&] {
    auto* const left = new full_client(address_);  // ends without closing
    left->fill();
    return std::to_string(left->held());
  });
  ASSERT_GT(std::stoul(filled), 200U);
  full_client here(address_);

  EXPECT_EQ(here.acquire("new"), "");
}

}  // namespace
}  // namespace sallyport::backends::local
