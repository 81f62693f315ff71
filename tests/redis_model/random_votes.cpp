#include "tests/redis_model/random_votes.hpp"

#include "backends/redis/words.hpp"
#include "backends/redlock/membership.hpp"
#include "tests/redis_model/others.hpp"

#include <array>
#include <chrono>
#include <utility>

namespace sallyport::redis_model {
namespace {

using namespace std::chrono_literals;
using backends::redis::wire_command;
using backends::redlock::speech;
using backends::redlock::wish;

constexpr std::size_t votes_remembered = 3;

}  // namespace

random_votes::random_votes(base::random& luck, bool /*ignored*/) : luck_(luck) {
  const std::string prefix = luck_.chance(0.5) ? "" : "jobs:";
  for (std::size_t i = 0; i < client_count; ++i) {
    clients_.emplace_back(
        speech::settings{.prefix = prefix,
                         .client = "00000000000000" + std::to_string(10 + i),
                         .owner = {"host " + std::to_string(i), static_cast<std::int64_t>(100 + i),
                                   i == 0 ? "" : "l%b", 0}});
    for (std::size_t j = 0; j < contenders_each; ++j)
      contenders_.push_back({fresh_id(), i, {}, {}});
  }
  names_ = {"a", "two words"};
}

std::string random_votes::fresh_id() {
  return std::string(
      backends::redis::view(backends::redis::hex_of(backend_api::holder_id{luck_(), luck_()})));
}

std::string random_votes::mark() {
  return luck_.chance(0.03) ? "sp3 other" : std::string(backends::redlock::stamp_of(mark_));
}

std::string random_votes::some_vote_of(const contender& who) {
  if (who.votes.empty() || luck_.chance(0.05)) return fresh_id();
  return luck_.chance(0.8) ? who.votes.front() : who.votes[luck_.below(who.votes.size())];
}

wish random_votes::wish_of(const contender& who, const std::string& name) {
  return {.name = name,
          .contender = who.id,
          .lease_length = (1 + luck_.below(90)) * 1ms,
          .claim_window = (1 + luck_.below(20)) * 1ms,
          .ticket_length = (1 + luck_.below(60)) * 1ms,
          .tokens = static_cast<std::uint32_t>(1 + luck_.below(4)),
          .local_waiters = static_cast<std::uint32_t>(luck_.below(3)),
          .value = luck_.chance(0.2) ? "v %1" : ""};
}

wire_command random_votes::adopt(const speech& client) {
  static constexpr std::array marks{
      "sp3 0123456789abcdef f store 1 60000 run1 d 0 a a node0 b node1",
      "sp3 1123456789abcdef q store 1 60000 run1 d 5 a a node0 b node1",
      "sp3 2123456789abcdef f store 2 60000 run1 d 0 a a node0 b node1"};
  const std::string expected = std::exchange(mark_, marks.at(luck_.below(marks.size())));
  return client.adopt(expected, mark_, luck_.below(500));
}

wire_command random_votes::next() {
  last_asked_ = luck_.below(contenders_.size());
  contender& who = contenders_[last_asked_];
  who.asked.clear();
  const std::string& name = names_[luck_.chance(0.05) ? 0 : last_asked_ % names_.size()];
  const speech& client = clients_[who.client];
  const auto what = luck_.below(100);
  if (what < 25) {
    who.asked = fresh_id();
    return client.bid(mark(), wish_of(who, name), who.asked);
  }
  if (what < 40) {
    return client.extend(mark(), wish_of(who, name), some_vote_of(who),
                         static_cast<std::uint32_t>(luck_.below(3)));
  }
  if (what < 46) return client.raise(mark(), name, some_vote_of(who), luck_.below(2000));
  if (what < 68) {
    return client.enqueue(mark(), wish_of(who, name), luck_.chance(0.3) ? 0 : luck_.below(100));
  }
  if (what < 88) {
    const bool withdraw = luck_.chance(0.4);
    auto call = client.leave({.name = name,
                              .contender = who.id,
                              .id = some_vote_of(who),
                              .hand_over = luck_.chance(0.7),
                              .nonce = fresh_id(),
                              .withdraw = withdraw});
    if (withdraw && luck_.chance(0.5)) who = {fresh_id(), who.client, {}, {}};
    return call;
  }
  if (what < 92) {
    return client.heal(mark(), wish_of(who, name), some_vote_of(who),
                       {fencing_token(1 + luck_.below(9)), fencing_token(10)});
  }
  if (what < 95) {
    return client.break_lock(
        name, some_vote_of(who),
        luck_.chance(0.5) ? backend_api::break_mode::safe : backend_api::break_mode::at_once);
  }
  if (what < 98) return client.who(name);
  return adopt(client);
}

void random_votes::learn(const reply& answer) {
  if (!answer.is_array() || answer.elements.size() < 2) return;
  const auto what = answer.elements[0].integer;
  const std::string& text = answer.elements[1].text;
  // {2, nonce}: it was handed over. {-1, mark}: this is the mark.
  contender& who = contenders_[last_asked_];
  if (what == 2) who.votes.insert(who.votes.begin(), who.id + '|' + text);
  if (what == 1 && !who.asked.empty()) who.votes.insert(who.votes.begin(), who.asked);
  if (who.votes.size() > votes_remembered) who.votes.pop_back();
  if (what == -1 && luck_.chance(0.5)) mark_ = text;
}

std::string random_votes::some_lock_key() {
  return arguments_of(clients_.front().who(names_[luck_.below(names_.size())])).at(1);
}

std::string random_votes::some_key() {
  const wish any = wish_of(contenders_.front(), names_[luck_.below(names_.size())]);
  const auto all = arguments_of(clients_.front().enqueue("", any, 0));
  return all.at(1 + luck_.below(5));
}

words random_votes::foreign_use() { return redis_model::foreign_use(luck_, some_lock_key()); }

words random_votes::damage() {
  const auto key = some_key();
  return redis_model::damage(luck_, key, some_lock_key());
}

std::string random_votes::channel() { return clients_[luck_.below(clients_.size())].channel(); }

}  // namespace sallyport::redis_model
