#include "backends/etcd/description.hpp"

#include <array>
#include <charconv>
#include <limits>

namespace sallyport::backends::etcd {
namespace {

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

void begin_field(std::string& out, std::string_view name) {
  if (out.back() != '{') out += ',';
  write_text(out, name);
  out += ':';
}

void write_field(std::string& out, std::string_view name, std::string_view text) {
  begin_field(out, name);
  write_text(out, text);
}

template <class Number>
void write_number(std::string& out, std::string_view name, Number number) {
  begin_field(out, name);
  out += std::to_string(number);
}

/// Reads a flat object; whatever it does not know it passes over.
class reader {
 public:
  explicit reader(std::string_view text) : rest_(text) {}

  bool read(description& out) {
    if (!take('{')) return false;
    if (take('}')) return ended();
    do {
      std::string name;
      if (!text(name) || !take(':') || !value(name, out)) return false;
    } while (take(','));
    return take('}') && ended();
  }

 private:
  void pass_spaces() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != rest_.npos) {
      rest_.remove_prefix(1);
    }
  }
  bool ended() {
    pass_spaces();
    return rest_.empty();
  }
  bool take(char wanted) {
    pass_spaces();
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char kind = rest_.front();
    rest_.remove_prefix(1);
    if (kind != 'u') {
      constexpr std::string_view names = "ntrbf\"\\/";
      constexpr std::string_view meanings = "\n\t\r\b\f\"\\/";
      const auto found = names.find(kind);
      if (found == names.npos) return false;
      out += meanings[found];
      return true;
    }
    unsigned code = 0;
    const std::string_view four = rest_.substr(0, 4);
    if (four.size() != 4 ||
        std::from_chars(four.data(), four.data() + 4, code, 16).ptr != four.data() + 4) {
      return false;
    }
    rest_.remove_prefix(4);
    out += code < 0x80 ? static_cast<char>(code) : '?';  // we write none above
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
    pass_spaces();
    if (!rest_.empty() && rest_.front() == '"') {
      std::string found;
      if (!text(found)) return false;
      if (name == "host") out.host = std::move(found);
      if (name == "label") out.label = std::move(found);
      return true;
    }
    for (const bool truth : {true, false}) {
      const std::string_view word = truth ? "true" : "false";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      if (name == "held") out.held = truth;
      if (name == "shared") out.shared = truth;
      if (name == "closed") out.closed = truth;
      return true;
    }
    std::int64_t number = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (parsed.ec != std::errc{}) return false;
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    take_number(name, number, out);
    return true;
  }
  static void take_number(std::string_view name, std::int64_t number, description& out) {
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    if (name == "pid") out.pid = number;
    if (name == "since_ms") out.since_ms = number;
    if (name == "token" && number > 0) out.token = static_cast<std::uint64_t>(number);
    if (number < 0 || number > most) return;
    if (name == "waiters") out.waiters = static_cast<std::uint32_t>(number);
    if (name == "permits") out.permits = static_cast<std::uint32_t>(number);
  }

  std::string_view rest_;
};

}  // namespace

std::string to_json(const description& who) {
  std::string out = "{";
  write_field(out, "by", "sallyport");
  write_field(out, "host", who.host);
  write_number(out, "pid", who.pid);
  write_field(out, "label", who.label);
  write_number(out, "since_ms", who.since_ms);
  if (who.waiters != 0) write_number(out, "waiters", who.waiters);
  if (who.permits != 0) write_number(out, "permits", who.permits);
  if (who.token != 0) write_number(out, "token", who.token);
  for (const auto& [name, truth] :
       {std::pair{"held", who.held}, {"shared", who.shared}, {"closed", who.closed}}) {
    if (!truth) continue;
    begin_field(out, name);
    out += "true";
  }
  return out + "}";
}

std::optional<description> from_json(std::string_view text) {
  description found;
  if (!text.starts_with("{\"by\":\"sallyport\"") || !reader(text).read(found)) return std::nullopt;
  return found;
}

}  // namespace sallyport::backends::etcd
