#pragma once

#include "backend_api/requests.hpp"
#include "backends/zookeeper/description.hpp"
#include "backends/zookeeper/layout.hpp"
#include "backends/zookeeper/speech.hpp"
#include "backends/zookeeper/standing.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

/// What the machine remembers; see contention.hpp.
namespace sallyport::backends::zookeeper {

/// A node of a contender.
struct own_node {
  std::string folder{};
  std::string path{};  ///< empty: it is not there, as far as is known
  zxid created = 0;
  zxid modified = 0;
  std::int32_t version = 0;
  /// The answer to its creation was lost: it may be there, under a path that only the store knows.
  bool doubtful = false;

  [[nodiscard]] bool perhaps_there() const noexcept { return !path.empty() || doubtful; }
  void clear() { *this = own_node{.folder = folder}; }
  void take(const node_stat& stat) noexcept {
    created = stat.created;
    modified = stat.modified;
    version = stat.version;
  }
};

/// One contender of this client.
struct contender {
  enum class phase : std::uint8_t {
    outside,  ///< not in the queue, as far as is known
    waiting,  ///< its node is there, and others are before it
    held,     ///< the store has confirmed that it is in
    lost,     ///< it was in, and no longer is
  };
  /// What is under way; there is one thing at most.
  enum class step : std::uint8_t {
    none,
    trying,    ///< is anybody there?
    entering,  ///< its node is created, and those before it are read
    judging,   ///< who is before it?
    probing,   ///< what are the children that are no contenders?
    watching,  ///< for the end of the one in its way
    looking,   ///< are its own node and the one in its way still there?
    taking,    ///< permit, first in its line: a lease is created, and all are counted
    counting,  ///< permit: are there few enough leases now?
    tidying,   ///< permit: its place in the line is no longer needed
    reading,   ///< is its own node there, and what does it say?
    drawing,   ///< a new token
    noting,    ///< its description has changed
    downgrading,
    proclaiming,
    finding,      ///< was the node created whose creation was not answered?
    recognising,  ///< is the node that was found of this session?
    leaving,
  };
  struct question {
    time_point at;
    time_point answer_by;
    bool may_wait = false;
  };
  struct wish {
    time_point at;
    time_point answer_by;
    bool draws = false;
  };
  struct proclamation {
    std::uint64_t ticket = 0;
    std::string value;
    time_point answer_by;
  };

  contender(const backend_api::holder_id& who, lock_name what_name)
      : id(who), name(std::move(what_name)) {}

  const backend_api::holder_id id;
  const lock_name name;
  form what = form::mutex;
  duration length{};
  bool renewed = true;
  std::string folder{};  ///< of the name
  own_node place{};      ///< in the queue
  own_node lease{};      ///< permit: what it holds
  line_number line = 0;
  std::uint64_t lives = 0;  ///< a node of an earlier life is never taken for one of this

  phase is = phase::outside;
  step doing = step::none;
  std::uint64_t round = 0;  ///< of `doing`: answers of earlier rounds count for nothing
  std::size_t open = 0;     ///< answers that are not yet in
  std::size_t skipped = 0;  ///< answers before the first that matters
  std::vector<reply> replies{};
  standing stands{};     ///< while it probes
  zxid seen_at = 0;      ///< likewise
  std::string behind{};  ///< waiting: the path whose end may let it in
  zxid token = 0;
  time_point trusted_until = time_point::max();  ///< a lease that nobody renews ends then

  bool poked = false;    ///< whoever was in its way has gone, or may have
  bool recheck = false;  ///< a notice may have been missed
  bool note_due = false;
  time_point note_after = time_point::min();  ///< while it is in
  bool reread = false;                        ///< its node has another version than it believes
  bool guarded = false;                       ///< the end of its node would be told
  bool claimed = false;                       ///< core has heard of the grant by an answer
  bool stale = false;                         ///< is in, but the session has to be proven first
  bool going = false;            ///< is to leave, whoever still waits for the word on it
  bool removal_lost = false;     ///< a removal was not answered: it may have happened
  bool half_downgraded = false;  ///< a downgrade was not answered: either of its nodes may be there
  bool make_folders = false;
  bool known_free = false;                     ///< has looked, and nobody was there
  bool revoked = false;                        ///< its node says that somebody asks for it
  std::uint32_t failures = 0;                  ///< of entering, in a row
  time_point pause_until = time_point::min();  ///< the store has refused something: no step before

  description card{};
  std::uint32_t permits = 1;

  std::vector<time_point> alarms{};  ///< when answers are due
  std::optional<question> asked{};
  std::optional<wish> renew{};
  std::optional<wish> downgrade{};
  std::optional<time_point> leave{};  ///< to be answered by then
  std::deque<proclamation> values{};
  std::optional<base::result<backend_api::acquire_answer>> verdict{};  ///< told when it has left

  /// The node that stands for its grant.
  [[nodiscard]] own_node& grant() noexcept { return what == form::permit ? lease : place; }
  /// What its nodes are named after.
  [[nodiscard]] backend_api::holder_id uuid() const noexcept { return {id.high, id.low + lives}; }
};

/// One connection, with its session.
struct line_state {
  bool up = false;
  bool was_up = false;
  bool own = false;  ///< takes in no contenders
  duration wanted{};
  duration span{};  ///< how long the session may be trusted after a proof
  session_id session = 0;
  time_point proven = time_point::min();  ///< sending of the last request that proves it
  bool syncing = false;
  std::uint64_t round = 0;  ///< of the sync
  bool nudge_set = false;   ///< a look at what is unanswered is due
  duration nudge_pause{};   ///< between this one and the next
  std::unordered_set<backend_api::holder_id> members{};
  std::uint64_t troubles = 1;  ///< grows when the connection is lost: another ensemble may follow
  std::uint64_t named_at = 0;  ///< what it was when the store's name was asked for on this line
  std::string name{};          ///< which was this
};

}  // namespace sallyport::backends::zookeeper
