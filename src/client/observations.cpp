#include "client/observations.hpp"

#include "client/client_state.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

namespace sallyport::detail {
namespace {

std::optional<leader_info> leader_of(const std::optional<lock_info>& lock) {
  if (!lock || lock->kind != lock_kind::election || lock->holders.empty()) return std::nullopt;
  const holder_info& first = lock->holders.front();
  return leader_info{first.value, first.token, first.host, first.pid, first.label};
}

}  // namespace

base::result<std::optional<leader_info>> read_leader(client_state& client, const lock_name& name) {
  if (auto problem = client.dead_in_child(); problem.code)
    return tl::unexpected(std::move(problem));
  auto answer = await_completion<std::optional<lock_info>>(
      client, [&](auto done) { client.store().who(name, std::move(done)); });
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return leader_of(*answer);
}

void observation_state::read(lease_clock::duration patience) {
  const auto now = lease_clock::now();
  bool overdue = false;
  std::uint64_t number = 0;
  {
    const base::mutex_lock held{mutex_};
    if (ended_) return;
    overdue = reading_ != 0 && now >= reading_since_ + patience;
    if (reading_ != 0 && !overdue) {
      again_ = true;
      return;
    }
    again_ = false;
    reading_ = number = ++last_reading_;
    reading_since_ = now;
  }
  try {
    if (overdue) {
      tell_failure({errc::outcome_unknown, "the store has not answered who leads"});
    }
    ask(number, patience);
  } catch (const std::bad_alloc&) {
    bool again = false;
    static_cast<void>(end_reading(number, again));
  }
}

bool observation_state::end_reading(std::uint64_t number, bool& again) {
  const base::mutex_lock held{mutex_};
  if (reading_ != number) return false;
  reading_ = 0;
  again = std::exchange(again_, false);
  return true;
}

void observation_state::ask(std::uint64_t number, lease_clock::duration patience) {
  client_.store().who(name_, [self = shared_from_this(), number,
                              patience](base::result<std::optional<lock_info>> answer) {
    bool again = false;
    if (!self->end_reading(number, again)) return;
    self->client_.engine().store_heard(answer ? nullptr : &answer.error());
    if (answer) {
      self->client_.world().tell([self, leader = leader_of(*answer)] { self->heard(leader); });
    } else {
      self->tell_failure(std::move(answer.error()));
      again = false;  // at the next heartbeat: a store that is away is not stormed
    }
    if (again) self->read(patience);
  });
}

void observation_state::tell_failure(base::failure why) {
  client_.world().tell([self = shared_from_this(), why = std::move(why)] { self->not_heard(why); });
}

template <class Callback>
void observation_state::call(const Callback& callback) {
  {
    const base::mutex_lock held{mutex_};
    if (ended_) return;
    calling_ = true;
  }
  // Also when the callback throws: whoever ends the observation waits for this.
  struct call_end {
    ~call_end() {
      const base::mutex_lock held{self.mutex_};
      self.calling_ = false;
      self.called_.notify_all();
    }
    observation_state& self;
  } const over{*this};
  callback();
}

void observation_state::heard(const std::optional<leader_info>& leader) {
  if (told_once_ && leader == last_ && !told_unknown_) return;
  call([&] {
    told_once_ = true;
    told_unknown_ = false;
    last_ = leader;
    changed_(leader);
  });
}

void observation_state::not_heard(const base::failure& why) {
  if (told_unknown_) return;
  call([&] {
    if (!unknown_) return;
    told_unknown_ = true;
    unknown_(lock_error(why.code, why.detail.empty() ? "sallyport" : why.detail));
  });
}

void observation_state::end() {
  if (!client_.alive()) return;
  {
    const base::mutex_lock held{mutex_};
    ended_ = true;
  }
  client_.observed().remove(*this);
  if (client_.world().news().on_its_thread()) return;
  // For its own callbacks alone: another user's may wait for the very thread that is here.
  // What they captured dies here, not when the last news of it are dropped.
  election::leader_callback last_changed;
  election::unknown_callback last_unknown;
  const base::mutex_lock held{mutex_};
  std::unique_lock<std::mutex> native{mutex_.native(), std::adopt_lock};
  while (calling_) called_.wait(native);
  native.release();
  last_changed.swap(changed_);
  last_unknown.swap(unknown_);
}

base::failure observations::add(const std::shared_ptr<observation_state>& which) {
  if (auto problem = owner_.dead_in_child(); problem.code) return problem;
  if (const std::error_code problem = owner_.start_threads(true)) return {problem, {}};
  const auto soon = lease_clock::now() + interval_;
  {
    const base::mutex_lock held{mutex_};
    all_.push_back(which);
    next_ = std::min(next_, soon);
  }
  owner_.store().watch(which->name(), true);
  owner_.world().wake_at(soon);
  which->read(patience_);
  return {};
}

void observations::remove(const observation_state& which) {
  bool last_of_name = true;
  {
    const base::mutex_lock held{mutex_};
    std::erase_if(all_, [&](const auto& each) {
      const auto alive = each.lock();
      return !alive || alive.get() == &which;
    });
    for (const auto& each : all_) {
      const auto alive = each.lock();
      if (alive && alive->name() == which.name()) last_of_name = false;
    }
  }
  if (last_of_name) owner_.store().watch(which.name(), false);
}

void observations::changed(const lock_name& name) {
  std::vector<std::shared_ptr<observation_state>> affected;
  {
    const base::mutex_lock held{mutex_};
    for (const auto& each : all_) {
      if (auto alive = each.lock(); alive && alive->name() == name)
        affected.push_back(std::move(alive));
    }
  }
  for (const auto& each : affected) each->read(patience_);
}

void observations::run_due() {
  std::vector<std::shared_ptr<observation_state>> due;
  const auto now = lease_clock::now();
  lease_clock::time_point next = lease_clock::time_point::max();
  {
    const base::mutex_lock held{mutex_};
    if (now >= next_) {
      for (const auto& each : all_) {
        if (auto alive = each.lock()) due.push_back(std::move(alive));
      }
      next_ = all_.empty() ? lease_clock::time_point::max() : now + interval_;
    }
    next = next_;
  }
  for (const auto& each : due) each->read(patience_);
  if (next != lease_clock::time_point::max()) owner_.world().wake_at(next);
}

}  // namespace sallyport::detail
