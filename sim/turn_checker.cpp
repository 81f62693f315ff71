#include "sim/checkers.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace sallyport::sim {

using runtime::lease_record;

namespace {

bool ended(lease_record::phase state) {
  return state == lease_record::phase::lost || state == lease_record::phase::released;
}

/// The largest token given up to `sequence`.
fencing_token largest_until(const std::vector<std::pair<std::uint64_t, fencing_token>>& given,
                            std::uint64_t sequence) {
  const auto after =
      std::upper_bound(given.begin(), given.end(), sequence,
                       [](std::uint64_t wanted, const auto& each) { return wanted < each.first; });
  return after == given.begin() ? fencing_token{} : std::prev(after)->second;
}

}  // namespace

bool turn::valid(true_time now) const {
  return !over && !given_back && !ended(record->state.load()) &&
         clock->at(now) < record->deadline.load();
}

std::shared_ptr<turn> turn_checker::given(std::uint64_t process, const sim_clock& clock,
                                          std::shared_ptr<lease_record> record) {
  auto fresh = std::make_shared<turn>();
  fresh->process = process;
  fresh->clock = &clock;
  fresh->lock = shared_.index_of(record->spec->name);
  fresh->mode = record->mode.load();
  fresh->deadline = record->deadline.load();
  fresh->record = std::move(record);
  shared_.count.add(counter::turn_given);
  shared_.note("turn of lock # given to process # with token #, mode #",
               static_cast<std::int64_t>(fresh->lock), static_cast<std::int64_t>(process),
               static_cast<std::int64_t>(fresh->record->token.value()),
               static_cast<std::int64_t>(fresh->mode));
  check_tokens(*fresh);
  check_exclusion(*fresh);
  auto& turns = locks_[fresh->lock].turns;
  std::erase_if(turns, [](const auto& each) { return each->over; });
  turns.push_back(fresh);
  return fresh;
}

void turn_checker::check_exclusion(const turn& fresh) {
  const true_time now = shared_.loop.now();
  if (!fresh.valid(now)) return;
  const lock_plan& plan = shared_.plan.locks[fresh.lock];
  std::uint32_t valid = 1;
  bool conflict = false;
  for (const auto& other : locks_[fresh.lock].turns) {
    if (other.get() == &fresh || !other->valid(now)) continue;
    ++valid;
    if (plan.kind == lock_kind::semaphore) {
      shared_.count.add(counter::permit_with_others);
      conflict = conflict || valid > plan.permits;
    } else if (fresh.mode == lock_mode::shared && other->mode == lock_mode::shared) {
      shared_.count.add(counter::reader_with_readers);
    } else {
      conflict = true;
    }
  }
  conflict = conflict || now < locks_[fresh.lock].foreigner_until;
  if (!conflict) return;
  if (!shared_.plan.in_model) {
    shared_.count.add(counter::overlap_out_of_model);
    if (shared_.plan.redlock) count_quorum_overlap();
    return;
  }
  shared_.fail("exclusion", "lock " + std::to_string(fresh.lock) + ": process " +
                                std::to_string(fresh.process) + " got token " +
                                std::to_string(fresh.record->token.value()) + ", and " +
                                std::to_string(valid) + " conflicting turns are valid");
}

void turn_checker::foreigner_enters(std::size_t lock, true_time until) {
  locks_[lock].foreigner_until = until;
  if (!shared_.plan.in_model) return;
  for (const auto& each : locks_[lock].turns) {
    if (!each->valid(shared_.loop.now())) continue;
    shared_.fail("exclusion", "lock " + std::to_string(lock) + ": a foreigner got it while token " +
                                  std::to_string(each->record->token.value()) + " is valid");
  }
}

void turn_checker::count_quorum_overlap() {
  shared_.count.add(counter::quorum_overlap);
  if (shared_.plan.story == quorum_story::clock_steps) {
    shared_.count.add(counter::quorum_overlap_by_clock_step);
  } else if (shared_.plan.story == quorum_story::amnesia) {
    shared_.count.add(counter::quorum_overlap_by_amnesia);
  }
}

void turn_checker::check_tokens(const turn& fresh) {
  if (shared_.plan.locks[fresh.lock].kind == lock_kind::semaphore) return;
  lock_history& history = locks_[fresh.lock];
  const fencing_token token = fresh.record->token;
  const std::string which = "lock " + std::to_string(fresh.lock) + ", process " +
                            std::to_string(fresh.process) + ": token " +
                            std::to_string(token.value());
  const auto drawn = store_.drawn(fresh.lock, token);
  if (!drawn) {
    shared_.fail("tokens", which + " was never reserved by the store");
    return;
  }
  const bool exclusive = fresh.mode == lock_mode::exclusive;
  if (exclusive && !history.given.insert(token).second) {
    shared_.fail("tokens", which + " was given before");
  }
  // A turn that is valid when it is given is newer than all given before. Outside of the model it
  // may be stale already; then its token is only newer than those that were given before the store
  // made it.
  const std::uint64_t now = store_.next_sequence();
  const std::uint64_t since = shared_.plan.in_model ? now : *drawn;
  fencing_token floor = largest_until(history.exclusive, since);
  if (exclusive) floor = std::max(floor, largest_until(history.shared, since));
  if (token <= floor) {
    shared_.fail("tokens", which + " was given after token " + std::to_string(floor.value()));
  }
  auto& same_mode = exclusive ? history.exclusive : history.shared;
  const fencing_token largest =
      same_mode.empty() ? token : std::max(token, same_mode.back().second);
  same_mode.emplace_back(now, largest);
}

void turn_checker::process_killed(std::uint64_t process) {
  for (auto& history : locks_) {
    for (const auto& each : history.turns) {
      if (each->process == process) each->over = true;
    }
  }
}

void turn_checker::process_thawed(std::uint64_t process, time_point now) {
  for (auto& history : locks_) {
    for (const auto& each : history.turns) {
      if (each->process != process || each->over || each->lost) continue;
      if (now >= each->record->deadline.load()) shared_.count.add(counter::lease_lapsed_in_pause);
    }
  }
}

void turn_checker::observe(std::uint64_t process, time_point now, time_point wakes_at,
                           bool served_timers, bool news_told) {
  for (auto& history : locks_) {
    for (const auto& each : history.turns) {
      if (each->process == process && !each->over) {
        observe(*each, now, wakes_at, served_timers, news_told);
      }
    }
  }
}

void turn_checker::observe(turn& one, time_point now, time_point wakes_at, bool served_timers,
                           bool news_told) {
  const auto state = one.record->state.load();
  const time_point deadline = one.record->deadline.load();
  const auto fail = [&](const char* what) {
    shared_.fail("loss", "lock " + std::to_string(one.lock) + ", token " +
                             std::to_string(one.record->token.value()) + ": " + what);
  };
  if (one.given_back) {
    one.over = true;
    if (!ended(state)) fail("it was given back and is still held");
    return;
  }
  if (state == lease_record::phase::lost) {
    if (!one.lost) shared_.count.add(counter::lease_lost);
    one.lost = true;
    if (news_told && one.lost_token && !one.lost_token->stop_requested()) {
      fail("it is lost and its stop token was not fired");
    }
    return;
  }
  if (state == lease_record::phase::suspect && !one.suspected) {
    one.suspected = true;
    shared_.count.add(counter::lease_suspect);
  }
  if (one.lost) fail("it was lost and came back");
  if (state == lease_record::phase::released) {
    fail("it is released, and nobody asked for that");
  }
  if (deadline < one.deadline) fail("its deadline moved backwards");
  if (deadline > one.deadline && now >= one.deadline) {
    fail("it was renewed after its deadline");
  }
  one.deadline = deadline;
  if (served_timers && now >= deadline) {
    fail("its deadline has passed and it is not lost");
  }
  if (now < deadline && wakes_at > deadline) {
    fail("nobody will wake up at its deadline");
  }
}

void fenced_resource::write(const turn& writer) {
  if (shared_.plan.locks[writer.lock].kind == lock_kind::semaphore) return;
  gate& guard = gates_[writer.lock];
  const fencing_token token = writer.record->token;
  const bool exclusive = writer.mode == lock_mode::exclusive;
  const bool passes = exclusive ? token >= guard.newest_exclusive && token > guard.newest_shared
                                : token >= guard.newest_exclusive;
  shared_.count.add(passes ? counter::write_accepted : counter::write_refused);
  shared_.note("write to resource # with token #, mode #, accepted #",
               static_cast<std::int64_t>(writer.lock), static_cast<std::int64_t>(token.value()),
               static_cast<std::int64_t>(writer.mode), passes ? 1 : 0);
  const std::string which =
      "lock " + std::to_string(writer.lock) + ", token " + std::to_string(token.value()) + ": ";
  if (!passes) {
    if (shared_.plan.in_model && writer.valid(shared_.loop.now())) {
      shared_.fail("resource", which + "a valid holder was refused");
    }
    return;
  }
  if (!store_.drawn(writer.lock, token)) shared_.fail("resource", which + "it was never granted");
  if (!exclusive) {
    guard.newest_shared = std::max(guard.newest_shared, token);
    return;
  }
  guard.newest_exclusive = token;
  if (!guard.accepted_exclusive.empty() && guard.accepted_exclusive.back() > token) {
    shared_.fail("resource", which + "it was accepted after a newer one");
  }
  guard.accepted_exclusive.push_back(token);
}

}  // namespace sallyport::sim
