#include "runtime/engine.hpp"

#include "base/check.hpp"
#include "runtime/party.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <new>

namespace sallyport::runtime {

using backend_api::acquire_answer;
using backend_api::granted;
using backend_api::holder_id;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renew_outcome;
using backend_api::renewed;

namespace {

/// The mutex is let go after this many timers, so that a mass of renewals holds up nobody for long.
constexpr int timers_per_round = 4096;
/// Of one farewell, when the client departs.
constexpr int departure_tries = 2;

}  // namespace

engine::engine(environment& world, settings how)
    : world_(world), how_(std::move(how)), random_(how_.seed) {}

engine::~engine() = default;

void engine::attach(backend_api::backend& store) {
  SALLYPORT_CHECK(store_ == nullptr);
  store_ = &store;
}

// ---- users' calls -------------------------------------------------------------------------------

void engine::acquire(acquire_waiter& caller, const std::shared_ptr<const lock_spec>& spec,
                     time_point wait_until, std::string_view value) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    caller.since_ = out.now;
    caller.spec_ = spec;
    caller.under_way_ = true;
    caller.may_wait_ = wait_until > out.now;
    ++callers_;
    out.driven = caller.drives;
    try {
      admit(caller, wait_until, value, out);
    } catch (const std::bad_alloc&) {
      finish(caller, base::failure{errc::not_enough_memory, {}}, out);
    }
    close_books(out);
  }
  perform(out);
}

void engine::admit(acquire_waiter& caller, time_point wait_until, std::string_view value,
                   outbox& out) {
  const std::shared_ptr<const lock_spec>& spec = caller.spec_;
  caller.record_ = std::make_shared<lease_record>(spec, fencing_token{}, 1U, out.now);
  if (!value.empty()) caller.value_ = std::make_shared<const std::string>(value);
  timers_.reserve(parties_.size() + callers_);
  const auto too_many = [&] {
    return base::failure{errc::too_many_waiters,
                         "client_options::max_waiters_per_name callers wait already, for '" +
                             spec->name.text() +
                             "' or for locks that do not queue inside the process"};
  };
  if (!spec->queues_locally()) {
    if (caller.may_wait_ && solo_waiters_ >= how_.max_waiters_per_name) {
      finish(caller, too_many(), out);
      return;
    }
    party& who = start_party(caller, caller.may_wait_);
    who.as_attempting()->solo = &caller;
    caller.solo_ = &who;
    if (caller.may_wait_) {
      ++solo_waiters_;
      timers_.arm(caller, wait_until);
    }
    follow(who, who.as_attempting()->machine.start(out.now), out);
    return;
  }
  lane& where = lanes_.try_emplace(lane_key{spec.get()}, spec).first->second;
  // Who does not wait is not one too many: it is told "held".
  if (caller.may_wait_ && where.turns.waiting() >= how_.max_waiters_per_name) {
    finish(caller, too_many(), out);
    return;
  }
  caller.lane_ = &where;
  if (caller.may_wait_) timers_.arm(caller, wait_until);
  core::turn_actions actions{&out.arena};
  where.turns.want(caller,
                   {.lease_length = spec->times.lease_length,
                    .renew = spec->times.renew,
                    .may_wait = caller.may_wait_},
                   actions);
  follow(where, actions, out);
}

void engine::cancel(acquire_waiter& caller) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    if (!caller.under_way_) return;
    stop_waiting(caller, not_acquired{.cancelled = true}, out);
    close_books(out);
  }
  perform(out);
}

void engine::give_up(acquire_waiter& caller, base::failure why) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    if (!caller.under_way_) return;
    stop_waiting(caller, std::move(why), out);
    close_books(out);
  }
  perform(out);
}

acquire_result engine::result_of_waiting(const acquire_waiter& caller, outbox& out) {
  party* const who = caller.lane_ != nullptr ? caller.lane_->current : caller.solo_;
  if (who == nullptr || who->as_attempting() == nullptr) return not_acquired{};
  // The store is in trouble: that, and not "somebody else has it", is why nothing was acquired.
  const core::acquire_attempt& asking = who->as_attempting()->machine;
  if (const auto& trouble = asking.trouble()) return *trouble;
  if (asking.unanswered(out.now)) {
    base::failure silence{make_error_code(errc::outcome_unknown),
                          "the store did not answer before the wait ended"};
    store_heard(&silence, out);
    return silence;
  }
  return not_acquired{};
}

void engine::stop_waiting(acquire_waiter& caller, acquire_result outcome, outbox& out) {
  lane* const where = caller.lane_;
  party* const solo = caller.solo_;
  finish(caller, std::move(outcome), out);
  if (where != nullptr) {
    core::turn_actions actions{&out.arena};
    where->turns.cancel(caller, actions);
    follow(*where, actions, out);
  } else if (solo != nullptr) {
    solo->as_attempting()->solo = nullptr;
    follow(*solo, solo->as_attempting()->machine.give_up(out.now), out);
  }
}

void engine::release(lease_record& turn, word_waiter* caller) {
  outbox out{world_.now()};
  out.driven = caller != nullptr && caller->drives;
  {
    const base::mutex_lock held{mutex_};
    party* who = turn.home;
    if (who != nullptr && out.now >= who->as_holding()->keeper.deadline()) {
      // The deadline has passed, though its timer has not been served yet.
      follow(*who, who->as_holding()->keeper.on_timer(out.now), out);
      who = turn.home;
    }
    if (who == nullptr) {
      if (caller != nullptr) {
        caller->released = turn.state.load() == lease_record::phase::released
                               ? core::release_outcome::released
                               : core::release_outcome::already_lost;
        out.words.push_back(caller);
      }
    } else {
      holding& mine = *who->as_holding();
      lane* const where = who->home;
      turn.state.store(lease_record::phase::released);
      turn.home = nullptr;
      mine.turn.reset();
      core::turn_actions actions{&out.arena};
      if (where != nullptr) {
        // With a downgrade under way readers may be inside: no next writer enters under this grant.
        const bool may_stay = mine.keeper.fresh(out.now) && who->downgrader == nullptr;
        const bool left =
            where->turns.leave(turn.turn, may_stay, where->limits(), out.now, actions);
        SALLYPORT_CHECK(left);
      }
      const bool parts = where == nullptr || std::ranges::any_of(actions, [](const auto& action) {
                           return std::holds_alternative<core::turn_part>(action);
                         });
      const duration held_for = out.now - turn.granted_at;
      if (caller != nullptr) {
        caller->token = turn.token;
        caller->held_for = held_for;
      }
      // Of what goes back to the store observers hear when the store has answered.
      if (!parts || caller == nullptr) {
        note(out, &observer::released, *turn.spec, turn.token, held_for);
      }
      if (where == nullptr) {
        part(*who, core::farewell::kind::release, caller, out);
      } else {
        follow(*where, actions, out, caller);
      }
    }
    close_books(out);
  }
  perform(out);
}

void engine::downgrade(lease_record& turn, word_waiter& caller) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = turn.home;
    if (who == nullptr || out.now >= who->as_holding()->keeper.deadline()) {
      caller.failed = base::failure{errc::lease_lost,
                                    "the lease on '" + turn.spec->name.text() + "' has ended"};
      out.words.push_back(&caller);
    } else if (turn.spec->kind != lock_kind::shared_mutex ||
               turn.spec->mode != lock_mode::exclusive) {
      caller.failed =
          base::failure{errc::not_supported, "only a writer of a shared_mutex can be downgraded"};
      out.words.push_back(&caller);
    } else if (who->mode == lock_mode::shared) {
      out.words.push_back(&caller);
    } else {
      SALLYPORT_CHECK(who->downgrader == nullptr);
      who->downgrader = &caller;
      turn.mode.store(lock_mode::shared);  // from its sending on, readers may be inside
      out.downgrades.push_back({.spec = who->spec,
                                .holder = who->id,
                                .mode = lock_mode::shared,
                                .answer_by = out.now + who->spec->times.request_timeout});
    }
    close_books(out);
  }
  perform(out);
}

void engine::set_value(lease_record& turn, std::string_view value,
                       backend_api::completion<bool> done) {
  std::optional<outbox::renew_order> order;
  {
    const base::mutex_lock held{mutex_};
    if (const party* who = turn.home) {
      order = outbox::renew_order{.spec = who->spec,
                                  .holder = who->id,
                                  .mode = who->mode,
                                  .answer_by = world_.now() + who->spec->times.request_timeout};
    }
  }
  if (!order) {
    done(base::fail(errc::lease_lost, "the lease on '" + turn.spec->name.text() + "' has ended"));
    return;
  }
  store_->set_value(to_request(*order), value, std::move(done));
}

void engine::settle(lease_record& turn) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    if (turn.home == nullptr) return;
    follow(*turn.home, turn.home->as_holding()->keeper.on_timer(out.now), out);
    close_books(out);
  }
  perform(out);
}

void engine::claim_now(lease_record& turn, word_waiter& caller) {
  outbox out{world_.now()};
  out.driven = caller.drives;
  {
    const base::mutex_lock held{mutex_};
    party* const who = turn.home;
    if (who == nullptr || !who->as_holding()->keeper.provisional()) {
      out.words.push_back(&caller);
    } else {
      SALLYPORT_CHECK(who->claimer == nullptr);
      who->claimer = &caller;
      follow(*who, who->as_holding()->keeper.claim_now(out.now), out);
    }
    close_books(out);
  }
  perform(out);
}

std::stop_token engine::lost_token(lease_record& turn) {
  const base::mutex_lock held{mutex_};
  if (!turn.gone.stop_possible()) {
    turn.gone = std::stop_source{};
    // Lost before anybody asked: no callback can be registered yet, so nothing runs here.
    if (turn.state.load() == lease_record::phase::lost) turn.gone.request_stop();
  }
  return turn.gone.get_token();
}

std::optional<backend_api::holder_id> engine::holder_of(const lease_record& turn) const {
  const base::mutex_lock held{mutex_};
  if (turn.home == nullptr) return std::nullopt;
  return turn.home->id;
}

bool engine::holds(lock_kind kind, const lock_name& name) const {
  const lock_spec wanted{.name = name, .kind = kind, .times = {}};
  const base::mutex_lock held{mutex_};
  const auto found = lanes_.find(lane_key{&wanted});
  if (found != lanes_.end() && found->second.turns.turn_out()) return true;
  // Holders without a lane have no index by name; only lock_all asks.
  return std::any_of(parties_.begin(), parties_.end(), [&](const auto& each) {
    const auto* mine = std::get_if<holding>(&each.second.life);
    return mine != nullptr && mine->turn && each.second.spec->kind == kind &&
           each.second.spec->name == name;
  });
}

bool engine::quiet() const {
  const base::mutex_lock held{mutex_};
  return parties_.empty();
}

void engine::depart(word_waiter& caller) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    SALLYPORT_CHECK(departing_ == nullptr);
    departing_ = &caller;
    std::vector<party*> all;
    all.reserve(parties_.size());
    for (auto& [id, who] : parties_) {
      if (who.over) continue;
      who.awaited = true;
      all.push_back(&who);
    }
    awaited_ = all.size();
    for (party* who : all) {
      leaving* const going = who->as_leaving();
      if (going != nullptr && !going->finished) follow(*who, going->machine.hurry(out.now), out);
    }
    close_books(out);
  }
  perform(out);
}

void engine::await_no_more(party& who) {
  if (std::exchange(who.awaited, false)) --awaited_;
}

void engine::store_heard(const base::failure* trouble) {
  if (!how_.observers) return;
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    store_heard(trouble, out);
    close_books(out);
  }
  perform(out);
}

void engine::on_changed(std::function<void(const lock_name&)> callback) {
  const base::mutex_lock held{mutex_};
  changed_callback_ = std::move(callback);
}

// ---- time ---------------------------------------------------------------------------------------

void engine::run_due() {
  for (;;) {
    outbox out{world_.now()};
    bool more = false;
    {
      const base::mutex_lock held{mutex_};
      armed_for_ = time_point::max();
      int served = 0;
      while (timer* due = timers_.pop_due(out.now)) {
        timer_due(*due, out);
        if (++served == timers_per_round) {
          more = true;
          break;
        }
      }
      close_books(out);
    }
    perform(out);
    if (!more) return;
  }
}

void engine::timer_due(timer& due, outbox& out) {
  if (due.whose() == timer::kind::waiter) {
    auto& caller = static_cast<acquire_waiter&>(due);
    stop_waiting(caller, result_of_waiting(caller, out), out);
    return;
  }
  party& who = static_cast<party&>(due);
  if (who.over) return;
  if (attempting* trying = who.as_attempting()) {
    follow(who, trying->machine.on_timer(out.now), out);
  } else if (holding* mine = who.as_holding()) {
    follow(who, mine->keeper.on_timer(out.now), out);
  } else if (leaving* going = who.as_leaving()) {
    follow(who, going->machine.on_timer(out.now), out);
  }
}

void engine::rearm(party& who) {
  if (who.over) return;
  time_point next = time_point::max();
  if (attempting* trying = who.as_attempting()) {
    next = trying->machine.wake_at();
  } else if (holding* mine = who.as_holding()) {
    next = mine->keeper.wake_at();
  } else if (leaving* going = who.as_leaving()) {
    next = going->machine.wake_at();
  }
  timers_.arm(who, next);
}

// ---- the store's answers and notices ------------------------------------------------------------

party* engine::find(const holder_id& who) {
  const auto found = parties_.find(who);
  return found == parties_.end() || found->second.over ? nullptr : &found->second;
}

void engine::acquire_answered(const holder_id& id, base::result<acquire_answer> answer) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    if (who == nullptr) return;
    const time_point sent_at = std::exchange(who->acquire_sent_at, time_point::min());
    store_heard(answer ? nullptr : &answer.error(), out);
    if (attempting* trying = who->as_attempting()) {
      if (answer && std::holds_alternative<backend_api::waiting>(*answer) && !trying->queued) {
        trying->queued = true;
        note(out, &observer::waiting, *who->spec, {});
      }
      follow(*who, trying->machine.on_acquire_answered(answer, out.now, random_.unit()), out);
    } else {
      // A notice was faster than this answer. What matters is only whether the question may still
      // be executed.
      const bool unknown = !answer && (answer.error().code == errc::outcome_unknown ||
                                       answer.error().code == errc::not_enough_memory);
      if (unknown) {
        who->late_until = std::max(who->late_until, sent_at + who->spec->times.lease_length);
      }
      if (leaving* going = who->as_leaving()) {
        const bool there = answer && !std::holds_alternative<backend_api::held>(*answer);
        if (unknown) {
          going->finished = false;
          follow(*who, going->machine.on_late_request(who->late_until, out.now), out);
          if (who->awaited) follow(*who, going->machine.hurry(out.now), out);
        } else if (going->finished && there) {
          // The store heard the question after the farewell, and took it for a new contender.
          going->finished = false;
          follow(*who, going->machine.on_late_request(out.now, out.now), out);
        } else if (going->finished) {
          who->over = true;
          out.dead.push_back(who);
        }
      }
    }
    close_books(out);
  }
  perform(out);
}

void engine::acquire_unheard(const holder_id& id) {
  {
    const base::mutex_lock held{mutex_};
    const party* const who = find(id);
    if (who == nullptr || who->acquire_sent_at == time_point::min()) return;
  }
  acquire_answered(id, base::fail(errc::not_enough_memory));
}

void engine::renewals_answered(std::span<renew_outcome> outcomes) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    for (renew_outcome& outcome : outcomes) renewal_answered(outcome, out);
    close_books(out);
  }
  perform(out);
}

void engine::renewal_answered(renew_outcome& outcome, outbox& out) {
  party* const who = find(outcome.holder);
  if (who == nullptr) return;
  const time_point sent_at = std::exchange(who->renewal_sent_at, time_point::min());
  const auto& answer = outcome.answer;
  store_heard(answer ? nullptr : &answer.error(), out);
  if (attempting* trying = who->as_attempting()) {
    follow(*who, trying->machine.on_claim_answered(answer, out.now, random_.unit()), out);
    return;
  }
  holding* mine = who->as_holding();
  if (mine == nullptr) return;
  const bool drew = std::exchange(mine->drawing, false);
  const renewed* confirmed = answer ? std::get_if<renewed>(&*answer) : nullptr;
  if (!answer) {
    follow(*who, mine->keeper.on_renewal_failed(out.now, random_.unit()), out);
  } else if (confirmed == nullptr || (!drew && confirmed->tokens != mine->tokens)) {
    // Not ours, or ours under another token: somebody may have been inside since.
    follow(*who, mine->keeper.on_refused(out.now), out);
  } else {
    mine->tokens = confirmed->tokens;
    if (mine->turn) note(out, &observer::renewed, *who->spec, mine->turn->token);
    follow(*who, mine->keeper.on_confirmed({sent_at, confirmed->remaining, false}, out.now), out);
  }
  mine = who->as_holding();  // the lease may have ended just now
  if (mine == nullptr || who->over) return;
  if (drew) {
    core::turn_actions actions{&out.arena};
    who->home->turns.drew(confirmed != nullptr ? std::optional{confirmed->tokens} : std::nullopt,
                          actions);
    follow(*who->home, actions, out);
  } else if (mine->draw_wanted && !mine->keeper.renewal_under_way()) {
    mine->draw_wanted = false;
    mine->drawing = true;
    mine->keeper.renewal_sent();
    send_renewal(*who, who->spec->local_turns, out);
    rearm(*who);
  }
}

void engine::leave_answered(const holder_id& id, base::result<leave_answer> answer) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    leaving* const going = who != nullptr ? who->as_leaving() : nullptr;
    if (going == nullptr) return;
    store_heard(answer ? nullptr : &answer.error(), out);
    const base::failure* const trouble = answer ? nullptr : &answer.error();
    follow(*who, going->machine.on_answered(answer, out.now, random_.unit()), out, trouble);
    if (who->awaited) {
      const bool said_again = going->machine.wake_at() <= out.now;
      const bool heard = answer && !said_again && who->acquire_sent_at == time_point::min();
      if (heard || (!answer && ++going->failures == departure_tries)) await_no_more(*who);
    }
    close_books(out);
  }
  perform(out);
}

void engine::downgrade_answered(const holder_id& id, base::result<renew_answer> answer) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    if (who == nullptr) return;
    word_waiter* const caller = std::exchange(who->downgrader, nullptr);
    holding* mine = who->as_holding();
    const renewed* confirmed = answer ? std::get_if<renewed>(&*answer) : nullptr;
    const bool perhaps = !answer && answer.error().code == errc::outcome_unknown;
    store_heard(answer ? nullptr : &answer.error(), out);
    if (!answer && caller != nullptr) caller->failed = answer.error();
    if (answer && mine != nullptr && confirmed == nullptr) {
      follow(*who, mine->keeper.on_refused(out.now), out);
    } else if (!answer && !perhaps && mine != nullptr && who->home != nullptr) {
      // Nothing happened. (Behind a try without an answer, which may have, it has no home.)
      if (mine->turn) mine->turn->mode.store(lock_mode::exclusive);
    } else if (mine != nullptr) {
      // Without an answer the store may have let readers in: no writer may rely on this grant any
      // more. Asking for the downgrade again is possible until it is confirmed.
      if (confirmed != nullptr) who->mode = lock_mode::shared;
      if (lane* where = std::exchange(who->home, nullptr)) {
        // A reader from now on: it leaves the local queue of writers, and the next of those asks
        // the store.
        where->current = nullptr;
        core::turn_actions actions{&out.arena};
        where->turns.detach(actions);
        follow(*where, actions, out);
      }
    }
    if (caller != nullptr) {
      if (!caller->failed && (mine == nullptr || confirmed == nullptr)) {
        caller->failed = base::failure{errc::lease_lost,
                                       "the lease on '" + who->spec->name.text() + "' was lost"};
      }
      out.words.push_back(caller);
    }
    close_books(out);
  }
  perform(out);
}

void engine::granted_notice(const holder_id& id, std::optional<granted> grant) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    if (who == nullptr) {
      give_back_late_grant(id, out);
    } else if (attempting* trying = who->as_attempting()) {
      follow(*who, trying->machine.on_granted_notice(grant, out.now), out);
    } else if (leaving* going = who->as_leaving()) {
      // A question that had no answer was executed after all, and nobody wants what it got.
      if (std::exchange(going->finished, false)) {
        follow(*who, going->machine.on_late_request(out.now, out.now), out);
      }
      follow(*who, going->machine.hurry(out.now), out);
    }
    close_books(out);
  }
  perform(out);
}

void engine::lost_notice(const holder_id& id) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    if (who == nullptr) return;
    if (holding* mine = who->as_holding()) {
      follow(*who, mine->keeper.on_refused(out.now), out);
    } else if (attempting* trying = who->as_attempting()) {
      follow(*who, trying->machine.on_reconnected(out.now), out);
    }
    close_books(out);
  }
  perform(out);
}

void engine::release_wanted_notice(const holder_id& id) {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    party* const who = find(id);
    holding* const mine = who != nullptr ? who->as_holding() : nullptr;
    if (mine == nullptr) return;
    mine->release_wanted = true;
    if (mine->turn) {
      mine->turn->release_wanted.store(true);
      note(out, &observer::release_wanted, *who->spec, mine->turn->token,
           out.now - mine->turn->granted_at);
    }
    close_books(out);
  }
  perform(out);
}

void engine::changed_notice(const lock_name& name) {
  std::function<void(const lock_name&)> callback;
  {
    const base::mutex_lock held{mutex_};
    callback = changed_callback_;
  }
  if (callback) world_.tell([callback = std::move(callback), name] { callback(name); });
}

std::vector<party*> engine::parties_in_order() {
  std::vector<party*> all;
  all.reserve(parties_.size());
  for (auto& [id, who] : parties_) all.push_back(&who);
  // The map's order depends on random ids only; a fixed order keeps simulations exact.
  std::sort(all.begin(), all.end(), [](const party* a, const party* b) { return a->id < b->id; });
  return all;
}

void engine::disconnected() {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    const base::failure broken{errc::unavailable, "the connection to the store broke"};
    store_heard(&broken, out);
    for (party* who : parties_in_order()) {
      holding* const mine = who->as_holding();
      if (!who->over && mine != nullptr) {
        follow(*who, mine->keeper.on_disconnected(out.now), out, event_reason::disconnected);
      }
    }
    close_books(out);
  }
  perform(out);
}

void engine::reconnected() {
  outbox out{world_.now()};
  {
    const base::mutex_lock held{mutex_};
    store_heard(nullptr, out);
    for (party* who : parties_in_order()) {
      if (who->over) continue;
      if (attempting* trying = who->as_attempting()) {
        follow(*who, trying->machine.on_reconnected(out.now), out);
      } else if (leaving* going = who->as_leaving(); going != nullptr && !going->finished) {
        follow(*who, going->machine.on_reconnected(out.now), out);
      }
    }
    close_books(out);
  }
  perform(out);
}

}  // namespace sallyport::runtime
