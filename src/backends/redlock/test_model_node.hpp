#pragma once

#include "backends/redis/wire.hpp"
#include "backends/redlock/membership.hpp"
#include "backends/redlock/speech.hpp"
#include "backends/redlock/test_replies.hpp"
#include "base/planted.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sallyport::backends::redlock {

/// One node as scripts/*.lua make it, for one lock. Its clock is the test's.
class model_node {
 public:
  /// Whether somebody of this client listens.
  std::function<bool(const std::string& client, std::string message)> publish;
  std::string mark;
  std::string run_id;
  std::uint64_t counter = 0;
  bool durable = false;

  reply execute(const wire_command& what, time_point now) {
    now_ = now;
    if (lock_ && now >= lock_->until) lock_.reset();
    const std::vector<std::string> all = redis::arguments_of(what);
    if (what.script == nullptr) {
      return mark.empty() ? reply{} : said::text(mark);
    }
    args_.assign(all.begin() + 1 + std::stol(all.front()), all.end());
    if (what.script == &scripts::adopt) return adopt();
    if (what.script == &scripts::leave) return leave();
    const bool compares =
        what.script != &scripts::look || !base::planted(base::defect::look_uncompared);
    if (compares && stamp_of(mark) != args_.at(0))
      return said::list({said::number(-1), said::text(mark)});
    if (what.script == &scripts::look) return look();
    if (what.script == &scripts::bid) return bid();
    if (what.script == &scripts::extend) return extend();
    if (what.script == &scripts::raise) return raise();
    if (what.script == &scripts::enqueue) return enqueue();
    if (what.script == &scripts::heal) return heal();
    return said::error("ERR what?");
  }

  void forget_locks() {
    lock_.reset();
    line_.clear();
  }
  [[nodiscard]] std::string left_over(time_point now) const {
    if (lock_ && now < lock_->until) return "held by " + lock_->id;
    for (const auto& [who, each] : line_) {
      if (now < each.lapses) return who + " waits";
    }
    return {};
  }

 private:
  struct hold {
    std::string id;
    time_point until;
  };
  struct ticket {
    std::uint64_t came = 0;
    time_point lapses;
    duration window{};
    std::string client;
  };

  static duration ms(const std::string& text) {
    return std::chrono::milliseconds{std::stoll(text)};
  }
  [[nodiscard]] std::int64_t remaining() const {
    if (!lock_) return -2;
    return std::chrono::ceil<std::chrono::milliseconds>(lock_->until - now_).count();
  }
  [[nodiscard]] bool handed_to(const std::string& contender) const {
    return lock_ && lock_->id.starts_with(contender + '|');
  }
  [[nodiscard]] reply nonce_for(const std::string& contender) const {
    return said::list({said::number(2), said::text(lock_->id.substr(contender.size() + 1))});
  }
  std::optional<std::string> first_in_line() {
    std::erase_if(line_, [&](const auto& each) { return each.second.lapses <= now_; });
    const auto first = std::min_element(
        line_.begin(), line_.end(),
        [](const auto& a, const auto& b) { return a.second.came < b.second.came; });
    if (first == line_.end()) return std::nullopt;
    return first->first;
  }
  bool wake_first(const std::string& asker) {
    for (auto first = first_in_line(); first && *first != asker; first = first_in_line()) {
      if (publish(line_[*first].client, "w " + *first)) return true;
      line_.erase(*first);
    }
    return false;
  }

  [[nodiscard]] reply look() const {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch());
    return said::list({said::number(1), said::text(std::to_string(us.count())),
                       said::text(std::to_string(counter))});
  }
  reply bid() {
    const std::string& contender = args_.at(2);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch());
    if (handed_to(contender)) return nonce_for(contender);
    if (lock_ || wake_first(contender)) return said::numbers({0, remaining(), 0, us.count()});
    line_.erase(contender);
    counter += std::stoull(args_.at(5));
    lock_ = hold{args_.at(3), now_ + ms(args_.at(4))};
    return said::numbers({1, static_cast<std::int64_t>(counter)});
  }
  reply extend() {
    if (!lock_ || lock_->id != args_.at(1)) return said::numbers({0, lock_ ? 1 : 0});
    lock_->until = now_ + ms(args_.at(2));
    const std::uint64_t tokens = std::stoull(args_.at(3));
    if (tokens == 0) return said::numbers({1, 0});
    counter += tokens;
    return said::numbers({1, static_cast<std::int64_t>(counter)});
  }
  reply raise() {
    if (!lock_ || lock_->id != args_.at(1)) return said::numbers({0});
    if (std::stoull(args_.at(2)) > counter + (std::uint64_t{1} << 40U)) return said::numbers({-2});
    counter = std::max<std::uint64_t>(counter, std::stoull(args_.at(2)));
    return said::numbers({1});
  }
  reply heal() {
    if (lock_) return said::numbers({0});
    // "sp2 m ID ..."
    const std::string id = args_.at(1).substr(6, args_.at(1).find(' ', 6) - 6);
    lock_ = hold{id, now_ + ms(args_.at(2))};
    return said::numbers({1});
  }
  reply enqueue() {
    const std::string& contender = args_.at(2);
    if (handed_to(contender)) return nonce_for(contender);
    line_[contender] = {std::stoull(args_.at(3)), now_ + ms(args_.at(4)), ms(args_.at(5)),
                        args_.at(8).substr(0, 16)};
    const bool first = first_in_line() == contender;
    if (!lock_ && !first) wake_first(contender);
    return said::numbers({1, first && !lock_ ? 1 : 0, first ? 1 : 0, remaining(), 0});
  }
  reply leave() {
    const std::string& contender = args_.at(1);
    const bool withdraw = args_.at(5) == "w";
    const bool there = withdraw && line_.erase(contender) == 1;
    const bool ours = lock_ && (lock_->id == args_.at(2) || (withdraw && handed_to(contender)));
    if (!ours) {
      if (!lock_) wake_first({});
      return said::number(there ? 1 : 0);
    }
    lock_.reset();
    if (args_.at(3) != "h") {
      wake_first({});
      return said::number(1);
    }
    for (auto first = first_in_line(); first; first = first_in_line()) {
      const ticket theirs = line_[*first];
      line_.erase(*first);
      if (!publish(theirs.client, "h " + *first + ' ' + args_.at(4))) continue;
      lock_ = hold{*first + '|' + args_.at(4), now_ + theirs.window};
      break;
    }
    return said::number(1);
  }
  reply adopt() {
    if (mark != args_.at(0)) return said::list({said::number(0), said::text(mark)});
    counter = std::max<std::uint64_t>(counter, std::stoull(args_.at(2)));
    mark = args_.at(1);
    return said::list({said::number(1), said::text(mark)});
  }

  time_point now_;
  std::vector<std::string> args_;
  std::optional<hold> lock_;
  std::map<std::string, ticket> line_;
};

}  // namespace sallyport::backends::redlock
