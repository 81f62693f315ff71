#include "backends/mariadb/speech.hpp"

#include "backends/sql/numbers.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sallyport::backends::mariadb {

using backend_api::acquire_request;
using backend_api::leave_request;
using backend_api::renew_request;
using sql::bytes_of;
using sql::in_ms;
using sql::number_of;

namespace {

// What `who` shows is cut off, not refused: the column takes no more.
constexpr std::size_t longest_words = 60'000;

statement procedure(const std::string& prefix, const std::string& name) {
  return {name, "CALL " + quoted(prefix + name)};
}

call calling(const statement& which) { return {.prepared = &which, .text = {}, .parameters = {}}; }

/// A number as bytes, the largest first.
void append(std::string& out, std::int64_t number, unsigned bytes) {
  for (unsigned shift = bytes * 8; shift > 0; shift -= 8) {
    out += static_cast<char>((static_cast<std::uint64_t>(number) >> (shift - 8)) & 0xffU);
  }
}

}  // namespace

std::string quoted(std::string_view identifier) {
  std::string out = "`";
  for (const char each : identifier) {
    if (each == '`') out += '`';
    out += each;
  }
  return out + '`';
}

std::string text_of(const call& what) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (what.prepared == nullptr) return what.text;
  std::string out;
  out.reserve(what.prepared->text.size() + 2 * what.size());
  out = what.prepared->text;
  char before = '(';
  for (const sql::parameter& each : what.parameters) {
    out += before;
    before = ',';
    if (!each.binary) {
      out += each.bytes;
      continue;
    }
    out += "X'";
    for (const char one : each.bytes) {
      const auto byte = static_cast<unsigned char>(one);
      out += digits[byte >> 4U];
      out += digits[byte & 0xfU];
    }
    out += '\'';
  }
  return out + ')';
}

speech::speech(const std::string& prefix, backend_api::owner_info owner)
    : owner_(std::move(owner)),
      acquire_(procedure(prefix, "acquire")),
      renew_(procedure(prefix, "renew")),
      leave_(procedure(prefix, "leave")),
      downgrade_(procedure(prefix, "downgrade")),
      set_value_(procedure(prefix, "set_value")),
      break_lock_(procedure(prefix, "break_lock")),
      look_(procedure(prefix, "look")),
      sweep_(procedure(prefix, "sweep")) {}

call speech::acquire(const acquire_request& request) const {
  call made = calling(acquire_);
  made.parameters.reserve(16);
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.number(number_of(request.kind));
  made.number(number_of(request.kind, request.mode));
  made.number(in_ms(request.lease_length));
  made.number(in_ms(request.claim_window));
  made.number(in_ms(request.ticket_length));
  made.number(request.may_wait ? 1 : 0);
  made.number(request.asked_before ? 1 : 0);
  made.number(std::max<std::int64_t>(sql::small(request.permits), 1));
  made.number(std::max<std::int64_t>(sql::small(request.token_count), 1));
  made.number(sql::small(request.local_waiters));
  made.number(owner_.pid);
  made.bytes(std::string_view(owner_.host).substr(0, longest_words));
  made.bytes(std::string_view(owner_.label).substr(0, longest_words));
  made.bytes(request.value);
  return made;
}

call speech::renew(std::span<const renew_request> batch) const {
  std::string packed;
  for (const renew_request& each : batch) {
    const std::string& name = each.name.text();
    append(packed, static_cast<std::int64_t>(name.size()), 1);
    packed += name;
    packed += bytes_of(each.holder);
    append(packed, in_ms(each.lease_length), 6);
    append(packed, sql::small(each.token_count), 4);
    append(packed, sql::small(each.local_waiters), 4);
  }
  call made = calling(renew_);
  made.bytes(packed);
  return made;
}

call speech::leave(const leave_request& request, bool withdraw) const {
  call made = calling(leave_);
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.number(withdraw ? 1 : 0);
  return made;
}

call speech::downgrade(const renew_request& request) const {
  call made = calling(downgrade_);
  made.bytes(request.name.text());
  made.bytes(bytes_of(request.holder));
  made.number(in_ms(request.lease_length));
  made.number(sql::small(request.local_waiters));
  return made;
}

call speech::set_value(const renew_request& holder, std::string_view value) const {
  call made = calling(set_value_);
  made.bytes(holder.name.text());
  made.bytes(bytes_of(holder.holder));
  made.bytes(value);
  return made;
}

call speech::break_lock(const lock_name& name, fencing_token observed,
                        backend_api::break_mode mode) const {
  call made = calling(break_lock_);
  made.bytes(name.text());
  made.number(number_of(observed));
  made.number(mode == backend_api::break_mode::at_once ? 1 : 0);
  return made;
}

call speech::who(const lock_name& name) const {
  call made = calling(look_);
  made.bytes(name.text());
  made.bytes({});
  made.number(1);
  made.number(1);
  return made;
}

call speech::list(std::string_view prefix, std::string_view after, std::size_t limit) const {
  // No name is longer: no name begins with more, and what comes after more comes after that much.
  constexpr std::size_t longest_name = 255;
  call made = calling(look_);
  made.bytes(prefix.size() > longest_name ? std::string_view("\xff\xff") : prefix);
  made.bytes(after.substr(0, longest_name));
  made.number(sql::small(limit));
  made.number(0);
  return made;
}

call speech::settle(std::string_view name) const {
  call made = calling(leave_);
  made.bytes(name);
  made.bytes(bytes_of({}));  // nobody leaves
  made.number(1);
  return made;
}

call speech::sweep() const {
  call made = calling(sweep_);
  made.number(0);
  return made;
}

}  // namespace sallyport::backends::mariadb
