#include "core/local_turns.hpp"

#include "base/check.hpp"
#include "base/planted.hpp"

namespace sallyport::core {

void local_turns::append(turn_taker& taker, const turn_wish& wish) noexcept {
  SALLYPORT_CHECK(taker.next_ == nullptr);
  if (head_ == nullptr) head_ = taker.previous_ = &taker;
  taker.wish_ = wish;
  taker.next_ = head_;
  taker.previous_ = head_->previous_;
  taker.previous_->next_ = &taker;
  head_->previous_ = &taker;
  ++waiting_;
}

void local_turns::remove(turn_taker& taker) noexcept {
  if (head_ == &taker) head_ = taker.next_ == &taker ? nullptr : taker.next_;
  taker.previous_->next_ = taker.next_;
  taker.next_->previous_ = taker.previous_;
  taker.next_ = taker.previous_ = nullptr;
  --waiting_;
}

turn_taker& local_turns::take_head() noexcept {
  turn_taker& head = *head_;
  remove(head);
  return head;
}

void local_turns::want(turn_taker& taker, const turn_wish& wish, turn_actions& out) {
  if (!wish.may_wait && state_ != state::idle) {
    out.emplace_back(turn_busy{&taker});
    return;
  }
  append(taker, wish);
  if (state_ == state::idle) ask_for_head(out);
}

void local_turns::cancel(turn_taker& taker, turn_actions& out) {
  if (taker.next_ == nullptr) return;
  const bool was_head = head_ == &taker;
  remove(taker);
  // While drawing, drew() looks at the queue anew, and gives the grant back if it is empty.
  if (state_ != state::asking || !was_head) return;
  if (head_ != nullptr) {
    const turn_wish& next = head_->wish_;
    if (next.fits(grant_wish_) && next.may_wait == grant_wish_.may_wait) return;
  }
  out.emplace_back(turn_abandon{});
  end_attempt(out);
}

void local_turns::end_attempt(turn_actions& out) {
  state_ = state::idle;
  if (head_ != nullptr) ask_for_head(out);
}

void local_turns::ask_for_head(turn_actions& out) {
  SALLYPORT_CHECK(head_ != nullptr);
  state_ = state::asking;
  grant_wish_ = head_->wish_;
  out.emplace_back(turn_ask{head_, grant_wish_});
}

void local_turns::won(const backend_api::token_block& tokens, time_point now, turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && head_ != nullptr);
  const bool keep_old_block = base::planted(base::defect::token_block_used_after_loss) &&
                              tokens_.first.value() != 0 && tokens_.first <= tokens_.last;
  if (!keep_old_block) tokens_ = tokens;
  turns_given_ = 0;
  first_turn_at_ = now;
  give_to_head(out);
}

void local_turns::give_to_head(turn_actions& out) {
  SALLYPORT_CHECK(head_ != nullptr && tokens_.first <= tokens_.last);
  state_ = state::held;
  ++turns_given_;
  out.emplace_back(turn_give{&take_head(), ++turn_, tokens_.first});
  tokens_.first = fencing_token{tokens_.first.value() + 1};
}

void local_turns::busy(turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && head_ != nullptr);
  // Only a caller that does not wait is answered "held", and it stands at the head: it asked when
  // the lane was idle.
  out.emplace_back(turn_busy{&take_head()});
  end_attempt(out);
}

void local_turns::failed(const base::failure& why, turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::asking && head_ != nullptr);
  if (!grant_wish_.may_wait) {
    // One try without patience says nothing about those who would have waited for the store.
    out.emplace_back(turn_fail{&take_head(), why});
    end_attempt(out);
    return;
  }
  while (head_ != nullptr) out.emplace_back(turn_fail{&take_head(), why});
  state_ = state::idle;
}

bool local_turns::leave(turn_number turn, bool grant_fresh, const turn_limits& limits,
                        time_point now, turn_actions& out) {
  if (state_ != state::held || turn != turn_) return false;
  const bool may_stay = grant_fresh && turns_given_ < limits.count &&
                        now - first_turn_at_ < limits.time && head_ != nullptr &&
                        head_->wish_.fits(grant_wish_);
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
  if (head_ != nullptr) ask_for_head(out);
}

void local_turns::drew(const std::optional<backend_api::token_block>& tokens, turn_actions& out) {
  if (state_ != state::drawing) return;
  if (!tokens || head_ == nullptr || !head_->wish_.fits(grant_wish_)) {
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
  if (head_ != nullptr) ask_for_head(out);
}

void local_turns::detach(turn_actions& out) {
  SALLYPORT_CHECK(state_ == state::held);
  lost(out);
}

}  // namespace sallyport::core
