#pragma once

#include "backend_api/requests.hpp"
#include "backends/etcd/description.hpp"
#include "backends/etcd/standing.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

/// What the machine remembers; see contention.hpp.
namespace sallyport::backends::etcd {

/// Nothing changes for a waiter without an event; its heartbeat asks anyway.
inline constexpr duration no_hurry = std::chrono::hours{1};

/// One contender of this client.
struct contender {
  enum class phase : std::uint8_t {
    outside,  ///< nothing of it is in the store, as far as is known
    waiting,  ///< its key is there, and others are before it
    held,     ///< the store has confirmed that it is in
    lost,     ///< it was in, and no longer is
  };
  /// The transaction that is under way; there is one at a most.
  enum class step : std::uint8_t {
    none,
    trying,      ///< in, if nobody is there
    surveying,   ///< is there anybody among all these keys?
    entering,    ///< its key is put, and those before it are read
    looking,     ///< are its own key and the one before it still there?
    listing,     ///< who is before it?
    confirming,  ///< in, if nobody is before it any more
    crowning,    ///< in: draws the token
    drawing,     ///< a new token for one who is in
    noting,      ///< its description has changed
    downgrading,
    proclaiming,
    leaving,
    undoing,  ///< like leaving, but core does not know
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
    bool being_read = false;  ///< the lease's round looks at its key just now
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
  bool renewed = true;  ///< its lease is shared with others of the same length
  std::string folder{};
  std::string folder_end{};
  std::string key{};
  std::uint64_t key_number = 0;
  lease_id lease = 0;

  phase is = phase::outside;
  step doing = step::none;
  revision created = 0;  ///< of its key; 0: not known
  revision known = 0;    ///< what is believed of it was true then
  revision token = 0;
  std::vector<entry> before{};  ///< as far as they were read
  std::string behind{};         ///< see standing
  bool by_change = false;
  watch_number watch = 0;
  watch_number twin = 0;          ///< a second one for the same key
  std::size_t waiters_ahead = 0;  ///< as far as they were read: those in its way that wait, too

  bool first_try = false;  ///< it enters with a key that was never sent before
  bool doubtful = false;   ///< a put of its key may still be executed
  bool key_spent = false;  ///< its key was put out: what stands there now is not its own
  bool poked = false;      ///< whoever was in its way has gone
  bool recheck = false;    ///< a notice may have been missed
  bool note_due = false;
  bool going = false;        ///< is to leave, whoever still waits for the word on it
  bool claimed = false;      ///< core has heard of the grant by an answer
  bool stale_lease = false;  ///< an answer waits until the lease was kept alive

  description card{};
  std::string value{};  ///< election: what it says
  std::uint32_t permits = 1;

  std::optional<question> asked{};
  std::optional<wish> renew{};
  std::optional<wish> downgrade{};
  std::optional<time_point> leave{};  ///< to be answered by then
  std::deque<proclamation> values{};
  std::optional<base::result<backend_api::acquire_answer>> verdict{};  ///< told after undoing
};

/// A keep-alive counts once a read that was sent after its answer has come back in the same term:
/// a leader that was deposed goes on answering keep-alives, but it cannot answer reads.
struct keep_alive_round {
  bool reading = false;
  time_point sent;  ///< of the keep-alive
  time_point repeat_at;
  duration ttl{};
  std::uint64_t term = 0;
  std::size_t reads = 0;  ///< under way
  bool failed = false;    ///< one of them did not prove it
};

/// One lease in etcd, with those whose keys hang on it.
struct lease_state {
  enum class phase : std::uint8_t { granting, live };
  phase is = phase::granting;
  bool own = false;      ///< of one contender, whose grant is not renewed
  bool retired = false;  ///< takes nobody in, and is revoked when it is empty
  duration length{};
  time_point sent;         ///< of the grant
  time_point valid_until;  ///< proven
  time_point empty_since;
  std::unordered_set<backend_api::holder_id> members{};
  std::vector<std::string> late_keys{};  ///< may still be put by requests whose answers are lost
  std::optional<keep_alive_round> keeping{};
};

}  // namespace sallyport::backends::etcd
