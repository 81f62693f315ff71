#include "base/uri.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace sallyport::base {
namespace {

/// The part before the first `mark`; `rest` keeps what follows it.
std::string_view take_until(std::string_view& rest, std::string_view marks, bool keep_mark) {
  const auto end = std::min(rest.find_first_of(marks), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(keep_mark ? end : std::min(end + 1, rest.size()));
  return part;
}

/// Nothing: a percent sign without two hexadecimal digits, or a zero byte.
std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || parsed.ptr != digits.data() + 2) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  if (out.find('\0') != std::string::npos) return std::nullopt;
  return out;
}

class parser {
 public:
  explicit parser(std::string& why) : why_(why) {}

  std::optional<uri> parse(std::string_view text) {
    const auto colon = text.find("://");
    if (colon == std::string_view::npos) return refuse("it does not begin with scheme://");
    uri found;
    found.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 3);
    std::string_view authority = take_until(text, "/?", true);
    const std::string_view path = take_until(text, "?", false);
    if (const auto at = authority.rfind('@'); at != std::string_view::npos) {
      if (!read_user(authority.substr(0, at), found)) return std::nullopt;
      authority.remove_prefix(at + 1);
    }
    while (!authority.empty()) {
      if (!read_host(take_until(authority, ",", false), found)) return std::nullopt;
    }
    if (!store(path, found.path, "path")) return std::nullopt;
    while (!text.empty()) {
      std::string_view value = take_until(text, "&", false);
      const bool empty = value.empty();
      const std::string_view name = take_until(value, "=", false);
      auto& option = found.options.emplace_back();
      if (!store(name, option.first, "option") || !store(value, option.second, "option")) {
        return std::nullopt;
      }
      if (empty) found.options.pop_back();
    }
    return found;
  }

 private:
  std::nullopt_t refuse(std::string_view sentence) {
    why_ = sentence;
    return std::nullopt;
  }

  bool store(std::string_view raw, std::string& where, std::string_view what) {
    auto plain = decoded(raw);
    if (plain) {
      where = std::move(*plain);
      return true;
    }
    why_ =
        "a percent sign in its " + std::string(what) + " is not followed by two hexadecimal digits";
    return false;
  }

  bool read_user(std::string_view text, uri& found) {
    const auto colon = text.find(':');
    if (!store(text.substr(0, colon), found.user, "user name")) return false;
    if (colon == std::string_view::npos) return true;
    return store(text.substr(colon + 1), found.password.emplace(), "password");
  }

  bool read_host(std::string_view text, uri& found) {
    uri_host& host = found.hosts.emplace_back();
    if (text.starts_with('[')) {
      const auto end = text.find(']');
      if (end == std::string_view::npos) {
        why_ = "an IPv6 address misses its closing bracket";
        return false;
      }
      host.name = text.substr(1, end - 1);
      text.remove_prefix(end + 1);
      if (!text.empty() && !text.starts_with(':')) {
        why_ = "after an IPv6 address only a port may follow";
        return false;
      }
      if (!text.empty()) host.port = text.substr(1);
      return true;
    }
    const auto colon = text.find(':');
    if (colon != std::string_view::npos) host.port = text.substr(colon + 1);
    if (host.port.find(':') != std::string::npos) {
      why_ = "an IPv6 address needs brackets: [::1]:6379";
      return false;
    }
    return store(text.substr(0, colon), host.name, "host");
  }

  std::string& why_;
};

}  // namespace

std::optional<uri> parse_uri(std::string_view text, std::string& why) {
  return parser(why).parse(text);
}

std::optional<unsigned> parse_number(std::string_view text, unsigned least, unsigned most) {
  unsigned value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (value < least || value > most) return std::nullopt;
  return value;
}

}  // namespace sallyport::base
