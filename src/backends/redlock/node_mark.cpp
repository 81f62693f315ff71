#include "backends/redlock/node_mark.hpp"

#include "backends/redis/words.hpp"
#include "backends/redlock/token_round.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <system_error>

namespace sallyport::backends::redlock {
namespace {

constexpr std::string_view mark_tag = "sp3";
constexpr std::size_t stamp_digits = 16;

template <class Number>
bool read_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Blank-separated words; nothing: some of them are empty.
std::optional<std::vector<std::string_view>> split(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const auto end = text.find(' ');
    words.push_back(text.substr(0, end));
    if (words.back().empty()) return std::nullopt;
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string digest_of(std::string_view text) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const char each : text) {
    sum = (sum ^ static_cast<unsigned char>(each)) * 0x100000001b3;
  }
  sum = (sum ^ (sum >> 30U)) * 0xbf58476d1ce4e5b9;
  sum = (sum ^ (sum >> 27U)) * 0x94d049bb133111eb;
  sum ^= sum >> 31U;
  std::array<char, stamp_digits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(sum));
  return digits.data();
}

std::string addresses_of(const std::vector<roster_member>& members) {
  std::string all;
  for (const roster_member& each : members) all += (all.empty() ? "" : ", ") + each.address;
  return all;
}

bool same_roster(const node_mark& a, const node_mark& b) {
  return a.store == b.store && a.epoch == b.epoch && a.members == b.members;
}

std::string node_mark::text() const {
  std::string rest{static_cast<char>(is)};
  rest += ' ' + store + ' ' + std::to_string(epoch) + ' ' + std::to_string(max_lease.count()) +
          ' ' + run_id + (durable ? " d " : " - ") + std::to_string(quiet_since_us) + ' ' + own;
  for (const roster_member& each : members) rest += ' ' + each.id + ' ' + redis::word(each.address);
  return std::string(mark_tag) + ' ' + digest_of(rest) + ' ' + rest;
}

std::optional<node_mark> node_mark::parse(std::string_view text) {
  constexpr std::size_t fixed = 10;
  const auto words = split(text);
  if (!words || words->size() < fixed + 2 || words->size() % 2 != 0) return std::nullopt;
  const auto& at = *words;
  if (at[0] != mark_tag || at[1].size() != stamp_digits || at[2].size() != 1) return std::nullopt;
  node_mark mark;
  mark.is = static_cast<state>(at[2].front());
  mark.store = at[3];
  std::int64_t lease_ms = 0;
  mark.run_id = at[6];
  mark.durable = at[7] == "d";
  mark.own = at[9];
  if (!read_number(at[4], mark.epoch) || mark.epoch == 0 || !read_number(at[5], lease_ms) ||
      lease_ms <= 0 || (at[7] != "d" && at[7] != "-") || !read_number(at[8], mark.quiet_since_us)) {
    return std::nullopt;
  }
  switch (mark.is) {
    case state::full:
    case state::candidate:
      if (mark.quiet_since_us != 0) return std::nullopt;
      break;
    case state::quiet:
      if (mark.quiet_since_us == 0) return std::nullopt;
      break;
    default:
      return std::nullopt;
  }
  mark.max_lease = std::chrono::milliseconds{lease_ms};
  bool owner_is_member = false;
  for (std::size_t i = fixed; i < at.size(); i += 2) {
    mark.members.push_back({std::string(at[i]), redis::text_of(at[i + 1])});
    owner_is_member = owner_is_member || at[i] == mark.own;
  }
  if (!owner_is_member || mark.members.size() > most_nodes) return std::nullopt;
  return mark;
}

std::string_view stamp_of(std::string_view mark) noexcept {
  return mark.substr(0, mark_tag.size() + 1 + stamp_digits);
}

}  // namespace sallyport::backends::redlock
