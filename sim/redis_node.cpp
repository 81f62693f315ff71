#include "sim/redis_node.hpp"

#include "base/planted.hpp"
#include "sim/redis_defects.hpp"
#include "sim/redis_driver.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace sallyport::sim {

using backends::memory::notice;
using backends::memory::notice_kind;
using base::defect;
using base::planted;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr time_point server_epoch{std::chrono::seconds{1'700'000'000}};
constexpr client_number nobody = 0;
/// How much of a foreign holder's time it relies on; the rest is for the clocks.
constexpr double share_relied_on = 0.97;

/// It keeps compiled scripts and nothing else, so one seed after another may use it: compiling them
/// takes longer than a whole simulation.
redis::script_host& scripts_of_this_thread() {
  thread_local redis::script_host host;
  return host;
}

duration whole_milliseconds(duration span) { return std::chrono::ceil<milliseconds>(span); }

constexpr std::array all_scripts{
    &backends::redis::scripts::acquire,    &backends::redis::scripts::acquire_many,
    &backends::redis::scripts::beat,       &backends::redis::scripts::break_lock,
    &backends::redis::scripts::downgrade,  &backends::redis::scripts::leave,
    &backends::redis::scripts::leave_many, &backends::redis::scripts::raise,
    &backends::redis::scripts::renew,      &backends::redis::scripts::renew_many,
    &backends::redis::scripts::set_value,  &backends::redis::scripts::who};

}  // namespace

std::vector<std::string> words_of(const backends::redis::wire_command& command, bool by_text) {
  std::vector<std::string> all = arguments_of(command);
  const auto script = by_text ? command.script->text : command.script->sha1;
  all.insert(all.begin(), {by_text ? "EVAL" : "EVALSHA", std::string(script)});
  return all;
}

redis_node::redis_node(context& shared, checkers& checks)
    : remote_store(draw_store_clock(shared.random, server_epoch)),
      shared_(shared),
      checks_(checks),
      server_(scripts_of_this_thread(),
              [this](const redis::publication& sent) { return publish(sent); }),
      operator_(speech_of(nobody)) {
  if (shared_.plan.rate(fault::data_loss) > 0) save_now_and_then();
}

microseconds redis_node::wall_time() const {
  return std::chrono::floor<microseconds>(now().time_since_epoch());
}

time_point redis_node::script_time() const {
  return time_point{std::chrono::floor<milliseconds>(now().time_since_epoch())};
}

redis::reply redis_node::run(const words& command) {
  return server_.execute(with_defect(command), wall_time());
}

// ---- clients -------------------------------------------------------------------------------------

std::unique_ptr<store_driver> redis_node::open(process& owner, client_number client) {
  return std::make_unique<redis_driver>(shared_, owner, *this, client);
}

void redis_node::add(client_number client, const std::shared_ptr<redis_link>& connections) {
  links_[client] = connections;
  // Outside of a cluster a client has one channel, whatever the lock.
  client_of_channel_[speech_of(client).channel_for(shared_.plan.locks.front().name)] = client;
}

void redis_node::greet() {
  for (const auto* each : all_scripts) {
    // What it knows already is not sent again here: these are long.
    if (server_.find_script(each->sha1) != nullptr) continue;
    (void)run({"SCRIPT", "LOAD", std::string(each->text)});
  }
  if (planted(defect::tokens_not_raised_on_connect)) return;
  (void)run(words_of(operator_.raise(), false));
}

std::int64_t redis_node::publish(const redis::publication& sent) {
  std::int64_t listeners = 0;
  for (const auto& [client, weak] : links_) {
    const auto each = weak.lock();
    if (!each) continue;
    const auto count = each->listeners(sent.channel);
    listeners += count;
    if (count > 0) each->publish_on(sent.channel, sent.payload);
  }
  published_.push_back({std::string(sent.channel), std::string(sent.payload), listeners > 0});
  return listeners;
}

std::vector<notice> redis_node::take_notices(const lock_name& name) {
  std::vector<notice> notices;
  for (const publication& each : std::exchange(published_, {})) {
    const auto said = backends::redis::parse_notice(each.payload);
    const auto client = client_of_channel_.find(each.channel);
    if (!said || client == client_of_channel_.end()) continue;
    if (said->grant && !each.heard) {
      shared_.count.add(counter::set_aside);
      checks_.store.set_aside(name, said->holder);
      continue;
    }
    notices.push_back({client->second, said->grant ? notice_kind::granted : notice_kind::lost,
                       said->holder, said->grant, name});
  }
  return notices;
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
  decode(asked, raw, out);
  if (raw.is_error()) {
    shared_.fail("scripts", raw.text);
    return out;
  }
  request in_milliseconds = asked;
  in_milliseconds.lease_length = whole_milliseconds(asked.lease_length);
  in_milliseconds.ticket_length = whole_milliseconds(asked.ticket_length);
  in_milliseconds.claim_window = whole_milliseconds(asked.claim_window);
  checks_.store.executed(in_milliseconds, from, out.says, take_notices(asked.name), script_time());
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

void redis_node::stop() {
  remote_store::stop();
  ++life_;
  server_.forget_scripts();
  for (const auto& [client, weak] : links_) {
    if (const auto each = weak.lock()) each->server_ended();
  }
}

void redis_node::forget_scripts() {
  shared_.note("the scripts are flushed");
  shared_.count.add(counter::scripts_flushed);
  server_.forget_scripts();
}

void redis_node::save_now_and_then() {
  saved_ = server_.keys();
  const duration lease = shared_.plan.lease;
  shared_.loop.after(draw_between(shared_.random, lease / 8, 2 * lease), [this] {
    if (!shared_.healed) save_now_and_then();
  });
}

void redis_node::lose_data() {
  const bool everything = shared_.random.chance(0.5);
  shared_.note("the server loses its data, all of it: #", everything ? 1 : 0);
  shared_.count.add(everything ? counter::data_lost : counter::data_rolled_back);
  if (everything) {
    server_.keys().clear();
  } else {
    server_.keys() = saved_;
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
    arrive([this, key, value] {
      (void)run({"EVAL",
                 "if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == "
                 "ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
                 "1", key, value});
    });
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
  const auto seen =
      who_answer_of(run(words_of(operator_.who(name.text(), true), false)), name.text());
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
  checks_.store.noticed(take_notices(name), script_time());
}

std::size_t redis_node::entries_left() {
  server_.keys().remove_expired(std::chrono::floor<milliseconds>(wall_time()).count());
  backends::redis::wire_command counter;
  operator_.place_of("").add_counter(counter);
  // The counter of tokens is what stays.
  return server_.keys().size() -
         (run({"EXISTS", arguments_of(counter).front()}).integer == 1 ? 1 : 0);
}

}  // namespace sallyport::sim
