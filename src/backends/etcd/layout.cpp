#include "backends/etcd/layout.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace sallyport::backends::etcd {
namespace {

constexpr char card_mark = '\x01';
constexpr std::array<std::pair<char, form>, 5> letters{{{'m', form::mutex},
                                                        {'e', form::election},
                                                        {'w', form::writer},
                                                        {'r', form::reader},
                                                        {'s', form::permit}}};

std::string hex(std::uint64_t number) {
  std::array<char, 16> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, 16).ptr;
  return {text.data(), end};
}

bool is_number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
}

}  // namespace

form form_of(lock_kind kind, lock_mode mode) noexcept {
  switch (kind) {
    case lock_kind::mutex:
      return form::mutex;
    case lock_kind::shared_mutex:
      return mode == lock_mode::shared ? form::reader : form::writer;
    case lock_kind::semaphore:
      return form::permit;
    case lock_kind::election:
      return form::election;
  }
  return form::mutex;
}

lock_kind kind_of(form what) noexcept {
  switch (what) {
    case form::foreign:
    case form::mutex:
      return lock_kind::mutex;
    case form::election:
      return lock_kind::election;
    case form::writer:
    case form::reader:
      return lock_kind::shared_mutex;
    case form::permit:
      return lock_kind::semaphore;
  }
  return lock_kind::mutex;
}

std::string layout::folder(std::string_view name) const {
  return prefix_ + std::string(name) + "/";
}

std::string layout::folder_end(std::string_view name) const {
  return prefix_ + std::string(name) + "0";  // the byte after the slash
}

std::string layout::key(std::string_view name, form what, lease_id lease,
                        std::uint64_t number) const {
  const auto* const letter =
      std::ranges::find_if(letters, [&](const auto& each) { return each.second == what; });
  SALLYPORT_CHECK(letter != letters.end());
  return folder(name) + hex(static_cast<std::uint64_t>(lease)) + "#" + letter->first +
         std::to_string(number);
}

std::string layout::card(std::string_view key) const {
  SALLYPORT_CHECK(key.starts_with(prefix_));
  return prefix_ + card_mark + std::string(key.substr(prefix_.size()));
}

std::optional<std::string_view> layout::name_of(const key_value& found) const {
  std::string_view key = found.key;
  if (found.lease == 0 || !key.starts_with(prefix_)) return std::nullopt;
  key.remove_prefix(prefix_.size());
  const auto slash = key.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  const std::string_view segment = key.substr(slash + 1);
  const std::string_view name = key.substr(0, slash);
  if (!lock_name::acceptable(name)) return std::nullopt;
  // A key of Go's client is the lease that it hangs on.
  const bool theirs = segment == hex(static_cast<std::uint64_t>(found.lease));
  if (!theirs && form_of(segment) == form::foreign) return std::nullopt;
  return name;
}

std::optional<std::string_view> segment_in(std::string_view folder, std::string_view key) {
  if (!key.starts_with(folder)) return std::nullopt;
  key.remove_prefix(folder.size());
  if (key.find('/') != std::string_view::npos) return std::nullopt;
  return key;
}

form form_of(std::string_view segment) {
  const auto mark = segment.find('#');
  if (mark == std::string_view::npos || mark + 2 >= segment.size()) return form::foreign;
  const auto* const letter = std::ranges::find_if(
      letters, [&](const auto& each) { return each.first == segment[mark + 1]; });
  if (letter == letters.end() || !is_number(segment.substr(0, mark), 16) ||
      !is_number(segment.substr(mark + 2), 10)) {
    return form::foreign;
  }
  return letter->second;
}

std::string behind(std::string start) {
  while (!start.empty() && start.back() == '\xff') start.pop_back();
  if (!start.empty())
    start.back() = static_cast<char>(static_cast<unsigned char>(start.back()) + 1);
  return start;
}

}  // namespace sallyport::backends::etcd
