#include "backends/redis/node.hpp"

#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <array>
#include <utility>

namespace sallyport::backends::redis {
namespace {

constexpr std::array all_scripts{&scripts::acquire,    &scripts::acquire_many, &scripts::beat,
                                 &scripts::break_lock, &scripts::downgrade,    &scripts::leave,
                                 &scripts::leave_many, &scripts::raise,        &scripts::renew,
                                 &scripts::renew_many, &scripts::set_value,    &scripts::who};

/// A command whose reply is of no interest: what it is for shows elsewhere.
class unheeded final : public exchange {
 public:
  void answered(base::result<reply> /*said*/) override {}
};

}  // namespace

base::result<std::shared_ptr<node>> node::make(std::shared_ptr<net::pump> engine, settings how,
                                               std::shared_ptr<const protocol> speech,
                                               std::weak_ptr<node_listener> whose) {
  auto made = std::make_shared<node>(engine, how, std::move(speech), std::move(whose));
  const link_settings& login = how.login;
  auto commands = connection::make(engine,
                                   {.where = login.where,
                                    .tls = login.tls,
                                    .user = login.user,
                                    .password = login.password,
                                    .client_name = login.client_name,
                                    .database = login.database,
                                    .connect_timeout = login.connect_timeout},
                                   made);
  if (!commands) return tl::unexpected(commands.error());
  made->commands_ = std::move(*commands);
  auto notices = subscriber::make(engine,
                                  {.where = login.where,
                                   .tls = login.tls,
                                   .user = login.user,
                                   .password = login.password,
                                   .client_name = login.client_name + ":notices",
                                   .database = login.database,
                                   .connect_timeout = login.connect_timeout},
                                  made);
  if (!notices) return tl::unexpected(notices.error());
  made->notices_ = std::move(*notices);
  return made;
}

node::node(std::shared_ptr<net::pump> engine, settings how, std::shared_ptr<const protocol> speech,
           std::weak_ptr<node_listener> whose)
    : pump_(std::move(engine)),
      how_(std::move(how)),
      speech_(std::move(speech)),
      listener_(std::move(whose)),
      where_(how_.login.where) {
  if (!sharded()) raises_.emplace(0, speech_->raise());
}

void node::use_slot(const lock_place& place) {
  if (!sharded()) return;
  {
    const base::mutex_lock lock(mutex_);
    wire_command raise = call_of(scripts::raise, 1);
    place.add_counter(raise);
    if (!raises_.emplace(place.slot(), std::move(raise)).second) return;
  }
  // The next command follows on the same connection; on a later one the greeting raises it.
  auto first = std::make_unique<unheeded>();
  first->command = call_of(scripts::raise, 1);
  place.add_counter(first->command);
  first->answer_by = lease_clock::now() + how_.login.connect_timeout;
  commands_->send(std::move(first));
}

bool node::listens(const lock_place& place, time_point now) {
  if (only_channel_confirmed_.load(std::memory_order_relaxed)) return true;
  const std::string channel = place.channel_of(speech_->how().client);
  {
    const base::mutex_lock lock(mutex_);
    const auto [found, fresh] = channels_.try_emplace(channel, channel_state{.since = now});
    if (!fresh) {
      return found->second.state != hearing_state::asked ||
             now - found->second.since > subscription_patience;
    }
  }
  subscribe(channel);
  return false;
}

void node::retarget(const net::endpoint& where) {
  {
    const base::mutex_lock lock(mutex_);
    where_ = where;
  }
  commands_->retarget(where);
  notices_->retarget(where);
}

void node::close() {
  commands_->close();
  notices_->close();
}

std::optional<server_facts> node::facts() {
  const base::mutex_lock lock(mutex_);
  return facts_;
}

std::optional<base::failure> node::trouble() {
  const base::mutex_lock lock(mutex_);
  return trouble_;
}

net::endpoint node::where() {
  const base::mutex_lock lock(mutex_);
  return where_;
}

std::vector<wire_command> node::greeting() {
  std::vector<wire_command> all;
  for (const auto& question : questions_about_a_server()) {
    wire_command& command = all.emplace_back();
    for (const std::string& word : question) command.add(word);
  }
  // So that no request meets a server that does not know its script, but for a SCRIPT FLUSH.
  for (const script_source* each : all_scripts) {
    all.push_back(plain_command({"SCRIPT", "LOAD", each->text}));
  }
  const base::mutex_lock lock(mutex_);
  for (const auto& [slot, raise] : raises_) all.push_back(raise);
  return all;
}

base::result<std::monostate> node::greeted(const std::vector<reply>& said) {
  const server_facts facts = facts_in(said);
  if (facts.replica && how_.master_only) {
    return base::fail(how_.only_server ? errc::store_refused : errc::unavailable,
                      "this server is a replica, which can't grant locks; use the address of its "
                      "master, or redis+sentinel:// to be led there");
  }
  if (facts.cluster && !speech_->how().cluster) {
    return base::fail(errc::store_refused,
                      "this server is a node of a cluster; use redis+cluster:// for its address");
  }
  const std::size_t scripts_from = questions_about_a_server().size();
  for (std::size_t i = scripts_from; i < said.size(); ++i) {
    // A counter whose slot has moved away is raised where it went.
    const std::string_view word = said[i].error_word();
    if (word == "MOVED" || word == "ASK" || word == "TRYAGAIN" || word == "CLUSTERDOWN") continue;
    if (said[i].is_error()) return tl::unexpected(failure_of(said[i]));
  }
  const base::mutex_lock lock(mutex_);
  facts_ = facts;
  return std::monostate{};
}

void node::connected() {
  bool again = false;
  {
    const base::mutex_lock lock(mutex_);
    again = std::exchange(ever_connected_, true);
    trouble_.reset();
  }
  if (!again) return;
  if (const auto told = listener_.lock()) told->gap_ended();
}

void node::disconnected(const base::failure& why) {
  net::endpoint where;
  {
    const base::mutex_lock lock(mutex_);
    trouble_ = why;
    where = where_;
  }
  if (const auto told = listener_.lock()) told->node_lost(where, why);
}

void node::subscribed(std::string_view channel) {
  {
    const base::mutex_lock lock(mutex_);
    const auto found = channels_.find(std::string(channel));
    if (found != channels_.end()) {
      found->second.state = hearing_state::confirmed;
      if (!sharded()) only_channel_confirmed_.store(true, std::memory_order_relaxed);
    }
  }
  if (const auto told = listener_.lock()) told->gap_ended();
}

void node::message(std::string_view channel, std::string_view payload) {
  if (const auto told = listener_.lock()) told->message(channel, payload);
}

void node::lost(const base::failure& /*why*/) {
  const base::mutex_lock lock(mutex_);
  only_channel_confirmed_.store(false, std::memory_order_relaxed);
  const time_point now = lease_clock::now();
  for (auto& [channel, state] : channels_) {
    if (state.state == hearing_state::confirmed) state = {hearing_state::asked, now};
  }
}

void node::refused(std::string_view channel, std::string_view servers_words) {
  {
    const base::mutex_lock lock(mutex_);
    const auto found = channels_.find(std::string(channel));
    if (found != channels_.end()) found->second.state = hearing_state::impossible;
  }
  base::log(base::log_level::warning, "redis: the server does not let us listen (" +
                                          std::string(servers_words) +
                                          "); waiters live on their heartbeats");
  if (const auto told = listener_.lock()) told->gap_ended();
}

}  // namespace sallyport::backends::redis
