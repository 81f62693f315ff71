#pragma once

#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include "core/acquire_attempt.hpp"
#include "core/timing.hpp"

#include <cstdint>
#include <optional>

namespace sallyport::core {

/// How a contender's own release ended.
enum class release_outcome : std::uint8_t {
  released,      ///< it held the lock and the store took it back
  already_lost,  ///< the store had given it away, or it had lapsed
  unknown,       ///< no answer in time; the store will hear of it again, or let it lapse
};

struct farewell_actions {
  bool send_release = false;
  bool send_withdraw = false;
  std::optional<release_outcome> tell{};  ///< the first word on the release; once
  bool over = false;                      ///< nothing of this contender is left: forget it
};

/// Ends one contender in the store: releases its grant or withdraws its ticket, says it again until
/// the store has heard, and goes on withdrawing while a lost request may still be executed. Never
/// gives up before the lease has lapsed anyway. Pure; thread safety: none. Invariant: at most one
/// request is under way.
class farewell {
 public:
  enum class kind : std::uint8_t { release, withdraw };

  /// `lapses_at`: by then the store has forgotten this contender by itself. REQUIRES: `times` outlives
  /// the farewell.
  farewell(const timing& times, kind how, time_point late_until, time_point lapses_at);
  farewell(timing&& times, kind how, time_point late_until, time_point lapses_at) = delete;

  [[nodiscard]] farewell_actions start(time_point now);
  /// Like start, but says nothing to the store before `when`.
  void start_at(time_point when) noexcept;
  [[nodiscard]] farewell_actions on_answered(const base::result<backend_api::leave_answer>& answer,
                                             time_point now, double draw);
  [[nodiscard]] farewell_actions on_timer(time_point now);
  /// Notices may have been missed and the store is back: say it now rather than at the next retry.
  [[nodiscard]] farewell_actions on_reconnected(time_point now);

  /// There will be no later: what waits for its time is said now, unless it would be too early.
  [[nodiscard]] farewell_actions hurry(time_point now) { return on_reconnected(now); }

  /// Another request of this contender turned out to have no answer: it may be executed until then.
  [[nodiscard]] farewell_actions on_late_request(time_point until, time_point now);

  [[nodiscard]] time_point wake_at() const noexcept { return wake_at_; }

 private:
  [[nodiscard]] farewell_actions send(time_point now);

  const timing* times_;
  time_point late_until_;
  time_point lapses_at_;
  time_point sent_at_ = time_point::min();  // of the request under way, or of the last one
  time_point wake_at_ = time_point::max();
  time_point not_before_ = time_point::min();
  std::uint32_t failures_ = 0;
  kind how_;
  bool heard_ = false;  // the store has confirmed at least once
  bool told_ = false;
  bool under_way_ = false;
};

}  // namespace sallyport::core
