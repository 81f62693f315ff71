#include "backends/redlock/speech.hpp"

#include "backends/redis/protocol.hpp"
#include "backends/redis/words.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace sallyport::backends::redlock {
namespace {

using backend_api::break_mode;
using redis::call_of;
using redis::in_ms;
using redis::lock_place;

constexpr std::int64_t most_tickets_shown = 10'000;

base::failure not_understood(std::string_view what) {
  return {make_error_code(errc::store_refused), "the node's answer to " + std::string(what) +
                                                    " was not understood; is it a Redis server?"};
}

std::int64_t integer_at(const reply& said, std::size_t index) {
  return index < said.elements.size() ? said.elements[index].integer : 0;
}

std::string text_at(const reply& said, std::size_t index) {
  return index < said.elements.size() ? said.elements[index].text : std::string();
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What all votes have in common; a yes or a no is the caller's to read on.
base::result<vote> vote_in(const reply& said, std::string_view what) {
  if (said.is_error()) return tl::unexpected(redis::failure_of(said));
  if (!said.is_array() || said.elements.empty() || !said.elements.front().is_integer()) {
    return tl::unexpected(not_understood(what));
  }
  vote found;
  switch (said.elements.front().integer) {
    case 1:
      found.what = vote::kind::yes;
      break;
    case 0:
      found.what = vote::kind::no;
      break;
    case 2:
      found.what = vote::kind::handed_over;
      found.nonce = text_at(said, 1);
      break;
    case -2:
      found.what = vote::kind::far_behind;
      break;
    case -1:
      found.what = vote::kind::not_a_member;
      found.mark = text_at(said, 1);
      break;
    default:
      return tl::unexpected(not_understood(what));
  }
  return found;
}

/// -2: there is no key; -1: a key that never ends, which only others make.
duration remaining_in(std::int64_t pttl) {
  constexpr std::chrono::hours no_end{24};
  if (pttl == -1) return no_end;
  return std::chrono::milliseconds{std::max<std::int64_t>(pttl, 0)};
}

}  // namespace

speech::speech(settings how) : how_(std::move(how)) {
  card_ = how_.client + ' ' + std::to_string(how_.owner.pid) + ' ' + redis::word(how_.owner.host) +
          ' ' + redis::word(how_.owner.label) + ' ';
}

// Beside the lock key itself, nothing of ours is shared with the locks of a single server.

void speech::add_counter(wire_command& call) const { call.add({how_.prefix, "\1quorum-fence"}); }
void speech::add_mark(wire_command& call) const { call.add({how_.prefix, "\1quorum-member"}); }
void speech::add_channel_head(wire_command& call) const {
  call.add({how_.prefix, "\1quorum-notice:"});
}
std::string speech::channel() const { return how_.prefix + "\1quorum-notice:" + how_.client; }

wire_command speech::line_call(const script_source& script, std::string_view name) const {
  const lock_place place{how_.prefix, name, false};
  wire_command call = call_of(script, 5);
  place.add_lock(call);
  place.add_side(call, "quorum-line");
  place.add_side(call, "quorum-tickets");
  add_counter(call);
  add_mark(call);
  return call;
}

wire_command speech::bid(const std::string& mark, const wish& what, const std::string& id) const {
  wire_command call = line_call(scripts::bid, what.name);
  call.add(mark);
  add_channel_head(call);
  call.add(what.contender);
  call.add(id);
  call.add(in_ms(what.lease_length));
  call.add(std::int64_t{std::max(what.tokens, 1U)});
  call.add(std::int64_t{what.local_waiters});
  call.add({card_, what.value});
  return call;
}

wire_command speech::extend(const std::string& mark, const wish& what, const std::string& id,
                            std::uint32_t tokens) const {
  wire_command call = line_call(scripts::extend, what.name);
  call.add(mark);
  call.add(id);
  call.add(in_ms(what.lease_length));
  call.add(std::int64_t{tokens});
  call.add(std::int64_t{what.local_waiters});
  return call;
}

wire_command speech::raise(const std::string& mark, std::string_view name, const std::string& id,
                           std::uint64_t token) const {
  wire_command call = call_of(scripts::raise, 3);
  lock_place{how_.prefix, name, false}.add_lock(call);
  add_counter(call);
  add_mark(call);
  call.add(mark);
  call.add(id);
  call.add(std::to_string(token));
  return call;
}

wire_command speech::leave(const farewell& what) const {
  wire_command call = line_call(scripts::leave, what.name);
  add_channel_head(call);
  call.add(what.contender);
  call.add(what.id);
  call.add(std::string_view(what.hand_over ? "h" : "p"));
  call.add(what.nonce);
  call.add(std::string_view(what.withdraw ? "w" : "r"));
  return call;
}

wire_command speech::enqueue(const std::string& mark, const wish& what, std::uint64_t came) const {
  wire_command call = line_call(scripts::enqueue, what.name);
  call.add(mark);
  add_channel_head(call);
  call.add(what.contender);
  call.add(std::to_string(came));
  call.add(in_ms(what.ticket_length));
  call.add(in_ms(what.claim_window));
  call.add(std::int64_t{std::max(what.tokens, 1U)});
  call.add(std::int64_t{what.local_waiters});
  call.add({card_, what.value});
  return call;
}

wire_command speech::heal(const std::string& mark, const wish& what, const std::string& id,
                          backend_api::token_block tokens) const {
  wire_command call = call_of(scripts::heal, 2);
  lock_place{how_.prefix, what.name, false}.add_lock(call);
  add_mark(call);
  call.add(mark);
  // The time of entering is not known here; that of other nodes is shown.
  call.add({"sp2 m ", id, " ", std::to_string(tokens.first.value()), " ",
            std::to_string(tokens.last.value()), " c 0 ", std::to_string(what.local_waiters), " ",
            card_, what.value});
  call.add(in_ms(what.lease_length));
  return call;
}

wire_command speech::adopt(const std::string& expected, const std::string& mark,
                           std::uint64_t floor) const {
  wire_command call = call_of(scripts::adopt, 2);
  add_counter(call);
  add_mark(call);
  call.add(expected);
  call.add(mark);
  call.add(std::to_string(floor));
  return call;
}

wire_command speech::read_mark() const {
  wire_command call;
  call.add(std::string_view("GET"));
  add_mark(call);
  return call;
}

wire_command speech::look(const std::string& mark) const {
  wire_command call = call_of(scripts::look, 2);
  add_counter(call);
  add_mark(call);
  call.add(mark);
  return call;
}

wire_command speech::who(std::string_view name) const {
  const lock_place place{how_.prefix, name, false};
  wire_command call = call_of(scripts::who, 3);
  place.add_lock(call);
  place.add_side(call, "quorum-line");
  place.add_side(call, "quorum-tickets");
  call.add(most_tickets_shown);
  return call;
}

wire_command speech::break_lock(std::string_view name, const std::string& id,
                                break_mode mode) const {
  wire_command call = line_call(scripts::break_lock, name);
  add_channel_head(call);
  call.add(id);
  call.add(std::string_view(mode == break_mode::safe ? "s" : "n"));
  return call;
}

// ---- answers -------------------------------------------------------------------------------------

base::result<vote> bid_answer_of(const reply& said) {
  auto found = vote_in(said, "a bid");
  if (!found) return found;
  if (found->what == vote::kind::yes) {
    found->counter = static_cast<std::uint64_t>(integer_at(said, 1));
  } else if (found->what == vote::kind::no) {
    found->remaining = remaining_in(integer_at(said, 1));
    found->foreign = integer_at(said, 2) == 1;
    found->server_us = static_cast<std::uint64_t>(integer_at(said, 3));
  }
  return found;
}

base::result<vote> extend_answer_of(const reply& said) {
  auto found = vote_in(said, "a renewal");
  if (!found) return found;
  if (found->what == vote::kind::yes) {
    found->counter = static_cast<std::uint64_t>(integer_at(said, 1));
  } else {
    found->absent = integer_at(said, 1) == 0;
  }
  return found;
}

base::result<vote> enqueue_answer_of(const reply& said) {
  auto found = vote_in(said, "a ticket");
  if (!found || found->what != vote::kind::yes) return found;
  found->free = integer_at(said, 1) == 1;
  found->first = integer_at(said, 2) == 1;
  found->remaining = remaining_in(integer_at(said, 3));
  found->foreign = integer_at(said, 4) == 1;
  return found;
}

base::result<vote> plain_answer_of(const reply& said) { return vote_in(said, "a raise"); }

base::result<bool> leave_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(redis::failure_of(said));
  if (!said.is_integer()) return tl::unexpected(not_understood("a release"));
  return said.integer == 1;
}

base::result<adopt_answer> adopt_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(redis::failure_of(said));
  if (!said.is_array() || said.elements.size() < 2) {
    return tl::unexpected(not_understood("a change of its mark"));
  }
  return adopt_answer{integer_at(said, 0) == 1, text_at(said, 1)};
}

look_answer look_answer_of(const reply& said) {
  look_answer found;
  if (!said.is_array() || said.elements.empty()) return found;
  if (integer_at(said, 0) != 1) {
    found.other_mark = text_at(said, 1);
    return found;
  }
  found.server_us = whole_number(text_at(said, 1));
  // A reply ends at the first nothing.
  found.counter = said.elements.size() < 3 || said.elements[2].is_nil()
                      ? std::optional<std::uint64_t>(0)
                      : whole_number(said.elements[2].text);
  return found;
}

std::optional<notice> parse_notice(std::string_view message) {
  redis::words said(message);
  const std::string_view what = said.next();
  notice found;
  if (what == "h") {
    found.what = notice::kind::handed_over;
  } else if (what == "l") {
    found.what = notice::kind::lost;
  } else if (what != "w") {
    return std::nullopt;
  }
  found.whom = said.next();
  found.nonce = said.next();
  if (found.whom.empty()) return std::nullopt;
  return found;
}

}  // namespace sallyport::backends::redlock
