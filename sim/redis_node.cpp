#include "sim/redis_node.hpp"

#include "backends/redis/words.hpp"
#include "base/planted.hpp"
#include "sim/redis_driver.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace sallyport::sim {

using backends::memory::notice;
using backends::memory::notice_kind;
using base::defect;
using base::planted;
using std::chrono::milliseconds;

namespace {

constexpr client_number nobody = 0;
/// How much of a foreign holder's time it relies on; the rest is for the clocks.
constexpr double share_relied_on = 0.97;

duration whole_milliseconds(duration span) { return std::chrono::ceil<milliseconds>(span); }

/// As backends::redis::rest_to_serve, which makes a call of it.
bool leaves_rest(const request& asked, const redis::reply& raw) {
  if (asked.what == operation::downgrade) {
    return raw.elements.size() > 4 && raw.elements[4].integer == 1;
  }
  return (asked.what == operation::release || asked.what == operation::withdraw) &&
         raw.integer >= 2;
}

constexpr std::array all_scripts{
    &backends::redis::scripts::acquire,    &backends::redis::scripts::acquire_many,
    &backends::redis::scripts::beat,       &backends::redis::scripts::break_lock,
    &backends::redis::scripts::downgrade,  &backends::redis::scripts::leave,
    &backends::redis::scripts::leave_many, &backends::redis::scripts::raise,
    &backends::redis::scripts::renew,      &backends::redis::scripts::renew_many,
    &backends::redis::scripts::set_value,  &backends::redis::scripts::who};

}  // namespace

redis_node::redis_node(context& shared, checkers& checks)
    : redis_server(shared, all_scripts),
      shared_(shared),
      checks_(checks),
      operator_(speech_of(nobody)) {
  if (shared_.plan.rate(fault::data_loss) > 0) save_now_and_then();
}

time_point redis_node::script_time() const {
  return time_point{std::chrono::floor<milliseconds>(machine_time().time_since_epoch())};
}

// ---- clients -------------------------------------------------------------------------------------

std::unique_ptr<store_driver> redis_node::open(process& owner, client_number client) {
  return std::make_unique<redis_driver>(shared_, owner, *this, client);
}

void redis_node::add(client_number client, const std::shared_ptr<redis_link>& connections) {
  redis_server::add(client, connections);
  // Outside of a cluster a client has one channel, whatever the lock.
  client_of_channel_[speech_of(client).channel_for(shared_.plan.locks.front().name)] = client;
}

void redis_node::greet() {
  redis_server::greet();
  if (planted(defect::tokens_not_raised_on_connect)) return;
  (void)run(words_of(operator_.raise(), false));
}

void redis_node::published(const redis::publication& what, bool heard) {
  published_.push_back({std::string(what.channel), std::string(what.payload), heard});
}

std::vector<notice> redis_node::take_notices(const lock_name& name) {
  std::vector<notice> notices;
  for (const publication& each : std::exchange(published_, {})) {
    const auto said = backends::redis::parse_notice(each.payload);
    const auto client = client_of_channel_.find(each.channel);
    if (!said || client == client_of_channel_.end()) continue;
    if (said->grant && !each.heard) {
      if (has_ticket(name, said->holder)) {
        shared_.count.add(counter::set_aside);
        checks_.store.set_aside(name, said->holder);
        continue;
      }
      shared_.count.add(counter::granted_unheard);
    }
    notices.push_back({client->second, said->grant ? notice_kind::granted : notice_kind::lost,
                       said->holder, said->grant, name});
  }
  return notices;
}

bool redis_node::has_ticket(const lock_name& name, const backend_api::holder_id& who) {
  backends::redis::wire_command key;
  operator_.place_of(name.text()).add_side(key, "waiters");
  const auto id = backends::redis::hex_of(who);
  return run({"HEXISTS", arguments_of(key).front(), std::string(backends::redis::view(id))})
             .integer == 1;
}

reply redis_node::execute(const request& asked, client_number from) {
  published_.clear();
  redis::reply raw = run(*asked.command);
  reply out{asked.number, asked.what, asked.holder, {}};
  out.unheard = asked.unheard;
  if (raw.error_word() == "NOSCRIPT") {
    out.unknown_script = std::make_shared<const request>(asked);
    return out;
  }
  shared_.note("server runs operation # of client # for lock #, ticket #",
               static_cast<std::int64_t>(asked.what), static_cast<std::int64_t>(from),
               static_cast<std::int64_t>(shared_.index_of(asked.name)),
               static_cast<std::int64_t>(asked.holder.low % 10'000));
  if (asked.beat && raw.elements.size() == 1) {
    redis::reply only = std::move(raw.elements.front());
    raw = std::move(only);
    if (raw.is_integer()) {  // nothing was done
      out.ask_in_full = std::make_shared<const request>(asked);
      return out;
    }
  }
  if (asked.what == operation::acquire && backends::redis::undecided(raw)) {
    out.ask_again = std::make_shared<const request>(asked);
    checks_.store.noticed(take_notices(asked.name), script_time());
    return out;
  }
  decode(asked, raw, out);
  if (raw.is_error()) {
    shared_.fail("scripts", raw.text);
    return out;
  }
  if (leaves_rest(asked, raw)) {
    out.left_rest = std::make_shared<const request>(asked);
    out.raw = std::make_shared<const redis::reply>(raw);
  }
  request in_milliseconds = asked;
  in_milliseconds.lease_length = whole_milliseconds(asked.lease_length);
  in_milliseconds.ticket_length = whole_milliseconds(asked.ticket_length);
  in_milliseconds.claim_window = whole_milliseconds(asked.claim_window);
  checks_.store.executed(in_milliseconds, from, out.says, take_notices(asked.name), script_time());
  return out;
}

reply redis_node::refuse(const request& asked) {
  reply out{asked.number, asked.what, asked.holder, {}};
  decode(asked, draw_refusal(), out);
  return out;
}

void redis_node::decode(const request& asked, const redis::reply& raw, reply& out) {
  using namespace backends::redis;
  switch (asked.what) {
    case operation::acquire:
      out.says = acquire_answer_of(raw, shared_.random.unit());
      return;
    case operation::renew:
    case operation::downgrade:
      out.says = renew_answer_of(raw);
      return;
    case operation::release:
    case operation::withdraw:
      if (const auto said = leave_answer_of(raw)) {
        out.says = *said;
      } else {
        out.failed = said.error();
      }
      return;
    case operation::set_value:
      if (const auto said = set_value_answer_of(raw)) {
        out.says = *said;
      } else {
        out.failed = said.error();
      }
      return;
  }
}

// ---- what may happen to it -----------------------------------------------------------------------

void redis_node::lose_data() {
  const bool everything = shared_.random.chance(0.5);
  shared_.note("the server loses its data, all of it: #", everything ? 1 : 0);
  shared_.count.add(everything ? counter::data_lost : counter::data_rolled_back);
  if (everything) {
    lose_everything();
  } else {
    lose_what_was_not_saved();
  }
  checks_.store.everything_gone();
}

void redis_node::flush_all() {
  shared_.note("somebody flushes the server");
  shared_.count.add(counter::flushed);
  (void)run({"FLUSHALL"});
  checks_.store.everything_gone();
}

void redis_node::lend_to_foreigner() {
  const std::size_t lock = shared_.random.below(shared_.plan.locks.size());
  const std::string& key = shared_.plan.locks[lock].name.text();
  const std::string value = "foreigner " + std::to_string(++foreigners_);
  const duration lease = draw_between(shared_.random, shared_.plan.lease / 8, shared_.plan.lease);
  const auto said = run({"SET", key, value, "NX", "PX",
                         std::to_string(std::chrono::ceil<milliseconds>(lease).count())});
  if (said.is_nil()) {
    shared_.count.add(counter::foreigner_refused);
    return;
  }
  shared_.note("a foreigner holds lock #", static_cast<std::int64_t>(lock));
  shared_.count.add(counter::foreigner_held);
  const auto relied_on = static_cast<double>(lease.count()) * share_relied_on;
  checks_.turns.foreigner_enters(lock, shared_.loop.now() + static_cast<true_time>(relied_on));
  if (shared_.random.chance(0.3)) return;  // it dies, and its key lapses
  shared_.loop.after(draw_between(shared_.random, duration{0}, lease), [this, lock, key, value] {
    checks_.turns.foreigner_leaves(lock);
    arrive([this, key, value] { (void)run({"EVAL", foreign_release, "1", key, value}); });
  });
}

void redis_node::delete_some_lock() {
  const auto& lock = shared_.plan.locks[shared_.random.below(shared_.plan.locks.size())];
  shared_.note("somebody deletes lock #", static_cast<std::int64_t>(shared_.index_of(lock.name)));
  if (run({"DEL", lock.name.text()}).integer == 1) shared_.count.add(counter::lock_deleted);
}

void redis_node::break_some_grant(const lock_name& name, backend_api::break_mode mode) {
  if (!reachable() || paused()) return;
  greet();
  const auto page = run(words_of(operator_.who(std::span(&name.text(), 1), true), false));
  if (page.elements.empty()) return;
  const auto seen = who_answer_of(page.elements.front(), name.text());
  if (!seen || !*seen || (*seen)->holders.empty()) return;
  const auto& holders = (*seen)->holders;
  const fencing_token token = holders[shared_.random.below(holders.size())].token;
  published_.clear();
  const auto said = run(words_of(operator_.break_lock(name, token, mode), false));
  if (said.is_error()) shared_.fail("scripts", said.text);
  if (!break_answer_of(said)) return;
  shared_.note("the grant of lock # with token # is broken, mode #",
               static_cast<std::int64_t>(shared_.index_of(name)),
               static_cast<std::int64_t>(token.value()), static_cast<std::int64_t>(mode));
  shared_.count.add(mode == backend_api::break_mode::safe ? counter::broken_safely
                                                          : counter::broken_at_once);
  // Whatever it left to be served is left to the waiters' questions, as by a person who pulls the plug.
  checks_.store.noticed(take_notices(name), script_time());
}

std::size_t redis_node::entries_left() {
  keys().remove_expired(wall_ms());
  backends::redis::wire_command counter;
  operator_.place_of("").add_counter(counter);
  // The counter of tokens is what stays.
  return keys().size() - (run({"EXISTS", arguments_of(counter).front()}).integer == 1 ? 1 : 0);
}

}  // namespace sallyport::sim
