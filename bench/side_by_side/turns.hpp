#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

/// What contenders for one lock report of their turns, and what follows from it. Pure.
namespace sallyport::bench {

/// One turn with a lock. Times are nanoseconds of CLOCK_MONOTONIC, the same clock in all processes.
struct turn {
  int seat = 0;                  ///< whose: contenders are numbered from 0
  std::int64_t wanted_at = 0;    ///< just before the lock was asked for
  std::int64_t entered_at = 0;   ///< just after it was got
  std::int64_t released_at = 0;  ///< just before it was given back
  std::uint64_t gave_up = 0;     ///< how often the library gave up before it got in

  friend bool operator==(const turn&, const turn&) = default;
};

/// Reads lines `SEAT WANTED ENTERED RELEASED GAVE_UP`. Throws std::runtime_error when one is not of
/// that form, or its times run backwards.
[[nodiscard]] std::vector<turn> parse_turns(std::string_view text);

/// From when until when all contenders wanted the lock.
struct turn_window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What the turns that were entered within a window say. A change is a turn of another contender
/// than the one before.
struct turn_figures {
  /// From just before a release until another contender, which was waiting already, had the lock;
  /// not a number when that never was.
  double handoff_p50_us = 0;
  double handoff_p99_us = 0;
  double handoff_longest_us = 0;
  double changes_per_second = 0;
  double turns_per_second = 0;
  double most_to_fewest = 0;   ///< turns of a contender; none counts as one
  double without_a_turn = 0;   ///< contenders that had none
  double longest_wait_ms = 0;  ///< also of those that were still waiting at the window's end
  double gave_up = 0;          ///< how often all together gave up, of those waits
};

/// `seats` is the number of contenders, also of those without a turn. Throws std::runtime_error
/// when two were inside at once, also outside of the window, and when a seat is out of range.
/// REQUIRES: at least one seat.
[[nodiscard]] turn_figures figures_of(std::vector<turn> turns, const turn_window& counted,
                                      int seats);

/// What a contender that is alone makes of its turns, those that were wanted within a window.
struct lone_figures {
  double pair_p50_us = 0;     ///< from the beginning of a turn to the beginning of the next one
  double acquire_p50_us = 0;  ///< from wanting the lock to having it
};

/// REQUIRES: the turns of one contender, in their order. Throws std::runtime_error when fewer than
/// two of them were wanted within the window.
[[nodiscard]] lone_figures lone_figures_of(const std::vector<turn>& turns,
                                           const turn_window& counted);

/// The mean time from the beginning of a turn to the beginning of the next one, for a contender
/// that is alone, in microseconds. Throws std::runtime_error when there are fewer than two turns.
[[nodiscard]] double microseconds_per_pair(const std::vector<turn>& turns);

}  // namespace sallyport::bench
