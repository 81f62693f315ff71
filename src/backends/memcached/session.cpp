#include "backends/memcached/session.hpp"

#include "base/log.hpp"
#include "base/wall_clock.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

namespace sallyport::backends::memcached {

using backend_api::acquire_request;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;

/// An errand on its way: one command after the other, each an exchange of its own.
template <class Errand>
class session::carried final : public exchange {
 public:
  carried(session& home, std::unique_ptr<Errand> what, ending_of<Errand> done)
      : home_(home), what_(std::move(what)), done_(std::move(done)) {}

  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    if (!said) {
      done_(*what_, std::move(said.error()), sent_on);
      return;
    }
    go_on(what_->heard(*said), sent_on);
  }

  void not_meant() override {
    const delivery_gate::pass pass(home_.gate_);
    if (pass.open()) go_on(what_->not_bound(), 0);
  }

 private:
  void go_on(errand_step step, std::uint64_t heard_on) {
    if (!step.say) {
      done_(*what_, std::nullopt, heard_on);
      return;
    }
    if constexpr (std::is_same_v<Errand, acquire_errand>) {
      // A leave that came after this acquire must not be followed by its effect.
      if (!home_.still_asking(what_->holder())) {
        done_(*what_,
              base::failure{make_error_code(errc::outcome_unknown), "it has left meanwhile", true},
              heard_on);
        return;
      }
    }
    auto next = std::make_unique<carried>(home_, std::move(what_), std::move(done_));
    next->command = std::move(*step.say);
    next->answer_by = answer_by;
    next->bound_to = step.by_cas ? heard_on : 0;
    home_.connection_->send(std::move(next));
  }

  session& home_;
  std::unique_ptr<Errand> what_;
  ending_of<Errand> done_;
};

template <class Errand>
void session::carry(std::unique_ptr<Errand> what, time_point answer_by, std::uint64_t bound_to,
                    ending_of<Errand> done) {
  errand_step first = what->begin();
  auto asked = std::make_unique<carried<Errand>>(*this, std::move(what), std::move(done));
  asked->command = std::move(*first.say);
  asked->answer_by = answer_by;
  asked->bound_to = first.by_cas ? bound_to : 0;
  connection_->send(std::move(asked));
}

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
  if (auto done = made->connect(); !done) {
    made->close();
    return tl::unexpected(done.error());
  }
  return made;
}

session::session(address where, const backend_api::open_request& request,
                 std::shared_ptr<net::pump> engine, backend_api::hearing::attention attention)
    : address_(std::move(where)),
      listener_(request.listener),
      owner_(request.owner),
      pump_(std::move(engine)),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      random_(base::kernel_seed()) {}

base::result<std::monostate> session::connect() {
  auto made = connection::make(pump_,
                               {.where = address_.server,
                                .tls = address_.tls,
                                .user = address_.user,
                                .password = address_.password},
                               weak_from_this());
  if (!made) return tl::unexpected(made.error());
  connection_ = std::move(*made);
  wait_for_first_connection();
  {
    const base::mutex_lock lock(mutex_);
    // Wrong passwords and unfit servers do not get better by waiting.
    if (!server_ && trouble_ && trouble_->code == errc::store_refused) {
      return tl::unexpected(*trouble_);
    }
    capabilities_ = capabilities_of(server_.value_or(server_facts{}), server_.has_value());
  }
  capabilities_.store_id = store_id_of(address_);
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    base::log(base::log_level::info,
              "memcached is a cache: a restart, a flush or an eviction frees locks while their "
              "holders still believe in them, and there are no fencing tokens; "
              "capabilities().caveats says it all");
  }
  return std::monostate{};
}

void session::wait_for_first_connection() {
  constexpr std::chrono::seconds patience{2};
  const time_point until = lease_clock::now() + patience;
  connection_->want();
  while (lease_clock::now() < until) {
    {
      const base::mutex_lock lock(mutex_);
      if (server_ || trouble_) return;
    }
    pump_->run_once(until);
  }
}

void session::close() {
  if (connection_) connection_->close();
  if (gate_.close()) pump_->ring();
}

// ---- what is known of contenders -----------------------------------------------------------------

std::optional<grant_memory> session::known(const holder_id& who, std::uint64_t& number) {
  number = connection_->number();
  const base::mutex_lock lock(mutex_);
  const auto found = contenders_.find(who);
  if (found == contenders_.end() || found->second.connection != number) return std::nullopt;
  return found->second.grant;
}

session::last_words session::take_known(const holder_id& who, std::uint64_t& number) {
  number = connection_->number();
  const base::mutex_lock lock(mutex_);
  const auto found = contenders_.find(who);
  if (found == contenders_.end()) return {};
  const standing& mine = found->second;
  const last_words all{.cas = mine.grant && mine.connection == number ? mine.grant->cas : 0,
                       .wanted = mine.grant && mine.grant->wanted};
  if (mine.renewed) long_held_.fetch_sub(1);
  contenders_.erase(found);
  return all;
}

void session::remember(const holder_id& who, grant_memory grant, std::uint64_t number,
                       bool renewed) {
  const base::mutex_lock lock(mutex_);
  const auto found = contenders_.find(who);
  if (found == contenders_.end()) return;
  standing& mine = found->second;
  // To replace the item took the mark away; that somebody asked stays true.
  grant.wanted = grant.wanted || (mine.grant && mine.grant->wanted);
  mine.grant = std::move(grant);
  mine.connection = number;
  mine.polls = 0;
  mine.asking = false;
  if (renewed && !std::exchange(mine.renewed, true)) long_held_.fetch_add(1);
}

bool session::still_asking(const holder_id& who) {
  const base::mutex_lock lock(mutex_);
  const auto found = contenders_.find(who);
  return found != contenders_.end() && found->second.asking;
}

void session::forget(const holder_id& who) {
  const base::mutex_lock lock(mutex_);
  const auto found = contenders_.find(who);
  if (found == contenders_.end()) return;
  if (found->second.renewed) long_held_.fetch_sub(1);
  contenders_.erase(found);
}

void session::yield(const std::string& key) {
  const time_point now = lease_clock::now();
  const base::mutex_lock lock(mutex_);
  if (yielded_.size() >= most_yielded) {
    std::erase_if(yielded_, [&](const auto& each) { return each.second <= now; });
  }
  if (yielded_.size() < most_yielded) yielded_[key] = now + courtesy;
}

duration session::yielding(const std::string& key) {
  const base::mutex_lock lock(mutex_);
  if (yielded_.empty()) return duration::zero();
  const auto found = yielded_.find(key);
  if (found == yielded_.end()) return duration::zero();
  const duration left = found->second - lease_clock::now();
  if (left <= duration::zero()) yielded_.erase(found);
  return std::max(left, duration::zero());
}

record session::card_for(const acquire_request& request) const {
  return {.kind = request.kind,
          .holder = request.holder,
          .local_waiters = request.local_waiters,
          .since_ms = base::wall_clock_ms(),
          .pid = owner_.pid,
          .host = owner_.host,
          .label = owner_.label,
          .value = std::string(request.value)};
}

// ---- requests ------------------------------------------------------------------------------------

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      duration pause{};
      {
        const base::mutex_lock lock(mutex_);
        standing& mine = contenders_[request.holder];
        mine.asking = true;
        if (request.may_wait) pause = poll_pause(mine.polls, random_.unit());
      }
      if (!request.driven) hearing_.be_heard();
      std::string key = key_of(address_.prefix, request.name);
      if (request.may_wait) {
        if (const duration others_first = yielding(key); others_first > duration::zero()) {
          listener_.acquire_answered(request.holder,
                                     backend_api::waiting{.ask_again_after = others_first});
          return;
        }
      }
      carry<acquire_errand>(
          std::make_unique<acquire_errand>(
              acquire_errand::question{.key = std::move(key),
                                       .mine = card_for(request),
                                       .lease_length = request.lease_length,
                                       .may_wait = request.may_wait,
                                       .asked_before = request.asked_before,
                                       .pause = pause}),
          request.answer_by, 0,
          [this, who = request.holder](acquire_errand& what, std::optional<base::failure> trouble,
                                       std::uint64_t number) {
            acquired(who, what, std::move(trouble), number);
          });
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::acquired(const holder_id& who, acquire_errand& what,
                       std::optional<base::failure> trouble, std::uint64_t number) {
  if (trouble) {
    forget(who);
    listener_.acquire_answered(who, tl::unexpected(std::move(*trouble)));
    return;
  }
  if (what.granted) {
    remember(who, std::move(*what.granted), number, false);
  } else if (what.verdict && std::holds_alternative<backend_api::waiting>(*what.verdict)) {
    const base::mutex_lock lock(mutex_);
    if (const auto found = contenders_.find(who); found != contenders_.end()) {
      ++found->second.polls;
      found->second.asking = false;
    }
  } else {
    forget(who);
  }
  listener_.acquire_answered(who, std::move(what.verdict));
}

void session::acquire_all(std::span<const acquire_request> batch) {
  std::optional<connection::gathering> together;
  if (batch.size() > 1) together.emplace(*connection_);
  for (const acquire_request& each : batch) acquire(each);
}

void session::renew(std::span<const renew_request> batch) {
  const delivery_gate::pass pass(gate_);
  hearing_.be_heard();
  std::optional<connection::gathering> together;
  if (pass.open() && batch.size() > 1) together.emplace(*connection_);
  for (const renew_request& each : batch) {
    if (pass.open()) {
      renew_one(each);
      continue;
    }
    std::array<renew_outcome, 1> outcome{{{each.holder, tl::unexpected(closed_failure())}}};
    listener_.renewals_answered(outcome);
  }
}

void session::renew_one(const renew_request& request) {
  std::uint64_t number = 0;
  auto grant = known(request.holder, number);
  carry<renew_errand>(
      std::make_unique<renew_errand>(
          renew_errand::question{.key = key_of(address_.prefix, request.name),
                                 .holder = request.holder,
                                 .lease_length = request.lease_length,
                                 .draw_token = request.token_count > 0,
                                 .local_waiters = request.local_waiters},
          std::move(grant)),
      request.answer_by, number,
      [this, who = request.holder](renew_errand& what, std::optional<base::failure> trouble,
                                   std::uint64_t heard_on) {
        if (!trouble && what.renewed) remember(who, std::move(*what.renewed), heard_on, true);
        if (!trouble && what.verdict && !what.renewed) forget(who);
        std::array<renew_outcome, 1> outcome{
            {{who, trouble ? tl::unexpected(std::move(*trouble)) : std::move(what.verdict)}}};
        listener_.renewals_answered(outcome);
      });
}

void session::leave(const leave_request& request, bool /*withdraw*/) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (!request.driven) hearing_.be_heard();
      std::uint64_t number = 0;
      // Whatever comes of it, what is known now is not true any more.
      const auto [cas, asked_for] = take_known(request.holder, number);
      std::string key = key_of(address_.prefix, request.name);
      carry<leave_errand>(
          std::make_unique<leave_errand>(key, request.holder, cas), request.answer_by, number,
          [this, who = request.holder, key, wanted = asked_for](
              leave_errand& what, std::optional<base::failure> trouble, std::uint64_t) {
            if (!trouble && (wanted || what.wanted)) yield(key);
            listener_.leave_answered(
                who, trouble ? tl::unexpected(std::move(*trouble)) : std::move(what.verdict));
          });
      return;
    }
  }
  listener_.leave_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::downgrade(const renew_request& request) {
  const bool open_still = delivery_gate::pass(gate_).open();
  listener_.downgrade_answered(
      request.holder,
      tl::unexpected(open_still ? base::failure{make_error_code(errc::not_supported),
                                                "memcached has no shared locks here"}
                                : closed_failure()));
}

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  hearing_.be_heard();
  carry<value_errand>(
      std::make_unique<value_errand>(key_of(address_.prefix, holder.name), holder.holder,
                                     std::string(value)),
      lease_clock::now() + housekeeping_patience, 0,
      [this, who = holder.holder, done = std::move(done)](
          value_errand& what, std::optional<base::failure> trouble, std::uint64_t number) {
        if (!trouble && what.now) remember(who, std::move(*what.now), number, false);
        done(trouble ? tl::unexpected(std::move(*trouble)) : std::move(what.verdict));
      });
}

void session::list(std::string_view /*prefix*/, std::string_view /*after*/, std::size_t /*limit*/,
                   const completion<std::vector<lock_info>>& done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  done(base::fail(errc::not_supported,
                  "memcached cannot enumerate its items reliably, so its locks can't be listed; "
                  "ask who holds a lock by its name"));
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  hearing_.be_heard();
  carry<who_errand>(
      std::make_unique<who_errand>(key_of(address_.prefix, name), name, base::wall_clock_ms()),
      lease_clock::now() + housekeeping_patience, 0,
      [done = std::move(done)](who_errand& what, std::optional<base::failure> trouble,
                               std::uint64_t) {
        done(trouble ? tl::unexpected(std::move(*trouble)) : std::move(what.verdict));
      });
}

void session::break_lock(const lock_name& name, fencing_token observed,
                         backend_api::break_mode mode, completion<std::monostate> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  hearing_.be_heard();
  carry<break_errand>(
      std::make_unique<break_errand>(key_of(address_.prefix, name), observed, mode),
      lease_clock::now() + housekeeping_patience, 0,
      [done = std::move(done)](break_errand& what, std::optional<base::failure> trouble,
                               std::uint64_t) {
        done(trouble ? tl::unexpected(std::move(*trouble)) : std::move(what.verdict));
      });
}

// ---- what comes unasked --------------------------------------------------------------------------

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

backend_api::urgency session::unfinished() {
  return long_held_.load(std::memory_order_relaxed) > 0 || connection_->unfinished()
             ? backend_api::urgency::now
             : backend_api::urgency::nothing;
}

base::result<std::monostate> session::greeted(const server_facts& said) {
  if (std::string why = objection_to(said); !why.empty()) {
    return base::fail(errc::store_refused, std::move(why));
  }
  const base::mutex_lock lock(mutex_);
  // With a memory file items may outlive the process: then each holder looks for itself.
  restarted_ = server_ && !server_->same_process(said) && !said.keeps_file;
  server_ = said;
  return std::monostate{};
}

void session::connected() {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  std::vector<holder_id> lost;
  {
    const base::mutex_lock lock(mutex_);
    trouble_.reset();
    up_ = true;
    if (std::exchange(restarted_, false)) {
      for (auto& [who, what] : contenders_) {
        if (what.grant) lost.push_back(who);
        what.grant.reset();
      }
    }
  }
  if (!lost.empty()) {
    base::log(base::log_level::warning,
              connection_->describe() + " was started anew: all its locks are gone, " +
                  std::to_string(lost.size()) + " of this client among them");
  }
  for (const holder_id& each : lost) listener_.lost_notice(each);
  listener_.reconnected();
}

void session::disconnected(const base::failure& why) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  bool was_up = false;
  {
    const base::mutex_lock lock(mutex_);
    trouble_ = why;
    was_up = std::exchange(up_, false);
  }
  // Once: what follows are attempts, and renewals that were made at once for each would make more.
  if (was_up) listener_.disconnected();
}

}  // namespace sallyport::backends::memcached
