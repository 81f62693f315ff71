#include "backend_api/delivery_gate.hpp"

#include <sallyport/error.hpp>

namespace sallyport::backend_api {

base::failure closed_failure() { return {make_error_code(errc::closed), "the client was closed"}; }

thread_local delivery_gate::pass* delivery_gate::innermost_ = nullptr;

delivery_gate::pass::pass(delivery_gate& gate) noexcept
    : gate_(gate), outer_(innermost_), inside_(gate.enter()), open_(inside_) {
  innermost_ = this;
}

delivery_gate::pass::~pass() {
  innermost_ = outer_;
  if (inside_) gate_.leave();
}

bool delivery_gate::enter() noexcept {
  if ((state_.fetch_add(1) & closed_bit) == 0) return true;
  leave();
  return false;
}

void delivery_gate::leave() noexcept {
  if ((state_.fetch_sub(1) & closed_bit) != 0) state_.notify_all();
}

bool delivery_gate::close() noexcept {
  const bool first = (state_.fetch_or(closed_bit) & closed_bit) == 0;
  for (pass* each = innermost_; each != nullptr; each = each->outer_) {
    if (&each->gate_ != this || !each->inside_) continue;
    each->inside_ = false;
    leave();
  }
  for (auto seen = state_.load(); seen != closed_bit; seen = state_.load()) state_.wait(seen);
  return first;
}

}  // namespace sallyport::backend_api
