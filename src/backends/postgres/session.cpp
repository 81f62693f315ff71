#include "backends/postgres/session.hpp"

#include "backends/postgres/answers.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace sallyport::backends::postgres {

using backend_api::acquire_answer;
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

namespace {

/// What a reply means, if one came.
template <class T>
base::result<T> meaning(base::result<reply>&& said, base::result<T> (*decode)(const reply&)) {
  if (!said) return tl::unexpected(std::move(said.error()));
  return decode(*said);
}

}  // namespace

// ---- calls under way -----------------------------------------------------------------------------

class session::acquire_exchange final : public exchange {
 public:
  explicit acquire_exchange(session& home) : home_(home) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    auto answer = meaning(std::move(said), &acquire_answer_of);
    if (answer) {
      if (auto* const waits = std::get_if<waiting>(&*answer)) {
        if (home_.stateless()) {
          waits->ask_again_after = home_.poll_after(waits->ask_again_after);
        } else {
          home_.listen();
        }
      }
    }
    home_.listener_.acquire_answered(order_key, std::move(answer));
  }

 private:
  session& home_;
};

class session::renew_exchange final : public exchange {
 public:
  renew_exchange(session& home, std::vector<holder_id> who) : home_(home), who_(std::move(who)) {}
  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    base::result<std::vector<renew_answer>> all =
        said ? renew_answers_of(*said, who_.size())
             : base::result<std::vector<renew_answer>>(tl::unexpected(said.error()));
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
    home_.listener_.leave_answered(order_key, meaning(std::move(said), &leave_answer_of));
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
    base::result<std::vector<renew_answer>> all =
        said ? renew_answers_of(*said, 1)
             : base::result<std::vector<renew_answer>>(tl::unexpected(said.error()));
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

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto engine = net::pump::make();
  if (!engine) return tl::unexpected(engine.error());
  auto attention = backend_api::hearing::make_attention((*engine)->descriptor_number());
  if (!attention) return tl::unexpected(attention.error());
  auto made = std::make_shared<session>(std::move(*where), request, std::move(*engine),
                                        std::move(*attention));
  made->connect();
  made->wait_for_first_connection();
  std::optional<server_facts> facts;
  std::optional<base::failure> trouble;
  {
    const base::mutex_lock lock(made->mutex_);
    facts = made->facts_;
    trouble = made->trouble_;
  }
  // Wrong passwords and wrong addresses do not get better by waiting.
  if (!facts && trouble && trouble->code == errc::store_refused) {
    made->close();
    return tl::unexpected(*trouble);
  }
  made->capabilities_ = capabilities_of(facts, made->address_);
  return made;
}

session::session(address where, const backend_api::open_request& request,
                 std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention)
    : address_(std::move(where)),
      listener_(request.listener),
      pump_(std::move(engine)),
      speech_({.schema = address_.schema,
               .durable = address_.durable,
               .client = base::kernel_seed(),
               .owner = request.owner}),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      random_(base::kernel_seed()) {}

void session::connect() {
  connection::settings how{.where = address_.where,
                           .description = address_.description,
                           .connect_timeout = std::chrono::seconds{address_.connect_timeout_s}};
  const auto has = [&](std::string_view keyword) {
    return std::ranges::any_of(how.where, [&](const auto& one) { return one.first == keyword; });
  };
  how.where.emplace_back("client_encoding", "UTF8");
  if (!has("application_name")) {
    how.where.emplace_back("application_name", "sallyport:" + speech_.how().owner.label);
  }
  calls_ = connection::make(pump_, how, weak_from_this());
  notices_ = listening::make(pump_, how, weak_from_this());
}

void session::wait_for_first_connection() {
  constexpr std::chrono::seconds patience{2};
  const time_point until = lease_clock::now() + patience;
  calls_->want();
  while (lease_clock::now() < until) {
    {
      const base::mutex_lock lock(mutex_);
      if (facts_ || trouble_) return;
    }
    pump_->run_once(until);
  }
}

void session::close() {
  if (calls_) calls_->close();
  if (notices_) notices_->close();
  if (gate_.close()) pump_->ring();
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      auto asked = std::make_unique<acquire_exchange>(*this);
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      asked->what = speech_.acquire(request);
      if (!request.driven) {
        if (!request.asked_before) undriven_waiters_.store(true, std::memory_order_relaxed);
        hearing_.be_heard();
      }
      calls_->send(std::move(asked));
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::renew(std::span<const renew_request> batch) {
  if (batch.empty()) return;
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      hearing_.be_heard();
      // Who holds for long is told at once when its grant is broken.
      if (!stateless()) listen();
      std::vector<holder_id> who;
      for (const renew_request& each : batch) who.push_back(each.holder);
      auto asked = std::make_unique<renew_exchange>(*this, who);
      // A batch has no key of its own: the order of its members is that of the connection.
      if (batch.size() == 1) asked->order_key = batch.front().holder;
      asked->answer_by = batch.front().answer_by;
      for (const renew_request& each : batch) {
        asked->answer_by = std::min(asked->answer_by, each.answer_by);
      }
      asked->what = speech_.renew(batch);
      calls_->send(std::move(asked));
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
      asked->what = speech_.leave(request, withdraw);
      if (!request.driven) hearing_.be_heard();
      calls_->send(std::move(asked));
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
      asked->what = speech_.downgrade(request);
      hearing_.be_heard();
      calls_->send(std::move(asked));
      return;
    }
  }
  listener_.downgrade_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::ask(call what, std::function<void(base::result<reply>)> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  auto asked = std::make_unique<other_exchange>(*this, std::move(done));
  asked->answer_by = lease_clock::now() + housekeeping_patience;
  asked->what = std::move(what);
  hearing_.be_heard();
  calls_->send(std::move(asked));
}

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  ask(speech_.set_value(holder, value), [done = std::move(done)](base::result<reply> said) {
    done(meaning(std::move(said), &set_value_answer_of));
  });
}

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  ask(speech_.list(prefix, after, limit), [done = std::move(done)](base::result<reply> said) {
    done(meaning(std::move(said), &look_answer_of));
  });
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  ask(speech_.who(name), [done = std::move(done)](base::result<reply> said) {
    auto all = meaning(std::move(said), &look_answer_of);
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
  ask(speech_.break_lock(name, observed, mode), [done = std::move(done)](base::result<reply> said) {
    done(meaning(std::move(said), &break_answer_of));
  });
}

void session::sweep_now_and_then() {
  const time_point now = lease_clock::now();
  {
    const base::mutex_lock lock(mutex_);
    if (now < next_sweep_) return;
    next_sweep_ = now + sweep_interval;
  }
  ask(speech_.sweep(), [](const base::result<reply>& /*said*/) {});
}

// ---- notices -------------------------------------------------------------------------------------

void session::listen() {
  if (listens_.exchange(true)) return;
  notices_->listen(speech_.channel());
}

duration session::poll_after(duration told) {
  const base::mutex_lock lock(mutex_);
  const double share = 0.6 + 0.4 * random_.unit();
  const auto poll =
      duration(static_cast<duration::rep>(static_cast<double>(longest_poll.count()) * share));
  return std::min(told, poll);
}

void session::watch(const lock_name& name, bool on) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open() || stateless()) return;
  undriven_waiters_.store(true, std::memory_order_relaxed);
  hearing_.be_heard();
  if (!on) {
    std::string channel;
    {
      const base::mutex_lock lock(mutex_);
      const auto known = watched_channels_.find(name.text());
      if (known != watched_channels_.end()) {
        channel = known->second;
        watched_channels_.erase(known);
      }
      watched_.erase(channel);
    }
    if (!channel.empty()) notices_->unlisten(channel);
    return;
  }
  {
    const base::mutex_lock lock(mutex_);
    watched_channels_.emplace(name.text(), "");
  }
  ask_channel(name);
}

void session::ask_channel(const lock_name& name) {
  ask(speech_.change_channel(name), [this, name](base::result<reply> said) {
    if (said && !said->is_error() && said->rows.size() == 1 && said->rows.front().size() == 1) {
      watch_at(name, said->rows.front().front());
    }
  });
}

void session::watch_at(const lock_name& name, const std::string& channel) {
  {
    const base::mutex_lock lock(mutex_);
    const auto wanted = watched_channels_.find(name.text());
    if (wanted == watched_channels_.end()) return;
    wanted->second = channel;
    watched_.insert_or_assign(channel, name);
  }
  notices_->listen(channel);
}

void session::message(std::string_view channel, std::string_view payload) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  if (channel == speech_.channel()) {
    if (const auto said = parse_notice(payload)) {
      if (said->grant) {
        listener_.granted_notice(said->holder, said->grant);
      } else {
        listener_.lost_notice(said->holder);
      }
    }
    return;
  }
  std::optional<lock_name> changed;
  {
    const base::mutex_lock lock(mutex_);
    const auto found = watched_.find(std::string(channel));
    if (found != watched_.end()) changed = found->second;
  }
  if (changed) listener_.changed_notice(*changed);
}

void session::gap_ended() {
  const delivery_gate::pass pass(gate_);
  if (pass.open()) listener_.reconnected();
}

// ---- the connection for calls --------------------------------------------------------------------

base::result<std::optional<std::string>> session::greet(const reply* said, int server_process) {
  if (said == nullptr) greeting_.emplace(address_, server_process);
  auto next = greeting_->next(said);
  if (next && !*next) {
    pooled_.store(greeting_->facts().pooled, std::memory_order_relaxed);
    const base::mutex_lock lock(mutex_);
    facts_ = greeting_->facts();
    trouble_.reset();
  }
  return next;
}

void session::connected() {
  if (!std::exchange(ever_connected_, true)) return;
  // Names that began to be watched while nobody could say where.
  std::vector<std::string> unknown;
  {
    const base::mutex_lock lock(mutex_);
    for (const auto& [name, channel] : watched_channels_) {
      if (channel.empty()) unknown.push_back(name);
    }
  }
  for (const std::string& each : unknown) ask_channel(lock_name(each));
  gap_ended();
}

void session::disconnected(const base::failure& why, bool /*was_up*/) {
  const base::mutex_lock lock(mutex_);
  if (!facts_) trouble_ = why;
}

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

backend_api::urgency session::unfinished() {
  return undriven_waiters_.load(std::memory_order_relaxed) || calls_->unfinished()
             ? backend_api::urgency::now
             : backend_api::urgency::nothing;
}

}  // namespace sallyport::backends::postgres
