#pragma once

#include "backends/redis/wire.hpp"
#include "backends/redis/words.hpp"
#include "backends/redlock/quorum.hpp"
#include "backends/redlock/test_marks.hpp"
#include "backends/redlock/test_replies.hpp"
#include <sallyport/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// A quorum whose clock is moved by hand and whose nodes say what the test writes.
namespace sallyport::backends::redlock {

using namespace std::chrono_literals;
using backend_api::acquire_request;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_request;
using kind = errand::kind;

/// What a node may answer.
inline reply yes(std::uint64_t counter) {
  return said::numbers({1, static_cast<std::int64_t>(counter)});
}
inline reply no(std::int64_t remaining_ms = 2000, std::int64_t came = 77) {
  return said::numbers({0, remaining_ms, 0, came});
}
inline reply handed(const std::string& nonce) {
  return said::list({said::number(2), said::text(nonce)});
}
inline reply stranger(const std::string& mark) {
  return said::list({said::number(-1), said::text(mark)});
}
inline reply in_line(bool free, bool first, std::int64_t remaining_ms = 2000) {
  return said::numbers({1, free ? 1 : 0, first ? 1 : 0, remaining_ms, 0});
}
inline reply left(bool there = true) { return said::number(there ? 1 : 0); }
inline base::result<reply> unknown() { return base::fail(errc::outcome_unknown, "no answer"); }
inline base::result<reply> unsent() { return base::fail(errc::unavailable, "not connected"); }

inline std::string name_of(kind what) {
  switch (what) {
    case kind::bid:
      return "bid";
    case kind::extend:
      return "extend";
    case kind::raise:
      return "raise";
    case kind::enqueue:
      return "enqueue";
    case kind::leave:
      return "leave";
    case kind::heal:
      return "heal";
    case kind::settle:
      return "settle";
    case kind::adopt:
      return "adopt";
    case kind::read_clock:
      return "read_clock";
    case kind::read_mark:
      return "read_mark";
    case kind::read_counter:
      return "read_counter";
    case kind::look:
      return "look";
  }
  return "?";
}

class QuorumTest : public ::testing::Test {
 protected:
  static constexpr duration lease = 3s;
  static constexpr duration ticket = 9s;
  const holder_id me{1, 1};
  const holder_id other{2, 2};

  void make(unsigned nodes, bool all_up = true) {
    quorum::settings how;
    for (unsigned i = 0; i < nodes; ++i) how.nodes.names.push_back("node" + std::to_string(i));
    how.nodes.fresh_store = "fresh";
    how.fresh_id = [this] { return holder_id{0xf00, ++ids_}; };
    how.seed = 5;
    size = nodes;
    machine = std::make_unique<quorum>(std::move(how), words);
    for (node_number node = 0; all_up && node < nodes; ++node) up(node);
    log.clear();
  }

  // ---- the engine --------------------------------------------------------------------------------

  void acquire(const holder_id& who, bool may_wait = true, std::uint32_t tokens = 1,
               duration lease_length = lease) {
    const lock_name name("door");
    step([&](quorum_actions& out) {
      machine->acquire({.name = name,
                        .holder = who,
                        .lease_length = lease_length,
                        .claim_window = 1s,
                        .ticket_length = ticket,
                        .may_wait = may_wait,
                        .token_count = tokens,
                        .value = {},
                        .answer_by = now + 2s},
                       now, out);
    });
  }
  void renew(const holder_id& who, std::uint32_t tokens = 0, duration lease_length = lease) {
    const lock_name name("door");
    step([&](quorum_actions& out) {
      machine->renew({.name = name,
                      .holder = who,
                      .lease_length = lease_length,
                      .token_count = tokens,
                      .answer_by = now + 2s},
                     now, out);
    });
  }
  void leave(const holder_id& who, bool withdraw) {
    const lock_name name("door");
    step([&](quorum_actions& out) {
      machine->leave({.name = name, .holder = who, .answer_by = now + 2s}, withdraw, now, out);
    });
  }
  void release(const holder_id& who) { leave(who, false); }
  void withdraw(const holder_id& who) { leave(who, true); }

  // ---- the nodes ---------------------------------------------------------------------------------

  [[nodiscard]] std::string mark(node_number node) const {
    return test_mark("store", size, node, "run" + std::to_string(node)).text();
  }
  /// What scripts get of it.
  [[nodiscard]] std::string stamp(node_number node) const {
    return std::string(stamp_of(mark(node)));
  }
  void up(node_number node, std::optional<std::string> found = {}) {
    step([&](quorum_actions& out) {
      machine->node_up(node,
                       {.run_id = "run" + std::to_string(node),
                        .durable = true,
                        .mark = found.value_or(mark(node))},
                       now, out);
    });
  }
  void down(node_number node) {
    step([&](quorum_actions& out) { machine->node_down(node, unknown().error(), now, out); });
  }
  void notice(node_number node, const std::string& message) {
    step([&](quorum_actions& out) { machine->heard(node, message, now, out); });
  }
  void hand_over(node_number node, const holder_id& who, const std::string& nonce) {
    notice(node, "h " + hex(who) + ' ' + nonce);
  }
  void wake(node_number node, const holder_id& who) { notice(node, "w " + hex(who)); }
  /// Moves the clock, and lets every alarm go off at its time.
  void pass(duration span) {
    const time_point until = now + span;
    for (int guard = 0; machine->wake_at() <= until; ++guard) {
      ASSERT_LT(guard, 10'000) << "the alarm goes off without end";
      now = std::max(now, machine->wake_at());
      step([&](quorum_actions& out) { machine->on_timer(now, out); });
    }
    now = until;
  }

  /// What its mark is when a server called "new" takes node2's place.
  [[nodiscard]] std::string next_mark(node_number node) const {
    return roster_after({"node2", "new"}, *node_mark::parse(mark(node))).text();
  }
  /// A renewal of a lock that is held: this node answers a question of this kind that it has the next
  /// roster's mark, and all others, and those whose marks are read, as they did before.
  void move_to_the_next_roster(node_number moved, kind what) {
    renew(me);
    for_each(asked(kind::extend) & ~only(moved),
             [&](node_number node) { answer(kind::extend, node, yes(0)); });
    answer(what, moved, stranger(next_mark(moved)));
    std::erase_if(under_way, [](const delivery& each) {
      return each.why.what == kind::read_mark || each.why.what == kind::extend;
    });
  }

  // ---- commands under way ------------------------------------------------------------------------

  [[nodiscard]] node_set asked(kind what) const {
    node_set all = 0;
    for (const delivery& each : under_way) {
      if (each.why.what == what) all |= only(each.why.node);
    }
    return all;
  }
  /// The oldest command of this kind to this node.
  delivery take(kind what, node_number node) {
    const auto found = std::find_if(under_way.begin(), under_way.end(), [&](const delivery& each) {
      return each.why.what == what && each.why.node == node;
    });
    if (found == under_way.end()) {
      ADD_FAILURE() << "no " << name_of(what) << " to node " << node;
      return {};
    }
    delivery taken = std::move(*found);
    under_way.erase(found);
    return taken;
  }
  void answer(const delivery& what, base::result<reply> said) {
    step([&](quorum_actions& out) { machine->answered(what.why, std::move(said), now, out); });
  }
  std::string answer(kind what, node_number node, base::result<reply> said) {
    const delivery taken = take(what, node);
    answer(taken, std::move(said));
    return taken.why.id;
  }
  void answer_all(kind what, node_set nodes, const base::result<reply>& said) {
    for (node_number node = 0; node < size; ++node) {
      if ((nodes & only(node)) != 0) answer(what, node, said);
    }
  }
  /// What stands behind the keys.
  static std::vector<std::string> arguments(const delivery& what) {
    std::vector<std::string> all = redis::arguments_of(what.command);
    if (what.command.script == nullptr) return all;
    const auto keys = static_cast<std::ptrdiff_t>(std::stoul(all.front()));
    return {all.begin() + 1 + keys, all.end()};
  }
  /// The oldest farewell to this node, in words: "h", nonce and so on.
  struct farewell_said {
    std::string id, how, nonce, withdraw;
  };
  static farewell_said farewell_in(const delivery& what) {
    const auto all = arguments(what);
    if (all.size() < 6) return {};
    return {all[2], all[3], all[4], all[5]};
  }

  // ---- what the engine heard ---------------------------------------------------------------------

  /// The only word that it was told since the last look; and forgets what was sent, too.
  std::string told() {
    std::string found;
    for (const std::string& each : std::exchange(log, {})) {
      if (each.find(' ') == std::string::npos || each.starts_with("send ")) continue;
      found += (found.empty() ? "" : ", ") + each;
    }
    return found;
  }

  void step(auto what) {
    quorum_actions out;
    what(out);
    listens = listens || out.listen;
    reaches = reaches || out.reach;
    for (quorum_action& each : out.all) note(std::move(each));
  }

  static std::string hex(const holder_id& who) {
    return std::string(redis::view(redis::hex_of(who)));
  }

  // ---- whole stories -----------------------------------------------------------------------------

  /// Holds the lock at these nodes; the others refuse.
  void hold(const holder_id& who, node_set nodes, std::uint64_t counter = 10) {
    acquire(who);
    for (node_number node = 0; node < size; ++node) {
      answer(kind::bid, node, (nodes & only(node)) != 0 ? yes(counter) : no());
    }
    ASSERT_THAT(told(), ::testing::HasSubstr("acquire granted"));
    ASSERT_EQ(under_way.size(), 0U);
  }
  /// Waits in the line of every node.
  void queue(const holder_id& who) {
    acquire(who);
    answer_all(kind::bid, asked(kind::bid), no());
    answer_all(kind::enqueue, asked(kind::enqueue), in_line(false, false));
    answer_all(kind::settle, asked(kind::settle), left(false));
    ASSERT_THAT(told(), ::testing::HasSubstr("acquire waiting"));
    ASSERT_EQ(under_way.size(), 0U);
  }

  time_point now{1000h};
  unsigned size = 0;
  const speech words{{.prefix = "p:", .client = "00000000000000c1", .owner = {}}};
  std::unique_ptr<quorum> machine;
  std::deque<delivery> under_way;
  /// Everything in its order: "send bid@0", "acquire granted 10-10 3000ms".
  std::vector<std::string> log;
  std::optional<duration> ask_again;  // of the last `waiting`
  std::string trouble;                // of the last failure
  bool listens = false;
  bool reaches = false;

 private:
  static std::string in_ms(duration span) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(span).count()) +
           "ms";
  }
  static std::string text(const backend_api::token_block& tokens) {
    return std::to_string(tokens.first.value()) + '-' + std::to_string(tokens.last.value());
  }
  std::string text(const base::failure& why) {
    trouble = why.detail;
    if (why.code == errc::unavailable) return "unavailable";
    if (why.code == errc::outcome_unknown) return "unknown";
    return why.code.message();
  }
  std::string text(const backend_api::waiting& what) {
    ask_again = what.ask_again_after;
    return "waiting";
  }
  std::string text(const base::result<backend_api::acquire_answer>& answer) {
    if (!answer) return text(answer.error());
    if (const auto* grant = std::get_if<backend_api::granted>(&*answer)) {
      return "granted " + text(grant->tokens) + ' ' + in_ms(grant->remaining);
    }
    if (const auto* queued = std::get_if<backend_api::waiting>(&*answer)) return text(*queued);
    return "held";
  }
  std::string text(const base::result<backend_api::renew_answer>& answer) {
    if (!answer) return text(answer.error());
    if (const auto* grant = std::get_if<backend_api::renewed>(&*answer)) {
      return "renewed " + text(grant->tokens) + ' ' + in_ms(grant->remaining);
    }
    if (const auto* queued = std::get_if<backend_api::waiting>(&*answer)) return text(*queued);
    return "gone";
  }
  std::string text(const base::result<backend_api::leave_answer>& answer) {
    if (!answer) return text(answer.error());
    return *answer == backend_api::leave_answer::left ? "left" : "not_there";
  }
  [[nodiscard]] std::string by(const holder_id& who) const { return who == me ? "" : " (other)"; }

  void note(quorum_action what) {
    if (auto* const sent = std::get_if<delivery>(&what)) {
      log.push_back("send " + name_of(sent->why.what) + '@' + std::to_string(sent->why.node));
      under_way.push_back(std::move(*sent));
    } else if (auto* const acquired = std::get_if<acquire_told>(&what)) {
      log.push_back("acquire " + text(acquired->answer) + by(acquired->holder));
    } else if (auto* const renewed = std::get_if<renew_told>(&what)) {
      log.push_back("renew " + text(renewed->answer) + by(renewed->holder));
    } else if (auto* const gone = std::get_if<leave_told>(&what)) {
      log.push_back("leave " + text(gone->answer) + by(gone->holder));
    } else if (auto* const look = std::get_if<entered_told>(&what)) {
      log.push_back("look now" + by(look->holder));
    } else if (auto* const lost = std::get_if<lost_told>(&what)) {
      log.push_back("lost it" + by(lost->holder));
    } else {
      log.push_back("reconnected now");
    }
  }

  std::uint64_t ids_ = 0;
};

}  // namespace sallyport::backends::redlock
