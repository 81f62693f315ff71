#include "backends/redis/session.hpp"

#include "backends/redis/single_server.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <iterator>
#include <map>
#include <utility>

namespace sallyport::backends::redis {

using backend_api::acquire_answer;
using backend_api::acquire_request;
using backend_api::completion;
using backend_api::delivery_gate;
using backend_api::granted;
using backend_api::held;
using backend_api::holder_id;
using backend_api::leave_request;
using backend_api::renew_outcome;
using backend_api::renew_request;
using backend_api::waiting;

/// One command of a session on its way, with what its answer is for.
class request_exchange final : public exchange {
 public:
  enum class purpose : std::uint8_t { acquire, renew, leave, downgrade, other };

  request_exchange(session& whose, purpose what, std::uint32_t slot)
      : home_(whose), purpose_(what), slot_(slot) {}

  void answered(base::result<reply> said) override;

  holder_id holder;  ///< for whom; zero: nobody
  /// acquire: the channel for notices was not open yet, so it was asked without queueing.
  bool unheard = false;
  std::function<void(base::result<reply>)> done;  ///< other

 private:
  friend class session;
  bool redirected(const base::result<reply>& said);
  void deliver(base::result<reply> said);

  session& home_;
  const purpose purpose_;
  const std::uint32_t slot_;
  unsigned redirections_ = 0;
};

bool request_exchange::redirected(const base::result<reply>& said) {
  if (!said || !said->is_error()) return false;
  if (redirections_ >= session::most_redirections) return false;
  const router::redirection where = home_.router_->redirect(*said, slot_);
  if (!where.to) return false;
  auto again = std::make_unique<request_exchange>(home_, purpose_, slot_);
  again->command = std::move(command);
  again->answer_by = answer_by;
  again->order_key = order_key;
  again->holder = holder;
  again->unheard = unheard;
  again->done = std::move(done);
  again->redirections_ = redirections_ + 1;
  if (where.asking) again->command.asking = true;
  where.to->commands().send(std::move(again));
  return true;
}

void request_exchange::answered(base::result<reply> said) {
  const delivery_gate::pass pass(home_.gate_);
  if (!pass.open()) return;
  if (!redirected(said)) deliver(std::move(said));
}

namespace {

template <class T>
base::result<T> decoded(base::result<reply>&& said, base::result<T> (*decode)(const reply&)) {
  if (!said) return tl::unexpected(std::move(said.error()));
  return decode(*said);
}

/// What a new waiter is told that is not in the queue yet, since it would not be heard there. It
/// asks again as soon as the channel is open.
constexpr waiting until_heard{.ask_again_after = std::chrono::milliseconds{50}};

}  // namespace

void request_exchange::deliver(base::result<reply> said) {
  switch (purpose_) {
    case purpose::acquire: {
      base::result<acquire_answer> answer =
          said ? acquire_answer_of(*said, home_.draw())
               : base::result<acquire_answer>(tl::unexpected(std::move(said.error())));
      if (unheard && answer && std::holds_alternative<held>(*answer)) answer = until_heard;
      home_.listener_.acquire_answered(holder, std::move(answer));
      return;
    }
    case purpose::renew: {
      std::array<renew_outcome, 1> outcome{{{holder, decoded(std::move(said), &renew_answer_of)}}};
      home_.listener_.renewals_answered(outcome);
      return;
    }
    case purpose::leave:
      home_.listener_.leave_answered(holder, decoded(std::move(said), &leave_answer_of));
      return;
    case purpose::downgrade:
      home_.listener_.downgrade_answered(holder, decoded(std::move(said), &renew_answer_of));
      return;
    case purpose::other:
      done(std::move(said));
      return;
  }
}

// ---- opening and closing -------------------------------------------------------------------------

namespace {

std::string fresh_client_number() {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(base::kernel_seed()));
  return text.data();
}

/// CLIENT SETNAME takes neither blanks nor other unprintable characters.
std::string client_name_for(const address& where, const backend_api::owner_info& owner) {
  std::string name = where.client_name.empty() ? "sallyport:" + owner.label : where.client_name;
  for (char& each : name) {
    if (each <= ' ' || each > '~') each = '_';
  }
  return name;
}

}  // namespace

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
                         .owner = request.owner});
  auto made = std::make_shared<session>(std::move(*where), request.listener, std::move(*engine),
                                        std::move(*attention), std::move(speech));
  if (auto done = made->connect(request); !done) {
    made->close();
    return tl::unexpected(done.error());
  }
  return made;
}

session::session(address where, backend_api::events& listener, std::shared_ptr<net::pump> engine,
                 base::descriptor attention, std::shared_ptr<const protocol> speech)
    : address_(std::move(where)),
      listener_(listener),
      pump_(std::move(engine)),
      speech_(std::move(speech)),
      hearing_(*this, pump_->descriptor_number(), std::move(attention)),
      random_(base::kernel_seed()) {}

base::result<std::monostate> session::connect(const backend_api::open_request& request) {
  const link_settings login{.where = address_.servers.front(),
                            .tls = address_.tls,
                            .user = address_.user,
                            .password = address_.password,
                            .client_name = client_name_for(address_, request.owner),
                            .database = static_cast<int>(address_.database),
                            .connect_timeout = std::chrono::seconds{2}};
  auto made = single_server::make(pump_, login, speech_, weak_from_this());
  if (!made) return tl::unexpected(made.error());
  router_ = std::move(*made);
  wait_for_first_connection();
  std::optional<server_facts> facts;
  for (const auto& each : router_->all()) {
    facts = each->facts();
    if (facts) break;
    // Wrong passwords and wrong addresses do not get better by waiting.
    if (const auto why = each->trouble(); why && why->code == errc::store_refused) {
      return tl::unexpected(*why);
    }
  }
  capabilities_ = capabilities_of(facts.value_or(server_facts{}), facts.has_value());
  capabilities_.store_id = store_id_of(address_);
  return std::monostate{};
}

void session::wait_for_first_connection() {
  constexpr std::chrono::seconds patience{2};
  const time_point until = lease_clock::now() + patience;
  router_->begin();
  while (lease_clock::now() < until) {
    bool known = false;
    for (const auto& each : router_->all()) known = known || each->facts() || each->trouble();
    if (known) return;
    pump_->run_once(until);
  }
}

void session::close() {
  if (router_) router_->close();
  if (gate_.close()) pump_->ring();
}

base::failure session::closed_failure() {
  return {make_error_code(errc::closed), "the client was closed"};
}

// ---- requests ------------------------------------------------------------------------------------

void session::dispatch(std::unique_ptr<request_exchange> what) {
  const std::shared_ptr<node> where = router_->node_for(what->slot_);
  if (!where) {
    what->answered(tl::unexpected(router_->trouble()));
    return;
  }
  where->commands().send(std::move(what));
}

void session::acquire(const acquire_request& request) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
      const lock_place place = speech_->place_of(request.name.text());
      const std::shared_ptr<node> where = router_->node_for(place.slot());
      auto asked = std::make_unique<request_exchange>(*this, request_exchange::purpose::acquire,
                                                      place.slot());
      asked->holder = request.holder;
      asked->order_key = request.holder;
      asked->answer_by = request.answer_by;
      if (!request.driven) {
        if (!request.asked_before) undriven_waiters_.store(true, std::memory_order_relaxed);
        hearing_.be_heard();
      }
      if (!where) {
        asked->answered(tl::unexpected(router_->trouble()));
        return;
      }
      where->use_slot(place);
      if (request.may_wait && !where->listens(place, lease_clock::now())) {
        acquire_request first = request;
        first.may_wait = false;
        asked->unheard = true;
        asked->command = speech_->acquire(first, request.asked_before);
      } else {
        asked->command = speech_->acquire(request, request.asked_before);
      }
      where->commands().send(std::move(asked));
      return;
    }
  }
  listener_.acquire_answered(request.holder, tl::unexpected(closed_failure()));
}

/// Several heartbeats on their way, with what is needed to ask for one of them in full.
class session::heartbeats final : public exchange {
 public:
  heartbeats(session& whose, std::span<const acquire_request> batch) : home_(whose) {
    all_.reserve(batch.size());
    answer_by = batch.front().answer_by;
    for (const acquire_request& each : batch) {
      answer_by = std::min(answer_by, each.answer_by);
      all_.push_back({each.name, std::string(each.value), each});
    }
    command = home_.speech_->beat(batch);
  }

  void answered(base::result<reply> said) override {
    const delivery_gate::pass pass(home_.gate_);
    if (!pass.open()) return;
    const bool each_has_one = said && said->is_array() && said->elements.size() == all_.size();
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const holder_id& who = all_[i].request.holder;
      if (!said) {
        home_.listener_.acquire_answered(who, tl::unexpected(said.error()));
      } else if (each_has_one && said->elements[i].is_array()) {
        home_.listener_.acquire_answered(who, acquire_answer_of(said->elements[i], home_.draw()));
      } else {
        home_.acquire(all_[i].again());
      }
    }
  }

 private:
  struct asked {
    lock_name name;
    std::string value;
    acquire_request request;  // but for its references

    [[nodiscard]] acquire_request again() const {
      return {.name = name,
              .kind = request.kind,
              .mode = request.mode,
              .holder = request.holder,
              .lease_length = request.lease_length,
              .claim_window = request.claim_window,
              .ticket_length = request.ticket_length,
              .may_wait = true,
              .permits = request.permits,
              .token_count = request.token_count,
              .local_waiters = request.local_waiters,
              .value = value,
              .answer_by = request.answer_by};
    }
  };

  session& home_;
  std::vector<asked> all_;
};

void session::acquire_all(std::span<const acquire_request> batch) {
  std::vector<acquire_request> beats;
  for (const acquire_request& each : batch) {
    if (speech_->may_beat(each)) {
      beats.push_back(each);
    } else {
      acquire(each);
    }
  }
  const delivery_gate::pass pass(gate_);
  const std::shared_ptr<node> where =
      pass.open() && !beats.empty() ? router_->node_for(0) : nullptr;
  if (!where || !where->listens(speech_->place_of({}), lease_clock::now())) {
    for (const acquire_request& each : beats) acquire(each);
    return;
  }
  hearing_.be_heard();
  const connection::gathering together(where->commands());
  for (std::size_t from = 0; from < beats.size(); from += most_beats) {
    const std::size_t count = std::min(most_beats, beats.size() - from);
    where->commands().send(
        std::make_unique<heartbeats>(*this, std::span(beats).subspan(from, count)));
  }
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
    if (const auto where = router_->node_for(place.slot())) {
      static_cast<void>(where->listens(place, lease_clock::now()));
    }
    dispatch(std::move(asked));
  }
}

void session::leave(const leave_request& request, bool withdraw) {
  {
    const delivery_gate::pass pass(gate_);
    if (pass.open()) {
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

void session::set_value(const renew_request& holder, std::string_view value,
                        completion<bool> done) {
  const std::uint32_t slot = speech_->place_of(holder.name.text()).slot();
  ask(speech_->set_value(holder, value), slot, [done = std::move(done)](base::result<reply> said) {
    done(decoded(std::move(said), &set_value_answer_of));
  });
}

void session::who(const lock_name& name, completion<std::optional<lock_info>> done) {
  const std::uint32_t slot = speech_->place_of(name.text()).slot();
  ask(speech_->who(name.text(), true), slot,
      [name = name.text(), done = std::move(done)](base::result<reply> said) {
        if (said) {
          done(who_answer_of(*said, name));
        } else {
          done(tl::unexpected(std::move(said.error())));
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

// ---- listing -------------------------------------------------------------------------------------

/// Walks over the keys of all servers, page by page, and asks about every name that may be a lock.
class session::listing final : public std::enable_shared_from_this<listing> {
 public:
  listing(std::shared_ptr<session> home, std::string_view prefix, std::string_view after,
          std::size_t limit, completion<std::vector<lock_info>> done)
      : home_(std::move(home)),
        prefix_(prefix),
        after_(after),
        limit_(limit),
        done_(std::move(done)),
        servers_(home_->router_->all()),
        pattern_(pattern_of(home_->address_.prefix + prefix_)) {}

  void next_page() {
    if (server_ == servers_.size()) {
      finish();
      return;
    }
    auto asked = std::make_unique<request_exchange>(*home_, request_exchange::purpose::other, 0);
    asked->answer_by = lease_clock::now() + housekeeping_patience;
    asked->command = plain_command({"SCAN", cursor_, "MATCH", pattern_, "COUNT", "500"});
    asked->done = [self = shared_from_this()](base::result<reply> said) {
      self->page_came(std::move(said));
    };
    servers_[server_]->commands().send(std::move(asked));
  }

 private:
  void page_came(base::result<reply> said) {
    if (!said) return fail(std::move(said.error()));
    if (said->is_error()) return fail(failure_of(*said));
    if (said->elements.size() != 2) return next_server();
    cursor_ = said->elements[0].text;
    std::vector<std::string> names;
    for (const reply& key : said->elements[1].elements) {
      const std::string_view name = name_in(key.text, home_->address_.prefix);
      if (name > after_ && lock_name::acceptable(name)) names.emplace_back(name);
    }
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    // One more than there are, for this function itself.
    under_way_ = names.size() + 1;
    for (const std::string& name : names) {
      home_->ask(home_->speech_->who(name, false), home_->speech_->place_of(name).slot(),
                 [self = shared_from_this(), name](base::result<reply> answer) {
                   self->name_came(name, std::move(answer));
                 });
    }
    one_came();
  }

  void name_came(const std::string& name, base::result<reply> said) {
    if (!said) {
      failed_ = std::move(said.error());
    } else if (auto info = who_answer_of(*said, name); info && *info) {
      found_.insert_or_assign(name, std::move(**info));
      if (found_.size() > limit_) found_.erase(std::prev(found_.end()));
    }
    one_came();
  }

  void one_came() {
    if (--under_way_ > 0) return;
    if (failed_) return fail(std::move(*failed_));
    if (cursor_ == "0") return next_server();
    next_page();
  }

  void next_server() {
    ++server_;
    cursor_ = "0";
    next_page();
  }

  void fail(base::failure why) { done_(tl::unexpected(std::move(why))); }

  void finish() {
    std::vector<lock_info> all;
    for (auto& [name, info] : found_) all.push_back(std::move(info));
    done_(std::move(all));
  }

  const std::shared_ptr<session> home_;
  const std::string prefix_;
  const std::string after_;
  const std::size_t limit_;
  const completion<std::vector<lock_info>> done_;
  const std::vector<std::shared_ptr<node>> servers_;
  const std::string pattern_;
  std::size_t server_ = 0;
  std::string cursor_ = "0";
  std::size_t under_way_ = 0;
  std::optional<base::failure> failed_;
  std::map<std::string, lock_info> found_;
};

void session::list(std::string_view prefix, std::string_view after, std::size_t limit,
                   completion<std::vector<lock_info>> done) {
  const delivery_gate::pass pass(gate_);
  if (!pass.open()) {
    done(tl::unexpected(closed_failure()));
    return;
  }
  hearing_.be_heard();
  std::make_shared<listing>(shared_from_this(), prefix, after, limit, std::move(done))->next_page();
}

// ---- what comes unasked --------------------------------------------------------------------------

bool session::hear(time_point deadline) {
  pump_->run_once(deadline);
  return delivery_gate::pass(gate_).open();
}

bool session::unfinished() {
  return undriven_waiters_.load(std::memory_order_relaxed) || router_->unfinished();
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
      listener_.granted_notice(said->holder, said->grant);
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
  if (pass.open()) listener_.reconnected();
}

void session::node_lost(const net::endpoint& where, const base::failure& /*why*/) {
  const delivery_gate::pass pass(gate_);
  if (pass.open() && router_) router_->node_lost(where);
}

}  // namespace sallyport::backends::redis
