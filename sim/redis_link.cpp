#include "sim/redis_link.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace sallyport::sim {
namespace {

constexpr duration shortest_delay = std::chrono::microseconds{20};
/// As in the product.
constexpr duration subscription_patience = std::chrono::milliseconds{250};
/// Of the lines that meet a cut, this share does not survive it.
constexpr double share_lost_in_cut = 0.5;
/// Of the lines that end on the process's side, the server hears at once of this share.
constexpr double share_known_at_once = 0.7;

}  // namespace

bool redis_link::listens(const std::string& channel) {
  const auto [found, fresh] = channels_.try_emplace(channel, wanted{false, shared().loop.now()});
  if (!fresh) {
    return found->second.confirmed ||
           shared().loop.now() - found->second.since > subscription_patience.count();
  }
  if (up_) {
    ask_for(channel);
  } else {
    open_line();
  }
  return false;
}

void redis_link::subscribe(const std::string& channel) { (void)listens(channel); }

void redis_link::unsubscribe(const std::string& channel) {
  channels_.erase(channel);
  heard_.erase(channel);
}

bool redis_link::deaf() {
  const std::uint32_t every = shared().plan.deaf_clients;
  return every > 0 && client() % every == 0;
}

void redis_link::open_line() {
  if (up_ || opening_ || deaf()) return;
  opening_ = true;
  shared().loop.after(draw_between(shared().random, shortest_delay, shared().plan.lease / 8),
                      [me = self()] { me->try_to_open(); });
}

void redis_link::try_to_open() {
  opening_ = false;
  if (up_ || !in_use()) return;
  if (cut_off() || !store_.reachable()) {
    open_line();
    return;
  }
  up_ = true;
  dead_ = false;
  ++line_;
  for (const auto& [channel, state] : channels_) ask_for(channel);
}

void redis_link::ask_for(const std::string& channel) {
  const duration delay = draw_delay(fault::slow_message, counter::request_slow);
  shared().loop.at(in_order(to_server_, delay), [me = self(), channel, line = line_] {
    if (line != me->line_ || me->dead_) return;
    me->store_.arrive([me, channel, line] {
      if (line != me->line_ || me->dead_ || !me->channels_.contains(channel)) return;
      me->heard_.insert(channel);
      me->send_back(fault::slow_message, counter::request_slow, duration{0},
                    [me, channel] { me->confirm(channel); });
    });
  });
}

void redis_link::confirm(const std::string& channel) {
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return;
  found->second.confirmed = true;
  user().line_begins();
}

void redis_link::send_back(fault slow, counter counted, duration extra,
                           std::function<void()> arrive) {
  const duration delay = extra + draw_delay(slow, counted);
  shared().loop.at(in_order(from_server_, delay),
                   [me = self(), line = line_, arrive = std::move(arrive)] {
                     if (line == me->line_ && !me->dead_ && me->in_use()) arrive();
                   });
}

std::int64_t redis_link::listeners(std::string_view channel) const {
  const auto ghosts = std::count_if(ghosts_.begin(), ghosts_.end(), [&](const channel_set& each) {
    return each.contains(channel);
  });
  return ghosts + (heard_.contains(channel) ? 1 : 0);
}

void redis_link::publish_on(std::string_view channel, std::string_view payload) {
  if (!heard_.contains(channel)) {
    shared().count.add(counter::told_to_nobody);
    return;
  }
  const bool cut = cut_from_store();
  if (dead_ || shared().strikes(fault::lose_notice) ||
      (cut && shared().random.chance(share_lost_in_cut))) {
    shared().count.add(counter::notice_lost);
    lose_line();
    return;
  }
  const duration stuck = cut ? 2 * shared().plan.lease : duration{0};
  send_back(fault::slow_notice, counter::notice_slow,
            draw_between(shared().random, duration{0}, stuck),
            [me = self(), channel = std::string(channel), payload = std::string(payload)] {
              me->user().message_arrives(channel, payload);
            });
}

void redis_link::lose_line() {
  if (dead_) return;
  dead_ = true;
  shared().note("the line of client # dies", static_cast<std::int64_t>(client()));
  shared().loop.after(draw_between(shared().random, duration{0}, 2 * shared().plan.lease),
                      [me = self(), line = line_] {
                        if (line == me->line_) me->end_line(true);
                      });
}

void redis_link::end_line(bool server_knows) {
  if (!up_) return;
  up_ = false;
  dead_ = false;
  ++line_;
  if (!server_knows && !heard_.empty()) {
    shared().count.add(counter::listener_gone_unnoticed);
    ghosts_.push_back(heard_);
    shared().loop.after(draw_between(shared().random, duration{0}, 2 * shared().plan.lease),
                        [me = self()] {
                          if (!me->ghosts_.empty()) me->ghosts_.erase(me->ghosts_.begin());
                        });
  }
  heard_.clear();
  for (auto& [channel, state] : channels_) {
    if (state.confirmed) state = {false, shared().loop.now()};
  }
  if (!in_use()) return;
  user().line_ends();
  open_line();
}

void redis_link::reset_notices() { end_line(shared().random.chance(share_known_at_once)); }

void redis_link::close() {
  attach(nullptr);
  end_line(shared().random.chance(share_known_at_once));
}

void redis_link::server_ended() {
  heard_.clear();
  ghosts_.clear();
  end_line(true);
}

void redis_link::heal() {
  link::heal();
  if (shared().random.chance(0.5)) end_line(true);
}

}  // namespace sallyport::sim
