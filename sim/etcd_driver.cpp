#include "sim/etcd_driver.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

namespace sallyport::sim {

using namespace backends::etcd;
using namespace std::chrono_literals;

namespace {

// As in the product.
constexpr duration connect_patience = 1s;
constexpr duration early_answer = 20ms;
constexpr duration shortest_try = 300ms;
constexpr duration reopen_pause = 100ms;
constexpr duration revoke_patience = 1s;
constexpr int most_tries = 6;
/// How long a hole in a connection goes unnoticed, in leases.
constexpr int longest_hole = 3;

contention::settings settings_for(context& shared) {
  return {
      .keys = layout(""),
      .owner = {},
      .fresh_lease =
          [&shared] {
            constexpr std::uint64_t second = std::uint64_t{1} << 62U;
            return static_cast<backends::etcd::lease_id>((shared.random() & (second - 1)) | second);
          },
      .wall_ms = [] { return std::int64_t{1}; }};
}

}  // namespace

etcd_driver::etcd_driver(context& shared, checkers& checks, process& owner,
                         etcd_store& cluster_store, std::uint64_t client)
    : machine_driver(shared, checks, owner, client, settings_for(shared)),
      store_(cluster_store),
      members_(cluster_store.members()),
      current_(shared.random.below(members_.size())),
      connected_(members_.size(), false),
      self_(std::make_shared<etcd_driver*>(this)) {
  watches_.is_watch = true;
  members_.enter(client, *this);
}

etcd_driver::~etcd_driver() { etcd_driver::die(); }

void etcd_driver::die() {
  if (!be_dead()) return;
  self_.reset();
  members_.leave(client());
  store_.close_stream(client());
}

bool etcd_driver::idle() const noexcept {
  return nothing_asked() && calls_.empty() && its_machine().contenders() == 0;
}

std::uint64_t etcd_driver::made(fencing_token token) {
  return store_.made(static_cast<revision>(token.value()));
}

void etcd_driver::watch(const lock_name& name, bool on) {
  step([&](contention& its, time_point, actions& out) { its.watch(name, on, out); });
}

void etcd_driver::answer_overdue() {
  alarm_ = time_point::max();
  end_tries();
  machine_driver::answer_overdue();
}

// ---- what the machine wants done -----------------------------------------------------------------

void etcd_driver::carry_out(action& what) {
  if (dead()) return;
  if (auto* const order = std::get_if<txn_order>(&what)) {
    make_call({.ask = [&store = store_, request = std::move(order->what)](
                          member_number at,
                          const etcd_store::respond& says) { store.txn(at, request, says); },
               .done =
                   [this, errand = order->errand](const answer* said, trouble why, bool doubtful) {
                     backends::etcd::reply<txn_answer> heard{
                         .value = {}, .why = why, .text = "simulated", .doubtful = doubtful};
                     if (said != nullptr) heard.value = said->value;
                     step([&](contention& its, time_point now, actions& out) {
                       its.txn_answered(errand, heard, now, out);
                     });
                   },
               .answer_by = order->answer_by});
  } else if (auto* const granting = std::get_if<grant_order>(&what)) {
    make_call({.ask =
                   [&store = store_, whose = client(), id = granting->lease,
                    length = granting->seconds](member_number at, const etcd_store::respond& says) {
                     store.grant(at, whose, id, length, says);
                   },
               .done =
                   [this, id = granting->lease](const answer* said, trouble why, bool doubtful) {
                     backends::etcd::reply<std::int64_t> heard{
                         .value = {}, .why = why, .text = "simulated", .doubtful = doubtful};
                     if (said != nullptr) heard.value = said->seconds;
                     step([&](contention& its, time_point now, actions& out) {
                       its.lease_granted(id, heard, now, out);
                     });
                   },
               .answer_by = granting->answer_by});
  } else if (auto* const revoking = std::get_if<revoke_order>(&what)) {
    store_.revocation_asked(revoking->lease);
    make_call({.ask = [&store = store_, id = revoking->lease](
                          member_number at,
                          const etcd_store::respond& says) { store.revoke(at, id, says); },
               .done =
                   [this, id = revoking->lease](const answer* said, trouble why, bool) {
                     if (said != nullptr || why == trouble::no_such_lease) {
                       store_.revocation_confirmed(id);
                     }
                   },
               .answer_by = owner().now() + revoke_patience});
  } else if (auto* const keeping = std::get_if<keep_alive_order>(&what)) {
    keep_alive(keeping->lease);
  } else if (auto* const watching = std::get_if<watch_order>(&what)) {
    say(watches_, [this, which = watching->watch,
                   to = model_store::watcher{watching->key, watching->end, watching->puts}](
                      std::uint64_t number) { store_.watch(client(), number, which, to); });
  } else if (auto* const unwatching = std::get_if<unwatch_order>(&what)) {
    say(watches_, [this, which = unwatching->watch](std::uint64_t number) {
      store_.unwatch(client(), number, which);
    });
  } else if (std::holds_alternative<doubt_order>(what)) {
    move_on(current_);
  }
}

// ---- requests ------------------------------------------------------------------------------------

void etcd_driver::make_call(call what) {
  const std::uint64_t number = next_call_++;
  calls_.emplace(number, std::move(what));
  start(number);
}

void etcd_driver::start(std::uint64_t number) {
  call& what = calls_.at(number);
  what.parked = !connected_[current_];
  what.until = what.answer_by;
  if (what.parked) {
    await_connection();
  } else {
    launch(number, what);
  }
}

void etcd_driver::launch(std::uint64_t number, call& what) {
  const time_point now = owner().now();
  if (members_.size() > 1) {
    what.until =
        std::min(what.answer_by, now + std::max<duration>(shortest_try, (what.until - now) / 2));
  }
  ++what.tries;
  what.at = current_;
  what.attempt = next_attempt_++;
  if (what.tries > 1 && what.doubtful) shared().count.add(counter::etcd_sent_again);
  arm(what.until);
  const std::weak_ptr<etcd_driver*> weak = self_;
  members_.send(client(), current_, nullptr,
                [this, weak, number, at = current_, attempt = what.attempt, ask = what.ask] {
                  const auto waits_for_it = [weak, number, attempt] {
                    const auto self = weak.lock();
                    if (!self) return false;
                    const auto found = (*self)->calls_.find(number);
                    return found != (*self)->calls_.end() && found->second.attempt == attempt;
                  };
                  // What its own process has given up is executed all the same.
                  ask(at, [this, weak, number, at, attempt, waits_for_it](const answer& said) {
                    if (weak.expired()) return;
                    if (!waits_for_it() && said.is == answer::word::done) {
                      shared().count.add(counter::cluster_executed_late);
                    }
                    members_.send_back(at, client(), nullptr, [this, weak, number, attempt, said] {
                      if (weak.expired()) return;
                      on_process([this, number, attempt, said] {
                        const auto found = calls_.find(number);
                        if (found == calls_.end() || found->second.attempt != attempt) return;
                        switch (said.is) {
                          case answer::word::done:
                            answered(number, ending::done, &said);
                            return;
                          case answer::word::no_leader:
                            answered(number, ending::not_done, nullptr);
                            return;
                          case answer::word::no_such_lease:
                            answered(number, ending::no_such_lease, nullptr);
                            return;
                          case answer::word::lease_exists:
                            answered(number, ending::lease_exists, nullptr);
                            return;
                          case answer::word::refused:
                            answered(number, ending::refused, nullptr);
                            return;
                          case answer::word::timed_out:
                            answered(number, ending::lost, nullptr);
                            return;
                        }
                      });
                    });
                  });
                });
}

void etcd_driver::answered(std::uint64_t number, ending how, const answer* said) {
  call& what = calls_.at(number);
  what.attempt = 0;
  const bool time_left = what.tries < most_tries && owner().now() < what.answer_by;
  bool again = false;
  switch (how) {
    case ending::done:
      refusals_ = 0;
      break;
    case ending::no_such_lease:
    case ending::lease_exists:
    case ending::refused:
      break;
    case ending::not_done:
      move_on(what.at);
      again = time_left && static_cast<std::size_t>(what.tries) < members_.size();
      break;
    case ending::lost:
    case ending::silent:
      what.doubtful = true;
      move_on(what.at);
      if (how == ending::silent) connected_[what.at] = false;
      again = time_left;
      break;
  }
  if (again) {
    start(number);
    return;
  }
  const call over = std::move(what);
  calls_.erase(number);
  const trouble why = how == ending::no_such_lease  ? trouble::no_such_lease
                      : how == ending::lease_exists ? trouble::lease_exists
                      : how == ending::refused      ? trouble::refused
                      : over.doubtful               ? trouble::unknown
                                                    : trouble::unavailable;
  over.done(how == ending::done ? said : nullptr, why, over.doubtful);
}

void etcd_driver::arm(time_point when) {
  if (when >= alarm_) return;
  alarm_ = when;
  owner().at_local_time(when, [this, when] {
    if (alarm_ != when) return;
    alarm_ = time_point::max();
    end_tries();
  });
}

void etcd_driver::end_tries() {
  const time_point now = owner().now();
  std::vector<std::uint64_t> over;
  for (const auto& [number, each] : calls_) {
    if (!each.parked && each.until <= now) over.push_back(number);
  }
  for (const std::uint64_t each : over) {
    if (calls_.contains(each)) answered(each, ending::silent, nullptr);
  }
  for (const auto& [number, each] : calls_) {
    if (!each.parked) arm(each.until);
  }
}

// ---- connections ---------------------------------------------------------------------------------

void etcd_driver::await_connection() {
  if (std::exchange(connecting_, true)) return;
  time_point until = owner().now() + connect_patience;
  for (const auto& [number, each] : calls_) {
    if (each.parked) until = std::min(until, each.answer_by - early_answer);
  }
  const std::weak_ptr<etcd_driver*> weak = self_;
  const bool there = members_.reachable(client(), current_);
  if (there) {
    shared().loop.after(2 * members_.draw_hop(), [this, weak, at = current_] {
      if (weak.expired()) return;
      on_process([this, at] {
        connected_[at] = members_.reachable(client(), at);
        connection_changed(connected_[at]);
      });
    });
  } else if (!members_.up(current_)) {
    shared().loop.after(2 * members_.draw_hop() + 1ms, [this, weak] {
      if (!weak.expired()) on_process([this] { connection_changed(false); });
    });
  } else {
    owner().at_local_time(std::max(until, owner().now() + 1ms),
                          [this] { connection_changed(false); });
  }
}

void etcd_driver::connection_changed(bool connected) {
  connecting_ = false;
  std::vector<std::uint64_t> parked;
  for (const auto& [number, each] : calls_) {
    if (each.parked) parked.push_back(number);
  }
  bool no_member = false;
  if (!connected) {
    current_ = (current_ + 1) % members_.size();
    no_member = ++refusals_ >= members_.size();
  }
  const auto give_up = [this](std::uint64_t number) {
    if (!calls_.contains(number)) return;
    const call over = std::move(calls_.at(number));
    calls_.erase(number);
    over.done(nullptr, over.doubtful ? trouble::unknown : trouble::unavailable, over.doubtful);
  };
  if (connected_[current_]) {
    refusals_ = 0;
    for (const std::uint64_t each : parked) {
      if (calls_.contains(each)) start(each);
    }
    open_lines();
  } else if (no_member) {
    refusals_ = 0;
    for (const std::uint64_t each : parked) give_up(each);
    if (!keep_alives_.to_say.empty() || !watches_.to_say.empty()) {
      owner().later(reopen_pause, [this] { open_lines(); });
    }
  } else {
    const time_point soon = owner().now() + early_answer;
    for (const std::uint64_t each : parked) {
      if (calls_.at(each).answer_by <= soon) give_up(each);
    }
    await_connection();
  }
}

void etcd_driver::move_on(member_number from) {
  if (from != current_) return;
  current_ = (current_ + 1) % members_.size();
  for (line* const each : {&keep_alives_, &watches_}) {
    if (each->open && each->at == from) cancel(*each);
  }
}

void etcd_driver::connection_ends(member_number which) {
  on_process([this, which] {
    connected_[which] = false;
    std::vector<std::uint64_t> broken;
    for (const auto& [number, each] : calls_) {
      if (!each.parked && each.at == which) broken.push_back(number);
    }
    for (const std::uint64_t each : broken) {
      if (calls_.contains(each)) answered(each, ending::lost, nullptr);
    }
    for (line* const each : {&keep_alives_, &watches_}) {
      if (each->open && each->at == which) end_line(each->is_watch, each->number);
    }
  });
}

// ---- streams -------------------------------------------------------------------------------------

void etcd_driver::keep_alive(lease_id lease) {
  say(keep_alives_, [this, lease](std::uint64_t number) {
    const member_number at = keep_alives_.at;
    const auto said = store_.keep_alive(at, lease);
    if (!said) return;
    if (keep_alives_.hole) return;
    const bool sent = members_.send_back(
        at, client(), &keep_alives_.back, [this, weak = std::weak_ptr(self_), number, lease, said] {
          if (weak.expired()) return;
          on_process([this, number, lease, said] {
            if (!keep_alives_.open || keep_alives_.number != number) return;
            step([&](contention& its, time_point now, actions& out) {
              its.kept_alive(lease, said->seconds, said->term, now, out);
            });
          });
        });
    if (!sent) fall_silent(keep_alives_);
  });
}

void etcd_driver::say(line& where, std::function<void(std::uint64_t)> what) {
  where.to_say.push_back(std::move(what));
  if (where.open) {
    open_lines();
  } else if (!reopening_) {
    open(where);
  }
}

void etcd_driver::open_lines() {
  for (line* const each : {&keep_alives_, &watches_}) {
    if (!each->to_say.empty()) open(*each);
  }
}

void etcd_driver::open(line& where) {
  if (!where.open) {
    if (!connected_[current_]) {
      await_connection();
      return;
    }
    where.open = true;
    where.number = next_line_++;
    where.at = current_;
    where.there = where.back = {};
    where.hole = false;
    if (where.is_watch) store_.open_stream(client(), where.number, current_, *this);
  }
  for (auto& each : std::exchange(where.to_say, {})) {
    if (shared().strikes(fault::reset_on_send)) {
      cancel(where);
      return;
    }
    if (where.hole) continue;
    const bool sent = members_.send(client(), where.at, &where.there,
                                    [this, weak = std::weak_ptr(self_), is_watch = where.is_watch,
                                     number = where.number, what = std::move(each)] {
                                      if (weak.expired()) return;
                                      const line& still = line_for(is_watch);
                                      if (still.open && still.number == number) what(number);
                                    });
    if (!sent) fall_silent(where);
  }
}

void etcd_driver::fall_silent(line& where) {
  where.hole = true;
  shared().loop.after(
      draw_between(shared().random, shared().plan.lease / 2, longest_hole * shared().plan.lease),
      [this, weak = std::weak_ptr(self_), is_watch = where.is_watch, number = where.number] {
        if (!weak.expired()) {
          on_process([this, is_watch, number] { end_line(is_watch, number); });
        }
      });
}

void etcd_driver::cancel(line& where) {
  owner().later(members_.draw_hop(), [this, is_watch = where.is_watch, number = where.number] {
    end_line(is_watch, number);
  });
}

void etcd_driver::end_line(bool is_watch, std::uint64_t number) {
  line& where = line_for(is_watch);
  if (!where.open || where.number != number) return;
  where.open = false;
  where.to_say.clear();
  where.was_broken = true;
  shared().count.add(counter::etcd_stream_broken);
  if (is_watch) store_.close_stream(client());
  move_on(where.at);
  reopening_ = true;
  owner().later(reopen_pause, [this] {
    reopening_ = false;
    open_lines();
  });
  step([&](contention& its, time_point now, actions& out) {
    is_watch ? its.watches_broken(now, out) : its.keep_alives_broken(now, out);
  });
}

void etcd_driver::stream_ended(std::uint64_t stream) {
  on_process([this, stream] { end_line(true, stream); });
}

void etcd_driver::reported(std::uint64_t stream, const model_store::report& said) {
  on_process([this, stream, said] {
    if (!watches_.open || watches_.number != stream) return;
    step([&](contention& its, time_point now, actions& out) {
      if (said.ended) {
        its.watch_ended(said.watch, now, out);
      } else if (said.began != 0) {
        its.watch_began(said.watch, said.began, now, out);
      } else {
        its.watch_said(said.watch, std::span(&said.event, 1), now, out);
      }
    });
    if (!std::exchange(watches_.was_broken, false)) return;
    step([](contention& its, time_point, actions& out) { its.watches_back(out); });
  });
}

}  // namespace sallyport::sim
