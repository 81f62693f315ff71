#include "backends/redis/session.hpp"

#include "backends/redis/client_identity.hpp"
#include "backends/redis/cluster.hpp"
#include "backends/redis/request_exchange.hpp"
#include "backends/redis/sentinel.hpp"
#include "backends/redis/single_server.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

namespace sallyport::backends::redis {

using backend_api::acquire_request;
using backend_api::closed_failure;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;

// ---- opening and closing -------------------------------------------------------------------------

base::result<std::shared_ptr<session>> session::open(const backend_api::open_request& request) {
  auto where = parse_address(request.uri);
  if (!where) return tl::unexpected(where.error());
  auto engine = net::pump::make();
  if (!engine) return tl::unexpected(engine.error());
  auto attention = backend_api::hearing::make_attention((*engine)->descriptor_number());
  if (!attention) return tl::unexpected(attention.error());
  auto speech = std::make_shared<const protocol>(
      protocol::settings{.prefix = where->prefix,
                         .cluster = where->how == topology::cluster,
                         .client = fresh_client_number(),
                         .owner = request.owner,
                         .asks_store_name = where->store.empty()});
  auto made = std::make_shared<session>(std::move(*where), request.listener, std::move(*engine),
                                        std::move(*attention), std::move(speech));
  if (auto done = made->connect(request); !done) {
    made->close();
    return tl::unexpected(done.error());
  }
  return made;
}

session::session(address where, backend_api::events& listener, std::shared_ptr<net::pump> engine,
                 backend_api::hearing::attention attention, std::shared_ptr<const protocol> speech)
    : address_(std::move(where)),
      listener_(listener),
      pump_(std::move(engine)),
      speech_(std::move(speech)),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      identity_("redis", address_.store, place_of(address_)),
      random_(base::kernel_seed()) {}

base::result<std::monostate> session::connect(const backend_api::open_request& request) {
  const link_settings login{.where = address_.servers.front(),
                            .tls = address_.tls,
                            .user = address_.user,
                            .password = address_.password,
                            .client_name = client_name_for(address_, request.owner),
                            .database = static_cast<int>(address_.database),
                            .connect_timeout = std::chrono::seconds{2}};
  auto made = make_router(login);
  if (!made) return tl::unexpected(made.error());
  router_ = std::move(*made);
  wait_for_first_connection();
  if (const auto why = router_->trouble(); why.code == errc::store_refused) {
    return tl::unexpected(why);
  }
  std::optional<server_facts> facts;
  for (const auto& each : router_->all()) {
    facts = each->facts();
    if (facts) break;
    // Wrong passwords and wrong addresses do not get better by waiting.
    if (const auto why = each->trouble(); why && why->code == errc::store_refused) {
      return tl::unexpected(*why);
    }
  }
  capabilities_ =
      capabilities_of(facts.value_or(server_facts{}), facts.has_value(), address_.replicas);
  capabilities_.store_id = identity_.id();
  return std::monostate{};
}

base::result<std::shared_ptr<router>> session::make_router(const link_settings& login) {
  switch (address_.how) {
    case topology::single:
    case topology::quorum:  // not an address of this backend
      break;
    case topology::sentinel: {
      link_settings sentinel_login = login;
      sentinel_login.user = address_.sentinel_user;
      sentinel_login.password = address_.sentinel_password;
      return sentinel::make(pump_,
                            {.sentinels = address_.servers,
                             .group = address_.master,
                             .sentinel_login = std::move(sentinel_login),
                             .master_login = login},
                            speech_, weak_from_this());
    }
    case topology::cluster:
      return cluster::make(pump_, {.seeds = address_.servers, .login = login}, speech_,
                           weak_from_this());
  }
  return single_server::make(pump_, login, speech_, weak_from_this());
}

void session::wait_for_first_connection() {
  constexpr std::chrono::seconds patience{2};
  const time_point until = lease_clock::now() + patience;
  router_->begin();
  while (lease_clock::now() < until) {
    bool known = static_cast<bool>(router_->trouble().code);
    for (const auto& each : router_->all()) known = known || each->facts() || each->trouble();
    if (known) return;
    pump_->run_once(until);
  }
}

void session::answer_parked() {
  std::vector<std::unique_ptr<const backend_api::parked_acquire>> unsent;
  {
    const base::mutex_lock lock(mutex_);
    unsent = parked_.take_all();
  }
  for (const auto& each : unsent) {
    listener_.acquire_answered(each->request.holder, tl::unexpected(closed_failure()));
  }
}

void session::settle(time_point deadline) {
  constexpr duration look_again = std::chrono::milliseconds{1};
  const auto alive = shared_from_this();
  backend_api::drive_ticket never;
  for (time_point now = lease_clock::now();
       now < deadline && rests_under_way_.load(std::memory_order_relaxed) > 0;
       now = lease_clock::now()) {
    const auto outcome = hearing_.drive(never, std::min(deadline, now + look_again));
    if (outcome == backend_api::drive_outcome::not_driven) return;
  }
}

void session::close() {
  if (router_) router_->close();
  if (gate_.close()) pump_->ring();
  answer_parked();
}

// ---- requests ------------------------------------------------------------------------------------

base::failure session::no_server() {
  base::failure why = router_->trouble();
  if (!why.code) why = {make_error_code(errc::unavailable), "the servers are not known yet"};
  return why;
}

void session::dispatch(std::unique_ptr<request_exchange> what) {
  const std::uint32_t slot = what->slot();
  send(router_->node_for(slot), std::move(what));
}

void session::send(std::shared_ptr<node> where, std::unique_ptr<request_exchange> what) {
  if (!where) {
    what->answered(tl::unexpected(no_server()));
    return;
  }
  // While a slot is on its way here, its counter is not: nothing is drawn from it.
  if (!what->command.asking) where->prepare(what->slot(), what->command);
  if (address_.replicas > 0 && what->needs_replicas()) {
    send_witnessed(std::move(where), std::move(what), address_.replicas);
    return;
  }
  connection& commands = where->commands();
  what->via = std::move(where);
  commands.send(std::move(what));
}

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      if (identity_.known() || !speech_->how().cluster) {
        acquire_now(request);
      } else {
        acquire_once_named(request);
      }
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::acquire_once_named(const acquire_request& request) {
  {
    const base::mutex_lock lock(mutex_);
    parked_.park(request);
  }
  auto asked = std::make_unique<request_exchange>(*this, request_exchange::purpose::other,
                                                  speech_->store_name_slot());
  asked->answer_by = request.answer_by;
  asked->command = speech_->raise_and_name(backend_api::fresh_store_name());
  asked->done = [this, holder = request.holder](const base::result<reply>& said) {
    base::failure why{make_error_code(errc::unavailable), "the store's name is not known"};
    bool named = false;
    const auto name = said ? store_name_of(*said) : tl::unexpected(said.error());
    if (const auto learnt = name ? identity_.learn(*name) : tl::unexpected(name.error()); !learnt) {
      // Of the acquire itself nothing was sent.
      if (learnt.error().code == errc::store_refused) why.code = errc::store_refused;
      why.detail += ": " + learnt.error().detail;
    } else {
      named = true;
    }
    std::unique_ptr<const backend_api::parked_acquire> parked;
    {
      const base::mutex_lock lock(mutex_);
      parked = parked_.take(holder);
    }
    if (!parked) return;
    if (named) {
      acquire_now(parked->request);
    } else {
      listener_.acquire_answered(holder, tl::unexpected(why));
    }
  };
  if (!request.driven) hearing_.be_heard();
  dispatch(std::move(asked));
}

void session::acquire_now(const acquire_request& request) {
  const lock_place place = speech_->place_of(request.name.text());
  std::shared_ptr<node> where = router_->node_for(place.slot());
  auto asked =
      std::make_unique<request_exchange>(*this, request_exchange::purpose::acquire, place.slot());
  asked->holder = request.holder;
  asked->order_key = request.holder;
  asked->answer_by = request.answer_by;
  if (!request.driven) {
    if (!request.asked_before) undriven_waiters_.store(true, std::memory_order_relaxed);
    hearing_.be_heard();
  }
  if (address_.replicas > 0) asked->proof = proof_of(request);
  if (where && request.may_wait && !where->listens(place, lease_clock::now())) {
    acquire_request first = request;
    first.may_wait = false;
    asked->unheard = true;
    asked->command = speech_->acquire(first, request.asked_before);
  } else {
    asked->command = speech_->acquire(request, request.asked_before);
  }
  send(std::move(where), std::move(asked));
}

void session::give_up_parked(const backend_api::holder_id& holder) {
  if (!speech_->how().cluster) return;
  std::unique_ptr<const backend_api::parked_acquire> unsent;
  {
    const base::mutex_lock lock(mutex_);
    unsent = parked_.take(holder);
  }
  if (!unsent) return;
  listener_.acquire_answered(holder, backend_api::left_before_sent());
}

std::unique_ptr<replica_proof> session::proof_of(const acquire_request& request) const {
  auto made = std::make_unique<replica_proof>();
  made->claim = speech_->renew({.name = request.name,
                                .kind = request.kind,
                                .mode = request.mode,
                                .holder = request.holder,
                                .lease_length = request.lease_length,
                                .local_waiters = request.local_waiters,
                                .answer_by = request.answer_by});
  made->give_back = speech_->leave({.name = request.name,
                                    .kind = request.kind,
                                    .mode = request.mode,
                                    .holder = request.holder,
                                    .answer_by = request.answer_by},
                                   false);
  return made;
}

void session::renew(std::span<const renew_request> batch) {
  const delivery_gate::pass pass(gate_);
  hearing_.be_heard();
  std::vector<std::shared_ptr<node>> servers;
  if (pass.open() && batch.size() > 1) servers = router_->all();
  std::deque<connection::gathering> together;
  for (const auto& each : servers) together.emplace_back(each->commands());
  for (const renew_request& each : batch) {
    if (!pass.open()) {
      std::array<renew_outcome, 1> outcome{{{each.holder, tl::unexpected(closed_failure())}}};
      listener_.renewals_answered(outcome);
      continue;
    }
    const lock_place place = speech_->place_of(each.name.text());
    auto asked =
        std::make_unique<request_exchange>(*this, request_exchange::purpose::renew, place.slot());
    asked->holder = each.holder;
    asked->order_key = each.holder;
    asked->answer_by = each.answer_by;
    asked->command = speech_->renew(each);
    // Who holds for long is told at once when its grant is broken.
    std::shared_ptr<node> where = router_->node_for(place.slot());
    if (where) static_cast<void>(where->listens(place, lease_clock::now()));
    send(std::move(where), std::move(asked));
  }
}

void session::leave(const leave_request& request, bool withdraw) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      give_up_parked(request.holder);
      const lock_place place = speech_->place_of(request.name.text());
      auto asked =
          std::make_unique<request_exchange>(*this, request_exchange::purpose::leave, place.slot());
      asked->holder = request.holder;
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      asked->command = speech_->leave(request, withdraw);
      if (!request.driven) hearing_.be_heard();
      dispatch(std::move(asked));
      return;
    }
  }
  listener_.leave_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::downgrade(const renew_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      const lock_place place = speech_->place_of(request.name.text());
      auto asked = std::make_unique<request_exchange>(*this, request_exchange::purpose::downgrade,
                                                      place.slot());
      asked->holder = request.holder;
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      hearing_.be_heard();
      if (request.kind != lock_kind::shared_mutex) {
        asked->answered(base::fail(errc::not_supported, "only a shared_mutex can be downgraded"));
        return;
      }
      asked->command = speech_->downgrade(request);
      if (address_.replicas > 0) {
        renew_request claim = request;
        claim.token_count = 0;
        asked->proof = std::make_unique<replica_proof>();
        asked->proof->claim = speech_->renew(claim);
      }
      dispatch(std::move(asked));
      return;
    }
  }
  listener_.downgrade_answered(request.holder, tl::unexpected(closed_failure()));
}

void session::ask(wire_command command, std::uint32_t slot,
                  std::function<void(base::result<reply>)> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  auto asked = std::make_unique<request_exchange>(*this, request_exchange::purpose::other, slot);
  asked->answer_by = lease_clock::now() + housekeeping_patience;
  asked->command = std::move(command);
  asked->done = std::move(done);
  hearing_.be_heard();
  dispatch(std::move(asked));
}

void session::serve_rest(wire_command command, std::uint32_t slot) {
  auto asked =
      std::make_unique<request_exchange>(*this, request_exchange::purpose::serve_rest, slot);
  asked->answer_by = lease_clock::now() + housekeeping_patience;
  asked->command = std::move(command);
  rests_under_way_.fetch_add(1, std::memory_order_relaxed);
  hearing_.be_heard();
  dispatch(std::move(asked));
}

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  auto asked = std::make_unique<request_exchange>(*this, request_exchange::purpose::other,
                                                  speech_->place_of(holder.name.text()).slot());
  asked->order_key = holder.holder;
  asked->answer_by = holder.answer_by;
  asked->command = speech_->set_value(holder, value);
  asked->done = [done = std::move(done)](base::result<reply> said) {
    done(decoded(std::move(said), &set_value_answer_of));
  };
  hearing_.be_heard();
  dispatch(std::move(asked));
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  look_at({name.text()}, true,
          [done = std::move(done)](base::result<std::vector<lock_info>> found) {
            if (!found) {
              done(tl::unexpected(std::move(found.error())));
            } else if (found->empty()) {
              done(std::optional<lock_info>());
            } else {
              done(std::optional(std::move(found->front())));
            }
          });
}

void session::break_lock(const lock_name& name, fencing_token observed,
                         backend_api::break_mode mode, completion<std::monostate> done) {
  const std::uint32_t slot = speech_->place_of(name.text()).slot();
  ask(speech_->break_lock(name, observed, mode), slot,
      [done = std::move(done)](base::result<reply> said) {
        done(decoded(std::move(said), &break_answer_of));
      });
}

void session::watch(const lock_name& name, bool on) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  const lock_place place = speech_->place_of(name.text());
  const std::string channel = place.changes_channel();
  {
    const base::mutex_lock lock(mutex_);
    if (on) {
      watched_.insert_or_assign(channel, name);
    } else {
      watched_.erase(channel);
    }
  }
  undriven_waiters_.store(true, std::memory_order_relaxed);
  hearing_.be_heard();
  const auto where = router_->node_for(place.slot());
  if (!where) return;
  if (on) {
    where->subscribe(channel);
  } else {
    where->unsubscribe(channel);
  }
}

// ---- what comes unasked --------------------------------------------------------------------------

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

backend_api::urgency session::unfinished() {
  return undriven_waiters_.load(std::memory_order_relaxed) || router_->unfinished()
             ? backend_api::urgency::now
             : backend_api::urgency::nothing;
}

double session::draw() {
  const base::mutex_lock lock(mutex_);
  return random_.unit();
}

void session::message(std::string_view channel, std::string_view payload) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) return;
  if (const auto said = parse_notice(payload)) {
    if (said->grant) {
      // With replicas to be asked nobody enters on the word of one server.
      listener_.granted_notice(said->holder, address_.replicas > 0 ? std::nullopt : said->grant);
    } else {
      listener_.lost_notice(said->holder);
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
  if (!pass.open()) return;
  if (speech_->how().cluster) {
    watch_again();
    ask_name_again();
  }
  listener_.reconnected();
}

void session::ask_name_again() {
  // The node that has it reads it with its greeting; but perhaps only another one was met again.
  if (!speech_->how().asks_store_name || !identity_.known()) return;
  ask(speech_->raise_and_name(backend_api::fresh_store_name()), speech_->store_name_slot(),
      [this](const base::result<reply>& said) {
        // What fails now is done when that node is connected to.
        if (const auto name = said ? store_name_of(*said) : tl::unexpected(said.error()); name) {
          static_cast<void>(identity_.learn(*name));
        }
      });
}

void session::watch_again() {
  std::vector<std::string> channels;
  {
    const base::mutex_lock lock(mutex_);
    for (const auto& [channel, name] : watched_) channels.push_back(channel);
  }
  for (const std::string& each : channels) {
    if (const auto where = router_->node_for(slot_of(each))) where->subscribe(each);
  }
}

void session::channel_moved(std::string_view channel, const reply& words,
                            const std::shared_ptr<node>& from) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open() || !router_) return;
  const auto where = router_->redirect(words, slot_of(channel), from).to;
  // Nowhere for the moment: the router looks, and says gap_ended when it has found something.
  if (!where) return;
  bool watched = false;
  {
    const base::mutex_lock lock(mutex_);
    watched = watched_.contains(std::string(channel));
  }
  if (watched) {
    where->subscribe(channel);
  } else {
    where->listen(std::string(channel), lease_clock::now());
  }
}

void session::node_lost(const net::endpoint& where, const base::failure& /*why*/) {
  const delivery_gate::pass pass(gate_);
  if (pass.open() && router_) router_->node_lost(where);
}

}  // namespace sallyport::backends::redis
