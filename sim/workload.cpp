#include "sim/workload.hpp"

#include "sim/process.hpp"
#include <sallyport/error.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace sallyport::sim {
namespace {

constexpr duration short_while = std::chrono::microseconds{200};
/// Marks are read again every half a second, in the product; and once more, should one be slow.
constexpr duration marks_read_again = std::chrono::seconds{1};

}  // namespace

caller::caller(context& shared, checkers& checks, process& home)
    : shared_(shared), checks_(checks), home_(home) {}

std::string_view caller::doing() const noexcept {
  switch (state_) {
    case state::home:
      return "is at home";
    case state::thinking:
      return "thinks";
    case state::waiting:
      return "waits";
    case state::holding:
      return "holds";
    case state::leaving:
      return "leaves";
  }
  return {};
}

void caller::think() {
  if (visiting_) {
    visit_next();
    return;
  }
  if (shared_.healed) {
    state_ = state::home;
    return;
  }
  state_ = state::thinking;
  home_.later(draw_around(shared_.random, shared_.plan.think_time), [this] { want(); });
}

void caller::want() {
  if (shared_.healed) {
    state_ = state::home;
    return;
  }
  const options& plan = shared_.plan;
  const std::size_t lock = shared_.random.below(plan.locks.size());
  const lock_kind sort = plan.locks[lock].kind;
  const bool reads = sort == lock_kind::shared_mutex && shared_.random.chance(plan.readers);
  const double how = shared_.random.unit();
  time_point wait_until = time_point::max();
  if (how < plan.tries) {
    wait_until = home_.now();
  } else if (how < plan.tries + plan.timed) {
    wait_until = home_.now() + draw_between(shared_.random, plan.lease / 10, 6 * plan.lease);
  }
  ask(lock, reads ? lock_mode::shared : lock_mode::exclusive, wait_until);
  if (state_ == state::waiting && shared_.random.chance(plan.cancels)) {
    home_.later(draw_between(shared_.random, duration{0}, 2 * plan.lease), [this, call = call_] {
      if (state_ == state::waiting && call == call_) home_.engine().cancel(*this);
    });
  }
}

void caller::ask(std::size_t lock, lock_mode mode, time_point wait_until) {
  state_ = state::waiting;
  wait_until_ = wait_until;
  tries_ = wait_until <= home_.now();
  ++call_;
  const auto spec = home_.spec(lock, mode, shared_.random.chance(0.2),
                               shared_.random.chance(shared_.plan.fixed_leases));
  const std::string value = shared_.plan.locks[lock].kind == lock_kind::election
                                ? "process " + std::to_string(home_.number())
                                : std::string{};
  shared_.note("process # wants lock #, mode #", static_cast<std::int64_t>(home_.number()),
               static_cast<std::int64_t>(lock), static_cast<std::int64_t>(mode));
  home_.engine().acquire(*this, spec, wait_until, value);
}

void caller::check_deadline() {
  // A call that does not wait has no timer: it ends when its question is answered.
  if (state_ != state::waiting || tries_ || home_.now() < wait_until_) return;
  shared_.fail("waits end", "a wait goes on after its deadline");
}

void caller::finished() noexcept {
  if (home_.dead()) return;  // killed in the middle of a step, whose rest changes nothing
  if (state_ != state::waiting) {
    shared_.fail("waits end", "a call was finished that had been finished before");
    return;
  }
  auto& result = outcome();
  if (auto* record = std::get_if<std::shared_ptr<runtime::lease_record>>(&result)) {
    got_turn(std::move(*record));
    return;
  }
  state_ = state::thinking;
  if (const auto* nothing = std::get_if<runtime::not_acquired>(&result)) {
    shared_.note("process # did not get it", static_cast<std::int64_t>(home_.number()));
    shared_.count.add(nothing->cancelled ? counter::cancelled
                      : tries_           ? counter::busy
                                         : counter::timed_out);
  } else {
    const auto& why = std::get<base::failure>(result);
    shared_.note("the call of process # failed with #", static_cast<std::int64_t>(home_.number()),
                 why.code.value());
    if (why.code == errc::unavailable) {
      shared_.count.add(counter::failed_unavailable);
    } else if (why.code == errc::outcome_unknown) {
      shared_.count.add(counter::failed_unknown);
    } else if (why.code == errc::store_refused && may_be_refused()) {
      shared_.count.add(counter::failed_refused);
    } else {
      shared_.fail("waits end", "a call failed with " + why.code.message() + ": " + why.detail);
    }
  }
  if (visiting_) {
    shared_.fail("progress", "a fresh process did not get lock " + std::to_string(next_visit_));
    return;
  }
  home_.later(draw_between(shared_.random, duration{0}, short_while), [this] { think(); });
}

bool caller::may_be_refused() const {
  const options& plan = shared_.plan;
  if (home_.always_refused()) return true;
  const bool refuses = plan.local || plan.redlock || plan.rate(fault::full_store) > 0 ||
                       plan.rate(fault::refuse_request) > 0;
  // What was said before the healing may still be on its way. Of a quorum, a client may have to hear first
  // that a node was taken in again by another one.
  const duration grace = plan.request_timeout + (plan.redlock ? marks_read_again : duration{0});
  return refuses && (!shared_.healed || shared_.loop.now() <= shared_.healed_at + grace.count());
}

void caller::got_turn(std::shared_ptr<runtime::lease_record> record) {
  state_ = state::holding;
  leave_wanted_ = false;
  if (record->turn > 1) shared_.count.add(counter::local_turn);
  turn_ = checks_.turns.given(home_.number(), home_.clock(), std::move(record));
  home_.later(draw_between(shared_.random, duration{0}, short_while), [this] { use(); });
}

void caller::use() {
  if (state_ != state::holding) return;
  const options& plan = shared_.plan;
  duration hold{};
  if (!shared_.healed) {
    if (shared_.random.chance(plan.long_holds)) {
      hold = draw_between(shared_.random, plan.lease / 2, 4 * plan.lease);
    } else if (shared_.random.chance(0.7)) {
      hold = draw_between(shared_.random, duration{0}, plan.lease / 4);
    }
  }
  if (shared_.random.chance(0.7)) turn_->lost_token = home_.engine().lost_token(*turn_->record);
  const std::uint64_t writes = shared_.random.below(4);
  for (std::uint64_t i = 0; i < writes; ++i) write_some(hold);
  const lock_kind sort = plan.locks[turn_->lock].kind;
  if (sort == lock_kind::shared_mutex && turn_->mode == lock_mode::exclusive &&
      shared_.random.chance(0.4)) {
    home_.later(draw_between(shared_.random, duration{0}, hold), [this, call = call_] {
      if (call == call_) downgrade();
    });
  }
  if (sort == lock_kind::election && shared_.random.chance(0.5)) {
    home_.engine().set_value(*turn_->record, "another value", [this](base::result<bool> said) {
      if (said && *said) shared_.count.add(counter::leader_value_set);
    });
  }
  home_.later(hold, [this, call = call_] {
    if (call == call_) leave();
  });
}

void caller::write_some(duration within) {
  // Between the check and the write there is always time to be frozen in.
  home_.later(draw_between(shared_.random, duration{0}, within), [this, writer = turn_] {
    if (!still_valid(*writer)) return;
    const duration gap = shared_.random.chance(0.5)
                             ? duration{0}
                             : draw_between(shared_.random, duration{0}, shared_.plan.lease / 8);
    home_.later(gap, [this, writer] {
      // Whether it is a writer or a reader is open until its downgrade is answered.
      if (writer == turn_ && downgrade_word_.awaited) return;
      checks_.resource.write(*writer);
    });
  });
}

bool caller::still_valid(const turn& asked) {
  if (asked.valid(shared_.loop.now())) return true;
  const auto seen = asked.record->state.load();
  if (seen == runtime::lease_record::phase::held || seen == runtime::lease_record::phase::suspect) {
    shared_.count.add(counter::lease_settled);
    home_.engine().settle(*asked.record);
    if (asked.record->state.load() != runtime::lease_record::phase::lost) {
      shared_.fail("loss", "a lease was settled after its deadline and is not lost");
    }
  }
  return false;
}

void caller::downgrade() {
  if (state_ != state::holding || leave_wanted_ || downgrade_word_.awaited) return;
  shared_.note("process # downgrades", static_cast<std::int64_t>(home_.number()));
  // From here on its holder relies on being a reader only.
  turn_->mode = lock_mode::shared;
  downgrade_word_.awaited = true;
  downgrade_word_.failed.reset();
  home_.engine().downgrade(*turn_->record, downgrade_word_);
}

void caller::hurry() {
  if (state_ == state::thinking) state_ = state::home;
  if (state_ != state::holding) return;
  home_.later(draw_between(shared_.random, duration{0}, short_while), [this, call = call_] {
    if (call == call_) leave();
  });
}

void caller::leave() {
  if (state_ != state::holding) return;
  if (downgrade_word_.awaited) {
    leave_wanted_ = true;
    return;
  }
  shared_.note("process # gives back token #", static_cast<std::int64_t>(home_.number()),
               static_cast<std::int64_t>(turn_->record->token.value()));
  state_ = state::leaving;
  turn_->given_back = true;
  const bool wants_word = shared_.random.chance(0.6);
  release_word_.awaited = wants_word;
  home_.engine().release(*turn_->record, wants_word ? &release_word_ : nullptr);
  if (!wants_word) {
    turn_.reset();
    think();
  }
}

void caller::word::finished() noexcept { owner.word_came(*this); }

void caller::word_came(word& which) {
  if (home_.dead()) return;
  if (!which.awaited) {
    shared_.fail("waits end", "the store's word on a call came twice");
    return;
  }
  which.awaited = false;
  if (&which == &downgrade_word_) {
    if (!which.failed) {
      shared_.count.add(counter::downgrade);
    } else {
      // What the lease says now is what a user would believe.
      turn_->mode = turn_->record->mode.load();
      if (turn_->mode == lock_mode::exclusive) checks_.turns.check_exclusion(*turn_);
      // Until it is confirmed it may be asked for again.
      if (shared_.plan.rate(fault::refuse_request) > 0 && shared_.random.chance(0.5)) {
        shared_.count.add(counter::downgrade_again);
        home_.later(draw_between(shared_.random, duration{0}, shared_.plan.lease / 8),
                    [this, call = call_] {
                      if (call == call_) downgrade();
                    });
      }
    }
    if (leave_wanted_) home_.later(duration{0}, [this] { leave(); });
    return;
  }
  if (which.released == core::release_outcome::unknown) shared_.count.add(counter::release_unknown);
  turn_.reset();
  home_.later(draw_between(shared_.random, duration{0}, short_while), [this] { think(); });
}

void caller::visit_all_locks(duration patience) {
  visiting_ = true;
  visit_patience_ = patience;
  state_ = state::waiting;
  home_.later(shared_.plan.lease / 2, [this] { visit_next(); });
}

void caller::visit_next() {
  if (next_visit_ == shared_.plan.locks.size()) {
    state_ = state::home;
    return;
  }
  ask(next_visit_++, lock_mode::exclusive, home_.now() + visit_patience_);
}

}  // namespace sallyport::sim
