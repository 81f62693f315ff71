#pragma once

#include "backend_api/requests.hpp"
#include "backends/redlock/node_mark.hpp"
#include "backends/redlock/replacement.hpp"
#include "backends/redlock/token_round.hpp"
#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sallyport::backends::redlock {

using backend_api::duration;
using backend_api::time_point;

/// Which nodes may vote: the members that the marks name, a majority of which decides. A node is
/// known by its own id in its mark, wherever the list has it, as long as it votes. One that has to come
/// back (it was restarted, or lost its data) does so at its member's address only, and a blank server
/// is a member that lost its data if it answers at a member's address, and nobody at any other: two
/// servers would else come back as one member, for clients with different lists.
///
/// Decides what a node that came without its mark, or with that of an earlier life, has to go through:
/// nothing is granted there until no lease from before can be left, and no token will be given out
/// there that was given out before.
///
/// How long a node has been quiet is noted on it, so that clients that are never open for long see
/// the end of it as well. It counts from the latest of a majority's clocks when it was noted to the
/// earliest of a majority's: the node's own clock, which a machine that has just started is likely
/// to set, does not count, and a step of a few others' only makes the wait longer.
/// Pure; thread safety: none.
class membership {
 public:
  struct settings {
    std::vector<std::string> names;  ///< the addresses of the list, as spelled there
    /// The operator says that the nodes are new.
    bool initialise = false;
    /// Initialising, they are to be the members whatever they were before: the operator says that
    /// all clients are stopped, and that nobody holds anything any more.
    bool force = false;
    std::chrono::milliseconds max_lease{std::chrono::seconds{60}};  ///< of new marks
    std::string fresh_store;  ///< for new marks; 32 random hexadecimal digits
    /// The operator wants a member replaced.
    std::optional<replacement> replace = {};
  };

  explicit membership(settings how);

  /// A command that changes a node's mark: adopt.lua.
  struct adoption {
    node_number node = 0;
    std::string expected;
    std::string mark;
    std::uint64_t floor = 0;  ///< no token up to this is given out there any more
  };
  struct actions {
    std::vector<adoption> adopt;
    node_set read_counters = 0;  ///< the counters of these are wanted
    std::uint64_t reading = 0;   ///< and this number with what they say
    node_set read_clocks = 0;    ///< the clocks of these are wanted
    std::uint64_t clock_reading = 0;
    node_set read_marks = 0;  ///< their marks have changed: read them again
    node_set look_at = 0;     ///< replacing: are these there, with the marks that were seen?
    std::uint64_t looking = 0;
    bool changed = false;  ///< more or other nodes may vote now
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
  /// `looking`: that of the actions that asked for it.
  [[nodiscard]] actions looked_at(node_number node, std::uint64_t looking, bool answered,
                                  time_point now);
  /// Its counter is too far behind a token that a majority has drawn to be raised by its holder.
  [[nodiscard]] actions far_behind(node_number node, std::uint64_t token);
  [[nodiscard]] actions on_timer(time_point now);
  [[nodiscard]] time_point wake_at() const noexcept;

  /// What a script that reads for `reading` or `clock_reading` is to find as a node's mark.
  [[nodiscard]] std::string seen_mark_of(node_number node) const {
    return std::string(stamp_of(nodes_[node].facts.mark));
  }
  /// Which roster this client goes by; zero: none yet.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return roster_ ? roster_->epoch : 0; }
  /// Who may vote, and what their scripts are to find as their mark.
  [[nodiscard]] node_set voters() const noexcept { return voters_; }
  [[nodiscard]] const std::string& mark_of(node_number node) const { return nodes_[node].stamp; }
  [[nodiscard]] const std::string& name_of(node_number node) const { return how_.names[node]; }
  [[nodiscard]] node_set reachable() const noexcept;
  /// Those that are known to be no members.
  [[nodiscard]] node_set outsiders() const noexcept;
  /// Those that are known to be members, as far as they are reachable.
  [[nodiscard]] node_set members() const noexcept;
  /// Those that are members by what was last seen of them, also if they are away now; as long as no
  /// member is known, all.
  [[nodiscard]] node_set roster_nodes() const noexcept;
  /// How long the list is.
  [[nodiscard]] unsigned listed() const noexcept { return static_cast<unsigned>(nodes_.size()); }
  /// How many members the store has: what the marks say, and as long as none is known, the list.
  [[nodiscard]] unsigned size() const noexcept {
    return roster_ ? static_cast<unsigned>(roster_->members.size()) : listed();
  }
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
  [[nodiscard]] bool under_way() const noexcept {
    return how_many(state::marking) > 0 || floor_wanted_;
  }
  /// How long a lease may be; what the marks say, or what new ones would.
  [[nodiscard]] std::chrono::milliseconds max_lease() const noexcept { return max_lease_; }
  /// Whether all that are reachable keep their data over a restart.
  [[nodiscard]] bool durable() const noexcept;
  /// The store's own name; empty: not known yet.
  [[nodiscard]] const std::string& store() const noexcept { return store_; }
  /// What the operator asked for is not done yet.
  [[nodiscard]] bool initialising() const noexcept { return initialising_; }
  /// How the replacement that the operator asked for ended; nothing: not yet, or none was asked for.
  [[nodiscard]] const std::optional<base::result<std::monostate>>& replaced() const noexcept {
    return replaced_;
  }
  /// The member that is called so votes.
  [[nodiscard]] bool votes(std::string_view address) const;
  /// How long a node is kept out that may have lost its data.
  [[nodiscard]] duration quiet_time() const;
  /// The store has exactly the nodes of the list.
  [[nodiscard]] bool is_as_listed() const;
  /// Members that the list lacks, by their addresses.
  [[nodiscard]] const std::vector<std::string>& missing() const noexcept { return missing_; }
  /// Some may be missing: whether they are is known when all nodes of the list were reached.
  [[nodiscard]] bool list_in_doubt() const noexcept { return list_in_doubt_; }

  /// Why fewer than a majority may vote; the code tells whether it may pass.
  [[nodiscard]] base::failure trouble(time_point now) const;
  /// One sentence for each node that may not vote.
  [[nodiscard]] std::vector<std::string> complaints(time_point now) const;

 private:
  enum class state : std::uint8_t {
    unreachable,
    unjudged,  ///< reachable, but which store this is is not known yet
    voter,
    marking,    ///< its mark is being changed
    quiet,      ///< it may have forgotten; votes again when all leases from before have ended
    priming,    ///< quiet for long enough; the others' counters are being read
    candidate,  ///< initialising it has begun, and was not finished
    outsider,   ///< blank, at no member's address
    stranger,   ///< a member of another store
    former,     ///< a member of an earlier epoch
    ahead,      ///< a member of a later epoch that is not in force
    behind,     ///< a member with the mark of an earlier epoch that is not ours to change (yet)
    moved,      ///< a member that has to come back, and is not at its address: it does not
    twice,      ///< the same server as another node of the list, or a copy of it
  };
  struct entry {
    state is = state::unreachable;
    node_facts facts;
    std::optional<node_mark> mark;  // of facts.mark
    std::string stamp;              // voter
    std::string own;                // which member it is, or was when it was last reached
    time_point quiet_until = time_point::max();  // quiet; max: not noted on it yet
    time_point read_at{};    // quiet, priming: when it was last seen not to be a full member
    base::failure why;       // unreachable
    bool returning = false;  // unreachable: it is being tried, and nobody knows yet
    bool greeted = false;    // its settings were read just now
  };

  void judge_all(time_point now, actions& out);
  void judge(node_number number, time_point now, actions& out);
  void be_quiet(node_number number, const std::optional<node_mark>& noted, time_point now,
                actions& out);
  void read_clocks_if_needed(time_point now, actions& out);
  void judge_marked(node_number number, time_point now, actions& out);
  void set_mark(entry& which, std::string text);
  void find_store();
  void take_roster(const node_mark& from);
  /// A majority of its members has full marks of it, as far as was seen.
  [[nodiscard]] bool is_in_force(const node_mark& roster) const;
  void find_missing();
  void read_again_if_unsettled(time_point now, actions& out);
  [[nodiscard]] bool same_server_as_another(node_number number) const;
  [[nodiscard]] bool copy_of_another(node_number number) const;
  /// A majority of the members that has a mark of this roster with which it may vote.
  [[nodiscard]] bool majority_is_full() const;
  [[nodiscard]] bool is_of_roster(const entry& which) const;
  [[nodiscard]] const roster_member* member_with(std::string_view id) const;
  [[nodiscard]] const roster_member* member_at(std::string_view address) const;
  /// Whether node `number` is found to be this member under another entry of the list.
  [[nodiscard]] bool is_elsewhere(const std::string& id, node_number number) const;
  /// Whether the list calls node `number` by the address of this member.
  [[nodiscard]] bool is_at_its_address(node_number number, std::string_view id) const;

  void replace(actions& out);
  void forget_looks_at(node_number number) noexcept;

  // Initialising.
  void initialise(time_point now, actions& out);
  [[nodiscard]] bool may_be_initialised() const;
  void propose_roster(actions& out);
  /// Which member of `plan` each entry of the list is; empty: they are not the same nodes.
  [[nodiscard]] std::vector<const roster_member*> matched(const node_mark& plan) const;
  void read_floor(time_point now, actions& out);
  void activate(time_point now, actions& out);
  void prime(time_point now, actions& out);
  void recount(time_point now, actions& out);
  [[nodiscard]] static bool is_quiet(const entry& which) noexcept {
    return which.is == state::quiet || which.is == state::priming;
  }
  [[nodiscard]] node_set quiet_ones() const noexcept;
  /// Of them those that are not known to be noted.
  [[nodiscard]] node_set unnoted_ones() const noexcept;
  [[nodiscard]] bool may_have_a_mark(const entry& which) const noexcept;
  void adopt(node_number number, std::string mark, std::uint64_t floor, actions& out);
  [[nodiscard]] std::string mark_for(const entry& which, std::uint64_t quiet_since_us = 0) const;
  [[nodiscard]] node_set everybody() const noexcept { return (1U << listed()) - 1; }
  [[nodiscard]] unsigned how_many(state which) const noexcept;

  const settings how_;
  std::vector<entry> nodes_;
  std::string store_;                // empty: not known yet
  std::optional<node_mark> roster_;  // a mark of the newest epoch: store, epoch, lease, members
  std::vector<std::string> missing_;
  bool list_in_doubt_ = false;
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
  /// How many voters' clocks and counters are enough to take somebody in.
  [[nodiscard]] unsigned believed() const noexcept;
  [[nodiscard]] bool clocks_known(time_point now) const noexcept;
  [[nodiscard]] bool clocks_wanted() const noexcept;
  time_point retry_at_ = time_point::max();
  time_point majority_lost_at_{};
  node_set doubtful_ = 0;            // marking, and it is not known whether it was done
  node_set read_again_ = 0;          // initialising: read since the first full mark was seen
  bool initialising_ = false;        // until a majority has a mark
  std::uint64_t settled_epoch_ = 0;  // a majority has voted for this client: none before it counts
  bool unsettled_ = false;           // nodes of the store have marks of different epochs
  std::optional<base::result<std::monostate>> replaced_;
  // Replacing, before the first step: who was asked whether it is there, did answer, and did not.
  struct looks {
    std::uint64_t number = 0;
    node_set open = 0;
    node_set answered = 0;
    node_set unanswered = 0;
  };
  looks looks_;
  std::optional<std::uint64_t> earlier_epoch_;  // forcing: what was there before
  bool floor_wanted_ = false;                   // all are candidates: clocks and counters are read
};

}  // namespace sallyport::backends::redlock
