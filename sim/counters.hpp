#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sallyport::sim {

/// What is counted, to prove that a batch of seeds was not idle. Every fault that can be drawn is
/// here.
enum class counter : std::uint8_t {
  // What the world did to the library.
  request_lost,
  reply_lost,
  connection_reset,
  request_doubled,
  request_late,
  request_slow,
  cut_to_store,
  cut_from_store,
  partition,
  pause,
  kill,
  restart,
  suspend,
  store_pause,
  store_restart,
  drift_change,
  broken_safely,
  notice_lost,
  notice_doubled,
  notice_slow,
  notice_without_grant,
  single_token_draw,
  clock_step,
  big_drift,
  broken_at_once,
  clock_stopped,
  power_cut,
  killed_uncommitted,
  killed_untold,
  killed_half_told,
  stopped_in_gate,
  stopped_untold,
  commit_failed,
  reserve_failed,
  local_notice_lost,
  gate_timeout,
  // What the library did.
  turn_given,
  local_turn,
  contended_grant,
  claim,
  draw,
  downgrade,
  reader_with_readers,
  permit_with_others,
  lease_lost,
  lease_suspect,
  lease_lapsed_in_pause,
  lease_settled,
  cancelled,
  timed_out,
  busy,
  failed_unavailable,
  failed_unknown,
  failed_refused,
  death_heard,
  promptness_checked,
  buried,
  look_told,
  answer_unknown,
  answer_unavailable,
  withdrawal_after_unknown,
  release_unknown,
  write_accepted,
  write_refused,
  leader_value_set,
  change_heard,
  overlap_out_of_model,
  number_of_counters
};

inline constexpr std::size_t counter_count = static_cast<std::size_t>(counter::number_of_counters);

/// In the order of `counter`.
inline constexpr std::array<std::string_view, counter_count> counter_names = {
    "request_lost",
    "reply_lost",
    "connection_reset",
    "request_doubled",
    "request_late",
    "request_slow",
    "cut_to_store",
    "cut_from_store",
    "partition",
    "pause",
    "kill",
    "restart",
    "suspend",
    "store_pause",
    "store_restart",
    "drift_change",
    "broken_safely",
    "notice_lost",
    "notice_doubled",
    "notice_slow",
    "notice_without_grant",
    "single_token_draw",
    "clock_step",
    "big_drift",
    "broken_at_once",
    "clock_stopped",
    "power_cut",
    "killed_uncommitted",
    "killed_untold",
    "killed_half_told",
    "stopped_in_gate",
    "stopped_untold",
    "commit_failed",
    "reserve_failed",
    "local_notice_lost",
    "gate_timeout",
    "turn_given",
    "local_turn",
    "contended_grant",
    "claim",
    "draw",
    "downgrade",
    "reader_with_readers",
    "permit_with_others",
    "lease_lost",
    "lease_suspect",
    "lease_lapsed_in_pause",
    "lease_settled",
    "cancelled",
    "timed_out",
    "busy",
    "failed_unavailable",
    "failed_unknown",
    "failed_refused",
    "death_heard",
    "promptness_checked",
    "buried",
    "look_told",
    "answer_unknown",
    "answer_unavailable",
    "withdrawal_after_unknown",
    "release_unknown",
    "write_accepted",
    "write_refused",
    "leader_value_set",
    "change_heard",
    "overlap_out_of_model",
};

/// Plain numbers, so that worker processes can share them.
struct counters {
  std::array<std::uint64_t, counter_count> value{};

  void add(counter which) noexcept { ++value[static_cast<std::size_t>(which)]; }
  [[nodiscard]] std::uint64_t operator[](counter which) const noexcept {
    return value[static_cast<std::size_t>(which)];
  }
  counters& operator+=(const counters& other) noexcept {
    for (std::size_t i = 0; i < counter_count; ++i) value[i] += other.value[i];
    return *this;
  }
};

}  // namespace sallyport::sim
