#include "backends/sql/session.hpp"

#include "backends/sql/answers.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace sallyport::backends::sql {

using backend_api::acquire_request;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backend_api::waiting;

base::failure session::take_error(const reply& error) {
  failed(error);
  return meaning_of(error);
}

/// What a reply means, if one came.
template <class T>
base::result<T> session::meaning(const base::result<reply>& said,
                                 base::result<T> (*decode)(const reply&)) {
  if (!said) return tl::unexpected(said.error());
  if (said->is_error()) return tl::unexpected(take_error(*said));
  return decode(*said);
}

base::result<std::vector<renew_answer>> session::renewals_in(const base::result<reply>& said,
                                                             std::size_t asked) {
  if (!said) return tl::unexpected(said.error());
  if (said->is_error()) return tl::unexpected(take_error(*said));
  return renew_answers_of(*said, asked);
}

// ---- calls under way -----------------------------------------------------------------------------

class session::acquire_exchange final : public exchange {
 public:
  acquire_exchange(session& home, bool first) : home_(home), first_(first) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    home_.serve_on_after(said, 6, what);
    auto answer = home_.meaning(said, &acquire_answer_of);
    auto* const waits = answer ? std::get_if<waiting>(&*answer) : nullptr;
    if (waits != nullptr) {
      home_.told_to_wait(order_key, *said, *waits);
    } else {
      home_.waits_no_more(order_key);
    }
    {
      const base::mutex_lock lock(home_.state_);
      home_.lanes_.acquire_answered(order_key, answer, first_);
    }
    home_.listener_.acquire_answered(order_key, std::move(answer));
  }

 private:
  session& home_;
  const bool first_;
};

class session::renew_exchange final : public exchange {
 public:
  renew_exchange(session& home, std::vector<holder_id> who) : home_(home), who_(std::move(who)) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    const auto all = home_.renewals_in(said, who_.size());
    std::vector<renew_outcome> outcomes;
    outcomes.reserve(who_.size());
    for (std::size_t i = 0; i < who_.size(); ++i) {
      if (all) {
        outcomes.push_back({who_[i], (*all)[i]});
      } else {
        outcomes.push_back({who_[i], tl::unexpected(all.error())});
      }
    }
    home_.listener_.renewals_answered(outcomes);
  }

 private:
  session& home_;
  const std::vector<holder_id> who_;
};

class session::leave_exchange final : public exchange {
 public:
  explicit leave_exchange(session& home) : home_(home) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    home_.serve_on_after(said, 1, what);
    auto answer = home_.meaning(said, &leave_answer_of);
    if (answer) home_.forget_lane(order_key);
    home_.listener_.leave_answered(order_key, std::move(answer));
  }

 private:
  session& home_;
};

class session::downgrade_exchange final : public exchange {
 public:
  explicit downgrade_exchange(session& home) : home_(home) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    home_.serve_on_after(said, 4, what);
    const auto all = home_.renewals_in(said, 1);
    if (all) {
      home_.listener_.downgrade_answered(order_key, all->front());
    } else {
      home_.listener_.downgrade_answered(order_key, tl::unexpected(all.error()));
    }
  }

 private:
  session& home_;
};

class session::other_exchange final : public exchange {
 public:
  other_exchange(session& home, std::function<void(base::result<reply>)> done)
      : home_(home), done_(std::move(done)) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (pass.open()) done_(std::move(said));
  }

 private:
  session& home_;
  const std::function<void(base::result<reply>)> done_;
};

// ---- opening and closing -------------------------------------------------------------------------

session::session(backend_api::events& listener, std::shared_ptr<net::pump> engine,
                 backend_api::hearing::attention attention, std::string_view scheme,
                 std::string_view store, std::string_view place)
    : listener_(listener),
      pump_(std::move(engine)),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      identity_(scheme, store, place) {}

void session::connect(const connection::settings& how, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    calls_.push_back(connection::make(pump_, how, weak_from_this()));
  }
}

std::size_t session::lane_of(const holder_id& who) {
  if (calls_.size() == 1) return 0;
  const base::mutex_lock lock(state_);
  return lanes_.of(who);
}

void session::choose_lane(const holder_id& who) {
  if (calls_.size() == 1 || !calls_.front()->unfinished()) return;
  const base::mutex_lock lock(state_);
  lanes_.to_second(who);
}

void session::forget_lane(const holder_id& who) {
  const base::mutex_lock lock(state_);
  lanes_.forget(who);
}

std::optional<base::failure> session::wait_for_first_connection() {
  constexpr std::chrono::seconds patience{2};
  const time_point until = lease_clock::now() + patience;
  calls_.front()->want();
  while (lease_clock::now() < until) {
    {
      const base::mutex_lock lock(state_);
      if (greeted_ || trouble_) break;
    }
    pump_->run_once(until);
  }
  const base::mutex_lock lock(state_);
  return trouble_;
}

base::result<void> session::greeted(std::string_view store) {
  if (auto learnt = identity_.learn(store); !learnt) return learnt;
  const base::mutex_lock lock(state_);
  greeted_ = true;
  trouble_.reset();
  return {};
}

void session::connected() {
  if (std::exchange(ever_connected_, true)) gap_ended();
}

void session::disconnected(const base::failure& why, bool /*was_up*/) {
  const base::mutex_lock lock(state_);
  if (!greeted_) trouble_ = why;
}

void session::close() {
  for (const auto& each : calls_) each->close();
  if (gate_.close()) pump_->ring();
}

void session::gap_ended() {
  const delivery_gate::pass pass(gate_);
  if (pass.open()) listener_.reconnected();
}

void session::be_heard_always() {
  undriven_waiters_.store(true, std::memory_order_relaxed);
  hearing_.be_heard();
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      auto asked = std::make_unique<acquire_exchange>(*this, !request.asked_before);
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      asked->what = words().acquire(request);
      if (!request.driven) {
        if (!request.asked_before) undriven_waiters_.store(true, std::memory_order_relaxed);
        hearing_.be_heard();
      }
      if (!request.asked_before) choose_lane(request.holder);
      calls_[lane_of(request.holder)]->send(std::move(asked));
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::renew_together(std::span<const renew_request> batch) {
  if (batch.empty()) return;
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      hearing_.be_heard();
      about_to_renew();
      std::vector<holder_id> who;
      for (const renew_request& each : batch) who.push_back(each.holder);
      auto asked = std::make_unique<renew_exchange>(*this, who);
      // A batch has no key of its own: the order of its members is that of the connection.
      if (batch.size() == 1) asked->order_key = batch.front().holder;
      asked->answer_by = batch.front().answer_by;
      for (const renew_request& each : batch) {
        asked->answer_by = std::min(asked->answer_by, each.answer_by);
      }
      asked->what = words().renew(batch);
      calls_[lane_of(batch.front().holder)]->send(std::move(asked));
      return;
    }
  }
  std::vector<renew_outcome> outcomes;
  for (const renew_request& each : batch) {
    outcomes.push_back({each.holder, tl::unexpected(closed_failure())});
  }
  listener_.renewals_answered(outcomes);
}

void session::leave(const leave_request& request, bool withdraw) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      auto asked = std::make_unique<leave_exchange>(*this);
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      asked->what = words().leave(request, withdraw);
      if (!request.driven) hearing_.be_heard();
      waits_no_more(request.holder);
      calls_[lane_of(request.holder)]->send(std::move(asked));
      sweep_now_and_then();
      return;
    }
  }
  listener_.leave_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::downgrade(const renew_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (request.kind != lock_kind::shared_mutex) {
        listener_.downgrade_answered(
            request.holder,
            base::fail(errc::not_supported, "only a shared_mutex can be downgraded"));
        return;
      }
      auto asked = std::make_unique<downgrade_exchange>(*this);
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      asked->what = words().downgrade(request);
      hearing_.be_heard();
      calls_[lane_of(request.holder)]->send(std::move(asked));
      return;
    }
  }
  listener_.downgrade_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::ask(call what, std::function<void(base::result<reply>)> done, const holder_id& whose,
                  std::optional<time_point> answer_by) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  auto asked = std::make_unique<other_exchange>(*this, std::move(done));
  asked->order_key = whose;
  asked->answer_by = answer_by.value_or(lease_clock::now() + housekeeping_patience);
  asked->what = std::move(what);
  hearing_.be_heard();
  calls_[lane_of(whose)]->send(std::move(asked));
}

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  ask(
      words().set_value(holder, value),
      [this, done = std::move(done)](const base::result<reply>& said) {
        done(meaning(said, &set_value_answer_of));
      },
      holder.holder, holder.answer_by);
}

/// A list that is asked for piece by piece.
struct session::listing {
  std::string prefix;
  std::string after;
  std::size_t wanted = 0;  // how many names are still to come, at most
  std::vector<lock_info> found;
  completion<std::vector<lock_info>> done;
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  list_on(std::make_shared<listing>(
      listing{std::string(prefix), std::string(after), limit, {}, std::move(done)}));
}

void session::list_on(std::shared_ptr<listing> all) {
  const std::size_t piece = std::min(all->wanted, most_names_at_once);
  call question = words().list(all->prefix, all->after, piece);
  ask(std::move(question), [this, all = std::move(all), piece](const base::result<reply>& said) {
    auto some = meaning(said, &look_answer_of);
    if (!some) {
      all->done(tl::unexpected(some.error()));
      return;
    }
    const bool more = some->size() == piece && all->wanted > piece;
    all->wanted -= some->size();
    std::ranges::move(*some, std::back_inserter(all->found));
    if (!more) {
      all->done(std::move(all->found));
      return;
    }
    all->after = all->found.back().name;
    list_on(all);
  });
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  ask(words().who(name), [this, done = std::move(done)](const base::result<reply>& said) {
    auto all = meaning(said, &look_answer_of);
    if (!all) {
      done(tl::unexpected(all.error()));
    } else if (all->empty()) {
      done(std::optional<lock_info>{});
    } else {
      done(std::optional<lock_info>(std::move(all->front())));
    }
  });
}

void session::break_lock(const lock_name& name, fencing_token observed,
                         backend_api::break_mode mode, completion<std::monostate> done) {
  ask(words().break_lock(name, observed, mode),
      [this, name, done = std::move(done)](const base::result<reply>& said) {
        if (said && says_more(*said, 1)) serve_on(name.text());
        done(meaning(said, &break_answer_of));
      });
}

void session::sweep_now_and_then() {
  const time_point now = lease_clock::now();
  {
    const base::mutex_lock lock(state_);
    if (now < next_sweep_) return;
    next_sweep_ = now + sweep_interval;
  }
  sweep();
}

void session::sweep() {
  ask(words().sweep(), [this](const base::result<reply>& said) {
    if (said && says_more(*said, 1)) sweep();
  });
}

void session::serve_on(const std::string& name) {
  ask(words().settle(name), [this, name](const base::result<reply>& said) {
    if (said && says_more(*said, 1)) serve_on(name);
  });
}

void session::serve_on_after(const base::result<reply>& said, std::size_t usual, const call& done) {
  if (said && says_more(*said, usual)) serve_on(done.parameters.front().bytes);
}

// ---- hearing -------------------------------------------------------------------------------------

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

backend_api::urgency session::unfinished() {
  const auto busy = [](const auto& each) { return each->unfinished(); };
  return undriven_waiters_.load(std::memory_order_relaxed) || std::ranges::any_of(calls_, busy)
             ? backend_api::urgency::now
             : backend_api::urgency::nothing;
}

}  // namespace sallyport::backends::sql
