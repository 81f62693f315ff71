#include "core/local_turns.hpp"

#include "base/check.hpp"
#include "base/planted.hpp"

namespace sallyport::core {

void local_turns::want(waiter_number waiter, const turn_wish& wish, turn_actions& out) {
  SALLYPORT_CHECK(queue_.empty() || waiter > queue_.rbegin()->first);
  if (!wish.may_wait && state_ != state::idle) {
    out.emplace_back(turn_busy{wish.taker});
    return;
  }
  queue_.emplace_hint(queue_.end(), waiter, wish);
  if (state_ == state::idle) ask_for_head(out);
}

void local_turns::cancel(waiter_number waiter, turn_actions& out) {
  const auto leaver = queue_.find(waiter);
  if (leaver == queue_.end()) return;
  const bool was_head = leaver == queue_.begin();
  queue_.erase(leaver);
  // While drawing, drew() looks at the queue anew, and gives the grant back if it is empty.
  if (state_ != state::asking || !was_head) return;
  if (!queue_.empty()) {
    const turn_wish& next = queue_.begin()->second;
    if (next.fits(grant_wish_) && next.may_wait == grant_wish_.may_wait) return;
  }
  out.emplace_back(turn_abandon{});
  end_attempt(out);
}

void local_turns::end_attempt(turn_actions& out) {
  state_ = state::idle;
  if (!queue_.empty()) ask_for_head(out);
}

void local_turns::ask_for_head(turn_actions& out) {
  SALLYPORT_CHECK(!queue_.empty());
  state_ = state::asking;
  grant_wish_ = queue_.begin()->second;
  out.emplace_back(turn_ask{grant_wish_});
}

void local_turns::won(const backend_api::token_block& tokens, time_point now, turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && !queue_.empty());
  const bool keep_old_block = base::planted(base::defect::token_block_used_after_loss) &&
                              tokens_.first.value() != 0 && tokens_.first <= tokens_.last;
  if (!keep_old_block) tokens_ = tokens;
  turns_given_ = 0;
  first_turn_at_ = now;
  give_to_head(out);
}

void local_turns::give_to_head(turn_actions& out) {
  SALLYPORT_CHECK(!queue_.empty() && tokens_.first <= tokens_.last);
  const auto head = queue_.begin();
  state_ = state::held;
  ++turns_given_;
  out.emplace_back(turn_give{head->second.taker, ++turn_, tokens_.first});
  tokens_.first = fencing_token{tokens_.first.value() + 1};
  queue_.erase(head);
}

void local_turns::busy(turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && !queue_.empty());
  // Only a caller that does not wait is answered "held", and it stands at the head: it asked when
  // the lane was idle.
  const auto head = queue_.begin();
  out.emplace_back(turn_busy{head->second.taker});
  queue_.erase(head);
  end_attempt(out);
}

void local_turns::failed(const base::failure& why, turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && !queue_.empty());
  if (!grant_wish_.may_wait) {
    // One try without patience says nothing about those who would have waited for the store.
    const auto head = queue_.begin();
    out.emplace_back(turn_fail{head->second.taker, why});
    queue_.erase(head);
    end_attempt(out);
    return;
  }
  for (const auto& [waiter, wish] : queue_) out.emplace_back(turn_fail{wish.taker, why});
  queue_.clear();
  state_ = state::idle;
}

bool local_turns::leave(turn_number turn, bool grant_fresh, time_point now, turn_actions& out) {
  if (state_ != state::held || turn != turn_) return false;
  const bool may_stay = grant_fresh && turns_given_ < limits_.count &&
                        now - first_turn_at_ < limits_.time && !queue_.empty() &&
                        queue_.begin()->second.fits(grant_wish_);
  if (!may_stay) {
    part(out);
  } else if (tokens_.first <= tokens_.last) {
    give_to_head(out);
  } else {
    state_ = state::drawing;
    out.emplace_back(turn_draw{});
  }
  return true;
}

void local_turns::part(turn_actions& out) {
  if (!base::planted(base::defect::token_block_used_after_loss)) tokens_ = {};
  state_ = state::idle;
  out.emplace_back(turn_part{});
  if (!queue_.empty()) ask_for_head(out);
}

void local_turns::drew(const std::optional<backend_api::token_block>& tokens, turn_actions& out) {
  if (state_ != state::drawing) return;
  if (!tokens || queue_.empty() || !queue_.begin()->second.fits(grant_wish_)) {
    part(out);
    return;
  }
  tokens_ = *tokens;
  give_to_head(out);
}

void local_turns::lost(turn_actions& out) {
  if (state_ != state::held && state_ != state::drawing) return;
  if (!base::planted(base::defect::token_block_used_after_loss)) tokens_ = {};
  state_ = state::idle;
  if (!queue_.empty()) ask_for_head(out);
}

void local_turns::detach(turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::held);
  lost(out);
}

}  // namespace sallyport::core
