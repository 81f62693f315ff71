#pragma once

#include "backend_api/requests.hpp"
#include "backends/redlock/token_round.hpp"
#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sallyport::backends::redlock {

using backend_api::duration;
using backend_api::time_point;

/// The mark of membership that a node keeps among its data: "sp2 STORE NODES MAX_LEASE_MS RUN_ID".
/// A node that has lost its data has lost its mark too, and a node that came back with old data has
/// the run id of an earlier life in it. Such a node gets a mark with which it may not vote yet:
/// "sp2-quiet STORE NODES MAX_LEASE_MS RUN_ID SINCE_US".
struct node_mark {
  std::string
      store;  ///< which set of nodes this is one of; made at random when they are initialised
  unsigned nodes = 0;
  std::chrono::milliseconds max_lease{};
  std::string run_id;
  /// Since when it grants nothing, by the latest of the others' clocks; zero: it is a full member.
  std::uint64_t quiet_since_us = 0;

  [[nodiscard]] std::string text() const;
  /// Nothing: it is no mark.
  [[nodiscard]] static std::optional<node_mark> parse(std::string_view text);
  friend bool operator==(const node_mark&, const node_mark&) = default;
};

/// What a node says of itself when it is greeted.
struct node_facts {
  std::string run_id;
  bool durable = false;  ///< it writes everything to disk before it answers
  std::string mark;      ///< as found; empty: none
};

/// Which nodes may vote. Decides what a node that came without its mark, or with that of an earlier
/// life, has to go through: nothing is granted there until no lease from before can be left, and
/// no token will be given out there that was given out before.
///
/// How long a node has been quiet is noted on it, so that clients that are never open for long see
/// the end of it as well. It counts from the latest of a majority's clocks when it was noted to the
/// earliest of a majority's: the node's own clock, which a machine that has just started is likely
/// to set, does not count, and a step of a few others' only makes the wait longer.
/// Pure; thread safety: none.
class membership {
 public:
  struct settings {
    std::vector<std::string> names;  ///< one for each node, for people
    /// The operator says that the nodes are new, or that nobody holds anything any more.
    bool initialise = false;
    std::chrono::milliseconds max_lease{std::chrono::seconds{60}};  ///< of new marks
    std::string fresh_store;  ///< for new marks; 32 random hexadecimal digits
  };

  explicit membership(settings how);

  /// A command that changes a node's mark: adopt.lua.
  struct adoption {
    node_number node = 0;
    std::string expected;
    std::string mark;
    std::uint64_t floor = 0;
    bool floor_from_clock = false;  ///< the server's time, too, is below every new token
  };
  struct actions {
    std::vector<adoption> adopt;
    node_set read_counters = 0;  ///< the counters of these are wanted
    std::uint64_t reading = 0;   ///< and this number with what they say
    node_set read_clocks = 0;    ///< the clocks of these are wanted
    std::uint64_t clock_reading = 0;
    node_set read_marks = 0;  ///< their marks have changed: read them again
    bool changed = false;     ///< more or other nodes may vote now
  };

  [[nodiscard]] actions node_up(node_number node, node_facts facts, time_point now);
  [[nodiscard]] actions node_down(node_number node, base::failure why, time_point now);
  /// A script found this mark instead of the expected one.
  [[nodiscard]] actions mark_differs(node_number node, std::string found, time_point now);
  /// What its mark is now, whoever wrote it: the answer to an adoption, or a mark that was read.
  [[nodiscard]] actions adopted(node_number node, std::string mark, time_point now);
  /// No answer came, or a refusal.
  [[nodiscard]] actions adoption_failed(node_number node, time_point now);
  /// `reading`: that of the actions that asked for it. Nothing: no answer came.
  [[nodiscard]] actions counter_read(node_number node, std::uint64_t reading,
                                     std::optional<std::uint64_t> value, time_point now);
  [[nodiscard]] actions clock_read(node_number node, std::uint64_t reading,
                                   std::optional<std::uint64_t> server_us, time_point now);
  [[nodiscard]] actions on_timer(time_point now);
  [[nodiscard]] time_point wake_at() const noexcept;

  /// Who may vote, and what their scripts are to find as their mark.
  [[nodiscard]] node_set voters() const noexcept { return voters_; }
  [[nodiscard]] const std::string& mark_of(node_number node) const { return nodes_[node].mark; }
  [[nodiscard]] node_set reachable() const noexcept;
  [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(nodes_.size()); }
  [[nodiscard]] unsigned majority() const noexcept { return majority_of(size()); }
  /// Those that are not reachable are being tried again.
  void expect_all() noexcept;
  /// With those that are being tried again, and those that are just being marked, there would be a
  /// majority.
  [[nodiscard]] bool majority_may_return() const noexcept;
  /// With those that are just being marked there would be one.
  [[nodiscard]] bool majority_is_coming() const noexcept {
    return how_many(state::voter) + how_many(state::marking) >= majority();
  }
  /// Some node is just being marked, and may vote at once afterwards.
  [[nodiscard]] bool under_way() const noexcept { return how_many(state::marking) > 0; }
  /// How long a lease may be; what the marks say, or what new ones would.
  [[nodiscard]] std::chrono::milliseconds max_lease() const noexcept { return max_lease_; }
  /// Whether all that are reachable keep their data over a restart.
  [[nodiscard]] bool durable() const noexcept;

  /// Why fewer than a majority may vote; the code tells whether it may pass.
  [[nodiscard]] base::failure trouble(time_point now) const;
  /// One sentence for each node that may not vote.
  [[nodiscard]] std::vector<std::string> complaints(time_point now) const;

 private:
  enum class state : std::uint8_t {
    unreachable,
    unjudged,  ///< reachable, but which store this is is not known yet
    voter,
    marking,   ///< its mark is being changed
    quiet,     ///< it may have forgotten; votes again when all leases from before have ended
    priming,   ///< quiet for long enough; the others' counters are being read
    stranger,  ///< a member of another store
    twice,     ///< the same server as another node of the list
  };
  struct entry {
    state is = state::unreachable;
    node_facts facts;
    std::string mark;
    time_point quiet_until = time_point::max();  // quiet; max: not noted on it yet
    time_point read_at{};    // quiet, priming: when it was last seen not to be a full member
    base::failure why;       // unreachable
    bool returning = false;  // unreachable: it is being tried, and nobody knows yet
  };

  void judge_all(time_point now, actions& out);
  void judge(node_number number, time_point now, actions& out);
  void be_quiet(node_number number, const std::optional<node_mark>& noted, time_point now,
                actions& out);
  void read_clocks_if_needed(time_point now, actions& out);
  void find_store();
  [[nodiscard]] unsigned marked() const;
  void begin_initialising(actions& out);
  void prime(time_point now, actions& out);
  void recount(time_point now, actions& out);
  [[nodiscard]] static bool is_quiet(const entry& which) noexcept {
    return which.is == state::quiet || which.is == state::priming;
  }
  [[nodiscard]] node_set quiet_ones() const noexcept;
  /// Of them those that are not known to be noted.
  [[nodiscard]] node_set unnoted_ones() const noexcept;
  [[nodiscard]] bool may_have_a_mark(const entry& which) const noexcept;
  void adopt(node_number number, std::string mark, std::uint64_t floor, bool clock, actions& out);
  [[nodiscard]] std::string mark_for(const entry& which, std::uint64_t quiet_since_us = 0) const;
  [[nodiscard]] duration quiet_time() const;
  [[nodiscard]] unsigned how_many(state which) const noexcept;

  const settings how_;
  std::vector<entry> nodes_;
  std::string store_;  // empty: not known yet
  std::chrono::milliseconds max_lease_;
  node_set voters_ = 0;
  node_set counted_ = 0;       // whose counters have been read for a node that is being primed
  std::uint64_t reading_ = 0;  // which attempt to read them this is
  std::uint64_t largest_counter_ = 0;
  // By how much a majority's clocks are ahead of ours, at least and at most. Good for a while, in
  // which our own clock counts.
  struct clocks {
    std::uint64_t reading = 0;  // which attempt this is; zero: none yet
    time_point asked_at{};
    node_set read = 0;
    std::int64_t least_us = 0;
    std::int64_t most_us = 0;
  };
  clocks clocks_;
  [[nodiscard]] bool clocks_known(time_point now) const noexcept;
  [[nodiscard]] bool clocks_wanted() const noexcept;
  time_point retry_at_ = time_point::max();
  time_point majority_lost_at_{};
  node_set doubtful_ = 0;      // marking, and it is not known whether it was done
  bool initialising_ = false;  // until a majority has a mark
};

}  // namespace sallyport::backends::redlock
