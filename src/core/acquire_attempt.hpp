#pragma once

#include "backend_api/requests.hpp"
#include "base/result.hpp"
#include "core/lease_keeper.hpp"
#include "core/timing.hpp"

#include <cstdint>
#include <optional>
#include <variant>

namespace sallyport::core {

/// The lock is ours.
struct attempt_won {
  backend_api::token_block tokens;
  confirmation proof;
  std::uint32_t permits = 1;
};

/// Somebody else has it, and the attempt did not want to wait.
struct attempt_busy {};

/// The attempt was given up and every answer is in; only what may be left in the store matters now.
struct attempt_abandoned {};

/// A store that takes longer than this to answer the first question hangs, or cannot be reached.
inline constexpr duration slow_answer = std::chrono::milliseconds{500};

using attempt_outcome = std::variant<attempt_won, attempt_busy, attempt_abandoned, base::failure>;

/// What may be left in the store when an attempt ends, for the farewell that cleans it up.
struct leftovers {
  bool any = false;  ///< a ticket or a grant may be there
  /// A request without an answer may still be executed until then (bytes of a closed connection);
  /// time_point::min(): none.
  time_point late_until = time_point::min();
};

struct attempt_actions {
  bool send_acquire = false;
  bool send_claim = false;
  std::optional<attempt_outcome>
      finish{};  ///< the attempt is over: look at remains() and destroy it
};

/// One contender's way to a grant: asks at once, waits in the store's queue, asks again at every
/// heartbeat (more rarely while the store says that many stand before it), hint and reconnect, claims what was handed over, and survives answers that never
/// come. Pure, like all of core.
/// Thread safety: none. Invariants: (1) at most one acquire or claim is under way. (2) After
/// `finish` nothing follows. (3) A notice alone wins only if the grant that it tells of cannot have
/// lapsed; else it is claimed first.
///
/// | phase   | answer: granted | waiting | held    | failed                        | notice: granted        | give up    |
/// |---------|-----------------|---------|---------|-------------------------------|------------------------|------------|
/// | asking  | won, or claim   | waiting | busy    | pause, or failed              | won, or kept for later | leaving    |
/// | waiting | -               | -       | -       | -                             | won, or claim          | abandoned  |
/// | claiming| won             | waiting | -       | pause                         | -                      | leaving    |
/// | pausing | -               | -       | -       | -                             | won, or claim          | abandoned  |
/// | leaving | abandoned, after the one answer that is under way                                                          |||||||
class acquire_attempt {
 public:
  /// `may_wait` false: one question, no queue.
  acquire_attempt(const timing& times, bool may_wait) : times_(times), may_wait_(may_wait) {}

  [[nodiscard]] attempt_actions start(time_point now);
  [[nodiscard]] attempt_actions on_acquire_answered(
      const base::result<backend_api::acquire_answer>& answer, time_point now, double draw);
  [[nodiscard]] attempt_actions on_claim_answered(
      const base::result<backend_api::renew_answer>& answer, time_point now, double draw);
  /// A hint that this contender now holds the lock; with what was granted, if the hint says so.
  [[nodiscard]] attempt_actions on_granted_notice(const std::optional<backend_api::granted>& grant,
                                                  time_point now);
  /// Notices may have been missed: read the truth.
  [[nodiscard]] attempt_actions on_reconnected(time_point now);
  [[nodiscard]] attempt_actions on_timer(time_point now);
  /// Nobody wants the lock any more.
  [[nodiscard]] attempt_actions give_up(time_point now);

  [[nodiscard]] time_point wake_at() const noexcept { return wake_at_; }
  [[nodiscard]] bool request_under_way() const noexcept {
    return phase_ == phase::asking || phase_ == phase::claiming || phase_ == phase::leaving;
  }
  /// The trouble the store is in, if the last question failed: a wait that ends now ends with this,
  /// not with "held".
  [[nodiscard]] const std::optional<base::failure>& trouble() const noexcept { return trouble_; }
  /// The store has never answered, and should have by now: a wait that ends now does not know whether
  /// somebody else has it.
  [[nodiscard]] bool unanswered(time_point now) const noexcept {
    return phase_ == phase::asking && !heard_ && now - sent_at_ >= slow_answer;
  }
  /// REQUIRES: finished.
  [[nodiscard]] leftovers remains() const noexcept;
  /// How many times as long as usual its ticket lives, by the store's last answer.
  [[nodiscard]] std::uint32_t ticket_stretch() const noexcept { return ticket_stretch_; }
  /// The acquire that is under way was sent then; its answer may come after the attempt was won by
  /// a notice.
  [[nodiscard]] time_point sent_at() const noexcept { return sent_at_; }

 private:
  enum class phase : std::uint8_t { idle, asking, waiting, claiming, pausing, leaving, over };

  [[nodiscard]] attempt_actions ask(time_point now);
  [[nodiscard]] attempt_actions claim(time_point now);
  [[nodiscard]] attempt_actions finish(attempt_outcome outcome);
  [[nodiscard]] attempt_actions win_or_claim(const attempt_won& prize, time_point now);
  [[nodiscard]] attempt_actions take_handed_over(const backend_api::granted& grant, time_point now);
  [[nodiscard]] attempt_actions keep_or_claim(const std::optional<backend_api::granted>& grant,
                                              time_point now);
  [[nodiscard]] attempt_actions fail_or_pause(const base::failure& why, time_point now,
                                              double draw);
  void wait_for_news(const backend_api::waiting& answer, time_point sent, time_point now);

  timing times_;
  bool may_wait_;
  phase phase_ = phase::idle;
  time_point sent_at_;  // of the request under way, or of the last one
  time_point wake_at_ = time_point::max();
  time_point waiting_since_ =
      time_point::min();               // sending of the latest request answered "still waiting"
  fencing_token newest_when_waiting_;  // the largest token the store had drawn by that answer
  time_point trouble_since_ = time_point::min();
  std::uint32_t failures_ = 0;
  std::optional<base::failure> trouble_;
  time_point proven_at_ =
      time_point::min();        // no grant of ours that was made earlier has lapsed unclaimed
  bool doubt_notices_ = false;  // one may tell of a grant that has lapsed
  bool heard_ = false;          // the store has answered a question
  std::uint32_t permits_ = 1;   // semaphore: the stored N, as last heard
  std::uint32_t ticket_stretch_ = 1;
  last_question last_;
  // Came while a question was under way whose answer may not know of it yet; with the grant, if it
  // told.
  std::optional<std::optional<backend_api::granted>> early_notice_;
  leftovers remains_;
};

}  // namespace sallyport::core
