#include "sim/redis_driver.hpp"

#include "sim/process.hpp"
#include "sim/redis_node.hpp"
#include <sallyport/error.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

namespace sallyport::sim {

using backend_api::held;
using backends::redis::wire_command;

namespace {

/// As in the product: what a new waiter is told that is not in the queue yet, since it would not be
/// heard there.
constexpr backend_api::waiting until_heard{.ask_again_after = std::chrono::milliseconds{50}};

backend_api::renew_request to_renewal(const request& asked) {
  return {.name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .answer_by = asked.answer_by};
}

backend_api::acquire_request to_acquire(const request& asked) {
  return {.name = asked.name,
          .kind = asked.kind,
          .mode = asked.mode,
          .holder = asked.holder,
          .lease_length = asked.lease_length,
          .claim_window = asked.claim_window,
          .ticket_length = asked.ticket_length,
          .may_wait = asked.may_wait,
          .permits = asked.permits,
          .token_count = asked.token_count,
          .local_waiters = asked.local_waiters,
          .value = asked.value,
          .answer_by = asked.answer_by,
          .asked_before = asked.asked_before};
}

wire_command command_of(const backends::redis::protocol& speech, const request& asked) {
  const backend_api::leave_request leave{.name = asked.name,
                                         .kind = asked.kind,
                                         .mode = asked.mode,
                                         .holder = asked.holder,
                                         .answer_by = asked.answer_by};
  switch (asked.what) {
    case operation::acquire:
      if (asked.beat) {
        const std::array<backend_api::acquire_request, 1> alone{to_acquire(asked)};
        return speech.beat(alone);
      }
      return speech.acquire(to_acquire(asked), asked.asked_before);
    case operation::renew:
      return speech.renew(to_renewal(asked));
    case operation::release:
    case operation::withdraw:
      return speech.leave(leave, asked.what == operation::withdraw);
    case operation::downgrade:
      return speech.downgrade(to_renewal(asked));
    case operation::set_value:
      break;
  }
  return speech.set_value(to_renewal(asked), asked.value);
}

}  // namespace

backends::redis::protocol speech_of(std::uint64_t client) {
  std::array<char, 17> number{};
  std::snprintf(number.data(), number.size(), "%016llx", static_cast<unsigned long long>(client));
  return backends::redis::protocol(
      {.prefix = "", .cluster = false, .client = number.data(), .owner = {}});
}

redis_driver::redis_driver(context& shared, process& owner, redis_node& server,
                           std::uint64_t client)
    : redis_driver(shared, owner, server, client,
                   std::make_shared<redis_link>(shared, server, client)) {}

redis_driver::redis_driver(context& shared, process& owner, redis_node& server,
                           std::uint64_t client, const std::shared_ptr<redis_link>& connections)
    : sim_backend(shared, owner, connections), speech_(speech_of(client)), link_(connections) {
  server.add(client, connections);
}

redis_driver::~redis_driver() { link_->close(); }

void redis_driver::die() { link_->close(); }

void redis_driver::watch(const lock_name& name, bool on) {
  const std::string channel = speech_.place_of(name.text()).changes_channel();
  if (on) {
    watched_.insert_or_assign(channel, name);
    link_->subscribe(channel);
  } else {
    watched_.erase(channel);
    link_->unsubscribe(channel);
  }
}

void redis_driver::encode(request& asked) {
  const bool waits = asked.what == operation::acquire && asked.may_wait;
  if (waits || asked.what == operation::renew) {
    const bool heard = link_->listens(speech_.channel_for(asked.name));
    if (waits && !heard) {
      shared().count.add(counter::asked_unheard);
      asked.may_wait = false;
      asked.unheard = true;
    }
  }
  if (waits && !asked.unheard) asked.beat = speech_.may_beat(to_acquire(asked));
  if (asked.beat) shared().count.add(counter::beat);
  asked.command =
      std::make_shared<const std::vector<std::string>>(words_of(command_of(speech_, asked), false));
}

void redis_driver::serve_rest(const reply& said) {
  const auto rest = backends::redis::rest_to_serve(command_of(speech_, *said.left_rest), *said.raw);
  if (!rest || !link_->connected()) return;
  shared().count.add(counter::rest_served);
  request next = *said.left_rest;
  next.what = operation::release;
  next.number = 0;  // nobody waits for it
  next.holder = {};
  next.sent_at = shared().loop.now();
  next.command = std::make_shared<const std::vector<std::string>>(words_of(*rest, false));
  link_->send({std::move(next)});
}

bool redis_driver::repeat(const request& asked, reply& said) {
  if (asked_since(said.holder, said.number)) {
    said.failed = base::failure{make_error_code(errc::unavailable), "simulated"};
    return false;
  }
  shared().count.add(counter::asked_again);
  link_->send({asked});
  return true;
}

bool redis_driver::decode(reply& said) {
  if (said.ask_again) return !repeat(*said.ask_again, said);
  if (said.unknown_script) {
    shared().count.add(counter::script_unknown);
    if (asked_since(said.holder, said.number)) {
      said.failed = base::failure{make_error_code(errc::unavailable), "simulated"};
      return true;
    }
    shared().count.add(counter::script_resent);
    request again = *said.unknown_script;
    again.command = std::make_shared<const std::vector<std::string>>(
        words_of(command_of(speech_, again), true));
    link_->send({std::move(again)});
    return false;
  }
  if (said.ask_in_full) {
    shared().count.add(counter::beat_in_full);
    request again = *said.ask_in_full;
    again.beat = false;
    again.command = std::make_shared<const std::vector<std::string>>(
        words_of(command_of(speech_, again), false));
    link_->send({std::move(again)});
    return false;
  }
  if (said.what != operation::acquire) return true;
  auto& answered = std::get<base::result<backend_api::acquire_answer>>(said.says);
  if (!answered) return true;
  if (said.unheard && std::holds_alternative<held>(*answered)) answered = until_heard;
  return true;
}

void redis_driver::message_arrives(const std::string& channel, const std::string& payload) {
  owner().run([this, channel, payload] { tell(channel, payload); });
}

void redis_driver::tell(const std::string& channel, const std::string& payload) {
  if (const auto said = backends::redis::parse_notice(payload)) {
    if (said->grant) {
      listener().granted_notice(said->holder, said->grant);
    } else {
      listener().lost_notice(said->holder);
    }
    return;
  }
  const auto found = watched_.find(channel);
  if (found != watched_.end()) listener().changed_notice(found->second);
}

}  // namespace sallyport::sim
