#include "base/check.hpp"
#include <sallyport/fence_etcd.hpp>

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

// A transaction as etcd's messages: the numbers of fields, and the names, are those of
// etcdserverpb/rpc.proto.

namespace sallyport::fence {
namespace {

using field = etcd_compare::field;
using relation = etcd_compare::relation;

// ---- protobuf ------------------------------------------------------------------------------------

constexpr std::uint32_t varint_type = 0;
constexpr std::uint32_t bytes_type = 2;

void append_varint(std::string& to, std::uint64_t number) {
  constexpr std::uint64_t low_bits = 0x7f;
  for (; number > low_bits; number >>= 7U) {
    to.push_back(static_cast<char>((number & low_bits) | (low_bits + 1)));
  }
  to.push_back(static_cast<char>(number));
}

void append_number(std::string& to, std::uint32_t place, std::int64_t number) {
  append_varint(to, (place << 3U) | varint_type);
  append_varint(to, static_cast<std::uint64_t>(number));
}

void append_bytes(std::string& to, std::uint32_t place, std::string_view bytes) {
  append_varint(to, (place << 3U) | bytes_type);
  append_varint(to, bytes.size());
  to.append(bytes);
}

std::uint32_t number_of(relation is) {
  switch (is) {
    case relation::equal:
      return 0;
    case relation::greater:
      return 1;
    case relation::less:
      return 2;
    case relation::different:
      return 3;
  }
  return 0;
}

struct field_words {
  std::uint32_t target;   // in the enumeration CompareTarget
  std::uint32_t place;    // of what it is compared with
  std::string_view name;  // of the target
  std::string_view place_name;
};

field_words words_of(field what) {
  switch (what) {
    case field::version:
      return {0, 4, "VERSION", "version"};
    case field::created:
      return {1, 5, "CREATE", "create_revision"};
    case field::modified:
      return {2, 6, "MOD", "mod_revision"};
    case field::value:
      return {3, 7, "VALUE", "value"};
    case field::lease:
      return {4, 8, "LEASE", "lease"};
  }
  return {};
}

std::string message_of(const etcd_compare& one) {
  const field_words words = words_of(one.what);
  std::string out;
  append_number(out, 1, number_of(one.is));
  append_number(out, 2, words.target);
  append_bytes(out, 3, one.key);
  if (one.what == field::value) {
    append_bytes(out, words.place, one.value);
  } else {
    append_number(out, words.place, one.number);
  }
  return out;
}

std::string message_of(const etcd_operation& one) {
  std::string inner;
  std::uint32_t place = 0;
  switch (one.does) {
    case etcd_operation::kind::read:
      place = 1;
      append_bytes(inner, 1, one.key);
      break;
    case etcd_operation::kind::put:
      place = 2;
      append_bytes(inner, 1, one.key);
      append_bytes(inner, 2, one.value);
      append_number(inner, 3, one.lease);
      break;
    case etcd_operation::kind::erase:
      place = 3;
      append_bytes(inner, 1, one.key);
      break;
    case etcd_operation::kind::txn:
      place = 4;
      inner = to_protobuf(one);
      break;
  }
  std::string out;
  append_bytes(out, place, inner);
  return out;
}

// ---- JSON ----------------------------------------------------------------------------------------

/// In quotes. JSON has no bytes: etcd's gateway takes them in base 64.
std::string said(std::string_view bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out{'"'};
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    const std::size_t count = bytes.size() - at < 3 ? bytes.size() - at : 3;
    for (std::size_t i = 0; i < 3; ++i) {
      group = (group << 8U) | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out.push_back(i <= count ? letters[(group >> (18U - 6U * i)) & 0x3fU] : '=');
    }
  }
  return out + '"';
}

std::string said(std::int64_t number) { return '"' + std::to_string(number) + '"'; }

std::string json_of(const etcd_compare& one) {
  constexpr std::array<std::string_view, 4> relations{"EQUAL", "GREATER", "LESS", "NOT_EQUAL"};
  const field_words words = words_of(one.what);
  std::string out = "{\"result\":\"";
  out.append(relations[number_of(one.is)]).append("\",\"target\":\"").append(words.name);
  out.append("\",\"key\":").append(said(one.key)).append(",\"").append(words.place_name);
  out.append("\":").append(one.what == field::value ? said(one.value) : said(one.number));
  return out + '}';
}

std::string json_of(const etcd_operation& one) {
  const std::string key = "{\"key\":" + said(one.key);
  switch (one.does) {
    case etcd_operation::kind::read:
      return "{\"request_range\":" + key + "}}";
    case etcd_operation::kind::put:
      return "{\"request_put\":" + key + ",\"value\":" + said(one.value) +
             ",\"lease\":" + said(one.lease) + "}}";
    case etcd_operation::kind::erase:
      return "{\"request_delete_range\":" + key + "}}";
    case etcd_operation::kind::txn:
      return "{\"request_txn\":" + to_json(one) + '}';
  }
  return {};
}

template <class Values>
std::string json_list(std::string_view name, const Values& values) {
  std::string out = '"' + std::string(name) + "\":[";
  bool first = true;
  for (const auto& each : values) {
    if (!std::exchange(first, false)) out += ',';
    out += json_of(each);
  }
  return out + ']';
}

}  // namespace

std::string to_protobuf(const etcd_operation& txn) {
  SALLYPORT_CHECK(txn.does == etcd_operation::kind::txn);
  std::string out;
  for (const etcd_compare& each : txn.when) append_bytes(out, 1, message_of(each));
  for (const etcd_operation& each : txn.then) append_bytes(out, 2, message_of(each));
  for (const etcd_operation& each : txn.otherwise) append_bytes(out, 3, message_of(each));
  return out;
}

std::string to_json(const etcd_operation& txn) {
  SALLYPORT_CHECK(txn.does == etcd_operation::kind::txn);
  return '{' + json_list("compare", txn.when) + ',' + json_list("success", txn.then) + ',' +
         json_list("failure", txn.otherwise) + '}';
}

}  // namespace sallyport::fence
