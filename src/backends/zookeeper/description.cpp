#include "backends/zookeeper/description.hpp"

#include <charconv>
#include <limits>

namespace sallyport::backends::zookeeper {
namespace {

constexpr std::string_view begin = "{\"by\":\"sallyport\"";
constexpr std::string_view digits = "0123456789abcdef";

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (each == '"' || each == '\\') {
      out += '\\';
      out += each;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += digits[byte >> 4U];
      out += digits[byte & 0xfU];
    } else {
      out += each;
    }
  }
  out += '"';
}

void write_field(std::string& out, std::string_view name, std::string_view text) {
  if (text.empty()) return;
  out += ',';
  write_text(out, name);
  out += ':';
  write_text(out, text);
}

template <class Number>
void write_number(std::string& out, std::string_view name, Number number) {
  if (number == 0) return;
  out += ',';
  write_text(out, name);
  out += ':';
  out += std::to_string(number);
}

/// Reads the flat objects that we write; whatever it does not know it passes over.
class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  bool read(description& out) {
    if (!take('{')) return false;
    do {
      std::string name;
      if (!text(name) || !take(':') || !value(name, out)) return false;
    } while (take(','));
    return take('}') && rest_.empty();
  }

 private:
  bool take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char kind = rest_.front();
    rest_.remove_prefix(1);
    if (kind == '"' || kind == '\\') {
      out += kind;
      return true;
    }
    unsigned code = 0;
    const std::string_view four = rest_.substr(0, 4);
    const char* const end = four.data() + four.size();
    if (kind != 'u' || four.size() != 4 || std::from_chars(four.data(), end, code, 16).ptr != end ||
        code >= 0x80) {
      return false;
    }
    rest_.remove_prefix(4);
    out += static_cast<char>(code);
    return true;
  }
  bool text(std::string& out) {
    if (!take('"')) return false;
    while (!rest_.empty()) {
      const char next = rest_.front();
      rest_.remove_prefix(1);
      if (next == '"') return true;
      if (next != '\\') {
        out += next;
      } else if (!escape(out)) {
        return false;
      }
    }
    return false;
  }
  bool value(std::string_view name, description& out) {
    if (rest_.starts_with('"')) {
      std::string found;
      if (!text(found)) return false;
      if (name == "host") out.host = std::move(found);
      if (name == "label") out.label = std::move(found);
      if (name == "value") out.value = std::move(found);
      if (name == "kind") out.kind = std::move(found);
      return true;
    }
    std::int64_t number = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (parsed.ec != std::errc{}) return false;
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    if (name == "pid") out.pid = number;
    if (name == "trust_ms") out.trust_ms = number;
    if (name == "closed") out.closed = number != 0;
    if (name == "token" && number > 0) out.token = static_cast<std::uint64_t>(number);
    if (name == "waiters" && number >= 0 && number <= most) {
      out.waiters = static_cast<std::uint32_t>(number);
    }
    return true;
  }

  std::string_view rest_;
};

}  // namespace

std::string to_json(const description& who) {
  std::string out(begin);
  write_field(out, "host", who.host);
  write_number(out, "pid", who.pid);
  write_field(out, "label", who.label);
  write_field(out, "value", who.value);
  write_field(out, "kind", who.kind);
  write_number(out, "waiters", who.waiters);
  write_number(out, "token", who.token);
  write_number(out, "trust_ms", who.trust_ms);
  write_number(out, "closed", who.closed ? 1 : 0);
  return out + "}";
}

std::optional<description> from_json(std::string_view text) {
  description found;
  if (!text.starts_with(begin) || !reader(text).read(found)) return std::nullopt;
  return found;
}

}  // namespace sallyport::backends::zookeeper
