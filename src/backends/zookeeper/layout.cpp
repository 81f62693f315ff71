#include "backends/zookeeper/layout.hpp"

#include <array>
#include <charconv>

namespace sallyport::backends::zookeeper {
namespace {

constexpr std::string_view upper_digits = "0123456789ABCDEF";

struct marker {
  std::string_view text;
  std::optional<lock_kind> kind;
  bool shared;
  bool lease;
};

/// Of Curator, Curator's readers and writers, its latches and leases, go-zookeeper (like Curator),
/// kazoo and Medallion. Longer ones before those that they end with.
constexpr std::array<marker, 9> markers{{
    {"__rlock__", std::nullopt, true, false},
    {"__lock__", std::nullopt, false, false},
    {"__READ__", lock_kind::shared_mutex, true, false},
    {"__WRIT__", lock_kind::shared_mutex, false, false},
    {"latch-", lock_kind::election, false, false},
    {"lease-", lock_kind::semaphore, false, true},
    {"lock-", lock_kind::mutex, false, false},
    {"read-", lock_kind::shared_mutex, true, false},
    {"write-", lock_kind::shared_mutex, false, false},
}};

std::string_view marker_for(dialect speech, form what, bool lease) {
  if (speech == dialect::kazoo) return what == form::reader ? "__rlock__" : "__lock__";
  switch (what) {
    case form::mutex:
      return "-lock-";
    case form::writer:
      return "-__WRIT__";
    case form::reader:
      return "-__READ__";
    case form::candidate:
      return "-latch-";
    case form::permit:
      return lease ? "-lease-" : "-lock-";
  }
  return "";
}

void write_hex(std::string& out, std::uint64_t bits, int from, int count) {
  constexpr std::string_view small = "0123456789abcdef";
  for (int i = 0; i < count; ++i) out += small[(bits >> (60 - 4 * (from + i))) & 0xfU];
}

void escape(std::string& out, char byte) {
  const auto bits = static_cast<unsigned char>(byte);
  out += '%';
  out += upper_digits[bits >> 4U];
  out += upper_digits[bits & 0xfU];
}

/// Characters that ZooKeeper refuses in a path: U+0080 to U+009F, U+E000 to U+F8FF, U+FFF0 to
/// U+FFFF, and all above, which are two refused halves in Java. (Below U+0020 and U+007F are in no
/// name.)
bool refused_by_store(std::string_view character) {
  if (character.size() == 2) {
    return character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xa0;
  }
  if (character.size() != 3) return character.size() == 4;
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(character[i]));
  };
  const unsigned code = ((byte(0) & 0xfU) << 12U) | ((byte(1) & 0x3fU) << 6U) | (byte(2) & 0x3fU);
  return (code >= 0xd800 && code <= 0xf8ff) || code >= 0xfff0;
}

std::size_t length_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  if (byte < 0xe0) return 2;
  return byte < 0xf0 ? 3 : 4;
}

std::string encode(std::string_view text) {
  std::string out;
  // "." and ".." are no segments, and /zookeeper is the store's own.
  bool first_too = text == "." || text == ".." || text == "zookeeper";
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, length_of_character(text[at]));
    at += character.size();
    const bool special = character == "/" || character == "%" || refused_by_store(character);
    if (special || first_too) {
      for (const char each : character) escape(out, each);
    } else {
      out += character;
    }
    first_too = false;
  }
  return out;
}

int hex_value(char digit) {
  const auto found = upper_digits.find(digit);
  return found == std::string_view::npos ? -1 : static_cast<int>(found);
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
      return form::candidate;
  }
  return form::mutex;
}

lock_kind kind_of(form what) noexcept {
  switch (what) {
    case form::mutex:
      return lock_kind::mutex;
    case form::writer:
    case form::reader:
      return lock_kind::shared_mutex;
    case form::candidate:
      return lock_kind::election;
    case form::permit:
      return lock_kind::semaphore;
  }
  return lock_kind::mutex;
}

std::optional<child> read_child(std::string_view name) {
  for (const marker& each : markers) {
    const auto at = name.rfind(each.text);
    if (at == std::string_view::npos) continue;
    const std::string_view number = name.substr(at + each.text.size());
    // Ten places, the sign among them; it wraps after 2^31.
    if (number.size() < 10 || number.size() > 11) continue;
    std::int64_t sequence = 0;
    const char* const end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, sequence);
    if (read.ec != std::errc{} || read.ptr != end) continue;
    std::string_view whose = name.substr(0, at);
    if (whose.ends_with('-')) whose.remove_suffix(1);
    return child{.name = std::string(name),
                 .whose = std::string(whose),
                 .sequence = sequence,
                 .kind = each.kind,
                 .shared = each.shared,
                 .lease = each.lease};
  }
  return std::nullopt;
}

std::string layout::folder(std::string_view name) const {
  if (!how_.names_are_paths) return how_.root + "/" + encode(name);
  std::string out = how_.root;
  while (!name.empty()) {
    const auto end = std::min(name.find('/'), name.size());
    const std::string_view segment = name.substr(0, end);
    // Java's paths are not encoded, so whatever would have to be is no path.
    if (segment.empty() || encode(segment) != segment) return {};
    out += '/';
    out += segment;
    if (end == name.size()) return out;
    name.remove_prefix(end + 1);
  }
  return {};
}

std::optional<std::string> layout::name_of(std::string_view segment) {
  std::string out;
  for (std::size_t at = 0; at < segment.size(); ++at) {
    if (segment[at] != '%') {
      out += segment[at];
      continue;
    }
    if (at + 2 >= segment.size()) return std::nullopt;
    const int high = hex_value(segment[at + 1]);
    const int low = hex_value(segment[at + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    at += 2;
  }
  // Somebody else's node may decode to the name of one of ours.
  if (!lock_name::acceptable(out) || encode(out) != segment) return std::nullopt;
  return out;
}

std::string layout::whose(const backend_api::holder_id& id) const {
  std::string out;
  if (how_.speech == dialect::kazoo) {
    write_hex(out, id.high, 0, 16);
    write_hex(out, id.low, 0, 16);
    return out;
  }
  out = "_c_";
  write_hex(out, id.high, 0, 8);
  out += '-';
  write_hex(out, id.high, 8, 4);
  out += '-';
  write_hex(out, id.high, 12, 4);
  out += '-';
  write_hex(out, id.low, 0, 4);
  out += '-';
  write_hex(out, id.low, 4, 12);
  return out;
}

std::string layout::stem(std::string_view folder, form what, bool lease,
                         const backend_api::holder_id& id) const {
  return join(folder, whose(id)) + std::string(marker_for(how_.speech, what, lease));
}

std::string layout::in_place_of(std::string_view folder, const child& instead,
                                std::string_view whose, bool as_reader) {
  std::string rest = instead.name.substr(instead.whose.size());
  const auto replace = [&](std::string_view from, std::string_view with) {
    const auto at = rest.find(from);
    if (at != std::string::npos) rest.replace(at, from.size(), with);
  };
  if (as_reader) {
    replace("__WRIT__", "__READ__");
    replace("__lock__", "__rlock__");
  }
  return join(folder, whose) + rest;
}

std::string_view parent_of(std::string_view path) noexcept {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return "/";
  return path.substr(0, slash);
}

std::string_view last_segment(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

std::string join(std::string_view folder, std::string_view segment) {
  std::string out(folder);
  if (!out.ends_with('/')) out += '/';
  out += segment;
  return out;
}

}  // namespace sallyport::backends::zookeeper
