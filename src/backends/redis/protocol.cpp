#include "backends/redis/protocol.hpp"

#include "backends/redis/words.hpp"
#include "base/check.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <utility>

namespace sallyport::backends::redis {

using backend_api::acquire_answer;
using backend_api::acquire_request;
using backend_api::break_mode;
using backend_api::duration;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::leave_request;
using backend_api::renew_answer;
using backend_api::renew_request;
using backend_api::renewed;
using backend_api::waiting;
using std::chrono::milliseconds;

namespace {

/// While the holder is somebody who does not know of our queue, its head asks this often.
constexpr milliseconds shortest_poll{50};
constexpr milliseconds longest_poll{250};
/// "When you like": core asks again at its heartbeat.
constexpr duration whenever = std::chrono::hours{24};
/// More than the scripts say; what stands there comes from outside.
constexpr std::int64_t longest_stretch = 1'000;

/// Whoever goes on with what another's call left to be served leaves under this id, which nobody has.
constexpr backend_api::holder_id nobody{UINT64_MAX, UINT64_MAX};

char letter_of(lock_kind kind) {
  switch (kind) {
    case lock_kind::mutex:
      return 'm';
    case lock_kind::election:
      return 'e';
    case lock_kind::shared_mutex:
      return 's';
    case lock_kind::semaphore:
      return 'n';
  }
  SALLYPORT_CHECK(false);
}

std::optional<lock_kind> kind_of(std::string_view letters) {
  if (letters.empty()) return std::nullopt;
  switch (letters.front()) {
    case 'm':
      return lock_kind::mutex;
    case 'e':
      return lock_kind::election;
    case 's':
      return lock_kind::shared_mutex;
    case 'n':
      return lock_kind::semaphore;
    default:  // from outside: anything may stand there
      return std::nullopt;
  }
}

bool has_many_holders(lock_kind kind) {
  return kind == lock_kind::shared_mutex || kind == lock_kind::semaphore;
}

base::failure not_understood(std::string_view what) {
  return {make_error_code(errc::store_refused), "the server's answer to " + std::string(what) +
                                                    " was not understood; is it a Redis server?"};
}

std::int64_t integer_at(const reply& said, std::size_t index) {
  return index < said.elements.size() ? said.elements[index].integer : 0;
}

fencing_token token_at(const reply& said, std::size_t index) {
  return fencing_token(
      static_cast<std::uint64_t>(std::max<std::int64_t>(integer_at(said, index), 0)));
}

std::uint32_t permits_at(const reply& said, std::size_t index) {
  if (index >= said.elements.size()) return 1;
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(integer_at(said, index), 1, UINT32_MAX));
}

milliseconds remaining_at(const reply& said, std::size_t index) {
  return milliseconds{std::max<std::int64_t>(integer_at(said, index), 0)};
}

waiting waiting_of(const reply& said, double draw) {
  const std::int64_t lapses_in = integer_at(said, 1);
  const bool foreign = integer_at(said, 3) == 1;
  const bool first = integer_at(said, 4) == 1;
  duration ask_again = whenever;
  if (first && lapses_in >= 0) ask_again = milliseconds{lapses_in + 1};
  if (first && foreign) {
    const auto spread = static_cast<double>((longest_poll - shortest_poll).count()) * draw;
    ask_again =
        std::min<duration>(ask_again, shortest_poll + milliseconds{static_cast<int>(spread)});
  }
  return {.ask_again_after = ask_again,
          .permits = permits_at(said, 5),
          .newest_token = token_at(said, 2),
          .ahead = static_cast<std::uint32_t>(
              std::clamp<std::int64_t>(integer_at(said, 6), 0, UINT32_MAX)),
          .ticket_stretch = static_cast<std::uint32_t>(
              std::clamp<std::int64_t>(integer_at(said, 7), 1, longest_stretch))};
}

/// What a leave says behind its keys and the arguments that all such calls have in common.
void add_leaver(wire_command& call, lock_kind kind, const backend_api::holder_id& holder,
                bool withdraw) {
  const auto id = hex_of(holder);
  const char letter = letter_of(kind);
  const std::string_view kind_word(&letter, 1);
  if (!has_many_holders(kind)) call.add({"sp1 ", kind_word, " ", view(id)});
  call.add(kind_word);
  call.add(view(id));
  call.add(std::string_view(withdraw ? "w" : "r"));
}

}  // namespace

protocol::protocol(settings how) : how_(std::move(how)) {
  card_ = how_.client + ' ' + std::to_string(how_.owner.pid) + ' ' + word(how_.owner.host) + ' ' +
          word(how_.owner.label) + ' ';
}

wire_command protocol::queue_call(const script_source& script, const lock_place& place,
                                  bool tells_changes) const {
  wire_command call = call_of(script, 5);
  place.add_lock(call);
  place.add_side(call, "queue");
  place.add_side(call, "waiters");
  place.add_side(call, "absent");
  place.add_counter(call);
  call.add(how_.cluster ? std::string_view("SPUBLISH") : std::string_view("PUBLISH"));
  place.add_channel_head(call);
  place.add_channel_tail(call);
  if (tells_changes) {
    call.add(place.changes_channel());
  } else {
    call.add(std::string_view{});
  }
  return call;
}

wire_command protocol::acquire(const acquire_request& request, bool known) const {
  const bool many = has_many_holders(request.kind);
  const auto id = hex_of(request.holder);
  const char letter = letter_of(request.kind);
  const std::string_view kind(&letter, 1);
  wire_command call =
      queue_call(many ? scripts::acquire_many : scripts::acquire, place_of(request.name.text()),
                 request.kind == lock_kind::election);
  if (!many) call.add({"sp1 ", kind, " ", view(id)});
  call.add(kind);
  call.add(view(id));
  call.add(in_ms(request.lease_length));
  call.add(in_ms(request.claim_window));
  call.add(in_ms(request.ticket_length));
  call.add(std::string_view(request.may_wait ? "1" : "0"));
  call.add(std::int64_t{std::max(request.token_count, 1U)});
  call.add(std::int64_t{request.local_waiters});
  call.add(std::string_view(known ? "1" : "0"));
  call.add({card_, request.value});
  if (many) {
    const bool shared =
        request.kind == lock_kind::shared_mutex && request.mode == lock_mode::shared;
    call.add(std::string_view(shared ? "s" : "x"));
    call.add(std::int64_t{std::max(request.permits, 1U)});
  }
  return call;
}

bool protocol::may_beat(const acquire_request& request) const noexcept {
  // The keys of one command have to share a slot in a cluster.
  return !how_.cluster && request.asked_before && request.may_wait && !request.driven;
}

wire_command protocol::beat(std::span<const acquire_request> batch) const {
  wire_command call = call_of(scripts::beat, 1 + 4 * batch.size());
  place_of({}).add_counter(call);
  for (const acquire_request& each : batch) {
    const lock_place place = place_of(each.name.text());
    place.add_lock(call);
    place.add_side(call, "queue");
    place.add_side(call, "waiters");
    place.add_side(call, "absent");
  }
  for (const acquire_request& each : batch) {
    const auto id = hex_of(each.holder);
    const char letter = letter_of(each.kind);
    call.add({"sp1 ", std::string_view(&letter, 1), " ", view(id)});
    call.add(view(id));
    call.add(in_ms(each.ticket_length));
    call.add(in_ms(each.claim_window));
    call.add(std::int64_t{std::max(each.token_count, 1U)});
    call.add(std::int64_t{each.local_waiters});
  }
  return call;
}

wire_command protocol::renew(const renew_request& request) const {
  const bool many = has_many_holders(request.kind);
  const bool draws = request.token_count > 0;
  const auto id = hex_of(request.holder);
  const char letter = letter_of(request.kind);
  const std::string_view kind(&letter, 1);
  const lock_place place = place_of(request.name.text());
  wire_command call = call_of(many ? scripts::renew_many : scripts::renew, draws ? 2 : 1);
  place.add_lock(call);
  if (draws) place.add_counter(call);
  if (many) {
    call.add(kind);
    call.add(view(id));
  } else {
    call.add({"sp1 ", kind, " ", view(id)});
  }
  call.add(in_ms(request.lease_length));
  call.add(std::int64_t{request.local_waiters});
  call.add(std::int64_t{request.token_count});
  return call;
}

wire_command protocol::leave(const leave_request& request, bool withdraw) const {
  wire_command call =
      queue_call(has_many_holders(request.kind) ? scripts::leave_many : scripts::leave,
                 place_of(request.name.text()), request.kind == lock_kind::election);
  add_leaver(call, request.kind, request.holder, withdraw);
  return call;
}

wire_command protocol::downgrade(const renew_request& request) const {
  const auto id = hex_of(request.holder);
  wire_command call = queue_call(scripts::downgrade, place_of(request.name.text()), false);
  call.add(view(id));
  call.add(in_ms(request.lease_length));
  call.add(std::int64_t{request.local_waiters});
  return call;
}

wire_command protocol::set_value(const renew_request& holder, std::string_view value) const {
  const auto id = hex_of(holder.holder);
  const char letter = letter_of(holder.kind);
  const lock_place place = place_of(holder.name.text());
  wire_command call = call_of(scripts::set_value, 1);
  place.add_lock(call);
  call.add(how_.cluster ? std::string_view("SPUBLISH") : std::string_view("PUBLISH"));
  call.add(place.changes_channel());
  call.add({"sp1 ", std::string_view(&letter, 1), " ", view(id)});
  call.add(value);
  return call;
}

wire_command protocol::break_lock(const lock_name& name, fencing_token observed,
                                  break_mode mode) const {
  wire_command call = queue_call(scripts::break_lock, place_of(name.text()), true);
  call.add(static_cast<std::int64_t>(observed.value()));
  call.add(std::string_view(mode == break_mode::safe ? "s" : "n"));
  return call;
}

wire_command protocol::who(std::span<const std::string> names, bool also_foreign,
                           std::string_view page) const {
  wire_command call = call_of(scripts::who, 3 * names.size());
  for (const std::string& each : names) {
    const lock_place place = place_of(each);
    place.add_lock(call);
    place.add_side(call, "queue");
    place.add_side(call, "waiters");
  }
  call.add(std::string_view(also_foreign ? "1" : "0"));
  call.add(page);
  return call;
}

wire_command protocol::raise() const {
  wire_command call = call_of(scripts::raise, 1);
  place_of({}).add_counter(call);
  return call;
}

wire_command protocol::raise_and_name(std::string_view fresh_name) const {
  const lock_place place = place_of({});
  wire_command call = call_of(scripts::raise, 2);
  place.add_counter(call);
  place.add_store_name(call);
  call.add(fresh_name);
  return call;
}

wire_command which_scripts(script_list scripts) {
  wire_command command = plain_command({"SCRIPT", "EXISTS"});
  for (const script_source* each : scripts) command.add(each->sha1);
  return command;
}

bool has_script(script_list scripts, const reply& said, const script_source& which) {
  const auto found = std::ranges::find(scripts, &which);
  return found != scripts.end() &&
         integer_at(said, static_cast<std::size_t>(found - scripts.begin())) == 1;
}

std::vector<wire_command> load_missing(script_list scripts, const reply& said) {
  std::vector<wire_command> all;
  for (const script_source* each : scripts) {
    if (has_script(scripts, said, *each)) continue;
    all.push_back(plain_command({"SCRIPT", "LOAD", each->text}));
  }
  return all;
}

base::result<std::string> store_name_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (!said.is_array()) return std::string();
  if (said.elements.size() == 2 && said.elements[1].is_text()) return said.elements[1].text;
  return base::fail(errc::store_refused, "an answer that is no counter and name");
}

std::string counter_in(const wire_command& command) {
  if (command.script == nullptr || command.script == &scripts::beat ||
      command.script == &scripts::raise || command.script == &scripts::who) {
    return {};
  }
  std::vector<std::string> words = arguments_of(command);
  const bool renews = command.script == &scripts::renew || command.script == &scripts::renew_many;
  const std::size_t last_key = renews ? 2 : 5;
  if (words.empty() || words.front() != std::to_string(last_key)) return {};
  return std::move(words[last_key]);
}

std::optional<wire_command> rest_to_serve(const wire_command& asked, const reply& said) {
  // Of what calls that serve a queue have in common: how many keys, the keys, and as many arguments.
  constexpr std::size_t common_words = 1 + 5 + 4;
  constexpr std::int64_t more = 2;
  std::optional<lock_kind> kind;
  std::vector<std::string> words;
  if (asked.script == &scripts::leave || asked.script == &scripts::leave_many) {
    if (!said.is_integer() || (said.integer & more) == 0) return std::nullopt;
    words = arguments_of(asked);
    const std::size_t kind_word = common_words + (asked.script == &scripts::leave ? 1 : 0);
    if (words.size() > kind_word) kind = kind_of(words[kind_word]);
  } else if (asked.script == &scripts::downgrade) {
    if (integer_at(said, 4) != 1) return std::nullopt;
    words = arguments_of(asked);
    kind = lock_kind::shared_mutex;
  } else if (asked.script == &scripts::break_lock) {
    if (said.elements.size() != 2) return std::nullopt;
    words = arguments_of(asked);
    kind = kind_of(said.elements[1].text);
  }
  if (!kind || words.size() < common_words) return std::nullopt;
  // Who breaks a lock does not know its kind, and brings the channel of changes in any case.
  if (*kind != lock_kind::election) words[common_words - 1].clear();
  wire_command call = call_of(has_many_holders(*kind) ? scripts::leave_many : scripts::leave, 5);
  for (std::size_t i = 1; i < common_words; ++i) call.add(words[i]);
  add_leaver(call, *kind, nobody, false);
  return call;
}

bool undecided(const reply& said) {
  return said.is_array() && said.elements.size() == 1 && said.elements.front().integer == 5;
}

base::failure failure_of(const reply& error) {
  // Transient, and said before anything was done.
  constexpr std::array<std::string_view, 10> passing{
      "LOADING",  "BUSY",    "READONLY", "MASTERDOWN", "CLUSTERDOWN",
      "TRYAGAIN", "MISCONF", "OOM",      "NOREPLICAS", "NOSCRIPT"};
  const bool passes = std::ranges::find(passing, error.error_word()) != passing.end();
  std::string detail = "the Redis server said: " + error.text;
  // What a script may not do is told in other words than what we may not.
  if (error.error_word() == "NOPERM" ||
      error.text.find("The user executing the script can't") != std::string::npos) {
    detail += "; the section Permissions of docs/redis.md says what its user needs";
  }
  return {make_error_code(passes ? errc::unavailable : errc::store_refused), std::move(detail)};
}

base::result<acquire_answer> acquire_answer_of(const reply& said, double draw) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (!said.is_array() || said.elements.empty()) return tl::unexpected(not_understood("acquire"));
  switch (said.elements.front().integer) {
    case 1:
      return granted{.tokens = {token_at(said, 1), token_at(said, 2)},
                     .remaining = remaining_at(said, 3),
                     .provisional = integer_at(said, 4) == 1,
                     .permits = permits_at(said, 5)};
    case 2:
      return waiting_of(said, draw);
    case 3:
      return held{};
    case 4: {
      const auto kind = said.elements.size() > 1 ? kind_of(said.elements[1].text) : std::nullopt;
      return base::fail(errc::wrong_kind,
                        "the name is in use as a " + std::string(kind ? to_string(*kind) : "lock"));
    }
    default:
      return tl::unexpected(not_understood("acquire"));
  }
}

base::result<renew_answer> renew_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (!said.is_array() || said.elements.empty()) return tl::unexpected(not_understood("renew"));
  if (said.elements.front().integer == 0) return gone{};
  return renewed{{token_at(said, 1), token_at(said, 2)}, remaining_at(said, 3)};
}

base::result<leave_answer> leave_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (!said.is_integer()) return tl::unexpected(not_understood("release"));
  // Two more when there is more to serve: rest_to_serve().
  return said.integer % 2 == 1 ? leave_answer::left : leave_answer::not_there;
}

base::result<bool> set_value_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  if (!said.is_integer()) return tl::unexpected(not_understood("set_value"));
  return said.integer == 1;
}

base::result<std::monostate> break_answer_of(const reply& said) {
  if (said.is_error()) return tl::unexpected(failure_of(said));
  switch (said.is_array() ? integer_at(said, 0) : said.integer) {
    case 1:
      return std::monostate{};
    case 0:
      return base::fail(errc::no_such_lock, "nobody holds it");
    case 2:
      return base::fail(errc::token_mismatch, "it is held under another token");
    case 3:
      return base::fail(errc::no_such_lock, "its grant was broken already");
    case 4:
      return base::fail(errc::not_supported,
                        "it is held by a client of another library, which has no token; delete its "
                        "key (the lock's name) with redis-cli if you are sure");
    default:
      return tl::unexpected(not_understood("break"));
  }
}

namespace {

template <class Info>
void read_card(words& record, Info& info) {
  record.next();  // the client's number, which is nobody's business
  info.pid = record.number();
  info.host = text_of(record.next());
  info.label = text_of(record.next());
}

/// FIRST LAST ... of a holder whose key or expiry was read already.
void read_one_holder(std::string_view value, std::int64_t now, std::int64_t ttl, lock_info& info) {
  words record(value);
  record.next();
  info.kind = kind_of(record.next()).value_or(lock_kind::mutex);
  record.next();
  holder_info holder;
  holder.token = fencing_token(record.number<std::uint64_t>());
  record.next();
  const std::string_view state = record.next();
  if (state == "t") {
    info.closed_for = milliseconds{std::max<std::int64_t>(ttl, 1)};
    return;
  }
  holder.claimed = state == "c";
  holder.held_for = milliseconds{std::max<std::int64_t>(now - record.number(), 0)};
  holder.local_waiters = record.number<std::uint32_t>();
  read_card(record, holder);
  holder.value = record.rest();
  holder.remaining = milliseconds{std::max<std::int64_t>(ttl, 0)};
  info.holders.push_back(std::move(holder));
}

void read_many_holders(const std::vector<reply>& fields, std::int64_t now, lock_info& info) {
  for (std::size_t i = 0; i + 1 < fields.size(); i += 2) {
    const std::string& field = fields[i].text;
    const std::string& content = fields[i + 1].text;
    if (field == ":kind") info.kind = kind_of(content).value_or(lock_kind::shared_mutex);
    if (field == ":permits") info.permits = words(content).number<std::uint32_t>();
    if (field.starts_with(':')) continue;
    words record(content);
    const std::int64_t expiry = record.number();
    if (expiry <= now) continue;
    holder_info holder;
    holder.token = fencing_token(record.number<std::uint64_t>());
    record.next();
    holder.mode = record.next() == "s" ? lock_mode::shared : lock_mode::exclusive;
    const std::string_view state = record.next();
    if (state == "t") {
      info.closed_for = std::max(info.closed_for, milliseconds{expiry - now});
      continue;
    }
    holder.claimed = state == "c";
    holder.held_for = milliseconds{std::max<std::int64_t>(now - record.number(), 0)};
    holder.local_waiters = record.number<std::uint32_t>();
    read_card(record, holder);
    holder.remaining = milliseconds{expiry - now};
    info.holders.push_back(std::move(holder));
  }
  // A hash has no order of its own; tokens were drawn in the order of grants.
  std::ranges::sort(info.holders, {}, &holder_info::token);
}

void read_tickets(const std::vector<reply>& tickets, std::int64_t now, lock_info& info) {
  for (const reply& each : tickets) {
    words record(each.text);
    record.next();
    if (record.number() <= now) continue;
    record.next();
    record.next();
    waiter_info waiter;
    waiter.mode = record.next() == "s" ? lock_mode::shared : lock_mode::exclusive;
    waiter.waited = milliseconds{std::max<std::int64_t>(now - record.number(), 0)};
    waiter.local_waiters = record.number<std::uint32_t>();
    read_card(record, waiter);
    info.waiters.push_back(std::move(waiter));
  }
}

void read_lock(const reply& page, lock_info& info) {
  const std::int64_t now = page.elements[0].integer;
  const std::int64_t ttl = page.elements[2].integer;
  const reply& content = page.elements[3];
  const std::string& waited_for = page.elements[4].text;
  info.holders.clear();
  info.closed_for = {};
  info.kind = kind_of(waited_for).value_or(lock_kind::mutex);
  if (waited_for.starts_with('n')) {
    std::from_chars(waited_for.data() + 1, waited_for.data() + waited_for.size(), info.permits);
  }
  if (content.is_array()) {
    read_many_holders(content.elements, now, info);
  } else if (content.text.starts_with("sp1 ") || content.text.starts_with("sp2 ")) {
    read_one_holder(content.text, now, ttl, info);
  } else if (page.elements[1].text != "none") {
    // Another library's: all that is known is that it is there.
    holder_info holder;
    holder.label = "(not a Sallyport client)";
    holder.remaining = milliseconds{std::max<std::int64_t>(ttl, 0)};
    info.holders.push_back(std::move(holder));
  }
}

}  // namespace

std::optional<lock_info> lock_view::found() && {
  const bool empty =
      info.holders.empty() && info.waiters.empty() && info.closed_for == milliseconds{0};
  return empty ? std::nullopt : std::optional(std::move(info));
}

base::result<std::monostate> add_page(lock_view& seen, const reply& page) {
  const bool holders_are_known = seen.next_page != first_page || seen.tickets > 0;
  seen.next_page.clear();
  if (page.is_error()) return tl::unexpected(failure_of(page));
  if (page.is_nil()) return std::monostate{};
  if (!page.is_array() || page.elements.size() < 6) return tl::unexpected(not_understood("who"));
  const std::vector<reply>& tickets = page.elements[5].elements;
  seen.tickets += tickets.size();
  if (page.elements.size() > 6 && seen.tickets < most_tickets_shown) {
    seen.next_page = page.elements[6].text;
  }
  read_tickets(tickets, page.elements[0].integer, seen.info);
  if (!holders_are_known) read_lock(page, seen.info);
  return std::monostate{};
}

base::result<std::optional<lock_info>> who_answer_of(const reply& said, std::string_view name) {
  lock_view seen;
  seen.info.name = name;
  if (auto added = add_page(seen, said); !added) return tl::unexpected(std::move(added.error()));
  return std::move(seen).found();
}

std::optional<notice> parse_notice(std::string_view message) {
  words said(message);
  const std::string_view what = said.next();
  const auto holder = holder_of(said.next());
  if (!holder) return std::nullopt;
  if (what == "l") return notice{*holder, std::nullopt};
  if (what != "g") return std::nullopt;
  granted grant;
  grant.tokens.first = fencing_token(said.number<std::uint64_t>());
  grant.tokens.last = fencing_token(said.number<std::uint64_t>());
  grant.remaining = milliseconds{said.number()};
  grant.provisional = true;
  grant.permits = said.number<std::uint32_t>();
  return notice{*holder, grant};
}

}  // namespace sallyport::backends::redis
