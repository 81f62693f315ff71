#pragma once

namespace sallyport::base {

/// Defects that the simulator's self-test can switch on, to prove that its checkers would notice
/// them. They exist only in objects compiled with SALLYPORT_PLANTED_DEFECTS; in the product
/// `planted()` is a constant false and leaves no code.
enum class defect {
  none,
  renew_by_upsert,      ///< a renewal re-creates a lock that lapsed
  deadline_from_reply,  ///< the lease is counted from the answer's arrival, not from the sending
  deadline_from_grant_message,    ///< a handed-off lease is counted from the notice's arrival
  lease_instead_of_claim_window,  ///< a handed-off lease is counted with its full length before its
                                  ///< claim
  full_lease_on_already_yours,    ///< "already yours" is taken for a fresh lease
  release_without_compare,        ///< a release frees the lock whoever holds it
  no_reread_after_lost_notice,    ///< a waiter trusts notices alone and never asks again
  token_not_raised,               ///< a hand-off forgets to raise the fencing counter
  token_block_used_after_loss,    ///< the rest of a token block is used after its grant was lost
  dead_waiter_not_skipped,        ///< a waiter that stopped asking keeps its place for ever
  late_answer_revives,  ///< a renewal confirmed after the deadline makes a lost lease valid again
  no_withdraw_after_unknown,  ///< an acquire given up with unknown outcome is left in the store
  trouble_told_as_nothing,    ///< a driver says that nothing happened of what the store has done
  // Of the embedded store.
  dead_holder_not_removed,  ///< who asks leaves what a dead process held
  look_not_sent,            ///< whom a change brought forward is not told
  tokens_not_reserved,      ///< tokens are used without having been put on record first
  // Of Redis.
  script_releases_anybody,       ///< a release frees the lock whoever holds it
  script_renews_anybody,         ///< a renewal takes the lock over from whoever holds it
  script_forgets_expiry,         ///< a lock is set without an expiry
  script_ignores_foreigner,      ///< another library's lock is taken for none
  tokens_without_floor,          ///< a counter that was lost begins at 1
  tokens_not_raised_on_connect,  ///< a counter that was set back goes on from there
  queue_expires_early,           ///< the queue's keys do not live as long as its tickets
  blocks_ahead_of_clock,         ///< blocks of tokens are drawn whole, however fast
  newcomer_passes_unserved,      ///< who comes while a long queue is half served enters before it
  unheard_waiter_starves,        ///< a waiter that nobody hears for loses every turn
  // Of a quorum of Redis servers.
  raise_not_awaited,        ///< a token counts before a majority's counters have reached it
  raise_unconditional,      ///< a counter is raised for who no longer has the node's vote
  late_voter_counts,        ///< a vote after the token was fixed makes up the token's majority
  same_id_for_second_bid,   ///< a contender bids again under the id of the bid that failed
  deadline_from_last_vote,  ///< a quorum's lease is counted from the answers
  failed_round_kept,        ///< the votes of a round that failed are not given back
  rejoin_at_once,           ///< a node without data votes as soon as it knows the others' tokens
  rejoin_without_counter,   ///< ... or when all leases have ended, but with a counter at zero
  claim_without_draw,       ///< what was handed over is entered with the last token given out
  half_is_enough,           ///< half of the nodes are taken for a majority
  blank_node_taken_in,      ///< a node without a mark is taken in, whatever its address
  former_member_votes,      ///< a node with a mark of an earlier epoch votes
  quorum_error_is_nothing,  ///< whatever error a node says, it is taken for having done nothing
  minority_in_force,        ///< one full mark of a roster is enough for it
  look_uncompared,          ///< clocks and counters are read whatever the node's mark is by now
  // Of etcd.
  etcd_entry_not_confirmed,  ///< whoever was before it has gone, so it is in: its own key is not looked at
  etcd_token_from_creation,  ///< the token is the revision at which its key came, not that of its entry
  etcd_keep_alive_unproven,     ///< an answered keep-alive counts, whoever answered
  etcd_late_put_not_withdrawn,  ///< a key that may still be put is forgotten
  etcd_watch_alone,             ///< a waiter believes its watch, and never looks
  etcd_leaving_given_up,        ///< who has left unheard is forgotten when nobody asks again
  etcd_trouble_told_as_nothing,  ///< a failure after its key was put is told as if nothing were there
  // Of ZooKeeper.
  zookeeper_token_from_creation,  ///< the token is the number of the node's creation, not of the look
  zookeeper_proof_from_answer,    ///< a proof counts from its answer
  zookeeper_create_forgotten,     ///< a node whose creation was not answered is not looked for
  zookeeper_watch_alone,          ///< a waiter believes its watch, and never looks
  zookeeper_half_downgraded,      ///< a downgrade that was not answered is taken for none
  zookeeper_fixed_lease_goes_on,   ///< a fixed lease that is over is answered with no time left
  zookeeper_leaving_given_up,      ///< who has left unheard is forgotten when nobody asks again
  zookeeper_refusal_is_an_answer,  ///< what the store refuses to say or to do is taken for done
  zookeeper_trouble_told_as_nothing,  ///< a failure after its node was made is told as if nothing were there
};

// Two functions of different names to the linker: the simulator's objects, which have the switch, are linked with the
// product's, which have none.
#if defined(SALLYPORT_PLANTED_DEFECTS)
inline namespace breakable {
inline defect planted_defect = defect::none;  // set before a simulation starts, by its only thread
inline bool planted(defect which) noexcept { return planted_defect == which; }
}  // namespace breakable
#else
inline namespace whole {
constexpr bool planted(defect) noexcept { return false; }
}  // namespace whole
#endif

}  // namespace sallyport::base
