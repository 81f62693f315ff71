#include "backends/redlock/member.hpp"

#include "backends/redis/protocol.hpp"
#include "base/log.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <utility>

namespace sallyport::backends::redlock {
namespace {

constexpr std::array all_scripts{
    &scripts::adopt, &scripts::bid,   &scripts::break_lock, &scripts::enqueue, &scripts::extend,
    &scripts::heal,  &scripts::leave, &scripts::look,       &scripts::raise,   &scripts::who};

}  // namespace

base::result<std::shared_ptr<member>> member::make(const std::shared_ptr<net::pump>& engine,
                                                   node_number number,
                                                   const redis::link_settings& login,
                                                   std::shared_ptr<const speech> words,
                                                   std::weak_ptr<member_listener> whose) {
  auto made = std::make_shared<member>(number, std::move(words), std::move(whose));
  auto commands = redis::connection::make(engine, redis::connection::settings::of(login), made);
  if (!commands) return tl::unexpected(commands.error());
  made->commands_ = std::move(*commands);
  auto notices = redis::subscriber::make(engine, redis::subscriber::settings::of(login), made);
  if (!notices) return tl::unexpected(notices.error());
  made->notices_ = std::move(*notices);
  return made;
}

member::member(node_number number, std::shared_ptr<const speech> words,
               std::weak_ptr<member_listener> whose)
    : number_(number), speech_(std::move(words)), listener_(std::move(whose)) {}

void member::listen() {
  if (listening_.exchange(true, std::memory_order_relaxed)) return;
  notices_->subscribe(speech_->channel(), false);
}

std::optional<redis::server_facts> member::facts() {
  const base::mutex_lock lock(mutex_);
  return facts_;
}

void member::close() {
  commands_->close();
  notices_->close();
}

std::vector<redis::wire_command> member::greeting() {
  std::vector<redis::wire_command> all;
  for (const auto& question : redis::questions_about_a_server()) {
    redis::wire_command& command = all.emplace_back();
    for (const std::string& word : question) command.add(word);
  }
  all.push_back(redis::which_scripts(all_scripts));
  all.push_back(speech_->read_mark());
  return all;
}

std::vector<redis::wire_command> member::greeting_goes_on(const std::vector<reply>& said) {
  const std::size_t questions = redis::questions_about_a_server().size();
  if (said.size() <= questions) return {};
  return redis::load_missing(all_scripts, said[questions]);
}

base::result<std::monostate> member::greeted(const std::vector<reply>& said) {
  const redis::server_facts facts = redis::facts_in(said);
  if (facts.replica) {
    return base::fail(errc::store_refused,
                      "this server is a replica, which can't grant locks; the nodes of redlock:// "
                      "are independent masters");
  }
  if (facts.cluster) {
    return base::fail(errc::store_refused,
                      "this server is a node of a cluster; the nodes of redlock:// are independent "
                      "masters");
  }
  // Who may not ask which scripts there are has given all of them.
  const std::size_t mark_at = redis::questions_about_a_server().size() + 1;
  for (std::size_t i = mark_at; i < said.size(); ++i) {
    if (said[i].is_error()) return tl::unexpected(redis::failure_of(said[i]));
  }
  const base::mutex_lock lock(mutex_);
  facts_ = facts;
  known_ = {.run_id = facts.run_id, .durable = facts.durable(), .mark = said[mark_at].text};
  return std::monostate{};
}

void member::connected() {
  node_facts facts;
  {
    const base::mutex_lock lock(mutex_);
    facts = known_;
  }
  if (const auto told = listener_.lock()) told->member_up(number_, facts);
}

void member::disconnected(const base::failure& why) {
  if (const auto told = listener_.lock()) told->member_down(number_, why);
}

void member::subscribed(std::string_view /*channel*/) {
  if (const auto told = listener_.lock()) told->member_heard(number_);
}

void member::message(std::string_view /*channel*/, std::string_view payload) {
  if (const auto told = listener_.lock()) told->member_said(number_, payload);
}

void member::lost(const base::failure& /*why*/) {
  if (const auto told = listener_.lock()) told->member_deaf(number_);
}

void member::refused(std::string_view /*channel*/, std::string_view servers_words) {
  base::log(base::log_level::warning, "redlock: a node does not let us listen (" +
                                          std::string(servers_words) +
                                          "); waiters live on their heartbeats");
  // Nobody is to wait for it.
  if (const auto told = listener_.lock()) told->member_heard(number_);
}

}  // namespace sallyport::backends::redlock
