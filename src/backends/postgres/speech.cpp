#include "backends/postgres/speech.hpp"

#include "backends/sql/numbers.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

namespace sallyport::backends::postgres {

using backend_api::acquire_request;
using backend_api::leave_request;
using backend_api::renew_request;
using sql::bytes_of;
using sql::in_ms;
using sql::number_of;

namespace {

std::string channel_of(std::uint64_t client) {
  std::array<char, 32> text{};
  // As the server's to_hex() writes it.
  std::snprintf(text.data(), text.size(), "sallyport_%llx",
                static_cast<unsigned long long>(client));
  return text.data();
}

/// An array as the server reads it from text.
template <class Value>
std::string array_of(std::span<const renew_request> batch, Value value) {
  std::string out = "{";
  for (const renew_request& each : batch) {
    if (out.size() > 1) out += ',';
    out += value(each);
  }
  return out + "}";
}

std::string hex_literal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out = "\"\\\\x";
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    out += digits[byte >> 4U];
    out += digits[byte & 0xfU];
  }
  return out + '"';
}

}  // namespace

std::string quoted(std::string_view identifier) {
  std::string out = "\"";
  for (const char each : identifier) {
    if (each == '"') out += '"';
    out += each;
  }
  return out + '"';
}

speech::speech(settings how)
    : how_(std::move(how)),
      channel_(channel_of(how_.client)),
      acquire_(function("acquire", 17)),
      renew_(function("renew", 6)),
      leave_(function("leave", 4)),
      downgrade_(function("downgrade", 5)),
      set_value_(function("set_value", 3)),
      break_lock_(function("break_lock", 4)),
      // Bytes as digits: how the server writes them by itself is a setting (bytea_output).
      look_{
          "look",
          "SELECT encode(name, 'hex'), waits, kind, permits, mode, state, token, age_ms, rest_ms, "
          "local_waiters, pid, encode(host, 'hex'), encode(label, 'hex'), encode(value, 'hex') "
          "FROM " +
              quoted(how_.schema) + ".look($1, $2, $3, $4)"},
      sweep_(function("sweep", 2)),
      change_channel_(function("change_channel", 1)) {}

statement speech::function(std::string_view name, int parameters) const {
  std::string text = "SELECT " + quoted(how_.schema) + "." + std::string(name) + "(";
  for (int i = 1; i <= parameters; ++i) text += (i == 1 ? "$" : ", $") + std::to_string(i);
  return {std::string(name), text + ")"};
}

call speech::acquire(const acquire_request& request) const {
  call made{.prepared = &acquire_, .text = {}, .parameters = {}};
  made.parameters.reserve(17);
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.number(number_of(request.kind));
  made.number(number_of(request.kind, request.mode));
  made.number(in_ms(request.lease_length));
  made.number(in_ms(request.claim_window));
  made.number(in_ms(request.ticket_length));
  made.truth(request.may_wait);
  made.number(std::clamp<std::int64_t>(request.permits, 1, INT32_MAX));
  made.number(std::clamp<std::int64_t>(request.token_count, 1, INT32_MAX));
  made.number(sql::small(request.local_waiters));
  made.truth(how_.durable);
  made.number(static_cast<std::int64_t>(how_.client));
  made.number(how_.owner.pid);
  made.bytes(how_.owner.host);
  made.bytes(how_.owner.label);
  made.bytes(request.value);
  return made;
}

call speech::renew(std::span<const renew_request> batch) const {
  call made{.prepared = &renew_, .text = {}, .parameters = {}};
  made.words(array_of(batch, [](const auto& each) { return hex_literal(each.name.text()); }));
  made.words(array_of(batch, [](const auto& each) { return hex_literal(bytes_of(each.holder)); }));
  made.words(
      array_of(batch, [](const auto& each) { return std::to_string(in_ms(each.lease_length)); }));
  made.words(array_of(
      batch, [](const auto& each) { return std::to_string(sql::small(each.token_count)); }));
  made.words(array_of(
      batch, [](const auto& each) { return std::to_string(sql::small(each.local_waiters)); }));
  made.truth(how_.durable);
  return made;
}

call speech::leave(const leave_request& request, bool withdraw) const {
  call made{.prepared = &leave_, .text = {}, .parameters = {}};
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.truth(withdraw);
  made.truth(how_.durable);
  return made;
}

call speech::downgrade(const renew_request& request) const {
  call made{.prepared = &downgrade_, .text = {}, .parameters = {}};
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.number(in_ms(request.lease_length));
  made.number(sql::small(request.local_waiters));
  made.truth(how_.durable);
  return made;
}

call speech::set_value(const renew_request& holder, std::string_view value) const {
  call made{.prepared = &set_value_, .text = {}, .parameters = {}};
  made.bytes(holder.name.text());
  made.bytes(bytes_of(holder.holder));
  made.bytes(value);
  return made;
}

call speech::break_lock(const lock_name& name, fencing_token observed,
                        backend_api::break_mode mode) const {
  call made{.prepared = &break_lock_, .text = {}, .parameters = {}};
  made.bytes(name.text());
  made.number(number_of(observed));
  made.truth(mode == backend_api::break_mode::at_once);
  made.truth(how_.durable);
  return made;
}

call speech::who(const lock_name& name) const {
  call made{.prepared = &look_, .text = {}, .parameters = {}};
  made.bytes(name.text());
  made.bytes({});
  made.number(1);
  made.truth(true);
  return made;
}

call speech::list(std::string_view prefix, std::string_view after, std::size_t limit) const {
  call made{.prepared = &look_, .text = {}, .parameters = {}};
  made.bytes(prefix);
  made.bytes(after);
  made.number(sql::small(limit));
  made.truth(false);
  return made;
}

call speech::settle(std::string_view name) const {
  call made{.prepared = &leave_, .text = {}, .parameters = {}};
  made.bytes(name);
  made.bytes(bytes_of({}));  // nobody leaves
  made.truth(true);
  made.truth(how_.durable);
  return made;
}

call speech::sweep() const {
  call made{.prepared = &sweep_, .text = {}, .parameters = {}};
  made.truth(false);
  made.truth(how_.durable);
  return made;
}

call speech::end_cut_calls() const {
  // A call writes to the table or has an advisory lock on a name; looking at locks does neither. COPY
  // reads from its client by design.
  const std::string table = "'" + quoted(how_.schema) + ".lock'::regclass";
  return {.prepared = nullptr,
          .text =
              "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a WHERE a.datname = "
              "current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid() AND "
              "a.state = 'active' AND a.wait_event IN ('ClientRead', 'ClientWrite') AND "
              "a.query_start < clock_timestamp() - interval '1 second' AND a.query NOT ILIKE "
              "'copy%' AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND "
              "l.relation = " +
              table +
              ") AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND "
              "(l.locktype = 'advisory' OR l.mode = 'RowExclusiveLock'))",
          .parameters = {}};
}

call speech::change_channel(const lock_name& name) const {
  call made{.prepared = &change_channel_, .text = {}, .parameters = {}};
  made.bytes(name.text());
  return made;
}

call speech::listen(std::string_view channel) {
  return {.prepared = nullptr, .text = "LISTEN " + quoted(channel), .parameters = {}};
}

call speech::unlisten(std::string_view channel) {
  return {.prepared = nullptr, .text = "UNLISTEN " + quoted(channel), .parameters = {}};
}

}  // namespace sallyport::backends::postgres
