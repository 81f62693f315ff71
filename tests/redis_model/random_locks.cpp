#include "tests/redis_model/random_locks.hpp"

#include "tests/redis_model/others.hpp"

#include <array>
#include <chrono>
#include <span>
#include <utility>

namespace sallyport::redis_model {
namespace {

using namespace std::chrono_literals;
using backend_api::acquire_request;
using backend_api::break_mode;
using backend_api::leave_request;
using backend_api::renew_request;
using backends::redis::wire_command;

constexpr std::array kinds{lock_kind::mutex, lock_kind::shared_mutex, lock_kind::semaphore,
                           lock_kind::election};
constexpr std::size_t tokens_remembered = 8;

}  // namespace

words words_of(const wire_command& command, bool by_text) {
  words all = arguments_of(command);
  if (command.script != nullptr) {
    const auto script = std::string(by_text ? command.script->text : command.script->sha1);
    all.insert(all.begin(), {by_text ? "EVAL" : "EVALSHA", script});
  }
  return all;
}

random_locks::random_locks(base::random& luck, bool cluster) : luck_(luck), cluster_(cluster) {
  const std::string prefix = luck_.chance(0.5) ? "" : "jobs:";
  for (std::size_t i = 0; i < client_count; ++i) {
    clients_.emplace_back(backends::redis::protocol::settings{
        .prefix = prefix,
        .cluster = cluster,
        .client = "00000000000000" + std::to_string(10 + i),
        .owner = {"host " + std::to_string(i), static_cast<std::int64_t>(100 + i),
                  i == 0 ? "" : "l%b", 0}});
    for (std::size_t j = 0; j < contenders_each; ++j) {
      contenders_.push_back({{luck_(), luck_()}, i, false});
    }
  }
  for (const auto* name : {"a", "a/b", "{tag}c", "two words"}) names_.emplace_back(name);
  for (auto& kind : usual_kind_) kind = kinds.at(luck_.below(kinds.size()));
}

lock_kind random_locks::kind_of(std::size_t name) {
  return luck_.chance(0.03) ? kinds.at(luck_.below(kinds.size())) : usual_kind_.at(name);
}

acquire_request random_locks::question(const contender& who, std::size_t name) {
  const auto kind = kind_of(name);
  return {.name = names_[name],
          .kind = kind,
          .mode = luck_.chance(0.6) ? lock_mode::shared : lock_mode::exclusive,
          .holder = who.id,
          .lease_length = (1 + luck_.below(90)) * 1ms,
          .claim_window = (1 + luck_.below(20)) * 1ms,
          .ticket_length = (1 + luck_.below(60)) * 1ms,
          .may_wait = luck_.chance(0.85),
          .permits = static_cast<std::uint32_t>(1 + luck_.below(4)),
          .token_count = static_cast<std::uint32_t>(1 + luck_.below(4)),
          .local_waiters = static_cast<std::uint32_t>(luck_.below(3)),
          .value = kind == lock_kind::election ? "v %1" : "",
          .answer_by = {},
          .asked_before = who.asked_before};
}

wire_command random_locks::acquire(contender& who, std::size_t name) {
  const acquire_request request = question(who, name);
  const auto& client = clients_[who.client];
  if (client.may_beat(request) && luck_.chance(0.5)) {
    const std::array both{request, request};
    return client.beat(std::span(both).first(1 + luck_.below(2)));
  }
  const bool known = who.asked_before || luck_.chance(0.1);
  who.asked_before = true;
  return client.acquire(request, known);
}

renew_request random_locks::renewal(const contender& who, std::size_t name) {
  return {.name = names_[name],
          .kind = kind_of(name),
          .mode = lock_mode::exclusive,
          .holder = who.id,
          .lease_length = (1 + luck_.below(90)) * 1ms,
          .token_count = luck_.chance(0.2) ? static_cast<std::uint32_t>(1 + luck_.below(4)) : 0U,
          .local_waiters = static_cast<std::uint32_t>(luck_.below(3)),
          .answer_by = {}};
}

wire_command random_locks::look(const backends::redis::protocol& client, std::size_t name) {
  std::vector<std::string> asked{names_[name].text()};
  const bool also_foreign = luck_.chance(0.5);
  static constexpr std::array<std::string_view, 3> pages{backends::redis::first_page, "(1", "(2.5"};
  const auto page = pages[luck_.below(pages.size())];
  // The keys of a node of a cluster have to share a slot.
  if (!cluster_ && luck_.chance(0.5)) {
    for (const auto& each : names_) asked.push_back(each.text());
  }
  return client.who(asked, also_foreign, page);
}

wire_command random_locks::next() {
  // Contenders stay with the name that is theirs by number, so that they meet there.
  const auto index = luck_.below(contenders_.size());
  contender& who = contenders_[index];
  const auto name = luck_.chance(0.05) ? luck_.below(names_.size()) : index % names_.size();
  const auto& client = clients_[who.client];
  const auto what = luck_.below(100);
  if (what < 45) return acquire(who, name);
  if (what < 58) return client.renew(renewal(who, name));
  if (what < 78) {
    const bool withdraw = luck_.chance(0.5);
    auto call =
        client.leave({names_[name], kind_of(name), lock_mode::exclusive, who.id, {}}, withdraw);
    who.id = luck_.chance(0.7) ? backend_api::holder_id{luck_(), luck_()} : who.id;
    who.asked_before = false;
    return call;
  }
  if (what < 83) return client.downgrade(renewal(who, name));
  if (what < 88) {
    static constexpr std::array<std::string_view, 4> values{"", "v %1", "other", "with blanks "};
    return client.set_value(renewal(who, name), values[luck_.below(values.size())]);
  }
  if (what < 94) {
    const auto token = tokens_.empty() ? 1 : tokens_[luck_.below(tokens_.size())];
    return client.break_lock(names_[name], fencing_token(token),
                             luck_.chance(0.5) ? break_mode::safe : break_mode::at_once);
  }
  if (what < 98) return look(client, name);
  return luck_.chance(0.5) ? client.raise() : client.raise_and_name("shop");
}

void random_locks::learn(const reply& answer) {
  // {1, first, last, ...}: somebody has tokens.
  if (!answer.is_array() || answer.elements.size() < 4) return;
  const auto first = answer.elements[1].integer;
  if (answer.elements[0].integer != 1 || first <= 0) return;
  const auto token = static_cast<std::uint64_t>(first);
  if (tokens_.size() < tokens_remembered) {
    tokens_.push_back(token);
  } else {
    tokens_[luck_.below(tokens_.size())] = token;
  }
}

std::string random_locks::some_lock_key() {
  return clients_.front().place_of(names_[luck_.below(names_.size())].text()).lock_key();
}

std::string random_locks::some_key() {
  if (luck_.chance(0.5)) return some_lock_key();
  const auto place = clients_.front().place_of(names_[luck_.below(names_.size())].text());
  wire_command keys;
  for (const auto* side : {"queue", "waiters", "absent"}) place.add_side(keys, side);
  place.add_counter(keys);
  const auto all = arguments_of(keys);
  return all[luck_.below(all.size())];
}

words random_locks::foreign_use() { return redis_model::foreign_use(luck_, some_lock_key()); }

words random_locks::damage() {
  const auto key = some_key();
  return redis_model::damage(luck_, key, some_lock_key());
}

std::string random_locks::channel() {
  const auto& name = names_[luck_.below(names_.size())];
  const auto& client = clients_[luck_.below(clients_.size())];
  return luck_.chance(0.8) ? client.channel_for(name)
                           : client.place_of(name.text()).changes_channel();
}

}  // namespace sallyport::redis_model
