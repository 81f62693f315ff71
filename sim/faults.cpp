#include "sim/faults.hpp"

#include "sim/network.hpp"

#include <algorithm>
#include <utility>

namespace sallyport::sim {
namespace {

constexpr std::int64_t drift_in_model = 5000;  // parts per million
constexpr std::int64_t drift_out_of_model =
    100'000;  // chrony's slewing at its fastest, and some more

}  // namespace

void fault_maker::begin() {
  for (std::size_t i = 0; i < fault_count; ++i) {
    if (timed(i) && shared_.plan.rates[i] > 0) plan_next(static_cast<fault>(i));
  }
}

void fault_maker::plan_next(fault which) {
  const auto lease = static_cast<double>(shared_.plan.lease.count());
  const duration mean{static_cast<duration::rep>(lease / shared_.plan.rate(which))};
  shared_.loop.after(draw_around(shared_.random, mean), [this, which] {
    if (shared_.healed) return;
    strike(which);
    plan_next(which);
  });
}

void fault_maker::strike(fault which) {
  if (processes_.empty()) return;
  const auto victim = processes_[shared_.random.below(processes_.size())];
  const duration lease = shared_.plan.lease;
  const auto thaw = [weak = std::weak_ptr{victim}] {
    if (const auto self = weak.lock()) self->thaw();
  };
  if (quorum_ != nullptr && strike_quorum(which, *victim)) return;
  if (members_ != nullptr && strike_cluster(which, *victim)) return;
  switch (which) {
    case fault::reset:
      victim->connections().front()->reset();
      if (shared_.random.chance(0.3)) victim->connections().front()->reset_notices();
      return;
    case fault::cut_to_store:
      shared_.count.add(counter::cut_to_store);
      cut(*victim, true, false);
      return;
    case fault::cut_from_store:
      shared_.count.add(counter::cut_from_store);
      cut(*victim, false, true);
      return;
    case fault::partition:
      shared_.count.add(counter::partition);
      cut(*victim, true, true);
      return;
    case fault::pause:
      if (!victim->freeze()) return;
      shared_.count.add(counter::pause);
      shared_.loop.after(draw_between(shared_.random, duration{0}, 3 * lease), thaw);
      return;
    case fault::suspend: {
      if (shared_.plan.local) {
        suspend_machine();
        return;
      }
      if (!victim->freeze()) return;
      shared_.count.add(counter::suspend);
      const duration length = draw_between(shared_.random, duration{0}, 3 * lease);
      // The kernel adds the time slept, measured by a coarse clock: never less than it was.
      const duration extra = draw_between(shared_.random, duration{0}, length / 10);
      shared_.loop.after(length, [this, extra, weak = std::weak_ptr{victim}] {
        const auto self = weak.lock();
        if (!self) return;
        self->clock().jump(shared_.loop.now(), extra);
        self->thaw();
      });
      return;
    }
    case fault::kill:
      kill(victim);
      return;
    case fault::drift:
      shared_.count.add(counter::drift_change);
      change_drift(drift_in_model);
      return;
    case fault::store_pause:
      shared_.count.add(counter::store_pause);
      shared_.note("the store is frozen");
      network_->pause();
      shared_.loop.after(draw_between(shared_.random, duration{0}, lease + lease / 2),
                         [this] { network_->resume(); });
      return;
    case fault::store_restart:
      restart_store(true);
      return;
    case fault::data_loss:
      restart_store(false);
      return;
    case fault::script_flush:
      if (network_->reachable()) redis_->forget_scripts();
      return;
    case fault::foreign_lock:
      if (network_->reachable()) redis_->lend_to_foreigner();
      return;
    case fault::flush_all:
      if (network_->reachable()) redis_->flush_all();
      return;
    case fault::foreign_delete:
      if (network_->reachable()) redis_->delete_some_lock();
      return;
    case fault::break_safely:
    case fault::break_at_once: {
      const auto& lock = shared_.plan.locks[shared_.random.below(shared_.plan.locks.size())];
      truth_.break_some_grant(lock.name, which == fault::break_safely
                                             ? backend_api::break_mode::safe
                                             : backend_api::break_mode::at_once);
      return;
    }
    case fault::store_clock_step:
      step_store_clock();
      return;
    case fault::big_drift:
      shared_.count.add(counter::big_drift);
      change_drift(drift_out_of_model);
      return;
    case fault::stop_clock:
      stop_clock(victim);
      return;
    case fault::lose_request:
    case fault::lose_reply:
    case fault::double_request:
    case fault::slow_message:
    case fault::lose_notice:
    case fault::double_notice:
    case fault::slow_notice:
    case fault::reset_on_send:
    case fault::pause_at_step:
    case fault::kill_in_transaction:
    case fault::stop_in_gate:
    case fault::stop_after_commit:
    case fault::commit_fails:
    case fault::reserve_fails:
    case fault::eviction:
    case fault::locks_lost:
    case fault::isolation:
    case fault::election:
    case fault::watch_cancel:
    case fault::full_store:
    case fault::refuse_request:
    case fault::fail_after:
    case fault::number_of_faults:
      return;
    case fault::power_cut:
      cut_power();
      return;
  }
}

void fault_maker::cut(process& victim, bool to_store, bool from_store) {
  shared_.note("process # is cut off: # #", static_cast<std::int64_t>(victim.number()),
               to_store ? 1 : 0, from_store ? 1 : 0);
  link* const one = victim.connections().front();
  one->cut(to_store, from_store);
  shared_.loop.after(draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease),
                     [connections = one->shared_from_this()] { connections->heal(); });
}

void fault_maker::kill(const std::shared_ptr<process>& victim) {
  shared_.count.add(counter::kill);
  shared_.note("process # is killed", static_cast<std::int64_t>(victim->number()));
  victim->die();
  std::erase(processes_, victim);
  plan_restart();
}

void fault_maker::kill_inside(process& victim) {
  shared_.count.add(counter::kill);
  shared_.note("process # is killed inside a call", static_cast<std::int64_t>(victim.number()));
  victim.die();
  // Its step is still on the stack.
  shared_.loop.after(duration{0}, [this, gone = victim.weak_from_this()] {
    std::erase_if(processes_, [&](const auto& each) { return each == gone.lock(); });
  });
  plan_restart();
}

void fault_maker::suspend_machine() {
  shared_.count.add(counter::suspend);
  const duration length = draw_between(shared_.random, duration{0}, 3 * shared_.plan.lease);
  for (const auto& each : processes_) {
    if (!each->freeze()) continue;
    shared_.loop.after(length, [weak = std::weak_ptr{each}] {
      if (const auto self = weak.lock()) self->thaw();
    });
  }
}

void fault_maker::cut_power() {
  shared_.count.add(counter::power_cut);
  shared_.note("the power is cut");
  for (const auto& each : std::vector(processes_)) kill(each);
  local_->lose_power();
}

void fault_maker::plan_restart() {
  shared_.loop.after(draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease), [this] {
    if (shared_.healed) return;
    shared_.count.add(counter::restart);
    spawn_();
  });
}

void fault_maker::restart_store(bool keeps_data) {
  if (!network_->reachable()) return;
  shared_.count.add(counter::store_restart);
  shared_.note("the store goes down");
  network_->stop();
  if (!keeps_data) redis_->lose_data();
  for (const auto& each : processes_) {
    each->connections().front()->reset();
    each->connections().front()->reset_notices();
  }
  shared_.loop.after(draw_between(shared_.random, duration{0}, shared_.plan.lease), [this] {
    shared_.note("the store is up again");
    network_->start();
  });
}

std::int64_t fault_maker::draw_drift(std::int64_t largest) {
  return static_cast<std::int64_t>(
             shared_.random.below(2 * static_cast<std::uint64_t>(largest) + 1)) -
         largest;
}

void fault_maker::change_drift(std::int64_t largest) {
  const std::uint64_t chosen = shared_.random.below(processes_.size() + 1);
  const std::int64_t drift = draw_drift(largest);
  if (chosen == processes_.size()) {
    if (members_ != nullptr) {
      members_->clock(shared_.random.below(members_->size())).set_drift(shared_.loop.now(), drift);
      return;
    }
    server& drifts = quorum_ != nullptr ? quorum_->some_node() : *network_;
    drifts.clock().set_drift(shared_.loop.now(), drift);
    return;
  }
  // A stopped clock goes on with its own process only.
  if (processes_[chosen]->frozen()) return;
  processes_[chosen]->clock().set_drift(shared_.loop.now(), drift);
  processes_[chosen]->rearm();
}

void fault_maker::step_store_clock() {
  shared_.count.add(counter::clock_step);
  const duration size = draw_between(shared_.random, duration{0}, 2 * shared_.plan.lease);
  const bool back = shared_.random.chance(0.4);
  if (back) set_back_ += size;
  shared_.note("the store's clock is set by #", back ? -size.count() : size.count());
  network_->clock().jump(shared_.loop.now(), back ? -size : size);
}

void fault_maker::stop_clock(const std::shared_ptr<process>& victim) {
  if (!victim->freeze()) return;
  shared_.count.add(counter::clock_stopped);
  victim->clock().stop(shared_.loop.now());
  shared_.loop.after(draw_between(shared_.random, duration{0}, 3 * shared_.plan.lease),
                     [this, weak = std::weak_ptr{victim}] {
                       const auto self = weak.lock();
                       if (!self) return;
                       self->clock().set_drift(shared_.loop.now(), draw_drift(drift_in_model));
                       self->thaw();
                     });
}

void fault_maker::heal() {
  shared_.note("all is healed");
  shared_.healed = true;
  shared_.healed_at = shared_.loop.now();
  if (network_ != nullptr) {
    network_->start();
    network_->resume();
    network_->clock().set_drift(shared_.loop.now(), draw_drift(drift_in_model));
  }
  if (quorum_ != nullptr) {
    quorum_->heal();
    for (std::size_t i = 0; i < quorum_->size(); ++i) {
      quorum_->node(i).clock().set_drift(shared_.loop.now(), draw_drift(drift_in_model));
    }
  }
  if (members_ != nullptr) {
    members_->heal();
    if (etcd_ != nullptr) etcd_->be_full(false);
    for (member_number i = 0; i < members_->size(); ++i) {
      members_->clock(i).set_drift(shared_.loop.now(), draw_drift(drift_in_model));
    }
  }
  for (const auto& each : processes_) {
    if (local_ == nullptr) {
      each->clock().set_drift(shared_.loop.now(), draw_drift(drift_in_model));
      for (link* const one : each->connections()) one->heal();
    }
    each->thaw();
    each->rearm();
    each->hurry();
  }
}

}  // namespace sallyport::sim
