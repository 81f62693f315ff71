#include "backends/sql/answers.hpp"

#include "backends/sql/numbers.hpp"
#include <sallyport/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>

namespace sallyport::backends::sql {

using backend_api::acquire_answer;
using backend_api::gone;
using backend_api::granted;
using backend_api::held;
using backend_api::leave_answer;
using backend_api::renew_answer;
using backend_api::renewed;
using backend_api::waiting;
using std::chrono::milliseconds;

namespace {

base::failure not_understood(std::string_view what) {
  return {make_error_code(errc::store_refused),
          "the answer to " + std::string(what) + " was not understood"};
}

base::failure too_much_left() {
  return {make_error_code(errc::unavailable),
          "so many have died in this lock's queue that taking them away was not over in time"};
}

/// "{1,2,3}"; empty: it is no such thing.
std::vector<std::int64_t> numbers_in(const reply& said) {
  std::vector<std::int64_t> all;
  if (said.rows.size() != 1 || said.rows.front().empty()) return all;
  std::string_view text = said.rows.front().front();
  if (text.size() < 2 || text.front() != '{' || text.back() != '}') return all;
  text = text.substr(1, text.size() - 2);
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at != end) {
    std::int64_t value = 0;
    const auto read = std::from_chars(at, end, value);
    if (read.ec != std::errc{}) return {};
    all.push_back(value);
    at = read.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return all;
}

std::optional<lock_kind> kind_of(std::int64_t number) {
  constexpr std::array kinds{lock_kind::mutex, lock_kind::shared_mutex, lock_kind::semaphore,
                             lock_kind::election};
  if (number < 1 || number > std::int64_t{kinds.size()}) return std::nullopt;
  return kinds[static_cast<std::size_t>(number - 1)];
}

waiting waiting_of(std::int64_t ask_again_ms, std::int64_t newest, std::int64_t permits) {
  return {.ask_again_after = span_of(std::max<std::int64_t>(ask_again_ms, 1)),
          .permits = count_of(permits),
          .newest_token = token_of(newest)};
}

/// "6162" as bytes; "\\x6162" is what procedures of an earlier version say, which stay where they are.
std::string bytes_in(std::string_view text) {
  if (text.starts_with("\\x")) text.remove_prefix(2);
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    out += static_cast<char>(byte);
  }
  return out;
}

/// The columns of look(), in this order.
enum column : std::uint8_t {
  name,
  waits,
  kind,
  permits,
  mode,
  state,
  token,
  age_ms,
  rest_ms,
  local_waiters,
  pid,
  host,
  label,
  value,
  columns
};

template <class Info>
void describe(const std::vector<std::string>& row, Info& info) {
  info.mode = number_in(row[mode]) == 1 ? lock_mode::shared : lock_mode::exclusive;
  info.host = bytes_in(row[host]);
  info.pid = number_in(row[pid]);
  info.label = bytes_in(row[label]);
  info.local_waiters = count_of(number_in(row[local_waiters]));
}

void add(const std::vector<std::string>& row, lock_info& info) {
  const auto age = milliseconds{std::max<std::int64_t>(number_in(row[age_ms]), 0)};
  if (row[waits] == "t") {
    waiter_info waiter;
    describe(row, waiter);
    waiter.waited = age;
    info.waiters.push_back(std::move(waiter));
    return;
  }
  const auto rest = milliseconds{std::max<std::int64_t>(number_in(row[rest_ms]), 0)};
  const std::int64_t how = number_in(row[state]);
  if (how == 2) {
    info.closed_for = std::max(info.closed_for, std::max(rest, milliseconds{1}));
    return;
  }
  holder_info holder;
  describe(row, holder);
  holder.token = token_of(number_in(row[token]));
  if (info.kind == lock_kind::election) holder.value = bytes_in(row[value]);
  holder.held_for = age;
  holder.remaining = rest;
  holder.claimed = how == 0;
  info.holders.push_back(std::move(holder));
}

}  // namespace

bool says_repeat(const reply& said) noexcept {
  return said.rows.size() == 1 && !said.rows.front().empty() && said.rows.front().front() == "{6}";
}

bool says_more(const reply& said, std::size_t usual) noexcept {
  if (said.rows.size() != 1 || said.rows.front().empty()) return false;
  return static_cast<std::size_t>(std::ranges::count(said.rows.front().front(), ',')) == usual;
}

base::result<acquire_answer> acquire_answer_of(const reply& said) {
  const auto all = numbers_in(said);
  if ((all.size() == 6 || all.size() == 7) && all[0] == 1) {
    return granted{.tokens = {token_of(all[1]), token_of(all[2])},
                   .remaining = span_of(all[3]),
                   .provisional = all[4] == 1,
                   .permits = count_of(all[5])};
  }
  if (all.size() >= 4 && all[0] == 2) return waiting_of(all[1], all[2], all[3]);
  if (all.size() == 1 && all[0] == 3) return held{};
  if (all.size() == 2 && all[0] == 4) {
    const auto used_as = kind_of(all[1]);
    return base::fail(errc::wrong_kind, "the name is in use as a " +
                                            std::string(used_as ? to_string(*used_as) : "lock"));
  }
  if (says_repeat(said)) return tl::unexpected(too_much_left());
  return tl::unexpected(not_understood("acquire"));
}

base::result<std::vector<renew_answer>> renew_answers_of(const reply& said, std::size_t asked) {
  auto all = numbers_in(said);
  if (asked == 1 && all.size() == 5) all.pop_back();  // a downgrade that has more to do
  if (all.size() != 4 * asked) return tl::unexpected(not_understood("renew"));
  std::vector<renew_answer> answers;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    if (all[i] == 1) {
      answers.emplace_back(
          renewed{{token_of(all[i + 1]), token_of(all[i + 2])}, span_of(all[i + 3])});
    } else if (all[i] == 2) {
      answers.emplace_back(waiting_of(all[i + 1], all[i + 2], all[i + 3]));
    } else {
      answers.emplace_back(gone{});
    }
  }
  return answers;
}

base::result<leave_answer> leave_answer_of(const reply& said) {
  const auto all = numbers_in(said);
  if (all.empty() || all.size() > 2) return tl::unexpected(not_understood("release"));
  return all[0] == 1 ? leave_answer::left : leave_answer::not_there;
}

base::result<bool> set_value_answer_of(const reply& said) {
  const auto all = numbers_in(said);
  if (all.size() != 1) return tl::unexpected(not_understood("set_value"));
  return all[0] == 1;
}

base::result<std::monostate> break_answer_of(const reply& said) {
  const auto all = numbers_in(said);
  if (all == std::vector<std::int64_t>{1} || all == std::vector<std::int64_t>{1, 1}) {
    return std::monostate{};
  }
  if (says_repeat(said)) return tl::unexpected(too_much_left());
  if (all == std::vector<std::int64_t>{0}) return base::fail(errc::no_such_lock, "nobody holds it");
  if (all == std::vector<std::int64_t>{2}) {
    return base::fail(errc::token_mismatch, "it is held under another token");
  }
  if (all == std::vector<std::int64_t>{3}) {
    return base::fail(errc::no_such_lock, "its grant was broken already");
  }
  return tl::unexpected(not_understood("break"));
}

base::result<std::vector<lock_info>> look_answer_of(const reply& said) {
  std::vector<lock_info> all;
  for (const auto& row : said.rows) {
    if (row.size() != columns) return tl::unexpected(not_understood("list"));
    std::string called = bytes_in(row[name]);
    if (all.empty() || all.back().name != called) {
      all.emplace_back();
      all.back().name = std::move(called);
      all.back().kind = kind_of(number_in(row[kind])).value_or(lock_kind::mutex);
      all.back().permits = count_of(number_in(row[permits]));
    }
    add(row, all.back());
  }
  return all;
}

}  // namespace sallyport::backends::sql
