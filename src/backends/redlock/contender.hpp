#pragma once

#include "backend_api/requests.hpp"
#include "backends/redlock/speech.hpp"
#include "backends/redlock/token_round.hpp"
#include "base/planted.hpp"
#include "base/result.hpp"
#include <sallyport/error.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

/// The quorum's own books; nobody else includes this.
namespace sallyport::backends::redlock {

using backend_api::time_point;

/// The node may have done what it was asked, or may do so yet. An error says that it has not if it is one
/// of those that are said before anything is done (`unavailable`). Any other may come from the middle
/// of a script, or from a proxy that did not wait for the node.
[[nodiscard]] inline bool is_unknown(const base::result<vote>& said) {
  if (said || said.error().code == errc::unavailable) return false;
  return said.error().code == errc::outcome_unknown ||
         !base::planted(base::defect::quorum_error_is_nothing);
}

/// How often a contender bids at once when its nodes say that the lock is free.
inline constexpr unsigned bids_at_once = 3;

/// One holder id's life on all nodes.
struct contender {
  enum class phase : std::uint8_t {
    idle,
    bidding,    ///< asks every node for its vote, under a fresh id
    enrolling,  ///< takes a ticket, or says that it still waits
    queued,
    claiming,  ///< somebody's release handed votes over to it
    held,
    leaving
  };
  /// A request of the engine that awaits its answer.
  struct question {
    time_point received;
    time_point answer_by;
  };

  contender(const backend_api::holder_id& who, unsigned nodes)
      : holder(who), ids(nodes), lines(nodes) {}

  const backend_api::holder_id holder;
  wish what;
  phase is = phase::idle;
  bool may_wait = false;
  bool enrolled = false;  // some node may have a ticket of it
  bool said_so = false;   // and the engine knows that
  bool told = false;      // the engine was told to come and see
  bool woken = false;     // some node did so while it was enrolling
  std::optional<question> acquire;
  std::optional<question> claim;  // or a renewal
  time_point patient_until{};     // so long nodes that were lost may take to come back
  bool called_nodes = false;      // those that are away were tried again for this question
  std::optional<time_point> leave_received;

  // The round under way, or the last one: answers to older ones do not count.
  std::uint64_t round = 0;
  std::optional<token_round> votes;
  std::uint64_t epoch = 0;        // of the roster that it asks
  time_point began{};             // before anything of it was sent
  backend_api::duration lease{};  // that the nodes were asked for
  std::string round_id;           // bidding, claiming
  std::uint32_t drawn = 0;
  unsigned bids = 0;  // since the engine last asked
  bool renewing = false;
  bool brought_up = false;  // a counter that was far behind, in this round

  /// Under which id it may have a node's vote; empty: it has not.
  std::vector<std::string> ids;

  std::string last_trouble;  // what a node said, or why it did not answer, in this round

  // Enrolling.
  std::uint64_t came = 0;  // its place in every node's line
  std::vector<std::optional<vote>> lines;
  node_set lines_open = 0;
  node_set overdue = 0;  // who did not answer in time, over a connection that is still there
  node_set unsure = 0;   // or over one that broke: it may be asked for a ticket at any time yet

  // Claiming.
  std::map<std::string, node_set> offers;  // by nonce
  std::set<std::string> spent;             // nonces that it gives back, and never claims again
  time_point ask_the_rest_at = time_point::max();
  node_set asked = 0;

  // Held.
  backend_api::token_block tokens{};
  time_point good_until{};

  // Leaving.
  node_set leave_votes = 0;  // where it may have had one
  node_set leave_open = 0;
  node_set leave_yes = 0;
  node_set leave_no = 0;
  bool was_held = false;
};

/// When the lease of its round began at the earliest.
[[nodiscard]] time_point counted_from(const contender& who, time_point now);

}  // namespace sallyport::backends::redlock
