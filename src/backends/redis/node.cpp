#include "backends/redis/node.hpp"

#include "backend_api/store_identity.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>
#include <sallyport/lease_clock.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace sallyport::backends::redis {
namespace {

constexpr std::array all_scripts{&scripts::acquire,    &scripts::acquire_many, &scripts::beat,
                                 &scripts::break_lock, &scripts::downgrade,    &scripts::leave,
                                 &scripts::leave_many, &scripts::raise,        &scripts::renew,
                                 &scripts::renew_many, &scripts::set_value,    &scripts::who};

/// Raises a slot's counter. If that fails, what was to be drawn behind it has failed as well, and it
/// is raised before the next.
class raise_exchange final : public exchange {
 public:
  raise_exchange(std::weak_ptr<node> home, std::uint32_t slot)
      : home_(std::move(home)), slot_(slot) {}
  void answered(base::result<reply> said) override {
    if (said && !said->is_error()) return;
    if (const auto home = home_.lock()) home->forget_slot(slot_);
  }

 private:
  const std::weak_ptr<node> home_;
  const std::uint32_t slot_;
};

/// Words with which a node says that a slot is not its own, or not at the moment.
bool about_a_slot(std::string_view word) {
  return word == "MOVED" || word == "ASK" || word == "TRYAGAIN" || word == "CLUSTERDOWN";
}

/// Sharded channels, without which a slot's waiters can't be told, are there from 7.0 on.
bool has_sharded_channels(std::string_view version) {
  unsigned major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return version.empty() || major >= 7;
}

}  // namespace

/// The second connection greets as the first does, so that it knows the scripts and refuses a
/// replica; but what becomes of it is nobody else's business.
class node::witness_owner final : public connection::owner {
 public:
  explicit witness_owner(std::weak_ptr<node> whose) : node_(std::move(whose)) {}

  std::vector<wire_command> greeting() override {
    const auto home = node_.lock();
    return home ? home->greeting() : std::vector<wire_command>{};
  }
  std::vector<wire_command> greeting_goes_on(const std::vector<reply>& said) override {
    const auto home = node_.lock();
    return home ? home->greeting_goes_on(said) : std::vector<wire_command>{};
  }
  base::result<std::monostate> greeted(const std::vector<reply>& said) override {
    const auto home = node_.lock();
    if (!home) return base::fail(errc::closed, "the client was closed");
    return home->greeted(said);
  }
  void connected() override {}
  void disconnected(const base::failure& /*why*/) override {
    if (const auto home = node_.lock()) {
      home->witness_generation_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  const std::weak_ptr<node> node_;
};

base::result<std::shared_ptr<node>> node::make(const std::shared_ptr<net::pump>& engine,
                                               const settings& how,
                                               std::shared_ptr<const protocol> speech,
                                               std::weak_ptr<node_listener> whose) {
  auto made = std::make_shared<node>(engine, how, std::move(speech), std::move(whose));
  const link_settings& login = how.login;
  auto commands = connection::make(engine, connection::settings::of(login), made);
  if (!commands) return tl::unexpected(commands.error());
  made->commands_ = std::move(*commands);
  auto notices = subscriber::make(engine, subscriber::settings::of(login), made);
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
      where_(how_.login.where) {}

void node::prepare(std::uint32_t slot, const wire_command& command) {
  if (!sharded()) return;
  auto first = std::make_unique<raise_exchange>(weak_from_this(), slot);
  {
    const base::mutex_lock lock(mutex_);
    if (raises_.contains(slot)) return;
    const std::string counter = counter_in(command);
    if (counter.empty()) return;
    first->command = call_of(scripts::raise, 1);
    first->command.add(counter);
    raises_.emplace(slot, first->command);
  }
  // The next command follows on the same connection; on a later one the greeting raises it.
  first->answer_by = lease_clock::now() + how_.login.connect_timeout;
  commands_->send(std::move(first));
}

void node::forget_slot(std::uint32_t slot) {
  const base::mutex_lock lock(mutex_);
  raises_.erase(slot);
}

base::result<std::shared_ptr<connection>> node::witness() {
  const base::mutex_lock lock(mutex_);
  if (closed_) return base::fail(errc::closed, "the client was closed");
  if (witness_) return witness_;
  auto greeter = std::make_shared<witness_owner>(weak_from_this());
  link_settings login = how_.login;
  login.where = where_;
  auto made = connection::make(pump_, connection::settings::of(login, ":replicas"), greeter);
  if (!made) return tl::unexpected(made.error());
  witness_owner_ = std::move(greeter);
  witness_ = std::move(*made);
  return witness_;
}

bool node::unfinished() {
  if (commands_->unfinished()) return true;
  const base::mutex_lock lock(mutex_);
  return witness_ && witness_->unfinished();
}

bool node::listens(const lock_place& place, time_point now) {
  if (only_channel_confirmed_.load(std::memory_order_relaxed)) return true;
  const std::string channel = place.channel_of(speech_->how().client);
  {
    const base::mutex_lock lock(mutex_);
    const auto [found, fresh] =
        channels_.try_emplace(channel, channel_state{.since = now, .missed = false});
    if (!fresh) {
      return found->second.state != hearing_state::asked ||
             now - found->second.since > subscription_patience;
    }
  }
  subscribe(channel);
  return false;
}

void node::listen(const std::string& channel, time_point now) {
  {
    const base::mutex_lock lock(mutex_);
    const channel_state begun{.since = now, .missed = true};
    if (!channels_.try_emplace(channel, begun).second) return;
  }
  subscribe(channel);
}

void node::retarget(const net::endpoint& where) {
  std::shared_ptr<connection> witness;
  {
    const base::mutex_lock lock(mutex_);
    where_ = where;
    witness = witness_;
  }
  commands_->retarget(where);
  notices_->retarget(where);
  if (witness) witness->retarget(where);
}

void node::rest(const base::failure& why) {
  std::shared_ptr<connection> witness;
  {
    const base::mutex_lock lock(mutex_);
    channels_.clear();
    raises_.clear();
    witness = witness_;
  }
  commands_->rest(why);
  notices_->rest(why);
  if (witness) witness->rest(why);
}

void node::close() {
  std::shared_ptr<connection> witness;
  {
    const base::mutex_lock lock(mutex_);
    closed_ = true;
    witness = witness_;
  }
  commands_->close();
  notices_->close();
  if (witness) witness->close();
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

void node::add_raises(std::vector<wire_command>& all) {
  if (speech_->how().asks_store_name) {
    // In a cluster one of the nodes has the store's name; the others say where it is.
    all.push_back(speech_->raise_and_name(backend_api::fresh_store_name()));
  } else if (!sharded()) {
    all.push_back(speech_->raise());
  }
  const base::mutex_lock lock(mutex_);
  for (const auto& [slot, raise] : raises_) all.push_back(raise);
}

std::vector<wire_command> node::greeting() {
  std::vector<wire_command> all;
  for (const auto& question : questions_about_a_server()) {
    wire_command& command = all.emplace_back();
    for (const std::string& word : question) command.add(word);
  }
  all.push_back(which_scripts(all_scripts));
  add_raises(all);
  return all;
}

std::vector<wire_command> node::greeting_goes_on(const std::vector<reply>& said) {
  const std::size_t questions = questions_about_a_server().size();
  if (said.size() <= questions) return {};
  // So that no request meets a server that does not know its script, but for a SCRIPT FLUSH.
  std::vector<wire_command> all = load_missing(all_scripts, said[questions]);
  const bool raised =
      std::ranges::none_of(said, [](const reply& each) { return each.error_word() == "NOSCRIPT"; });
  if (raised) return all;
  add_raises(all);
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
  if (speech_->how().cluster && !facts.version.empty()) {
    if (!facts.cluster) {
      return base::fail(errc::store_refused,
                        "this server is no node of a cluster; use redis:// for its address");
    }
    if (!has_sharded_channels(facts.version)) {
      return base::fail(errc::store_refused,
                        "this node runs Redis " + facts.version +
                            ", and locks in a cluster need 7.0 or later (sharded channels); "
                            "upgrade it, or use a single server or sentinels");
    }
  }
  // Who may not ask which scripts there are has given all of them.
  const std::size_t raises_from = questions_about_a_server().size() + 1;
  for (std::size_t i = raises_from; i < said.size(); ++i) {
    // A counter whose slot has moved away is raised where it went; one whose script was not known has been
    // raised since, by the script's text.
    if (about_a_slot(said[i].error_word()) || said[i].error_word() == "NOSCRIPT") continue;
    if (said[i].is_error()) return tl::unexpected(failure_of(said[i]));
    const auto name = store_name_of(said[i]);
    if (!name) return tl::unexpected(name.error());
    const auto whose = listener_.lock();
    if (name->empty() || !whose) continue;
    if (auto learnt = whose->store_named(*name); !learnt) return tl::unexpected(learnt.error());
  }
  const base::mutex_lock lock(mutex_);
  facts_ = facts;
  return std::monostate{};
}

void node::connected() {
  bool again = false;
  bool elsewhere = false;
  std::shared_ptr<connection> witness;
  {
    const base::mutex_lock lock(mutex_);
    again = std::exchange(ever_connected_, true);
    trouble_.reset();
    const std::string before = std::exchange(run_id_, facts_ ? facts_->run_id : std::string());
    elsewhere = again && how_.only_server && (run_id_.empty() || run_id_ != before);
    witness = witness_;
  }
  if (!again) return;
  if (elsewhere) {
    // The address leads to another server now. Its waiters are not heard at the old one, where the
    // connection may be as good as ever.
    const base::failure why{make_error_code(errc::unavailable), "the address leads elsewhere"};
    notices_->drop(why);
    if (witness) witness->drop(why);
  }
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
      // Of a slot's first waiters nobody has missed anything, and they ask again soon: with many
      // slots it would cost too much to let everybody ask for each.
      if (sharded() && !std::exchange(found->second.missed, false)) return;
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
    if (state.state == hearing_state::confirmed) state = {hearing_state::asked, now, true};
  }
}

void node::ended(std::string_view channel) {
  {
    const base::mutex_lock lock(mutex_);
    const auto found = channels_.find(std::string(channel));
    if (found != channels_.end()) found->second = {hearing_state::asked, lease_clock::now(), true};
  }
  // Its refusal will say where the slot has gone.
  subscribe(channel);
}

void node::refused(std::string_view channel, std::string_view servers_words) {
  reply words;
  words.what = reply::kind::error;
  words.text = servers_words;
  if (sharded() && about_a_slot(words.error_word())) {
    {
      const base::mutex_lock lock(mutex_);
      channels_.erase(std::string(channel));
    }
    if (const auto told = listener_.lock()) told->channel_moved(channel, words, shared_from_this());
    return;
  }
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
