// The second half of the engine: carrying out what the machines of core say.
#include "base/check.hpp"
#include "runtime/engine.hpp"
#include "runtime/party.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <new>
#include <span>
#include <system_error>

namespace sallyport::runtime {

using backend_api::holder_id;

namespace {

/// Callers of this process that stand behind this contender. While it still asks, the first of its
/// lane is the one that it asks for.
std::uint32_t callers_behind(party& who) {
  if (who.home == nullptr) return 0;
  const std::size_t queued = who.home->turns.waiting();
  const std::size_t asked_for = who.as_attempting() != nullptr && queued > 0 ? 1 : 0;
  return static_cast<std::uint32_t>(queued - asked_for);
}

/// A backend that runs out of memory inside a call may have begun it: nobody knows what came of it.
template <class Call, class Otherwise>
void ask_store(Call call, Otherwise without_memory) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    without_memory();
  }
}

/// The answer to a request that the backend had no memory for. Its sentence would need some, too.
tl::unexpected<base::failure> unheard() {
  return tl::unexpected(base::failure{errc::outcome_unknown, {}, true});
}

enum class sign_of_life : std::uint8_t { alive, away, none };

sign_of_life sign_in(const base::failure* trouble) {
  if (trouble == nullptr) return sign_of_life::alive;
  if (trouble->no_outage) return sign_of_life::none;
  const std::error_code& code = trouble->code;
  if (code == errc::unavailable || code == errc::outcome_unknown) return sign_of_life::away;
  const bool its_own_word = code == errc::wrong_kind || code == errc::store_refused ||
                            code == errc::token_mismatch || code == errc::no_such_lock;
  // All others are made in this process, and may be while the store is away.
  return its_own_word ? sign_of_life::alive : sign_of_life::none;
}

/// When the store has forgotten this contender by itself: what is under way is executed within a
/// lease, and then its grant or ticket lapses.
time_point lapses_at(party& who, time_point now) {
  const core::timing& times = who.spec->times;
  const attempting* const trying = who.as_attempting();
  const duration ticket =
      times.ticket_length * (trying != nullptr ? trying->machine.ticket_stretch() : 1);
  return now + times.lease_length + std::max(times.lease_length, ticket);
}

}  // namespace

party& engine::start_party(const acquire_waiter& asker, bool may_wait) {
  const std::shared_ptr<const lock_spec>& spec = asker.spec_;
  timers_.reserve(parties_.size() + 1 + callers_);
  auto begun = std::make_unique<attempting>(
      attempting{.machine = core::acquire_attempt{spec->times, may_wait},
                 .value = asker.value_,
                 .may_wait = may_wait});
  const holder_id id = world_.new_holder_id();
  const auto [place, fresh] = parties_.try_emplace(id, id, spec);
  SALLYPORT_CHECK(fresh);
  place->second.life = std::move(begun);
  return place->second;
}

void engine::follow(party& who, core::attempt_actions actions, outbox& out) {
  if (actions.send_acquire) {
    who.acquire_sent_at = out.now;
    out.acquires.push_back({.spec = who.spec,
                            .holder = who.id,
                            .value = who.as_attempting()->value,
                            .local_waiters = callers_behind(who),
                            .may_wait = who.as_attempting()->may_wait,
                            .asked_before = std::exchange(who.as_attempting()->asked, true),
                            .answer_by = out.now + who.spec->times.request_timeout});
  }
  if (actions.send_claim) send_renewal(who, 0, out);
  if (actions.finish) {
    attempt_ended(who, std::move(*actions.finish), out);
  } else {
    rearm(who);
  }
}

void engine::attempt_ended(party& who, core::attempt_outcome outcome, outbox& out) {
  attempting& trying = *who.as_attempting();
  const core::leftovers remains = trying.machine.remains();
  who.late_until = std::max(who.late_until, remains.late_until);
  acquire_waiter* const solo = std::exchange(trying.solo, nullptr);

  if (auto* won = std::get_if<core::attempt_won>(&outcome)) {
    const core::attempt_won prize = *won;
    who.life.emplace<holding>(
        holding{.keeper = core::lease_keeper{who.spec->times, prize.proof, out.now},
                .tokens = prize.tokens,
                .turn = nullptr,
                .store_id = &store_->store_id(),
                .permits = prize.permits});
    if (who.home != nullptr) {
      core::turn_actions actions{&out.arena};
      who.home->turns.won(prize.tokens, out.now, actions);
      follow(*who.home, actions, out);
    } else if (solo != nullptr) {
      give_turn(who, *solo, 0, prize.tokens.first, out);
    }
    if (holding* mine = who.as_holding()) follow(who, mine->keeper.begin(out.now), out);
    return;
  }

  lane* const where = std::exchange(who.home, nullptr);
  if (where != nullptr) where->current = nullptr;
  if (remains.any || who.acquire_sent_at != time_point::min()) {
    part(who, core::farewell::kind::withdraw, nullptr, out);
  } else {
    who.over = true;
    out.dead.push_back(&who);
  }
  core::turn_actions actions{&out.arena};
  if (auto* why = std::get_if<base::failure>(&outcome)) {
    if (where != nullptr) where->turns.failed(*why, actions);
    if (solo != nullptr) finish(*solo, *why, out);
  } else if (std::holds_alternative<core::attempt_busy>(outcome)) {
    if (where != nullptr) where->turns.busy(actions);
    if (solo != nullptr) finish(*solo, not_acquired{}, out);
  }
  if (where != nullptr) follow(*where, actions, out);
}

void engine::give_turn(party& who, acquire_waiter& caller, core::turn_number turn,
                       fencing_token token, outbox& out) {
  holding& mine = *who.as_holding();
  auto record = std::move(caller.record_);
  record->spec = who.spec;
  record->token = token;
  record->permits = mine.permits;
  record->store_id = mine.store_id;
  record->granted_at = out.now;
  record->deadline.store(mine.keeper.deadline());
  if (mine.keeper.state() == core::lease_keeper::phase::suspect) {
    record->state.store(lease_record::phase::suspect);
  }
  record->release_wanted.store(mine.release_wanted);
  record->home = &who;
  record->turn = turn;
  mine.turn = record;
  note(out, &observer::acquired, *who.spec, token, out.now - caller.since_);
  finish(caller, std::move(record), out);
}

void engine::follow(lane& where, core::turn_actions& actions, outbox& out, word_waiter* releaser) {
  if (!where.to_sweep) {
    where.to_sweep = true;
    out.perhaps_idle.push_back(&where);
  }
  for (core::turn_action& action : actions) {
    if (const auto* ask = std::get_if<core::turn_ask>(&action)) {
      ask_for(where, static_cast<acquire_waiter&>(*ask->taker), ask->wish.may_wait, out);
    } else if (std::holds_alternative<core::turn_abandon>(action)) {
      party& who = *std::exchange(where.current, nullptr);
      who.home = nullptr;
      follow(who, who.as_attempting()->machine.give_up(out.now), out);
    } else if (auto* give = std::get_if<core::turn_give>(&action)) {
      give_turn(*where.current, static_cast<acquire_waiter&>(*give->taker), give->turn, give->token,
                out);
    } else if (auto* busy = std::get_if<core::turn_busy>(&action)) {
      finish(static_cast<acquire_waiter&>(*busy->taker), not_acquired{}, out);
    } else if (auto* failed = std::get_if<core::turn_fail>(&action)) {
      finish(static_cast<acquire_waiter&>(*failed->taker), std::move(failed->why), out);
    } else if (std::holds_alternative<core::turn_part>(action)) {
      party& who = *std::exchange(where.current, nullptr);
      who.home = nullptr;
      part(who, core::farewell::kind::release, std::exchange(releaser, nullptr), out);
    } else {
      holding& mine = *where.current->as_holding();
      if (mine.keeper.renewal_under_way()) {
        mine.draw_wanted = true;
      } else {
        mine.drawing = true;
        mine.keeper.renewal_sent();
        send_renewal(*where.current, where.current->spec->local_turns, out);
      }
    }
  }
  if (releaser != nullptr) {
    // The turn passed on inside the process, or waits for its next token: nothing the releaser
    // needs to wait for.
    releaser->released = core::release_outcome::released;
    out.words.push_back(releaser);
  }
}

void engine::ask_for(lane& where, const acquire_waiter& asker, bool may_wait, outbox& out) {
  SALLYPORT_CHECK(where.current == nullptr);
  try {
    party& who = start_party(asker, may_wait);
    where.current = &who;
    who.home = &where;
    follow(who, who.as_attempting()->machine.start(out.now), out);
  } catch (const std::bad_alloc&) {
    core::turn_actions actions{&out.arena};
    where.turns.failed({errc::not_enough_memory, {}}, actions);
    follow(where, actions, out);
  }
}

void engine::follow(party& who, core::keeper_actions actions, outbox& out, event_reason suspicion) {
  holding& mine = *who.as_holding();
  if (actions.send_renewal) send_renewal(who, 0, out);
  if (actions.tell_lost) {
    grant_lost(who, out);
    return;
  }
  if (mine.turn) {
    mine.turn->deadline.store(mine.keeper.deadline());
    if (actions.tell_suspect) {
      mine.turn->state.store(lease_record::phase::suspect);
      const base::failure* const trouble = outage_ ? &outage_->why : nullptr;
      note(out, &observer::suspect, *who.spec, mine.turn->token, {}, {suspicion, trouble});
    }
    if (actions.tell_held && !actions.tell_suspect)
      mine.turn->state.store(lease_record::phase::held);
  }
  if (!mine.keeper.provisional()) end_claim(who, out);
  rearm(who);
}

void engine::end_claim(party& who, outbox& out) {
  if (who.claimer != nullptr) out.words.push_back(std::exchange(who.claimer, nullptr));
}

event_cause engine::cause_of_loss(const party& who, bool by_clock) const {
  if (!by_clock) return {.reason = event_reason::taken_away};
  const bool fixed = who.spec->times.renew == renewal::never;
  if (fixed && !std::get<holding>(who.life).keeper.provisional()) {
    return {.reason = event_reason::ended};
  }
  return {.reason = event_reason::not_renewed, .trouble = outage_ ? &outage_->why : nullptr};
}

void engine::grant_lost(party& who, outbox& out) {
  holding& mine = *who.as_holding();
  const bool by_clock = out.now >= mine.keeper.deadline();
  if (auto record = std::move(mine.turn)) {
    record->state.store(lease_record::phase::lost);
    record->home = nullptr;
    note(out, &observer::lost, *who.spec, record->token, out.now - record->granted_at,
         cause_of_loss(who, by_clock));
    if (record->gone.stop_possible()) out.lost.push(std::move(record));
  }
  end_claim(who, out);
  lane* const where = std::exchange(who.home, nullptr);
  if (where != nullptr) where->current = nullptr;
  if (who.downgrader != nullptr) {
    who.downgrader->failed =
        base::failure{errc::lease_lost, "the lease was lost while it was being downgraded"};
    out.words.push_back(std::exchange(who.downgrader, nullptr));
  }
  // A renewal or question that was under way may yet give us the lock again, for nobody. Clean up;
  // when the lease was lost by our own clock, not before it has lapsed by the store's count too:
  // the margin is not ours to give away.
  const time_point clean_at = by_clock ? mine.keeper.deadline() + who.spec->times.margin : out.now;
  leaving going{.machine = core::farewell{who.spec->times, core::farewell::kind::withdraw,
                                          who.late_until, lapses_at(who, out.now)}};
  going.machine.start_at(std::max(clean_at, out.now));
  who.life = going;
  rearm(who);
  if (where != nullptr) {
    core::turn_actions actions{&out.arena};
    where->turns.lost(actions);
    follow(*where, actions, out);
  }
}

void engine::part(party& who, core::farewell::kind how, word_waiter* releaser, outbox& out) {
  end_claim(who, out);
  auto& going = who.life.emplace<leaving>(leaving{
      .machine = core::farewell{who.spec->times, how, who.late_until, lapses_at(who, out.now)},
      .releaser = releaser});
  follow(who, going.machine.start(out.now), out);
}

void engine::follow(party& who, const core::farewell_actions& actions, outbox& out,
                    const base::failure* trouble) {
  leaving& going = *who.as_leaving();
  if (actions.send_release || actions.send_withdraw) {
    out.leaves.push_back({.spec = who.spec,
                          .holder = who.id,
                          .mode = who.mode,
                          .release = actions.send_release,
                          .answer_by = out.now + who.spec->times.request_timeout});
  }
  if (actions.tell && going.releaser != nullptr) {
    going.releaser->released = *actions.tell;
    note_release(*who.spec, *going.releaser, trouble, out);
    out.words.push_back(std::exchange(going.releaser, nullptr));
  }
  if (!actions.over) {
    rearm(who);
    return;
  }
  timers_.disarm(who);
  if (who.acquire_sent_at != time_point::min()) {
    going.finished = true;  // its answer decides whether anything may be left
    return;
  }
  who.over = true;
  out.dead.push_back(&who);
}

void engine::send_renewal(party& who, std::uint32_t token_count, outbox& out) {
  who.renewal_sent_at = out.now;
  time_point answer_by = out.now + who.spec->times.request_timeout;
  // An answer after the deadline is of no use, and a backend that keeps the watchdog waiting until
  // then must not keep it from telling the loss.
  if (const holding* const held = who.as_holding(); held && held->keeper.deadline() > out.now) {
    answer_by = std::min(answer_by, held->keeper.deadline());
  }
  out.renewals.push_back({.spec = who.spec,
                          .holder = who.id,
                          .mode = who.mode,
                          .token_count = token_count,
                          .local_waiters = callers_behind(who),
                          .answer_by = answer_by});
}

void engine::finish(acquire_waiter& caller, acquire_result outcome, outbox& out) {
  SALLYPORT_CHECK(caller.under_way_);
  caller.under_way_ = false;
  caller.lane_ = nullptr;
  if (std::exchange(caller.solo_, nullptr) != nullptr && caller.may_wait_) --solo_waiters_;
  timers_.disarm(caller);
  --callers_;
  if (std::holds_alternative<not_acquired>(outcome)) {
    note(out, &observer::not_acquired, *caller.spec_, {}, out.now - caller.since_);
  } else if (const auto* why = std::get_if<base::failure>(&outcome)) {
    note(out, &observer::failed, *caller.spec_, {}, out.now - caller.since_, {.trouble = why});
  }
  caller.outcome_ = std::move(outcome);
  const bool won = std::holds_alternative<std::shared_ptr<lease_record>>(caller.outcome_);
  (won ? out.winners : out.losers).push_back(&caller);
}

void engine::remember_late(const party& who) {
  if (who.late_until == time_point::min()) return;
  try {
    if (late_contenders_.size() == max_late_contenders) {
      late_contenders_.erase(late_contenders_.begin());
    }
    late_contenders_.push_back({who.id, who.spec, who.mode});
  } catch (const std::bad_alloc&) {
    return;  // what it may be granted lapses with its claim window
  }
}

void engine::give_back_late_grant(const holder_id& id, outbox& out) {
  const auto found = std::ranges::find(late_contenders_, id, &late_contender::id);
  if (found == late_contenders_.end()) return;
  try {
    timers_.reserve(parties_.size() + 1 + callers_);
    party& who = parties_.try_emplace(id, id, found->spec).first->second;
    who.mode = found->mode;
    late_contenders_.erase(found);
    part(who, core::farewell::kind::withdraw, nullptr, out);
  } catch (const std::bad_alloc&) {
    return;  // it lapses with its claim window
  }
}

// ---- what observers hear ------------------------------------------------------------------------

void engine::note(outbox& out, void (observer::*what)(const lock_event&), const lock_spec& spec,
                  fencing_token token, duration took, const event_cause& cause) {
  if (!how_.observers) return;
  try {
    lock_event event{spec.name.text(), spec.kind, token, took, cause.reason};
    if (cause.trouble != nullptr) {
      event.error = cause.trouble->code;
      event.detail = cause.trouble->detail;
    }
    out.news.emplace_back([observers = how_.observers, what, event = std::move(event)] {
      observers->tell(what, event);
    });
  } catch (const std::bad_alloc&) {
    world_.tell_observer({});  // missed
  }
}

void engine::note(outbox& out, void (observer::*what)(const store_event&),
                  const base::failure& trouble, duration away) {
  try {
    out.news.emplace_back([observers = how_.observers, what,
                           event = store_event{trouble.code, trouble.detail, away}] {
      observers->tell(what, event);
    });
  } catch (const std::bad_alloc&) {
    world_.tell_observer({});  // missed
  }
}

void engine::note_release(const lock_spec& spec, const word_waiter& releaser,
                          const base::failure* trouble, outbox& out) {
  switch (releaser.released) {
    case core::release_outcome::released:
      note(out, &observer::released, spec, releaser.token, releaser.held_for);
      return;
    case core::release_outcome::already_lost:
      note(out, &observer::lost, spec, releaser.token, releaser.held_for,
           {.reason = event_reason::taken_away});
      return;
    case core::release_outcome::unknown:
      note(out, &observer::release_unknown, spec, releaser.token, releaser.held_for,
           {.trouble = trouble});
      return;
  }
}

void engine::store_heard(const base::failure* trouble, outbox& out) {
  if (!how_.observers) return;
  const sign_of_life sign = sign_in(trouble);
  if (sign == sign_of_life::away && !outage_) {
    note(out, &observer::store_away, *trouble, {});
    outage_.emplace(outage{out.now, {trouble->code, {}}});
    try {
      outage_->why.detail = trouble->detail;
    } catch (const std::bad_alloc&) {
      outage_->why.detail.clear();  // the code has words of its own
    }
  } else if (sign == sign_of_life::alive && outage_) {
    note(out, &observer::store_back, outage_->why, out.now - outage_->since);
    outage_.reset();
  }
}

// ---- the end of a call --------------------------------------------------------------------------

void engine::sweep(outbox& out) {
  for (party* who : out.dead) {
    timers_.disarm(*who);
    remember_late(*who);
    await_no_more(*who);
    parties_.erase(holder_id{who->id});
  }
  out.dead.clear();
  for (lane* where : out.perhaps_idle) {
    where->to_sweep = false;
    if (where->turns.idle() && where->current == nullptr) {
      lanes_.erase(lanes_.find(lane_key{where->spec.get()}));
    }
  }
  out.perhaps_idle.clear();
}

void engine::close_books(outbox& out) {
  sweep(out);
  if (departing_ != nullptr && awaited_ == 0) {
    out.words.push_back(std::exchange(departing_, nullptr));
  }
  // Queued under the mutex, so that users hear of things in the order in which they happened.
  for (auto& event : out.news) world_.tell_observer(std::move(event));
  if (timers_.next() < armed_for_) {
    armed_for_ = timers_.next();
    out.wake = armed_for_;
  }
}

void engine::perform(outbox& out) {
  if (!out.lost.empty()) world_.tell_lost(std::move(out.lost));
  // Whoever got in is woken first: the rest is off its critical path.
  for (acquire_waiter* caller : out.winners) caller->finished();
  for (word_waiter* caller : out.words) caller->finished();
  if (out.wake != time_point::max()) world_.wake_at(out.wake);
  for (const auto& order : out.leaves) {
    const backend_api::leave_request request{.name = order.spec->name,
                                             .kind = order.spec->kind,
                                             .mode = order.mode,
                                             .holder = order.holder,
                                             .answer_by = order.answer_by,
                                             .driven = out.driven};
    ask_store([&] { order.release ? store_->release(request) : store_->withdraw(request); },
              [&] { leave_answered(order.holder, unheard()); });
  }
  // After the withdrawals: who was told "no" and tries again must not meet its own old ticket.
  for (acquire_waiter* caller : out.losers) caller->finished();
  ask_store(
      [&] {
        if (out.acquires.size() == 1) {
          store_->acquire(to_request(out.acquires.front(), out.driven));
        } else if (!out.acquires.empty()) {
          std::vector<backend_api::acquire_request> batch;
          batch.reserve(out.acquires.size());
          for (const auto& order : out.acquires) batch.push_back(to_request(order, out.driven));
          store_->acquire_all(batch);
        }
      },
      [&] {
        for (const auto& order : out.acquires) acquire_unheard(order.holder);
      });
  for (std::size_t sent = 0; sent < out.renewals.size();
       sent += backend_api::max_renewals_per_batch) {
    const auto orders = std::span{out.renewals}.subspan(
        sent, std::min(backend_api::max_renewals_per_batch, out.renewals.size() - sent));
    ask_store(
        [&] {
          std::vector<backend_api::renew_request> batch;
          batch.reserve(orders.size());
          for (const auto& order : orders) batch.push_back(to_request(order));
          store_->renew(batch);
        },
        [&] {
          for (const auto& order : orders) {
            backend_api::renew_outcome outcome{order.holder, unheard()};
            renewals_answered({&outcome, 1});
          }
        });
  }
  for (const auto& order : out.downgrades) {
    ask_store([&] { store_->downgrade(to_request(order)); },
              [&] { downgrade_answered(order.holder, unheard()); });
  }
}

}  // namespace sallyport::runtime
